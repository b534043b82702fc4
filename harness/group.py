"""Cells in one process, their samples interleaved: A B B A, or A B C D D C B A."""

from __future__ import annotations

from typing import Any

from pagebench.harness import clock as clocks
from pagebench.harness.cell import Cell
from pagebench.harness.run import (
    Failure,
    Options,
    Prepared,
    Progress,
    Session,
    one_line,
    prepare,
)

GROUP_SCHEMA = 1
ROUNDS = 25  # there and back again in a process


def measure_group(
    cells: tuple[Cell, ...], options: Options, session: Session, progress: Progress
) -> dict[str, Any]:
    """A group record: rounds of times, or a status and its reason. What goes wrong is in it."""
    found: tuple[dict[str, Any], ...] = tuple({} for _ in cells)
    outcome: dict[str, Any]
    try:
        outcome = {"status": "measured", **_rounds(cells, options, session, progress, found)}
    except Failure as failure:
        outcome = {"status": failure.status, "reason": failure.reason}
    except Exception as error:
        outcome = {"status": "crashed", "reason": one_line(error)}
    return {
        "kind": "group",
        "schema": GROUP_SCHEMA,
        "cells": [cell.name for cell in cells],
        "clock": options.clock,
        "l2": options.l2,
        "process": options.process,
        "resolved": [dict(entry.get("resolved", {})) for entry in found],
        "check": [dict(entry.get("check", {})) for entry in found],
        "environment": session.facts_now(),
        **outcome,
    }


def _rounds(
    cells: tuple[Cell, ...],
    options: Options,
    session: Session,
    progress: Progress,
    found: tuple[dict[str, Any], ...],
) -> dict[str, Any]:
    """Rounds and floor; all outputs are checked before and after, as in a run of one cell.

    Every second process builds the cells in the other order: where a pool lies is worth 0.3 %.
    """
    order = range(len(cells)) if options.process % 2 == 0 else reversed(range(len(cells)))
    built = {i: prepare(cells[i], options, session, progress, found[i]) for i in order}
    ready = [built[i] for i in range(len(cells))]
    progress("warming up")
    for each in ready:
        clocks.warm_up(each.call.run, session.monitor, session.synchronise)
        each.checker.forget_output()
    clock = clocks.make_clock(options.clock, session.device.kind)
    progress("timing")
    floor = clocks.floor_us(clock)
    there_and_back = [*ready, *reversed(ready)]
    rounds = [
        [_sample(clock, each, options, session) for each in there_and_back] for _ in range(ROUNDS)
    ]
    for each in ready:
        each.checker.check("after", run_first=False)
    return {"floor_us": round(floor, 3), "rounds": rounds}


def _sample(clock: clocks.Clock, ready: Prepared, options: Options, session: Session) -> float:
    run = ready.call.run
    return round(clock.sample(run, session.prepare(options.l2, run)).time_us, 3)
