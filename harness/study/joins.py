"""Counters and ceilings that may stand beside a time, and in what those differ that may not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagebench.harness.judging.beside import as_data
from pagebench.harness.records import identity
from pagebench.harness.records.caveats import CEILINGS, COUNTERS, Apart
from pagebench.harness.records.ceilings import MeasuredCeilings
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.select import State, of_gpu


@dataclass(frozen=True, slots=True)
class Beside:
    """The newest counters of what was timed, if there are any. `apart` says in what they, or those
    that were therefore not used, differ from it."""

    counters: Counters | None = None
    apart: tuple[Apart, ...] = ()


def beside(lines: Sequence[Counters], state: State) -> Beside:
    """Of counters of one cell, the newest last, those of this call and GPU, else of its model."""
    mine = [each for each in of_gpu(lines, state.environment) if not state.other_call(each)]
    if mine:
        differs = identity.in_software(mine[-1].environment, state.environment)
    else:
        differs = _refused(lines, state)
    found = Apart(COUNTERS, (lines[-1].cell,), as_data(differs), not mine) if differs else None
    return Beside(mine[-1] if mine else None, (found,) if found else ())


def _refused(lines: Sequence[Counters], state: State) -> tuple[identity.Difference, ...]:
    """In what the newest of them are not of what was timed; nothing for a GPU of another name."""
    named = [each for each in lines if each.environment.gpu == state.environment.gpu]
    if not named:
        return ()
    return identity.apart(named[-1].environment, state.environment) or state.other_call(named[-1])


def of_ceilings(ceilings: MeasuredCeilings, state: State) -> tuple[Apart, ...]:
    """In what software ceilings were measured under that a time was not."""
    differs = identity.in_software(ceilings.environment, state.environment)
    return (Apart(CEILINGS, (), as_data(differs)),) if differs else ()
