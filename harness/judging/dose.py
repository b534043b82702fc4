"""Dose and response: which counter does time follow over all values of a knob?

A counter explains the time if one cost a count, the same at every step of the knob, gives each
step's time within its interval. Costs are not negative: more work is never faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

MOST_MECHANISMS = 2
ALIKE = 0.02  # counters whose steps are proportional within this are one candidate


@dataclass(frozen=True, slots=True)
class Step:
    """The change of time from one value of the knob to the next, microseconds."""

    low_us: float
    middle_us: float
    high_us: float

    def holds(self, us: float) -> bool:
        return self.low_us <= us <= self.high_us


@dataclass(frozen=True, slots=True)
class Explanation:
    """Counters with a cost each, and what they give at every step.

    It is `tested` where they move at more steps than they have costs: as many costs as steps would
    fit nearly any times.
    """

    counters: tuple[str, ...]
    us_per_count: tuple[float, ...]
    steps_us: tuple[float, ...]
    fits: bool
    tested: bool


def candidates(counters: Mapping[str, Sequence[float]]) -> dict[str, tuple[str, ...]]:
    """Counters that move, one for each direction of movement, with those that move alike."""
    found: dict[str, tuple[str, ...]] = {}
    for name, values in counters.items():
        deltas = np.diff(values)
        if not deltas.any():
            continue
        twin = next((k for k in found if _proportional(deltas, np.diff(counters[k]))), None)
        if twin is None:
            found[name] = ()
        else:
            found[twin] += (name,)
    return found


def _proportional(one: np.ndarray, other: np.ndarray) -> bool:
    first, second = one / np.abs(one).max(), other / np.abs(other).max()
    return bool(np.abs(first - second).max() <= ALIKE)


def explain(
    steps: Sequence[Step], counters: Mapping[str, Sequence[float]], names: Sequence[str]
) -> Explanation:
    """The best costs of the named counters: by least squares, else any that fit."""
    deltas = np.array([np.diff(counters[name]) for name in names], dtype=float).T
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


def _fit(steps: Sequence[Step], deltas: np.ndarray, cost: np.ndarray) -> bool:
    given = deltas @ cost
    return bool(cost.all()) and all(s.holds(us) for s, us in zip(steps, given, strict=True))


def _least_squares(steps: Sequence[Step], deltas: np.ndarray) -> np.ndarray:
    """Costs, none negative, that miss the steps' middles least, in widths of their intervals."""
    from scipy.optimize import nnls

    width = np.array([max((s.high_us - s.low_us) / 2, 1e-9) for s in steps])
    middle = np.array([step.middle_us for step in steps])
    cost: np.ndarray = nnls(deltas / width[:, None], middle / width)[0]
    return cost


def _least_worst(steps: Sequence[Step], deltas: np.ndarray) -> np.ndarray | None:
    """Costs, none negative, whose worst miss is the least: if any fit, these do.

    None where steps without width cannot all be met.
    """
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
    """Every single counter and, where no single one fits, every pair that does.

    None where the time does not move.
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
