"""Dose and response of a ladder: its times step by step, and the counters that change over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from pagebench.harness.cell import Cell, moving_axes
from pagebench.harness.judging.beside import beside
from pagebench.harness.judging.work import WORK, differs
from pagebench.harness.records.dose import Dose, Spread, Step
from pagebench.harness.records.select import Evidence, State
from pagebench.harness.timing.effect import LEAST_EFFECT
from pagebench.harness.timing.interleaved import Interleaved

if TYPE_CHECKING:  # importing it parses all shipped cells
    from pagebench.harness.contrasts import Ladder


def groups_of(ladders: Sequence[Ladder]) -> list[Interleaved]:
    """The groups to interleave; all steps of all ladders are judged together."""
    steps = sum(len(ladder.cells) - 1 for ladder in ladders)
    return [Interleaved(ladder.cells, steps) for ladder in ladders]


def dose_of(ladder: Ladder, group: Interleaved, l2: str, evidence: Evidence) -> Dose:
    """The ladder's times and the counters that change over it. NotTimed where it has no times."""
    group.refuse_failed(ladder.name)
    indices = range(len(ladder.cells))
    state = State(group.environment, l2, group.calls)
    return Dose(
        regime=ladder.name,
        knob=ladder.knob,
        cells=tuple(cell.name for cell in ladder.cells),
        values=knob_values(ladder.cells),
        processes=len(group.measured),
        times=tuple(_spread(group, index) for index in indices),
        steps=tuple(_step(group, index) for index in indices[:-1]),
        counters=moving_counters(ladder.cells, state, evidence),
        caveats=(*group.caveats, *beside(ladder.cells, evidence, state)),
        environment=group.environment,
        kernel_sha=group.kernel_sha,
    )


def _step(group: Interleaved, index: int) -> Step:
    """Microseconds from one cell to the next; the interval covers at least the least effect."""
    before = group.time_us(index)
    least = LEAST_EFFECT * before
    low, middle, high = group.step(index).delta_us(before)
    ends = min(low, middle - least), middle, max(high, middle + least)
    return Step(*(round(us, 3) for us in ends))


def _spread(group: Interleaved, index: int) -> Spread:
    times = group.times_us(index)
    return Spread(*(round(us, 3) for us in (min(times), group.time_us(index), max(times))))


def knob_values(cells: Sequence[Cell]) -> tuple[str, ...]:
    """The value of the knob in each cell; positions from 1 where values repeat."""
    moving = moving_axes(cells)
    axes = [asdict(cell.axes()) for cell in cells]
    values = tuple(" ".join(str(each[axis]) for axis in moving) for each in axes)
    alike = len(set(values)) < len(values)
    return tuple(str(place + 1) for place in range(len(cells))) if alike else values


def moving_counters(
    cells: Sequence[Cell], state: State, evidence: Evidence
) -> dict[str, tuple[float, ...]]:
    """Stable counters of work that differ between the cells, one value per cell.

    Empty where a cell was not counted in that state.
    """
    counters = evidence.newest_counters(cells, state)
    if counters is None:
        return {}
    found = {}
    for name in WORK:
        counts = [each.total[name] for each in counters if name in each.total]
        if len(counts) == len(counters) and all(count.stable for count in counts):
            values = tuple(count.value for count in counts)
            if differs(name, min(values), max(values)):
                found[name] = values
    return found
