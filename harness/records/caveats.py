"""Caveats: what a reader of a conclusion must know, as data. `show.sentences` words them."""

from __future__ import annotations

from collections.abc import Sequence

from pagebench.harness.records.base import Part

CLOCK_DRIFT = 0.02  # an SM clock that moved by more than this is said


class LostProcess(Part, frozen=True, tag_field="caveat", tag="lost process"):
    """The last process has no times: the status it ended with, and why."""

    status: str
    reason: str


class Throttled(Part, frozen=True, tag_field="caveat", tag="throttled"):
    """The GPU ran slower than asked for while it was timed."""

    reasons: tuple[str, ...]


class ClockMoved(Part, frozen=True, tag_field="caveat", tag="clock moved"):
    """SM clock, least and most of the processes."""

    low_mhz: int
    high_mhz: int


class OthersOnGpu(Part, frozen=True, tag_field="caveat", tag="others on the GPU"):
    """Processes of others that were seen on the GPU, the most at one time."""

    processes: int


class NoTime(Part, frozen=True, tag_field="caveat", tag="no time"):
    """Too few processes had times to conclude from: how the last one ended."""

    status: str
    reason: str


class ShortCall(Part, frozen=True, tag_field="caveat", tag="short call"):
    """The call lasts only so many floors of its clock."""

    floors: float


class NoCounters(Part, frozen=True, tag_field="caveat", tag="no counters"):
    """The two cells have no counters of this GPU model and state of the L2."""


class NothingRepeats(Part, frozen=True, tag_field="caveat", tag="nothing repeats"):
    """Both cells have counters; none of them repeats in both."""


class WideInterval(Part, frozen=True, tag_field="caveat", tag="wide interval"):
    """The interval of the time ratio decides nothing."""


class OtherBinary(Part, frozen=True, tag_field="caveat", tag="other binary"):
    """What differs besides the knob (fields of `SameBinary`), where no prediction gives the work's
    ratio."""

    differs: tuple[str, ...]


class OppositeWays(Part, frozen=True, tag_field="caveat", tag="opposite ways"):
    """Work, or where there is a prediction the predicted work, grew and the time shrank, or the
    other way round."""

    predicted: bool


TimingCaveat = LostProcess | Throttled | ClockMoved | OthersOnGpu
JudgingCaveat = (
    NoTime | ShortCall | NoCounters | NothingRepeats | WideInterval | OtherBinary | OppositeWays
)
Caveat = TimingCaveat | JudgingCaveat


def clock_moved(mhz: Sequence[int]) -> ClockMoved | None:
    """A caveat where SM clocks, of blocks or of processes, differ by more than CLOCK_DRIFT."""
    if not mhz or max(mhz) - min(mhz) <= CLOCK_DRIFT * max(mhz):
        return None
    return ClockMoved(min(mhz), max(mhz))
