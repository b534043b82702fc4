"""Statistics: intervals against the textbook and by coverage, modes by how often they are found.

Rates are over seeds that stand here, so a run that passed once passes always.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from math import comb, sqrt
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagebench.harness.timing.clocks.interval import interval_rank
from pagebench.harness.timing.stats import summarise

Draw = Callable[[np.random.Generator, int], np.ndarray]


def normal(mean: float, spread: float) -> Draw:
    return lambda random, count: random.normal(mean, spread, count)


def mixture(slow_us: float, share: float, spread: float = 0.5) -> Draw:
    """Most samples about 100 us, a share of them about `slow_us`."""

    def draw(random: np.random.Generator, count: int) -> np.ndarray:
        middle = np.where(random.random(count) < share, slow_us, 100.0)
        return middle + random.normal(0, spread, count)

    return draw


def ticking(draw: Draw, tick_us: float) -> Draw:
    """As a clock gives it: whole ticks, rounded to nanoseconds like a record."""
    return lambda random, count: np.round(np.round(draw(random, count) / tick_us) * tick_us, 3)


def found_rate(draw: Draw, count: int, seeds: int = 200) -> float:
    """How often two modes are found."""
    drawn = (draw(np.random.default_rng(seed), count) for seed in range(seeds))
    found = [summarise(values.tolist()).modes for values in drawn]
    return sum(modes is not None for modes in found) / seeds


# --- Intervals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(6, 1, 6), (7, 1, 7), (8, 1, 8), (9, 2, 8), (10, 2, 9), (11, 2, 10), (12, 3, 10), (15, 4, 12),
     (20, 6, 15), (25, 8, 18), (30, 10, 21), (50, 18, 33), (100, 40, 61)],
)  # fmt: skip
def test_the_interval_lies_between_the_textbooks_ranks(count: int, low: int, high: int) -> None:
    summary = summarise(np.arange(1.0, count + 1)[::-1].tolist())
    assert (summary.low_us, summary.high_us) == (low, high)
    assert (summary.median_us, summary.count) == ((count + 1) / 2, count)


def outside(rank: int, count: int) -> float:
    """Chance that the median lies outside order statistics [rank] and [-1-rank]."""
    return 2 * sum(comb(count, below) for below in range(rank + 1)) * 0.5**count


@pytest.mark.parametrize("count", range(6, 201))
def test_the_interval_is_the_narrowest_of_95_per_cent(count: int) -> None:
    rank = interval_rank(count)
    assert outside(rank, count) <= 0.05 < outside(rank + 1, count)


@pytest.mark.parametrize("count", range(1, 6))
def test_fewer_than_six_samples_give_their_range(count: int) -> None:
    summary = summarise([float(value) for value in range(1, count + 1)])
    assert (summary.low_us, summary.high_us) == (1, count)


SKEWED: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float]] = {
    "exponential": (lambda random, count: random.exponential(1, count), np.log(2)),
    "lognormal": (lambda random, count: random.lognormal(0, 2, count), 1.0),
    "pareto": (lambda random, count: random.pareto(1, count), 1.0),
}


@pytest.mark.parametrize("count", [10, 30, 200])
@pytest.mark.parametrize("skewed", SKEWED)
def test_the_interval_covers_the_median_of_skewed_data_as_often_as_it_says(
    skewed: str, count: int
) -> None:
    draw, median = SKEWED[skewed]
    trials, exact = 1000, 1 - outside(interval_rank(count), count)
    samples = (draw(np.random.default_rng(seed), count) for seed in range(trials))
    found = [summarise(values.tolist(), find_modes=False) for values in samples]
    covered = np.mean([summary.low_us <= median <= summary.high_us for summary in found])
    assert 0.95 <= exact < 0.98
    assert abs(covered - exact) <= 4 * sqrt(exact * (1 - exact) / trials)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=200), st.randoms())
def test_the_order_of_samples_does_not_matter(times: list[float], random: Random) -> None:
    shuffled = random.sample(times, len(times))
    summary = summarise(times)
    assert summarise(shuffled) == summary
    assert min(times) <= summary.low_us <= summary.median_us <= summary.high_us <= max(times)


def test_the_half_width_is_half_the_interval_over_the_median() -> None:
    assert summarise([98.0, 99.0, 100.0, 100.0, 103.0, 106.0]).half_width == pytest.approx(0.04)


# --- Modes ----------------------------------------------------------------------------------------

BIMODAL = {
    "far": (mixture(110, 0.3), 200),
    "far, few samples": (mixture(110, 0.4), 60),
    "near": (mixture(104, 0.5), 200),
    "ticking": (ticking(mixture(110, 0.3), 0.5), 200),
    "one in five": (mixture(110, 0.2), 200),
    "mostly slow": (mixture(110, 0.8), 200),
}


@pytest.mark.parametrize("case", BIMODAL)
def test_two_modes_are_found_19_times_in_20(case: str) -> None:
    assert found_rate(*BIMODAL[case]) >= 0.95


UNIMODAL: dict[str, Draw] = {
    "normal": normal(100, 2),
    "t4": lambda random, count: 100 + random.standard_t(4, count),
    "exponential": lambda random, count: 100 + random.exponential(3, count),
    "lognormal": lambda random, count: random.lognormal(0, 1, count),
    "uniform": lambda random, count: random.uniform(95, 105, count),
    "ticks of 32 ns": ticking(normal(5, 0.05), 0.032),
    "ticks of 0.5 us": ticking(normal(100, 1), 0.5),
    "ticks of a third": ticking(normal(50, 1), 1 / 3),
    "ticks wider than the noise": ticking(normal(100, 0.4), 1),
}


@pytest.mark.parametrize("count", [20, 50, 200])
@pytest.mark.parametrize("case", UNIMODAL)
def test_one_mode_is_called_two_at_most_twice_in_100(case: str, count: int) -> None:
    assert found_rate(UNIMODAL[case], count) <= 0.02


def test_the_modes_medians_and_the_slow_share_are_those_put_in() -> None:
    modes = summarise(mixture(110, 0.3)(np.random.default_rng(0), 200).tolist()).modes
    assert modes is not None
    assert (modes.fast_us, modes.slow_us) == pytest.approx((100, 110), abs=0.2)
    assert modes.slow_share == pytest.approx(0.3, abs=0.1)


def test_the_modes_are_exact_where_the_groups_are() -> None:
    fast = [100.0 + step / 10 for step in range(30)]  # median 101.45
    slow = [120.0 + step / 10 for step in range(10)]  # median 120.45
    modes = summarise(fast + slow).modes
    assert modes is not None
    assert astuple(modes) == pytest.approx((101.45, 120.45, 0.25))


@pytest.mark.parametrize(("slow", "marked"), [(20, True), (19, False)])
def test_a_mode_of_less_than_a_tenth_of_the_samples_is_not_marked(slow: int, marked: bool) -> None:
    times = [*np.linspace(100, 101, 200 - slow), *np.linspace(120, 121, slow)]
    assert (summarise(times).modes is not None) == marked


def test_a_single_spike_hides_no_modes() -> None:
    times = mixture(110, 0.3)(np.random.default_rng(0), 199).tolist()
    assert summarise([*times, 300.0]).modes is not None


NOT_WORTH_A_MARK = {
    "a few samples in a hundred": (mixture(110, 0.04), 200),
    "less than one per cent apart": (mixture(100.6, 0.5, spread=0.05), 200),
    "fewer than twenty samples": (mixture(110, 0.5), 19),
}


@pytest.mark.parametrize("case", NOT_WORTH_A_MARK)
def test_modes_that_do_not_matter_are_not_marked(case: str) -> None:
    assert found_rate(*NOT_WORTH_A_MARK[case], seeds=100) <= 0.02


def test_modes_are_not_looked_for_where_they_are_not_wanted() -> None:
    times = mixture(110, 0.5)(np.random.default_rng(0), 200).tolist()
    assert summarise(times, find_modes=False).modes is None


@pytest.mark.parametrize("count", [1, 20, 200])
def test_constant_samples_have_an_interval_of_no_width_and_one_mode(count: int) -> None:
    summary = summarise([5.5] * count)
    assert (summary.median_us, summary.low_us, summary.high_us) == (5.5, 5.5, 5.5)
    assert (summary.half_width, summary.modes) == (0, None)
