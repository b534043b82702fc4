"""Statistics of samples: the median, its interval, and whether there is one mode or two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pagebench.harness.timing.clocks.interval import Interval, interval_of_sorted, middle

# Two modes are reported if the dip test rejects one mode at this level, ...
DIP_LEVEL = 0.01
# ... each has this share of the samples, and their medians differ by this much, relatively.
LEAST_SHARE = 0.1
SPIKES = 0.03  # share of samples at either end that is clipped before the split
LEAST_SEPARATION = 0.01


@dataclass(frozen=True, slots=True)
class Modes:
    """Medians of the two modes, in microseconds, and the slower one's share."""

    fast_us: float
    slow_us: float
    slow_share: float


@dataclass(frozen=True, slots=True)
class Summary(Interval):
    """Median with its 95 % interval, microseconds; `modes` where there are two."""

    modes: Modes | None = None


def summarise(time_us: Sequence[float], *, find_modes: bool = True) -> Summary:
    """Summary of samples in microseconds, in any order."""
    ordered = np.sort(np.asarray(time_us, dtype=np.float64))
    found = interval_of_sorted(ordered)
    modes = _modes(ordered) if find_modes else None
    return Summary(found.median_us, found.low_us, found.high_us, found.count, modes)


def _modes(ordered: np.ndarray) -> Modes | None:
    """Two modes, if the dip test (Hartigan 1985) rejects one and both are large and distinct."""
    count = len(ordered)
    if count < 20 or ordered[-1] - ordered[0] < LEAST_SEPARATION * ordered[0]:
        return None
    split = _split(np.clip(ordered, *np.quantile(ordered, [SPIKES, 1 - SPIKES])))
    fast, slow = middle(ordered[:split]), middle(ordered[split:])
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
    """p-value of one mode. Ties are spread over a clock tick, or every tick would be a mode."""
    from diptest import diptest

    steps = np.diff(ordered)
    tick = steps[steps > 0].min()
    spread = (np.random.default_rng(0).random(len(ordered)) - 0.5) * tick
    return float(diptest(np.sort(ordered + spread))[1])
