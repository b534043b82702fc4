"""What a comparison of two files finds, as data. `show.gate` words it."""

from __future__ import annotations

from collections.abc import Mapping

from pagebench.harness.records.base import Part
from pagebench.harness.records.caveats import ClockMoved, Differing, ShortCall, Throttled
from pagebench.harness.records.verdict import Change

# What became of a measurement that stands in either file; the first ones are shown first.
STATUSES = {
    "FAILED": "the head ended wrong, poisoned, rejected or crashed, and the base did not",
    "SLOWER": "the interval of head over base lies above 1",
    "FASTER": "the interval lies below 1",
    "SHARE": "two modes, each where it was, and another share of the samples is in the slow one",
    "UNCLEAR": "it cannot be said; the reason stands beside it",
    "REFUSED": "the two were not measured alike; what differs stands beside it",
    "MISSING": "only the base has it",
    "NEW": "only the head has it",
    "SAME": "the interval lies within 1 % of 1",
}
MOVED = ("SLOWER", "FASTER", "SHARE")
REGRESSED = ("FAILED", "SLOWER")
JUDGED = ("FAILED", *MOVED, "SAME")

# What may have moved a time: every kind in which the two sides differ, else one of the last two.
CAUSES = {
    "code": "the code, its plan, a library or a kernel's file",
    "method": "how it was measured: variables, threads, seconds, pagebench's commit",
    "hardware": "the machine: which GPU of the model, its driver, limits and clock",
    "noise": "nothing that is recorded, and the code is the same: machine, clock or noise",
    "unknown": "nothing that is recorded, and whether the code is the same is not",
}
BASE, HEAD = "base", "head"


class Key(Part, frozen=True, order=True):
    """What identifies a measurement in both files. `beside` are the cells it was interleaved with,
    itself included; empty where a process measured it alone."""

    cell: str
    boundary: str
    clock: str
    l2: str
    beside: tuple[str, ...] = ()


class Differs(Differing, frozen=True, kw_only=True):
    """A field in which base and head differ, and of which cause that would be."""

    of: str


class TwoModes(Part, frozen=True):
    """Medians of the two modes of all samples, in microseconds, and the slower one's share."""

    fast_us: float
    slow_us: float
    slow_share: float


class Times(Part, frozen=True, kw_only=True):
    """One side: its processes, the median of their medians in microseconds, and two modes where
    there are two."""

    processes: int
    time_us: float
    modes: TwoModes | None = None


# --- Why it is not judged, and what a reader must know --------------------------------------------


class Ended(Part, frozen=True, tag_field="caveat", tag="ended"):
    """A process of that side has no time: how it ended, and why."""

    side: str
    status: str
    reason: str


class FewProcesses(Part, frozen=True, tag_field="caveat", tag="few processes"):
    """A side has fewer processes than a decision takes."""

    base: int
    head: int
    least: int


class Mixed(Part, frozen=True, tag_field="caveat", tag="mixed"):
    """The processes of one side were not made alike."""

    side: str
    differs: tuple[Differing, ...]


class Disturbed(Part, frozen=True, tag_field="caveat", tag="disturbed"):
    """What was seen beside some processes of that side and none of the other: `throttled`, `others
    on the GPU` or `busy machine`."""

    what: str
    side: str


class Wide(Part, frozen=True, tag_field="caveat", tag="wide"):
    """The interval neither leaves out 1 nor lies within 1 % of it. With `needs` processes a side,
    as noisy as these, it would decide; absent where that is beyond reason."""

    needs: int | None = None


class NotInCycles(Part, frozen=True, tag_field="caveat", tag="not in cycles"):
    """The time moved with the SM clock: medians of both sides in MHz, and the ratio in cycles."""

    base_mhz: float
    head_mhz: float
    cycles: Change


class ModesPart(Part, frozen=True, tag_field="caveat", tag="modes part"):
    """Both sides have two modes that did not move together: the change of each."""

    fast: Change
    slow: Change


class ShareUnclear(Part, frozen=True, tag_field="caveat", tag="share unclear"):
    """Both sides have the same two modes, and whether their share changed is not known."""


class InBoth(Part, frozen=True, tag_field="caveat", tag="in both"):
    """So many processes of the head stand in the base's file too, and count there alone. `all` of
    them do where the two sides are one measurement."""

    processes: int
    all: bool = False


GateCaveat = (
    Ended
    | FewProcesses
    | Mixed
    | Disturbed
    | Wide
    | NotInCycles
    | ModesPart
    | ShareUnclear
    | InBoth
    | ShortCall
    | Throttled
    | ClockMoved
)

# --- What is found --------------------------------------------------------------------------------


class Row(Part, frozen=True, kw_only=True):
    """One measurement. `time` is head over base with the interval that decided, `ratio` the same
    without an interval where too few processes were measured.

    `same_code` says whether both ran the same code by its hash and by all that was resolved; absent
    where that is not known. `work` holds stable counters that changed, head over base, None from
    zero. `causes` are there where it moved.
    """

    key: Key
    status: str
    base: Times | None = None
    head: Times | None = None
    ratio: float | None = None
    time: Change | None = None
    modes: tuple[Change, Change] | None = None
    same_code: bool | None = None
    differs: tuple[Differs, ...] = ()
    work: Mapping[str, float | None] = {}
    causes: tuple[str, ...] = ()
    caveats: tuple[GateCaveat, ...] = ()

    def __post_init__(self) -> None:
        if self.status not in STATUSES or not set(self.causes) <= set(CAUSES):
            raise ValueError(f"unknown status {self.status} or cause in {self.causes}")

    @property
    def code_changed(self) -> bool:
        """Whether something discrete differs: what ran, how it was planned, what it counted."""
        return bool(self.work) or any(each.of == "code" for each in self.differs)


class Comparison(Part, frozen=True, kw_only=True):
    """All measurements of two files. `error` is the chance of any wrong SLOWER or FASTER among the
    `together` that were tested; `refused` counts those that neither side could run."""

    rows: tuple[Row, ...]
    together: int
    error: float
    refused: int = 0
    is_older: bool = False  # the head was measured before the base

    def of(self, *statuses: str) -> list[Row]:
        return [row for row in self.rows if row.status in statuses]

    def exit_code(self, *, strict: bool) -> int:
        """0 none slower, 1 a regression, 2 nothing judged; `strict`: or anything was not."""
        if self.of(*REGRESSED):
            return 1
        judged = len(self.of(*JUDGED))
        return 0 if judged and (judged == len(self.rows) or not strict) else 2
