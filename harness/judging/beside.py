"""In what counters and ceilings differ from the times that they stand beside."""

from __future__ import annotations

from collections.abc import Sequence

from pagebench.harness.cell import Cell
from pagebench.harness.records import identity
from pagebench.harness.records.caveats import CEILINGS, COUNTERS, Apart, Differing
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.identity import Difference
from pagebench.harness.records.select import Evidence, State


def beside(cells: Sequence[Cell], evidence: Evidence, state: State) -> tuple[Apart, ...]:
    """What was not made as the times were: counters that were therefore not used, and those, and
    ceilings, that were made under other software."""
    found: dict[tuple[str, tuple[Difference, ...], bool], list[str]] = {}
    for cell in dict.fromkeys(cells):
        counters = evidence.newest_counters([cell], state)
        differs = (
            identity.in_software(counters[0].environment, state.environment)
            if counters
            else _refused(cell, evidence, state)
        )
        found.setdefault((COUNTERS, differs, counters is None), []).append(cell.name)
    ceilings = evidence.newest_ceilings(state.environment)
    if ceilings:
        differs = identity.in_software(ceilings.environment, state.environment)
        found[CEILINGS, differs, False] = []
    return tuple(
        Apart(what, tuple(names), as_data(differs), refused)
        for (what, differs, refused), names in found.items()
        if differs
    )


def _refused(cell: Cell, evidence: Evidence, state: State) -> tuple[Difference, ...]:
    """In what the newest counters of a cell in that state of the L2 are not of what was timed.

    Nothing for a GPU of another name: those are not meant for this one.
    """
    lines = [each for each in evidence.counters if each.cell == cell.name]
    mine = [each for each in lines if _is_of_name(each, state)]
    if not mine:
        return ()
    apart = identity.apart(mine[-1].environment, state.environment)
    return apart or state.other_call(mine[-1])


def _is_of_name(counters: Counters, state: State) -> bool:
    return (counters.environment.gpu, counters.how.l2) == (state.environment.gpu, state.l2)


def as_data(found: Sequence[Difference]) -> tuple[Differing, ...]:
    """Differences as a record holds them."""
    return tuple(Differing(each.field, each.one, each.other) for each in found)
