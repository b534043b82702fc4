"""Dose and response of a ladder: its cells interleaved, their counters, what time follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pagebench.harness.cell import Cell, moving_axes
from pagebench.harness.contrasts import Ladder
from pagebench.harness.counting.predict import newest_counters
from pagebench.harness.judging.dose import Explanation, Step, candidates, explanations, moves
from pagebench.harness.judging.judge import state_of
from pagebench.harness.judging.verdict import WORK, differs
from pagebench.harness.records import store
from pagebench.harness.timing.change import LEAST_EFFECT
from pagebench.harness.timing.measure import Options
from pagebench.harness.workers.interleave import Interleaved, interleave
from pagebench.kernels.device import Device

DOSE_SCHEMA = 1


def doses(
    ladders: Sequence[Ladder],
    options: Options,
    device: Device,
    files: Sequence[Path],
    out: Path,
    progress: Callable[[str], None],
) -> list[dict[str, Any]]:
    """A dose record for each ladder, appended to `out` after the group records of each process.

    ValueError, after all others are written, where a ladder has no times.
    """
    groups = groups_of(ladders)
    interleave(groups, options, device, out, progress)
    pairs = list(zip(ladders, groups, strict=True))
    records = [dose_of(each, group, options, files) for each, group in pairs if not group.failed]
    store.append_lines(out, records)
    for each, group in pairs:
        group.refuse_failed(each.name)
    return records


def groups_of(ladders: Sequence[Ladder]) -> list[Interleaved]:
    """What to interleave; all steps of all ladders are judged together."""
    steps = sum(len(ladder.cells) - 1 for ladder in ladders)
    return [Interleaved(tuple(map(Cell.parse, each.cells)), steps) for each in ladders]


def dose_of(
    ladder: Ladder, group: Interleaved, options: Options, files: Sequence[Path]
) -> dict[str, Any]:
    """What time follows over the ladder. ValueError where its cells have no times."""
    group.refuse_failed(ladder.name)
    steps = [_step(group, index) for index in range(len(ladder.cells) - 1)]
    counters = moving_counters(group, options, files)
    found = conclusion(steps, counters)
    return {
        "kind": "dose",
        "schema": DOSE_SCHEMA,
        "regime": ladder.name,
        "knob": ladder.knob,
        "cells": list(ladder.cells),
        "values": knob_values(group.cells),
        "processes": len(group.effects),
        "time_us": [_range(group, index) for index in range(len(ladder.cells))],
        "steps_us": [[round(us, 3) for us in (s.low_us, s.middle_us, s.high_us)] for s in steps],
        "counters": {name: list(values) for name, values in counters.items()},
        **found,
        "notes": list(group.notes),
        "environment": group.environment,
    }


def conclusion(steps: Sequence[Step], counters: dict[str, list[float]]) -> dict[str, Any]:
    """For a record: what the time follows, what may be but was not tested, and the sentences."""
    tried = explanations(steps, counters) if counters else []
    fitting = [each for each in tried if each.fits]
    return {
        "follows": [list(each.counters) for each in fitting if each.tested],
        "untested": [list(each.counters) for each in fitting if not each.tested],
        "because": sentences(steps, counters, tried),
    }


def follows(record: Mapping[str, Any]) -> str:
    """What the time follows, in words."""
    if not record["counters"]:
        return "unknown, for there are no counters of all cells"
    tested, untested = (
        " or ".join(" with ".join(names) for names in record[which])
        for which in ("follows", "untested")
    )
    return tested or (f"perhaps {untested}" if untested else "no counter")


def _step(group: Interleaved, index: int) -> Step:
    """Microseconds from cell to cell; an interval is no narrower than the least effect."""
    found, before = group.step(index), group.time_us(index)
    least = LEAST_EFFECT * before
    low, middle, high = found.delta_us(before)
    return Step(min(low, middle - least), middle, max(high, middle + least))


def _range(group: Interleaved, index: int) -> list[float]:
    """Least, median and largest of the processes' medians."""
    times = [times[index] for times in group.times_us]
    return [round(us, 3) for us in (min(times), group.time_us(index), max(times))]


def knob_values(cells: Sequence[Cell]) -> list[str]:
    """What differs between the cells, a text for each."""
    axes = [cell.axes() for cell in cells]
    moving = moving_axes(cells)
    values = [" ".join(str(each[axis]) for axis in moving) for each in axes]
    alike = len(set(values)) < len(values)
    return [str(place + 1) for place in range(len(cells))] if alike else values


def moving_counters(
    group: Interleaved, options: Options, files: Sequence[Path]
) -> dict[str, list[float]]:
    """Stable counters of work that differ between the cells; none where a cell was not counted."""
    records = newest_counters(group.cells, files, state_of(group, options))
    if records is None:
        return {}
    found = {}
    for name in WORK:
        entries = [record["total"].get(name) for record in records]
        if all(entry and entry["stable"] for entry in entries):
            values = [float(entry["value"]) for entry in entries]
            if differs(name, min(values), max(values)):
                found[name] = values
    return found


def sentences(
    steps: Sequence[Step], counters: dict[str, list[float]], tried: Sequence[Explanation]
) -> list[str]:
    """What was measured at each step, and what each candidate would give there."""
    moved = ", ".join(
        f"{signed(s.middle_us)} [{signed(s.low_us)}, {signed(s.high_us)}]" for s in steps
    )
    lines = [f"from step to step, of interleaved samples, time moves by {moved} us"]
    if not counters:
        return [*lines, "no stable counter is known to move over these cells"]
    if not moves(steps):
        return [*lines, "no step's interval leaves out zero: time follows nothing"]
    alike = candidates(counters)
    lines += [_candidate(each, alike) for each in tried]
    fitting = [each for each in tried if each.fits]
    if not fitting:
        lines.append("no counter, and no two of them, give every step: the time is unexplained")
    elif all(len(each.counters) > 1 for each in fitting):
        lines.append("no single counter does")
    return lines


def _candidate(each: Explanation, alike: dict[str, tuple[str, ...]]) -> str:
    names = " + ".join(
        f"{name} (alike: {', '.join(alike[name])})" if alike[name] else name
        for name in each.counters
    )
    costs = ", ".join(f"{1e3 * cost:.3g} ns" for cost in each.us_per_count)
    verdict = "fits every step" if each.fits else "does not fit"
    if each.fits and not each.tested:
        verdict += ", with as many costs as steps where they move: where is tested, the cost is not"
    return f"{names} at {costs} a count gives {', '.join(map(signed, each.steps_us))} us: {verdict}"


def signed(us: float) -> str:
    """To a tenth of a microsecond, with its sign; what rounds to zero has a plus."""
    return f"{round(us, 1) + 0.0:+.1f}"
