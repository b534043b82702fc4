"""Which counter does the time follow over all values of a knob?

A counter explains the time if one cost per count, the same at every step of the knob, gives a time
within every step's interval. Costs are not negative: more work is never faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from pagebench.harness.records.dose import Dose, Step

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

MOST_MECHANISMS = 2
ALIKE = 0.02  # counters whose steps are proportional within this are one candidate


@dataclass(frozen=True, slots=True)
class Explanation:
    """Counters, the cost per count of each, and the time in us that they give at every step.

    It `fits` if every time lies in its step's interval. It is `tested` if the counters change at
    more steps than there are costs: as many costs as steps would fit nearly any times.
    """

    counters: tuple[str, ...]
    us_per_count: tuple[float, ...]
    steps_us: tuple[float, ...]
    fits: bool
    tested: bool


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The explanations that were `tried`, and the counters of those that fit.

    The time `follows` the counters of tested explanations; `untested` holds the others.
    """

    tried: tuple[Explanation, ...]
    follows: tuple[tuple[str, ...], ...]
    untested: tuple[tuple[str, ...], ...]


def conclude(dose: Dose) -> Conclusion:
    """What the dose's steps and counters show; nothing is tried where it has no counters."""
    tried = explanations(dose.steps, dose.counters)
    fitting = [each for each in tried if each.fits]
    return Conclusion(
        tuple(tried),
        follows=tuple(each.counters for each in fitting if each.tested),
        untested=tuple(each.counters for each in fitting if not each.tested),
    )


def candidates(counters: Mapping[str, Sequence[float]]) -> dict[str, tuple[str, ...]]:
    """Counters that change, one for each pattern of change, each with those that change alike."""
    found: dict[str, tuple[str, ...]] = {}
    for name, values in counters.items():
        deltas = _deltas(values)
        if not any(deltas):
            continue
        twin = next((k for k in found if _proportional(deltas, _deltas(counters[k]))), None)
        if twin is None:
            found[name] = ()
        else:
            found[twin] += (name,)
    return found


def _deltas(values: Sequence[float]) -> list[float]:
    """What each step of the knob adds."""
    return [after - before for before, after in pairwise(values)]


def _proportional(one: Sequence[float], other: Sequence[float]) -> bool:
    most_of_one, most_of_other = (max(map(abs, deltas)) for deltas in (one, other))
    shares = ((a / most_of_one, b / most_of_other) for a, b in zip(one, other, strict=True))
    return all(abs(a - b) <= ALIKE for a, b in shares)


def explain(
    steps: Sequence[Step], counters: Mapping[str, Sequence[float]], names: Sequence[str]
) -> Explanation:
    """The best costs of the named counters: those by least squares, else any that fit."""
    import numpy as np

    deltas = np.array([_deltas(counters[name]) for name in names], dtype=float).T
    scale = np.abs(deltas).max(axis=0)
    scaled = deltas / scale
    ways = (way(steps, scaled) for way in (_least_squares, _least_worst))
    costs = [cost for cost in ways if cost is not None]
    fitting = [cost for cost in costs if _fit(steps, scaled, cost)]
    cost = (fitting or costs)[0] / scale
    given = deltas @ cost
    tested = int((np.abs(deltas) > ALIKE * scale).any(axis=1).sum()) > len(names)
    return Explanation(
        tuple(names), tuple(map(float, cost)), tuple(map(float, given)), bool(fitting), tested
    )


def _fit(steps: Sequence[Step], deltas: Floats, cost: Floats) -> bool:
    given = deltas @ cost
    return bool(cost.all()) and all(s.holds(us) for s, us in zip(steps, given, strict=True))


def _least_squares(steps: Sequence[Step], deltas: Floats) -> Floats:
    """Least-squares costs, none negative; residuals are in half-widths of the steps' intervals."""
    import numpy as np
    from scipy.optimize import nnls

    width = np.array([max((s.high_us - s.low_us) / 2, 1e-9) for s in steps])
    middle = np.array([step.middle_us for step in steps])
    cost: Floats = nnls(deltas / width[:, None], middle / width)[0]
    return cost


def _least_worst(steps: Sequence[Step], deltas: Floats) -> Floats | None:
    """Costs, none negative, with the smallest worst residual: if any costs fit, these do.

    None where the linear programme has no solution.
    """
    import numpy as np
    from scipy.optimize import linprog

    below = np.array([[max(step.middle_us - step.low_us, 1e-9)] for step in steps])
    above = np.array([[max(step.high_us - step.middle_us, 1e-9)] for step in steps])
    middle = np.array([step.middle_us for step in steps])
    rows = np.block([[deltas, -above], [-deltas, -below]])
    goal = np.r_[np.zeros(deltas.shape[1]), 1.0]
    found = linprog(goal, rows, np.r_[middle, -middle]).x
    return None if found is None else np.asarray(found[:-1])


def explanations(
    steps: Sequence[Step], counters: Mapping[str, Sequence[float]]
) -> list[Explanation]:
    """Every single counter and, where no single one fits, every pair that fits.

    Empty where the time does not change, or there are no counters.
    """
    if not moves(steps):
        return []
    names = tuple(candidates(counters))
    single = [explain(steps, counters, (name,)) for name in names]
    if any(one.fits for one in single):
        return single
    pairs = (explain(steps, counters, pair) for pair in combinations(names, MOST_MECHANISMS))
    return single + [pair for pair in pairs if pair.fits]


def moves(steps: Sequence[Step]) -> bool:
    """Whether the time changes at any step."""
    return any(not step.holds(0.0) for step in steps)
