"""The times of two sides: what is tested, corrected for how many are, and the word that follows.

A process says one number of a time, the log of its median; only processes are independent, so the
interval of head over base is Welch's over processes of both sides. Four processes may agree by
chance, so each side's variance is drawn towards what is usual in the two files, and is never less.
Where both sides have two modes a median jumps between them, and so each mode is tested by itself:
the time moved if both did.

All tested measurements share one error by Holm's rule. It holds whatever their dependence, and all
cells of a sweep do depend on each other: they share a machine, an hour and its clock.
Benjamini-Yekutieli, which also holds then, limits the share of false ones among the alarms, so of
two alarms one may be false by design; a gate must not be wrong at all in most sweeps of nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from statistics import median, variance

from msgspec.structs import replace

from pagebench.harness.gate.sides import Side
from pagebench.harness.records.verdict import Change
from pagebench.harness.timing.effect import (
    LOOKS,
    SAME_WITHIN,
    Estimate,
    Noise,
    unpaired,
    usual_noise,
)

LEAST_PROCESSES = LOOKS[0]  # a side: with fewer, two modes fall apart by chance too often
SWEEP_ERROR = 0.02  # chance of any wrong SLOWER or FASTER in a comparison
CELL_ERROR = 0.05  # of an interval that shows that one measurement is the same
LEAST_IN_MODE = 5  # samples of a process that say where its mode lies
LEAST_SHARE = 0.1  # by which the slow mode's share must move
MOST_NEEDED = 64  # processes a side; more are no advice


@dataclass(frozen=True, slots=True)
class Estimates:
    """Estimates of head over base: of the medians, in cycles, of each of two modes, and the
    difference of the slow mode's share."""

    whole: Estimate
    cycles: Estimate | None = None
    modes: tuple[Estimate, Estimate] | None = None
    share: Estimate | None = None

    @property
    def p(self) -> float:
        """The chance of so much where nothing moved: of the less certain mode where there are two,
        and 1 where they went apart."""
        if self.modes is None:
            return self.whole.p
        fast, slow = self.modes
        return max(fast.p, slow.p) if fast.middle * slow.middle > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Decided:
    """The word of a time, with the changes that decided: `changed` up or down, `same`, `shared` or
    `unclear`."""

    word: str
    time: Change
    modes: tuple[Change, Change] | None = None
    cycles: Change | None = None


def tested(base: Side, head: Side, usual: Noise) -> Estimates:
    """What the processes of both sides say, beside the noise that is usual between processes."""
    step = max(base.step, head.step)

    def of(one: Sequence[float], other: Sequence[float]) -> Estimate:
        return unpaired(one, other, usual, step)

    clocked = all(each.mhz for each in (*base.processes, *head.processes))
    cycles = of(_in_cycles(base), _in_cycles(head)) if clocked else None
    found = Estimates(of(base.levels, head.levels), cycles)
    one, other = _by_mode(base), _by_mode(head)
    if not all(map(_is_enough, (one.fast, one.slow, other.fast, other.slow))):
        return found
    modes = (of(one.fast, other.fast), of(one.slow, other.slow))
    return Estimates(found.whole, cycles, modes, unpaired(one.shares, other.shares))


def noise_of(pairs: Iterable[tuple[Side, Side]]) -> Noise:
    """The noise between processes that is usual in all of these, for each side of a pair."""
    return usual_noise([_noise(base.levels, head.levels) for base, head in pairs]).half


def _noise(base: Sequence[float], head: Sequence[float]) -> Noise:
    """The variance of both sides round their own means."""
    each = [(len(side) - 1, variance(side)) for side in (base, head)]
    freedom = sum(count for count, _ in each)
    return Noise(sum(count * seen for count, seen in each) / freedom, freedom)


def _in_cycles(side: Side) -> list[float]:
    return [each.level + log(each.mhz or 1) for each in side.processes]


@dataclass(frozen=True, slots=True)
class ByMode:
    """Log medians of the processes that were in the fast and in the slow mode, and the slow mode's
    share in each process; empty where there is one mode."""

    fast: Sequence[float] = ()
    slow: Sequence[float] = ()
    shares: Sequence[float] = ()


def _by_mode(side: Side) -> ByMode:
    modes = side.times.modes if side.times else None
    if modes is None:
        return ByMode()
    middle = (modes.fast_us + modes.slow_us) / 2
    times = [each.time_us for each in side.processes]
    fast = [[us for us in each if us < middle] for each in times]
    slow = [[us for us in each if us >= middle] for each in times]
    shares = [len(s) / len(each) for s, each in zip(slow, times, strict=True)]
    return ByMode(_log_medians(fast), _log_medians(slow), shares)


def _log_medians(times: Sequence[Sequence[float]]) -> list[float]:
    return [log(median(each)) for each in times if len(each) >= LEAST_IN_MODE]


def _is_enough(logs: Sequence[float]) -> bool:
    return len(logs) >= LEAST_PROCESSES


# --- How many are tested --------------------------------------------------------------------------


def holm(chances: Sequence[float], error: float = SWEEP_ERROR) -> list[float]:
    """The error at which each is decided, by Holm's rule.

    The smallest chance is held to the error over all of them, the next to the error over all but
    one, and so on to the first that fails; the others are held to that one's.
    """
    order = sorted(range(len(chances)), key=lambda at: chances[at])
    found, passed = [0.0] * len(chances), 0
    for rank, at in enumerate(order):
        found[at] = error / (len(chances) - passed)
        if rank == passed and chances[at] <= found[at]:
            passed += 1
    return found


# --- Words ----------------------------------------------------------------------------------------


def decided(found: Estimates, error: float) -> Decided:
    """The word at that error: `changed` by it, else `same` by an interval for one measurement."""
    cycles = found.cycles.change(error) if found.cycles else None
    if found.modes:
        return _of_modes(found, found.modes, error, cycles)
    word, time = _word(found.whole, error)
    return Decided(word, time, None, cycles)


def _word(found: Estimate, error: float) -> tuple[str, Change]:
    wide, narrow = found.change(error), found.change(max(error, CELL_ERROR))
    if wide.word == "changed":
        return "changed", wide
    if narrow.word == "same":
        return "same", replace(narrow, detectable=wide.detectable)
    return "unclear", replace(wide, word="unclear")


def _of_modes(
    found: Estimates, modes: tuple[Estimate, Estimate], error: float, cycles: Change | None
) -> Decided:
    (fast, fast_change), (slow, slow_change) = (_word(each, error) for each in modes)
    changes = (fast_change, slow_change)
    if fast == slow == "changed" and modes[0].middle * modes[1].middle > 0:
        nearer = min(changes, key=lambda each: abs(log(each.ratio)))
        return Decided("changed", nearer, changes, cycles)
    word, time = _word(found.whole, error)
    if fast == slow == "same" and _share_moved(found, error):
        word = "shared"
    elif word == "changed" or not fast == slow == "same":
        word = "unclear"
    least = max(each.detectable for each in changes)
    known = "unclear" if word == "shared" else word
    return Decided(word, replace(time, word=known, detectable=least), changes, cycles)


def _share_moved(found: Estimates, error: float) -> bool:
    share = found.share
    return share is not None and share.p <= error and abs(share.middle) >= LEAST_SHARE


def processes_needed(found: Estimates, error: float) -> int | None:
    """Processes a side, as noisy as these, whose interval would lie within 1 % round its middle;
    None above MOST_NEEDED."""
    noise = found.whole.spread * (found.whole.processes / 2) ** 0.5
    for count in range(LEAST_PROCESSES, MOST_NEEDED + 1):
        level = Estimate(0.0, noise / count**0.5, 2 * count - 2, 2 * count, found.whole.step)
        if log(level.change(max(error, CELL_ERROR)).high) < SAME_WITHIN / 2:
            return count
    return None
