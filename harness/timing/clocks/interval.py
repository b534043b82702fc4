"""The median of samples, and the interval that encloses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

CONFIDENCE = 0.95
LEAST_FOR_INTERVAL = 6  # below, even the range encloses the median in under 95 % of cases


@dataclass(frozen=True, slots=True)
class Interval:
    """Median of `count` samples with its 95 % interval, in microseconds."""

    median_us: float
    low_us: float
    high_us: float
    count: int

    @property
    def has_interval(self) -> bool:
        """Whether the samples are enough for a 95 % interval; below, low and high are the range."""
        return self.count >= LEAST_FOR_INTERVAL

    @property
    def half_width(self) -> float:
        """Half the interval over the median."""
        return (self.high_us - self.low_us) / 2 / self.median_us


def interval(time_us: Sequence[float]) -> Interval:
    """The interval of samples in microseconds, in any order."""
    return interval_of_sorted(np.sort(np.asarray(time_us, dtype=np.float64)))


def interval_of_sorted(ordered: np.ndarray) -> Interval:
    """The interval of float64 [count] in microseconds, in ascending order."""
    rank = interval_rank(len(ordered))
    low, high = float(ordered[rank]), float(ordered[-1 - rank])
    return Interval(middle(ordered), low, high, len(ordered))


@cache
def interval_rank(count: int) -> int:
    """Order statistics [rank] and [-1-rank] enclose the median with 95 % confidence.

    The binomial interval (Conover, Practical Nonparametric Statistics, 3.2). It assumes only
    independence. Below 6 samples it is the range, with less confidence.
    """
    from scipy.special import bdtr

    rank = 0
    while rank + 2 < count / 2 and 2 * bdtr(rank + 1, count, 0.5) <= 1 - CONFIDENCE:
        rank += 1
    return rank


def middle(ordered: np.ndarray) -> float:
    """Median of sorted values; np.median would partition them again, at ten times the cost."""
    count = len(ordered)
    return float(ordered[(count - 1) // 2] + ordered[count // 2]) / 2
