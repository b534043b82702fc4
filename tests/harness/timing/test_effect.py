"""Whether the time changed: rates over many simulated cells, not single draws."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log

import numpy as np
import pytest

from pagebench.harness.timing.effect import (
    LOOKS,
    Round,
    _word,
    change,
    may_stop,
    process_effect,
)

TRIALS = 300
Noise = Callable[[np.random.Generator, int], np.ndarray]


def heavy(rng: np.random.Generator, count: int) -> np.ndarray:
    return 0.005 / np.sqrt(2) * rng.standard_t(4, count)


def drifting(rng: np.random.Generator, count: int) -> np.ndarray:
    return heavy(rng, count) + np.cumsum(rng.normal(0, 0.005, count))


def two_modes(rng: np.random.Generator, count: int) -> np.ndarray:
    return heavy(rng, count) + 0.04 * (rng.random(count) < 0.4)


def ticking(rng: np.random.Generator, count: int) -> np.ndarray:
    """A clock of 0.1 %: most samples tie."""
    return np.round(rng.normal(0, 0.001, count), 3)


def rounds(rng: np.random.Generator, noise: Noise, effect: float, flip: float) -> list[Round]:
    """25 rounds of one process; with `flip`, each cell picks one of two modes for the process."""
    modes = flip * (rng.random(2) < 0.5)
    logs = noise(rng, 100).reshape(25, 4) + np.array([0, effect, effect, 0])
    logs = logs + np.array([modes[0], modes[1], modes[1], modes[0]])
    logs = logs + rng.normal(0, 0.001) * np.array([0, 1, 1, 0])  # placement of the process
    return [tuple(row) for row in np.exp(logs) * 100]


def words(noise: Noise, effect: float, flip: float = 0.0) -> dict[str, float]:
    """Share of each word over many experiments, stopped as `judge` stops them."""
    rng, counts = np.random.default_rng(7), dict[str, int]()
    for _ in range(TRIALS):
        effects: list[float] = []
        while not may_stop(effects):
            effects.append(process_effect(rounds(rng, noise, effect, flip)))
        word = change(effects).word
        counts[word] = counts.get(word, 0) + 1
    return {word: count / TRIALS for word, count in counts.items()}


@pytest.mark.parametrize("noise", [heavy, drifting, two_modes, ticking])
def test_a_against_a_is_called_changed_in_at_most_two_per_cent(noise: Noise) -> None:
    assert words(noise, 0.0).get("changed", 0) <= 0.02


def test_modes_that_flip_between_processes_are_no_effect() -> None:
    found = words(heavy, 0.0, flip=0.03)
    assert found.get("changed", 0) <= 0.03
    assert found["unclear"] > 0.5


@pytest.mark.parametrize("noise", [heavy, drifting, ticking])
def test_a_slowdown_of_one_per_cent_is_found(noise: Noise) -> None:
    assert words(noise, 0.01).get("changed", 0) >= 0.95


def test_a_slowdown_of_two_per_cent_is_found_between_two_modes() -> None:
    assert words(two_modes, 0.02).get("changed", 0) >= 0.95


def test_a_against_a_is_called_same() -> None:
    assert words(heavy, 0.0).get("same", 0) >= 0.95


@pytest.mark.parametrize("spread", [0.0002, 0.001, 0.002])
def test_the_effect_stated_after_four_processes_is_found_with_the_stated_power(
    spread: float,
) -> None:
    rng = np.random.default_rng(11)
    stated = float(np.median([change(rng.normal(0, spread, 4)).detectable for _ in range(TRIALS)]))
    found = 0
    for _ in range(TRIALS):
        effects: list[float] = []
        while not may_stop(effects):
            effects.append(rng.normal(log(1 + stated), spread))
        found += change(effects).word == "changed"
    assert found / TRIALS >= 0.75


def test_linear_drift_cancels_within_a_round() -> None:
    logs = [0.0, 0.1 + 0.01, 0.2 + 0.01, 0.3]
    assert process_effect([tuple(map(exp, logs))]) == pytest.approx(0.01)


def test_the_interval_encloses_the_ratio_and_states_what_it_would_find() -> None:
    found = change([log(1.02), log(1.021), log(1.019)])
    assert found.word == "changed"
    assert found.ratio == pytest.approx(1.02, abs=1e-4)
    assert found.low < found.ratio < found.high
    assert 0 < found.detectable < 0.01


def test_processes_are_added_until_a_look_decides() -> None:
    first, *_, last = LOOKS
    assert not may_stop([0.02, 0.0201, 0.0199][: first - 1])
    assert may_stop([0.02, 0.0201, 0.0199, 0.02][:first])
    assert not may_stop([0.02, 0.0201, 0.0199, 0.02, 0.02][: first + 1])  # no look there
    assert not may_stop([0.0, 0.05, -0.05, 0.0][:first])
    assert may_stop([0.0, 0.05, -0.05, 0.0, 0.05, -0.05, 0.0, 0.05][:last])


def test_what_is_too_small_to_be_called_changed_is_not_detectable() -> None:
    found = change([0.0018, 0.00181, 0.00179, 0.0018])
    assert (found.word, found.low > 1) == ("same", True)
    assert found.detectable >= 0.004


@pytest.mark.parametrize(
    ("low", "ratio", "high", "word"),
    [
        (0.9915, 0.9956, 0.9996, "changed"),  # it lies within 1 % too: leaving out 1 comes first
        (0.9949, 0.9970, 0.9991, "same"),  # it leaves out 1, by less than copies of a cell do
        (0.9916, 0.9996, 1.0076, "same"),
        (0.9880, 0.9950, 1.0020, "unclear"),
    ],
)
def test_an_interval_that_leaves_out_1_is_no_other_word_unless_the_effect_is_least(
    low: float, ratio: float, high: float, word: str
) -> None:
    assert _word(log(ratio), log(low), log(high)) == word


def test_two_wild_processes_have_no_infinite_bounds() -> None:
    found = change([0.0, 2.2], among=9)
    assert (found.word, found.high) == ("unclear", pytest.approx(1000))


def test_one_process_is_no_evidence() -> None:
    with pytest.raises(ValueError, match="two or more"):
        change([0.1])


def test_differences_judged_together_share_the_error() -> None:
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(TRIALS):
        found = [change(rng.normal(0, 0.003, 5).tolist(), among=9) for _ in range(9)]
        wrong += any(each.word == "changed" for each in found)
    assert wrong / TRIALS <= 0.025
