"""Statistics of samples: the median, its interval, and whether there is one mode or two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

CONFIDENCE = 0.95
# Two modes are worth a mark when the dip test rejects one mode at this level ...
DIP_LEVEL = 0.01
# ... each holds this share of the samples, and their medians lie this far apart.
LEAST_SHARE = 0.1
SPIKES = 0.03  # share at either end that must not draw the split to itself
LEAST_SEPARATION = 0.01
LEAST_FOR_INTERVAL = 6  # below, even the range encloses the median in under 95 % of cases


@dataclass(frozen=True, slots=True)
class Modes:
    """Medians of the two modes, in microseconds, and the slower one's share."""

    fast_us: float
    slow_us: float
    slow_share: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Median with its 95 % interval, microseconds; `modes` where there are two."""

    median_us: float
    low_us: float
    high_us: float
    count: int
    modes: Modes | None = None

    @property
    def has_interval(self) -> bool:
        """Whether the samples are enough for a 95 % interval; below, low and high are the range."""
        return self.count >= LEAST_FOR_INTERVAL

    @property
    def half_width(self) -> float:
        """Half the interval over the median."""
        return (self.high_us - self.low_us) / 2 / self.median_us


def summarise(time_us: Sequence[float], *, find_modes: bool = True) -> Summary:
    """Summary of samples in any order."""
    ordered = np.sort(np.asarray(time_us, dtype=np.float64))
    rank = interval_rank(len(ordered))
    modes = _modes(ordered) if find_modes else None
    return Summary(
        _middle(ordered),
        float(ordered[rank]),
        float(ordered[-1 - rank]),
        len(ordered),
        modes,
    )


@cache
def interval_rank(count: int) -> int:
    """Order statistics [rank] and [-1-rank] enclose the median with 95 % confidence.

    The binomial interval (Conover, Practical Nonparametric Statistics, 3.2): no assumption on the
    distribution but independence. Below 6 samples it is the range, with less confidence.
    """
    from scipy.special import bdtr

    rank = 0
    while rank + 2 < count / 2 and 2 * bdtr(rank + 1, count, 0.5) <= 1 - CONFIDENCE:
        rank += 1
    return rank


def _middle(ordered: np.ndarray) -> float:
    """Median of what is sorted; np.median would partition it again, at ten times the cost."""
    count = len(ordered)
    return float(ordered[(count - 1) // 2] + ordered[count // 2]) / 2


def _modes(ordered: np.ndarray) -> Modes | None:
    """Two modes, if the dip test (Hartigan 1985) says so and they matter."""
    count = len(ordered)
    if count < 20 or ordered[-1] - ordered[0] < LEAST_SEPARATION * ordered[0]:
        return None
    split = _split(np.clip(ordered, *np.quantile(ordered, [SPIKES, 1 - SPIKES])))
    fast, slow = _middle(ordered[:split]), _middle(ordered[split:])
    share = (count - split) / count
    if not LEAST_SHARE <= share <= 1 - LEAST_SHARE or slow - fast < LEAST_SEPARATION * fast:
        return None
    if _dip_p(ordered) > DIP_LEVEL:
        return None
    return Modes(fast, slow, share)


def _split(ordered: np.ndarray) -> int:
    """The split into two groups with the least variance within them (Otsu 1979)."""
    count = np.arange(1, len(ordered))
    below = np.cumsum(ordered)[:-1]
    above = ordered.sum() - below
    between = below**2 / count + above**2 / (len(ordered) - count)
    return int(np.argmax(between)) + 1


def _dip_p(ordered: np.ndarray) -> float:
    """p of one mode. Clocks tick: ties are spread over a tick, or every tick would be a mode."""
    from diptest import diptest

    steps = np.diff(ordered)
    tick = steps[steps > 0].min()
    spread = (np.random.default_rng(0).random(len(ordered)) - 0.5) * tick
    return float(diptest(np.sort(ordered + spread))[1])
