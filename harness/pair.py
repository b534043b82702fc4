"""Two cells in one process, their samples interleaved A B B A."""

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

PAIR_SCHEMA = 1
QUADS = 25  # A B B A in a process


def measure_pair(
    cells: tuple[Cell, Cell], options: Options, session: Session, progress: Progress
) -> dict[str, Any]:
    """A pair record: quads of times, or a status and its reason. Whatever goes wrong is in it."""
    found: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    outcome: dict[str, Any]
    try:
        outcome = {"status": "measured", **_quads(cells, options, session, progress, found)}
    except Failure as failure:
        outcome = {"status": failure.status, "reason": failure.reason}
    except Exception as error:
        outcome = {"status": "crashed", "reason": one_line(error)}
    return {
        "kind": "pair",
        "schema": PAIR_SCHEMA,
        "cells": [cell.name for cell in cells],
        "clock": options.clock,
        "l2": options.l2,
        "process": options.process,
        "resolved": [dict(entry.get("resolved", {})) for entry in found],
        "check": [dict(entry.get("check", {})) for entry in found],
        "environment": session.facts_now(),
        **outcome,
    }


def _quads(
    cells: tuple[Cell, Cell],
    options: Options,
    session: Session,
    progress: Progress,
    found: tuple[dict[str, Any], dict[str, Any]],
) -> dict[str, Any]:
    """Quads and floor; both outputs are checked before and after, as in a run of one cell."""
    a, b = (
        prepare(cell, options, session, progress, entry)
        for cell, entry in zip(cells, found, strict=True)
    )
    progress("warming up")
    for ready in (a, b):
        clocks.warm_up(ready.call.run, session.monitor, session.synchronise)
        ready.checker.forget_output()
    clock = clocks.make_clock(options.clock, session.device.kind)
    progress("timing")
    floor = clocks.floor_us(clock)
    quads = [[_sample(clock, ready, options, session) for ready in (a, b, b, a)]
             for _ in range(QUADS)]  # fmt: skip
    for ready in (a, b):
        ready.checker.check("after", run_first=False)
    return {"floor_us": round(floor, 3), "quads": quads}


def _sample(clock: clocks.Clock, ready: Prepared, options: Options, session: Session) -> float:
    run = ready.call.run
    return round(clock.sample(run, session.prepare(options.l2, run)).time_us, 3)
