"""The rounds record: cells interleaved in one process, there and back, A B B A."""

from __future__ import annotations

from pagebench.harness.records.base import (
    IDENTITY,
    CellName,
    Json,
    Part,
    Record,
    Resolved,
    Upgrade,
    as_it_was,
)
from pagebench.harness.records.timing import Check, check_status


class Side(Part, frozen=True, kw_only=True):
    """What was seen on the GPU right after the samples of one cell: reasons to throttle, and the
    most other processes at one time."""

    throttle: tuple[str, ...] = ()
    other_processes: int | None = None


class Rounds(Record, frozen=True, kw_only=True, tag="rounds"):
    """One process of cells timed together. Each of `rounds` has 2 x cells times in microseconds.

    `resolved`, `check` and `sides` have one entry for each cell, in order; they are empty where the
    process ended before. Early records have no `sides`.
    """

    cells: tuple[CellName, ...]
    clock: str
    l2: str
    process: int
    status: str
    reason: str | None = None
    floor_us: float | None = None
    rounds: tuple[tuple[float, ...], ...] = ()
    resolved: tuple[Resolved, ...] = ()
    check: tuple[Check | None, ...] = ()
    discarded: int = 0
    throttle: tuple[str, ...] = ()
    binary: tuple[str | None, ...] = ()  # of each cell, a hash of the machine code that ran
    sides: tuple[Side, ...] = ()
    spin_mhz: int | None = None  # SM clock right before the calls, the median
    kernel_sha: str | None = None  # of the content of --kernel's file

    def __post_init__(self) -> None:
        check_status(self.status, self.reason, has_times=bool(self.rounds))
        if self.rounds and self.floor_us is None:
            raise ValueError("rounds need the clock's floor")
        if self.sides and len(self.sides) != len(self.cells):
            raise ValueError("a side for each cell, or none")
        if any(len(each) != 2 * len(self.cells) for each in self.rounds):
            raise ValueError("a round needs two times for each cell")


def _named(line: Json) -> Json:
    """Schema 1 was of kind `group`; an empty check is one that was not made."""
    kept = {name: value for name, value in line.items() if value is not None}
    return kept | {"kind": "rounds", "check": [each or None for each in line.get("check", ())]}


UPGRADES = (
    Upgrade("the kind `group` is called `rounds`; checks have types", _named),
    Upgrade(
        IDENTITY + "; what the calls' code was; what was seen beside each cell; a file's content",
        as_it_was,
    ),
)
