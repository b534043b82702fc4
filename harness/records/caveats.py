"""Caveats: what a reader of a conclusion must know, as data. `show.sentences` words them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pagebench.harness.environment import Environment
from pagebench.harness.records.base import Part

CLOCK_DRIFT = 0.02  # a larger relative change of the SM clock is reported


class LostProcess(Part, frozen=True, tag_field="caveat", tag="lost process"):
    """The last process has no times: the status it ended with, and why."""

    status: str
    reason: str


class Throttled(Part, frozen=True, tag_field="caveat", tag="throttled"):
    """The GPU ran slower than asked for while it was timed."""

    reasons: tuple[str, ...]


class ClockMoved(Part, frozen=True, tag_field="caveat", tag="clock moved"):
    """The SM clock changed: lowest and highest, in MHz."""

    low_mhz: int
    high_mhz: int


class OthersOnGpu(Part, frozen=True, tag_field="caveat", tag="others on the GPU"):
    """Other processes seen on the GPU: the most at one time."""

    processes: int


class HiddenProcesses(Part, frozen=True, tag_field="caveat", tag="hidden processes"):
    """Who else used the GPU could not be seen, as in a container. The most bytes that were in use,
    and how busy it was at most, before a process of ours used it; absent where not known."""

    bytes_used_before: int | None = None
    percent_busy_before: int | None = None


class NoTime(Part, frozen=True, tag_field="caveat", tag="no time"):
    """Too few processes had times to conclude from: how the last one ended."""

    status: str
    reason: str


class ShortCall(Part, frozen=True, tag_field="caveat", tag="short call"):
    """The shortest call lasts only `floors` times the floor of its clock."""

    floors: float


class NoCounters(Part, frozen=True, tag_field="caveat", tag="no counters"):
    """These cells have no counters from this GPU model in this state of the L2. Early records do
    not name them."""

    cells: tuple[str, ...] = ()


class NothingRepeats(Part, frozen=True, tag_field="caveat", tag="nothing repeats"):
    """Both cells have counters, but no counter repeats in both."""


class WideInterval(Part, frozen=True, tag_field="caveat", tag="wide interval"):
    """The interval of the time ratio is too wide to decide."""


class OtherBinary(Part, frozen=True, tag_field="caveat", tag="other binary"):
    """Fields of `SameBinary` that differ besides the knob, and counters that changed though nothing
    predicts how. Early records do not name the counters."""

    differs: tuple[str, ...]
    unpredicted: tuple[str, ...] = ()


class OneSided(Part, frozen=True, tag_field="caveat", tag="one-sided"):
    """What disturbed some of the cells and not the others: `throttled` or `others on the GPU`."""

    what: str
    cells: tuple[str, ...]


class Differing(Part, frozen=True):
    """A field of two measurements' identity that they do not share, and both values."""

    field: str
    one: str
    other: str


class Apart(Part, frozen=True, tag_field="caveat", tag="apart"):
    """Measurements that stand beside each other and were not made alike.

    `what` they are: one of APART. With `refused` they were not put together.
    """

    what: str
    cells: tuple[str, ...]
    differs: tuple[Differing, ...]
    refused: bool = False


PROCESSES, COUNTERS, CEILINGS = "processes", "counters", "ceilings"
APART = (PROCESSES, COUNTERS, CEILINGS)


class OppositeWays(Part, frozen=True, tag_field="caveat", tag="opposite ways"):
    """The work grew and the time shrank, or the reverse. `predicted`: judged by predicted work."""

    predicted: bool


TimingCaveat = LostProcess | Throttled | ClockMoved | OthersOnGpu | HiddenProcesses | Apart
JudgingCaveat = (
    NoTime
    | ShortCall
    | NoCounters
    | NothingRepeats
    | WideInterval
    | OtherBinary
    | OppositeWays
    | OneSided
)
Caveat = TimingCaveat | JudgingCaveat


def clock_moved(mhz: Sequence[int]) -> ClockMoved | None:
    """A caveat where SM clocks, of blocks or of processes, differ by more than CLOCK_DRIFT."""
    if not mhz or max(mhz) - min(mhz) <= CLOCK_DRIFT * max(mhz):
        return None
    return ClockMoved(min(mhz), max(mhz))


def hidden_processes(environments: Iterable[Environment]) -> HiddenProcesses | None:
    """A caveat where in one of them other users of the GPU cannot be seen."""
    hidden = [each for each in environments if each.processes_hidden]
    used = [each.bytes_used_before for each in hidden if each.bytes_used_before is not None]
    busy = [each.percent_busy_before for each in hidden if each.percent_busy_before is not None]
    return HiddenProcesses(max(used, default=None), max(busy, default=None)) if hidden else None
