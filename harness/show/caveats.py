"""Caveats in words."""

from __future__ import annotations

from collections.abc import Iterable

from pagebench.harness.records.caveats import (
    Apart,
    Caveat,
    ClockMoved,
    HiddenProcesses,
    JudgingCaveat,
    LostProcess,
    NoCounters,
    NothingRepeats,
    NoTime,
    OneSided,
    OppositeWays,
    OtherBinary,
    OthersOnGpu,
    ShortCall,
    Throttled,
    TimingCaveat,
    WideInterval,
)
from pagebench.harness.records.timing import Timing
from pagebench.harness.show import identities
from pagebench.harness.show.text import plural


def caveat(found: Caveat) -> str:
    """What a reader must know, as a sentence without its full stop."""
    return _of_timing(found) if isinstance(found, TimingCaveat) else _of_judging(found)


def _of_timing(found: TimingCaveat) -> str:
    match found:
        case LostProcess(status, reason):
            return f"a process was lost: {status}: {reason}"
        case Throttled(reasons):
            return f"throttled: {', '.join(reasons)}"
        case ClockMoved(low, high):
            return f"SM clock moved {low} to {high} MHz"
        case OthersOnGpu(processes):
            return f"{plural(processes, 'other process', 'es')} on the GPU"
        case HiddenProcesses():
            return f"cannot see who else is on the GPU{_before(found)}"
        case Apart():
            return _apart(found)


def _before(found: HiddenProcesses) -> str:
    used, busy = found.bytes_used_before, found.percent_busy_before
    told = [
        *([] if used is None else [f"{used / 1e9:.1f} GB were in use"]),
        *([] if busy is None else [f"it was {busy} % busy"]),
    ]
    return f": before, {' and '.join(told)}" if told else ""


def _apart(found: Apart) -> str:
    """What was not made alike, in what, and what followed."""
    of = f" of {' and '.join(found.cells)}" if found.cells else ""
    what = identities.between(found.differs)
    match found.what, found.refused:
        case "processes", _:
            return f"the processes{of} were not made alike: {what}"
        case which, True:
            return f"the {which}{of} are not used, for they are of something else: {what}"
        case which, _:
            return f"the {which}{of} are not of the timed run: {what}"


def _of_judging(found: JudgingCaveat) -> str:
    match found:
        case NoTime(status, reason):
            return f"no time: {status}: {reason}"
        case ShortCall(floors):
            return f"the call lasts {floors:.1f} floors of its clock"
        case NoCounters(cells):
            who, verb = (" and ".join(cells), "have") if cells else ("a cell", "has")
            verb = "has" if len(cells) == 1 else verb
            return (
                f"{who} {verb} no counters of this GPU: pagebench profile "
                f"{' '.join(cells) or 'A B'} counts work, and pagebench doctor says whether it can"
            )
        case NothingRepeats():
            return "no counter repeated in both cells"
        case WideInterval():
            return "the interval of the time ratio is too wide"
        case OtherBinary(differs, unpredicted):
            of = f"ratio of {', '.join(unpredicted)}" if unpredicted else "work's ratio"
            return f"{', '.join(differs)} differ, and no prediction gives the {of}"
        case OppositeWays(predicted):
            which = "the predicted work" if predicted else "work"
            return f"{which} and the time moved in opposite directions"
        case OneSided(what, cells):
            return f"{what} while timing {' and '.join(cells)}, and not beside the other cell"


def caveats(found: Iterable[Caveat]) -> list[str]:
    return [caveat(each) for each in found]


def ceiling_note(timing: Timing) -> str:
    """What follows from a time that beats the measured ceiling; empty where it does not."""
    if timing.ceiling_gbps is None or timing.ceiling_refuted is None:
        return ""
    beats = f"beats the measured ceiling of {timing.ceiling_gbps:.0f} GB/s"
    if timing.ceiling_refuted:
        return f"{beats}: ceiling refuted"
    return f"{beats}, and no needles passed through this call: the time does not stand"
