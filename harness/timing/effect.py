"""Did the time change? A test on interleaved samples that tolerates drift and two modes.

Samples come in rounds there and back, A B B A: the log ratio of a round, (B + B - A - A) / 2,
cancels linear drift. A process gives one number, the median of its rounds. Only processes
are independent, since modes and levels change between them, so the interval is Student's over
processes, at looks fixed beforehand. The error is shared among the looks and among all differences
judged together (Bonferroni). Error rates, simulated and on recorded samples, are in
tests/harness/timing/test_effect.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt
from statistics import fmean, median, stdev

from pagebench.harness.records.verdict import Change

LOOKS = (4, 6, 8)  # processes after which a decision may be made
ERROR = 0.05  # chance of a wrong "changed", all looks and differences together
SAME_WITHIN = 0.01  # an interval inside these bounds is "same"
LEAST_EFFECT = 0.004  # two copies of one cell in one process differ by this much (docs/log.md)
MOST_LOG = log(1000)
POWER = 0.8  # of the detectable effect that a record has

Round = Sequence[float]  # times of n cells there and back: 2 n of them, in any unit


def process_effect(rounds: Sequence[Round], step: int = 0) -> float:
    """Median log ratio of cell step + 1 over cell step in one process."""
    return median(_log(each, step + 1) - _log(each, step) for each in rounds)


def _log(each: Round, cell: int) -> float:
    """Mean log time of that cell's two samples in a round; they lie evenly about its middle."""
    return (log(each[cell]) + log(each[-1 - cell])) / 2


def change(effects: Sequence[float], among: int = 1) -> Change:
    """The change that 2 or more processes' log ratios show, as one of `among` judged together.

    ValueError for fewer than 2.
    """
    from scipy.special import stdtrit

    count = len(effects)
    if count < 2:
        raise ValueError("judging a change needs two or more processes")
    middle = fmean(effects)
    spread = stdev(effects) / sqrt(count)
    quantile = float(stdtrit(count - 1, 1 - ERROR / len(LOOKS) / among / 2))
    low, high = middle - quantile * spread, middle + quantile * spread
    power = float(stdtrit(count - 1, POWER))
    least = power * spread + max(LEAST_EFFECT, quantile * spread)
    return Change(
        word=_word(middle, low, high),
        ratio=_ratio(middle),
        low=_ratio(low),
        high=_ratio(high),
        processes=count,
        detectable=_ratio(least) - 1,
        error=ERROR,
    )


def _ratio(log_ratio: float) -> float:
    """The ratio, limited to a factor of 1000: two noisy processes can give bounds far beyond."""
    return exp(min(max(log_ratio, -MOST_LOG), MOST_LOG))


def _word(middle: float, low: float, high: float) -> str:
    if low > 0 or high < 0:
        return "changed" if abs(middle) >= LEAST_EFFECT else "same"
    if low > -SAME_WITHIN and high < SAME_WITHIN:
        return "same"
    return "unclear"


def may_stop(effects: Sequence[float], among: int = 1) -> bool:
    """Whether this is a look at which the effects decide, or the last one."""
    count = len(effects)
    return count >= LOOKS[-1] or (count in LOOKS and change(effects, among).is_decided)
