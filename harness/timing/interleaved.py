"""Cells that are timed together, and what the rounds of their processes show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from pagebench.harness.cell import Cell
from pagebench.harness.environment import Environment
from pagebench.harness.errors import UserError
from pagebench.harness.records import identity
from pagebench.harness.records.base import Resolved
from pagebench.harness.records.caveats import (
    PROCESSES,
    Apart,
    Differing,
    LostProcess,
    NoTime,
    OneSided,
    OthersOnGpu,
    Throttled,
    TimingCaveat,
    clock_moved,
    hidden_processes,
)
from pagebench.harness.records.rounds import Rounds
from pagebench.harness.records.timing import FAILURES
from pagebench.harness.records.verdict import Change
from pagebench.harness.timing.effect import LOOKS, change, may_stop, process_effect

# A process that ends so says that other processes timed a call that may be as bad.
WITHDRAWS = ("wrong", "poisoned", "rejected")
LEAST_FLOOR_US = 1e-3  # a lower floor counts as this much


class NotTimed(UserError):
    """Cells without times. `crashed` says that one failed rather than was refused."""

    def __init__(self, reason: str, crashed: bool) -> None:
        super().__init__(reason)
        self.crashed = crashed


@dataclass(slots=True)
class Interleaved:
    """Cells that are timed together, with the records of their processes so far.

    A step is the change from one cell to the next; `among` differences are judged together. A
    process that fails is the last one, and `lost`; those `measured` before it may still suffice,
    unless its output or its time was wrong.
    """

    cells: tuple[Cell, ...]
    among: int
    measured: list[Rounds] = field(default_factory=list)
    lost: LostProcess | None = None

    def add(self, rounds: Rounds) -> None:
        """Add the record of one process."""
        if rounds.status == "measured":
            self.measured.append(rounds)
        else:
            lost = LostProcess(rounds.status, rounds.reason or "")
            self.lost = self.lost if self.lost and self.lost.status in WITHDRAWS else lost

    # --- Whether it is done ---

    @property
    def status(self) -> str:
        """The status of the last process."""
        return self.lost.status if self.lost else "measured"

    @property
    def failed(self) -> NoTime | None:
        """Why there is no conclusion: a process was lost, and too few ended before it, or what it
        found withdraws the times of the others."""
        if self.lost is None:
            return None
        if self.lost.status not in WITHDRAWS and len(self.measured) >= LOOKS[0]:
            return None
        return NoTime(self.lost.status, self.lost.reason)

    def refuse_failed(self, name: str) -> None:
        """Raise NotTimed, with that name, where there are no times, or times of several things."""
        if self.failed:
            reason = f"{name}: {self.failed.status}: {self.failed.reason}"
            raise NotTimed(reason, self.failed.status in FAILURES)
        for each in self.apart:
            told = identity.told(each.differs)
            raise NotTimed(f"{name}: its processes were not made alike: {told}", crashed=False)

    @property
    def decided(self) -> bool:
        return self.lost is not None or all(
            may_stop(self.effects(step), self.among) for step in range(len(self.cells) - 1)
        )

    # --- What it shows ---

    def effects(self, step: int = 0) -> list[float]:
        """Log ratio of the step's second cell over its first, by process."""
        return [process_effect(each.rounds, step) for each in self.measured]

    def step(self, step: int = 0) -> Change:
        return change(self.effects(step), self.among)

    def times_us(self, cell: int) -> list[float]:
        """The cell's median in microseconds, by process."""
        return [
            median(us for times in each.rounds for us in (times[cell], times[-1 - cell]))
            for each in self.measured
        ]

    def time_us(self, cell: int) -> float:
        """The median over processes of the cell's medians, in microseconds."""
        return median(self.times_us(cell))

    @property
    def floors(self) -> float:
        """How many floors of its clock the shortest call lasts, in the worst process."""
        floors_us = [max(each.floor_us or 0.0, LEAST_FLOOR_US) for each in self.measured]
        return min(
            us / floor_us
            for cell in range(len(self.cells))
            for us, floor_us in zip(self.times_us(cell), floors_us, strict=True)
        )

    @property
    def apart(self) -> tuple[Apart, ...]:
        """In what the processes were not made alike: their times are of several things."""
        found: dict[tuple[Differing, ...], list[str]] = {}
        for at, cell in enumerate(self.cells):
            identities = [identity.of_rounds(each, at) for each in self.measured]
            differs = {
                each.field: Differing(each.field, each.one, each.other)
                for other in identities[1:]
                for each in identity.differences(identities[0], other)
            }
            if differs:
                found.setdefault(tuple(differs.values()), []).append(cell.name)
        return tuple(Apart(PROCESSES, tuple(cells), differs) for differs, cells in found.items())

    @property
    def caveats(self) -> tuple[TimingCaveat, ...]:
        """What a reader of the times must know."""
        throttle = sorted({reason for each in self.measured for reason in each.throttle})
        seen = (each.environment.other_processes or 0 for each in self.measured)
        beside = (s.other_processes or 0 for each in self.measured for s in each.sides)
        others = max((*seen, *beside), default=0)
        found = (
            self.lost,
            Throttled(tuple(throttle)) if throttle else None,
            clock_moved([each.spin_mhz for each in self.measured if each.spin_mhz]),
            OthersOnGpu(others) if others else None,
            hidden_processes(each.environment for each in self.measured),
            *self.apart,
        )
        return tuple(caveat for caveat in found if caveat)

    @property
    def one_sided(self) -> tuple[OneSided, ...]:
        """What disturbed some of the cells in a process, and not the others."""
        throttled, shared = set[str](), set[str]()
        for each in self.measured:
            throttled |= _some(each.cells, [bool(side.throttle) for side in each.sides])
            shared |= _some(each.cells, [bool(side.other_processes) for side in each.sides])
        found = (("throttled", throttled), ("others on the GPU", shared))
        return tuple(OneSided(what, tuple(sorted(cells))) for what, cells in found if cells)

    @property
    def environment(self) -> Environment:
        """The environment of the newest process that has times."""
        return self.measured[-1].environment if self.measured else Environment()

    @property
    def calls(self) -> dict[str, identity.Identity]:
        """What ran in that process, by cell: the resolved call and its code."""
        if not self.measured:
            return {}
        last = self.measured[-1]
        binaries = last.binary or (None,) * len(self.cells)
        called = zip(self.cells, last.resolved, binaries, strict=False)
        return {cell.name: identity.of_call(resolved, code) for cell, resolved, code in called}

    @property
    def kernel_sha(self) -> str | None:
        """What identifies the content of a kernel's file, in that process."""
        return self.measured[-1].kernel_sha if self.measured else None

    @property
    def resolved(self) -> tuple[Resolved, ...]:
        """What each cell resolved to in that process."""
        return self.measured[-1].resolved if self.measured else ()

    @property
    def binary(self) -> tuple[str | None, ...]:
        """A hash of the code of each cell in that process."""
        return self.measured[-1].binary if self.measured else ()


def _some(cells: Sequence[str], disturbed: Sequence[bool]) -> set[str]:
    """The disturbed cells, where not all of them are; empty where a cell stands on both sides."""
    if all(disturbed) or len(set(cells)) < len(cells):
        return set()
    return {cell for cell, is_so in zip(cells, disturbed, strict=True) if is_so}
