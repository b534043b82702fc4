"""Cells that are timed together: what their processes' rounds say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from pagebench.harness.cell import Cell
from pagebench.harness.environment import Environment
from pagebench.harness.errors import UserError
from pagebench.harness.records.caveats import (
    LostProcess,
    NoTime,
    OthersOnGpu,
    Throttled,
    TimingCaveat,
    clock_moved,
)
from pagebench.harness.records.rounds import Rounds
from pagebench.harness.records.timing import FAILURES
from pagebench.harness.records.verdict import Change
from pagebench.harness.timing.effect import LOOKS, change, may_stop, process_effect

LEAST_FLOOR_US = 1e-3  # a clock that reads less has no floor to speak of


class NotTimed(UserError):
    """Cells without times; `crashed` if one crashed or was wrong, rather than was refused."""

    def __init__(self, reason: str, crashed: bool) -> None:
        super().__init__(reason)
        self.crashed = crashed


@dataclass(slots=True)
class Interleaved:
    """Cells that are timed together, with what their processes have said so far.

    A step is the change from one cell to the next; `among` differences are judged together. A
    process that fails is the last, and `lost`: enough `measured` before it decide all the same.
    """

    cells: tuple[Cell, ...]
    among: int
    measured: list[Rounds] = field(default_factory=list)
    lost: LostProcess | None = None

    def add(self, rounds: Rounds) -> None:
        """Take in what one process said."""
        if rounds.status == "measured":
            self.measured.append(rounds)
        else:
            self.lost = LostProcess(rounds.status, rounds.reason or "")

    # --- Whether it is done ---

    @property
    def status(self) -> str:
        """That of the last process."""
        return self.lost.status if self.lost else "measured"

    @property
    def failed(self) -> NoTime | None:
        """Why there is no conclusion: a lost process, and too few before it."""
        if self.lost is None or len(self.measured) >= LOOKS[0]:
            return None
        return NoTime(self.lost.status, self.lost.reason)

    def refuse_failed(self, name: str) -> None:
        """NotTimed, under that name, where there is no conclusion."""
        if self.failed:
            reason = f"{name}: {self.failed.status}: {self.failed.reason}"
            raise NotTimed(reason, self.failed.status in FAILURES)

    @property
    def decided(self) -> bool:
        return self.lost is not None or all(
            may_stop(self.effects(step), self.among) for step in range(len(self.cells) - 1)
        )

    # --- What it says ---

    def effects(self, step: int = 0) -> list[float]:
        """Log ratio of the step's second cell over its first, by process."""
        return [process_effect(each.rounds, step) for each in self.measured]

    def step(self, step: int = 0) -> Change:
        return change(self.effects(step), self.among)

    def times_us(self, cell: int) -> list[float]:
        """The cell's median, by process."""
        return [
            median(us for times in each.rounds for us in (times[cell], times[-1 - cell]))
            for each in self.measured
        ]

    def time_us(self, cell: int) -> float:
        """The median over processes of the cell's medians."""
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
    def caveats(self) -> tuple[TimingCaveat, ...]:
        """What a reader of the times must know."""
        throttle = sorted({reason for each in self.measured for reason in each.throttle})
        others = max((each.environment.other_processes or 0 for each in self.measured), default=0)
        found = (
            self.lost,
            Throttled(tuple(throttle)) if throttle else None,
            clock_moved([each.spin_mhz for each in self.measured if each.spin_mhz]),
            OthersOnGpu(others) if others else None,
        )
        return tuple(caveat for caveat in found if caveat)

    @property
    def environment(self) -> Environment:
        """That of the newest process which has times."""
        return self.measured[-1].environment if self.measured else Environment()

    @property
    def resolved(self) -> Sequence[Mapping[str, str | int | float | bool]]:
        """What each cell resolved to in that process."""
        return self.measured[-1].resolved if self.measured else ()
