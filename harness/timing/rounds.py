"""Cells in one process, their samples interleaved: A B B A, or A B C D D C B A."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from time import monotonic
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.timing.clocks import sampling as clocks
from pagebench.harness.timing.measure import (
    Failure,
    Options,
    Prepared,
    Progress,
    Session,
    one_line,
    prepare,
    refuse_implausible,
)

GROUP_SCHEMA = 1
ROUNDS, LEAST_ROUNDS = 25, 5  # there and back again in a process
ROUNDS_S = 20.0  # after which the least rounds are enough


def measure_group(
    cells: tuple[Cell, ...], options: Options, session: Session, progress: Progress
) -> dict[str, Any]:
    """A group record: rounds of times, or a status and its reason. What goes wrong is in it."""
    found: tuple[dict[str, Any], ...] = tuple({} for _ in cells)
    try:
        outcome = {"status": "measured", **_rounds(cells, options, session, progress, found)}
    except Failure as failure:
        outcome = {"status": failure.status, "reason": failure.reason}
    except Exception as error:
        outcome = {"status": "crashed", "reason": one_line(error)}
    return _identity(cells, options) | {
        "resolved": [dict(entry.get("resolved", {})) for entry in found],
        "check": [dict(entry.get("check", {})) for entry in found],
        "environment": session.facts_now(),
        **outcome,
    }


def unmeasured_group(
    cells: Sequence[Cell], options: Options, status: str, reason: str
) -> dict[str, Any]:
    """The record of a group that was lost with its worker."""
    return _identity(cells, options) | {"status": status, "reason": reason}


def _identity(cells: Sequence[Cell], options: Options) -> dict[str, Any]:
    return {
        "kind": "group",
        "schema": GROUP_SCHEMA,
        "cells": [cell.name for cell in cells],
        "clock": options.clock,
        "l2": options.l2,
        "process": options.process,
    }


def build_order(count: int, process: int) -> list[int]:
    """Every second process builds in the other order: where a pool lies is worth 0.3 %."""
    return list(range(count)) if process % 2 == 0 else list(reversed(range(count)))


def _rounds(
    cells: tuple[Cell, ...],
    options: Options,
    session: Session,
    progress: Progress,
    found: tuple[dict[str, Any], ...],
) -> dict[str, Any]:
    """Rounds and floor; all outputs are checked before and after, as in a run of one cell."""
    order = build_order(len(cells), options.process)
    built = {i: prepare(cells[i], options, session, progress, found[i]) for i in order}
    ready = [built[i] for i in range(len(cells))]
    progress("warming up")
    for each in ready:
        clocks.warm_up(each.call.run, session.monitor, session.synchronise)
        each.checker.forget_output()
    taken = _take(ready, options, session, progress)
    for each in ready:
        each.checker.check("after", run_first=False)
    _plausible(taken, ready, options, session)
    return {
        "floor_us": round(taken.floor_us, 3),
        "rounds": taken.rounds,
        "discarded": sum(sample.discarded for sample in taken.samples),
        "throttle": sorted(taken.throttle),
        "spin_mhz": clocks.median_clock(taken.samples, taken.floor_us),
    }


@dataclass(slots=True)
class _Taken:
    """Samples of a process, with the GPU's complaints meanwhile."""

    floor_us: float
    rounds: list[list[float]] = field(default_factory=list)
    samples: list[clocks.Sample] = field(default_factory=list)
    throttle: set[str] = field(default_factory=set)


def _take(
    ready: Sequence[Prepared], options: Options, session: Session, progress: Progress
) -> _Taken:
    clock = clocks.make_clock(options.clock, session.device.kind)
    taken = _Taken(clocks.floor_us(clock))
    ends = monotonic() + ROUNDS_S
    while len(taken.rounds) < ROUNDS:
        if len(taken.rounds) >= LEAST_ROUNDS and monotonic() > ends:
            break
        progress("timing")  # a sign of life: a round may take long
        taken.throttle.update(session.monitor.block(0).throttle)
        samples = [_sample(clock, each, options, session) for each in (*ready, *reversed(ready))]
        taken.rounds.append([round(sample.time_us, 3) for sample in samples])
        taken.samples += samples
    return taken


def _sample(
    clock: clocks.Clock, ready: Prepared, options: Options, session: Session
) -> clocks.Sample:
    run = ready.call.run
    return clock.sample(run, session.prepare(options.l2, run))


def _plausible(
    taken: _Taken, ready: Sequence[Prepared], options: Options, session: Session
) -> None:
    """Failure where a cell's times cannot be, as in a run of one cell."""
    for index, each in enumerate(ready):
        time_us = median(us for r in taken.rounds for us in (r[index], r[-1 - index]))
        work = each.work if options.l2 == "cold" else None
        refuse_implausible(time_us, taken.floor_us, work, session)
    if min(us for each in taken.rounds for us in each) <= 0:
        raise Failure("rejected", "a sample took no time")
