"""Did the time change? A test on interleaved samples that bears drift and two modes.

Samples come as quads A B B A: the log ratio of a quad, (B + B - A - A) / 2, cancels linear drift. A
process gives one number, the median of its quads. Processes are what is independent, since modes
and page placement change between them, so the interval is Student's over processes, at looks
fixed beforehand with the error shared among them (Bonferroni). Rates by simulation are in
tests/test_change.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, median, stdev

LOOKS = (3, 5, 8)  # processes after which a decision may be made
ERROR = 0.05  # chance of a wrong "changed", all looks together
SAME_WITHIN = 0.01  # an interval inside these bounds is "same"
LEAST_EFFECT = 0.002  # a smaller difference is decided but not worth a word
POWER = 0.8  # of the smallest detectable effect that is stated

Quad = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Change:
    """`word` is changed, same or unclear; ratio is B over A with the interval decided on."""

    word: str
    ratio: float
    low: float
    high: float
    processes: int
    detectable: float  # relative effect that would be found with 80 % power

    @property
    def decided(self) -> bool:
        return self.word != "unclear"


def process_effect(quads: Sequence[Quad]) -> float:
    """Median log ratio of B over A in one process; times in any unit."""
    return median((log(b) + log(c) - log(a) - log(d)) / 2 for a, b, c, d in quads)


def change(effects: Sequence[float]) -> Change:
    """What the effects of 2 or more processes say. ValueError on fewer."""
    from scipy.special import stdtrit

    count = len(effects)
    if count < 2:
        raise ValueError("a change is judged over processes: give two or more")
    middle = fmean(effects)
    spread = stdev(effects) / sqrt(count)
    quantile = float(stdtrit(count - 1, 1 - ERROR / len(LOOKS) / 2))
    low, high = middle - quantile * spread, middle + quantile * spread
    power = float(stdtrit(count - 1, POWER))
    return Change(
        _word(middle, low, high),
        exp(middle),
        exp(low),
        exp(high),
        count,
        exp((quantile + power) * spread) - 1,
    )


def _word(middle: float, low: float, high: float) -> str:
    if low > 0 or high < 0:
        return "changed" if abs(middle) >= LEAST_EFFECT else "same"
    if low > -SAME_WITHIN and high < SAME_WITHIN:
        return "same"
    return "unclear"


def may_stop(effects: Sequence[float]) -> bool:
    """Whether this is a look at which the effects decide, or the last one."""
    count = len(effects)
    return count >= LOOKS[-1] or (count in LOOKS and change(effects).decided)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for several contrasts at once (Holm 1979), in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, worst = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        worst = max(worst, min(1.0, p_values[index] * (len(p_values) - rank)))
        corrected[index] = worst
    return corrected


def p_value(effects: Sequence[float]) -> float:
    """Two-sided p of no change, Student's t over processes."""
    from scipy.special import stdtr

    spread = stdev(effects) / sqrt(len(effects))
    if spread == 0:
        return float(fmean(effects) == 0)
    return float(2 * stdtr(len(effects) - 1, -abs(fmean(effects)) / spread))
