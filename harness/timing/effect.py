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
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, median, stdev, variance

from msgspec.structs import replace

from pagebench.harness.records.verdict import Change

LOOKS = (4, 6, 8)  # processes after which a decision may be made
ERROR = 0.05  # chance of a wrong "changed", all looks and differences together
SAME_WITHIN = 0.01  # an interval inside these bounds is "same"
LEAST_EFFECT = 0.004  # two copies of one cell in one process differ by this much (docs/log.md)
MOST_LOG = log(1000)
LEAST_KNOWN = 4  # measurements that say what noise is usual
MOST_ALIKE = 100.0  # degrees of freedom of the usual noise
POWER = 0.8  # of the detectable effect that a record has

Round = Sequence[float]  # times of n cells there and back: 2 n of them, in any unit


def process_effect(rounds: Sequence[Round], step: int = 0) -> float:
    """Median log ratio of cell step + 1 over cell step in one process."""
    return median(_log(each, step + 1) - _log(each, step) for each in rounds)


def _log(each: Round, cell: int) -> float:
    """Mean log time of that cell's two samples in a round; they lie evenly about its middle."""
    return (log(each[cell]) + log(each[-1 - cell])) / 2


@dataclass(frozen=True, slots=True)
class Noise:
    """A variance of log times between processes, and the degrees of freedom that it has."""

    variance: float
    freedom: float

    def of(self, seen: float, freedom: float) -> Noise:
        """The variance that processes show, drawn towards this one as far as this one is sure, and
        never less: processes that agree are luck more often than merit."""
        whole = self.freedom + freedom
        drawn = (self.freedom * self.variance + freedom * seen) / whole
        return Noise(max(drawn, self.variance), whole)

    @property
    def half(self) -> Noise:
        """Half as sure: what each of two sides knows of it, for together they know it once."""
        return Noise(self.variance, self.freedom / 2)


UNKNOWN = Noise(0.0, 0.0)


def usual_noise(seen: Sequence[Noise]) -> Noise:
    """What variances of several measurements have in common (Smyth 2004): how large they are, and
    how alike. UNKNOWN for fewer than LEAST_KNOWN.

    A few processes that agree by chance would else make a measurement look exact.
    """
    from scipy.optimize import brentq
    from scipy.special import polygamma, psi

    known = [each for each in seen if each.variance > 0]
    if len(known) < LEAST_KNOWN:
        return UNKNOWN
    logs = [log(each.variance) - psi(each.freedom / 2) + log(each.freedom / 2) for each in known]
    apart = variance(logs) - fmean(float(polygamma(1, each.freedom / 2)) for each in known)
    freedom = MOST_ALIKE
    if apart > polygamma(1, MOST_ALIKE / 2):
        freedom = 2 * brentq(lambda x: polygamma(1, x) - apart, 1e-6, MOST_ALIKE / 2)
    return Noise(exp(fmean(logs) + float(psi(freedom / 2)) - log(freedom / 2)), freedom)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A log ratio from processes, its standard error, and the degrees of freedom of that error.

    `step` is what no number of processes makes certain: the step of a clock that all of them read.
    """

    middle: float
    spread: float
    freedom: float
    processes: int
    step: float = 0.0

    @property
    def p(self) -> float:
        """The chance of a log ratio at least so far from 0 where nothing changed."""
        from scipy.special import stdtr

        apart = abs(self.middle) - self.step
        if self.spread == 0 or apart <= 0:
            return float(apart <= 0)
        return 2 * float(stdtr(self.freedom, -apart / self.spread))

    def change(self, error: float) -> Change:
        """The change, by the interval that leaves out the true one with that chance."""
        from scipy.special import stdtrit

        half = float(stdtrit(self.freedom, 1 - error / 2)) * self.spread + self.step
        low, high = self.middle - half, self.middle + half
        power = float(stdtrit(self.freedom, POWER)) * self.spread
        return Change(
            word=_word(self.middle, low, high),
            ratio=_ratio(self.middle),
            low=_ratio(low),
            high=_ratio(high),
            processes=self.processes,
            detectable=_ratio(power + max(LEAST_EFFECT, half)) - 1,
            error=error,
        )


def paired(effects: Sequence[float]) -> Estimate:
    """From log ratios of processes that held both cells."""
    count = len(effects)
    return Estimate(fmean(effects), stdev(effects) / sqrt(count), count - 1, count)


def unpaired(
    base: Sequence[float], head: Sequence[float], usual: Noise = UNKNOWN, step: float = 0.0
) -> Estimate:
    """Of head over base, from log times of processes that held one of them each (Welch 1947).

    ValueError for fewer than 2 a side.
    """
    if min(len(base), len(head)) < 2:
        raise ValueError("comparing two sides needs two or more processes of each")
    sides = [usual.of(variance(side), len(side) - 1) for side in (base, head)]
    parts = [each.variance / len(side) for each, side in zip(sides, (base, head), strict=True)]
    whole, count = sum(parts), len(base) + len(head)
    shares = (part**2 / each.freedom for part, each in zip(parts, sides, strict=True))
    freedom = whole**2 / sum(shares) if whole else count - 2
    return Estimate(fmean(head) - fmean(base), sqrt(whole), freedom, count, step)


def change(effects: Sequence[float], among: int = 1) -> Change:
    """The change that 2 or more processes' log ratios show, as one of `among` judged together.

    ValueError for fewer than 2.
    """
    if len(effects) < 2:
        raise ValueError("judging a change needs two or more processes")
    found = paired(effects).change(ERROR / len(LOOKS) / among)
    return replace(found, error=ERROR)


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
