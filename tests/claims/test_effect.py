"""Rates and words of times recorded on the H200."""

from __future__ import annotations

import numpy as np
import pytest

from fakes import H200
from pagebench.harness.records import store
from pagebench.harness.records.rounds import Rounds
from pagebench.harness.records.verdict import Verdict
from pagebench.harness.timing.effect import (
    change,
    may_stop,
    process_effect,
)

FILES = [
    H200 / f"{name}.jsonl" for name in ("selftest", "study", "study_other_gpu", "study_third_gpu")
]


LONG = "tritontile_distinct_p64_l32768"


QUIET = {(LONG, LONG), ("xqa_distinct_p64_b32_l8192",) * 2}


SLOWER = {(LONG, f"{LONG}_y2500")}  # one per cent of its 242 us


def recorded_effects(pairs: set[tuple[str, ...]]) -> np.ndarray:
    """One effect a process, of three GPUs."""
    processes = store.read(FILES, Rounds).of(Rounds)
    timed = [each for each in processes if each.cells in pairs and each.status == "measured"]
    return np.array([process_effect(each.rounds) for each in timed])


def resampled(effects: np.ndarray, *, flip: bool) -> float:
    """Share of "changed" when processes are drawn anew; `flip` swaps A and B at random."""
    rng, changed = np.random.default_rng(11), 0
    for _ in range(2000):
        drawn: list[float] = []
        while not may_stop(drawn):
            drawn.append(rng.choice(effects) * (rng.choice([-1, 1]) if flip else 1))
        changed += change(drawn).word == "changed"
    return changed / 2000


@pytest.mark.skipif(not H200.exists(), reason="the records are not installed")
@pytest.mark.parametrize("flip", [True, False])
def test_recorded_a_against_a_is_called_changed_in_at_most_two_per_cent(flip: bool) -> None:
    effects = recorded_effects(QUIET)
    assert len(effects) == 48
    assert resampled(effects, flip=flip) <= 0.02


@pytest.mark.skipif(not H200.exists(), reason="the records are not installed")
def test_every_recorded_verdict_has_the_time_word_of_its_processes() -> None:
    for path in FILES[1:]:
        # Attacks time one of the pairs again in each process, after its contrast.
        first: dict[tuple[str, ...], dict[int, float]] = {}
        stored = store.read([path], Rounds, Verdict)
        for each in stored.of(Rounds):
            effects = first.setdefault(each.cells, {})
            effects.setdefault(each.process, process_effect(each.rounds))
        for verdict in stored.of(Verdict):
            mine, time = first[verdict.cells], verdict.time
            assert time is not None
            again = change([mine[n] for n in range(time.processes)], verdict.among)
            assert again.word == time.word, verdict.contrast
            assert again.ratio == pytest.approx(time.ratio)
            assert (again.low, again.high) == pytest.approx((time.low, time.high))


@pytest.mark.skipif(not H200.exists(), reason="the records are not installed")
def test_a_recorded_planted_slowdown_of_one_per_cent_is_found() -> None:
    effects = recorded_effects(SLOWER)
    assert len(effects) == 26
    assert resampled(effects, flip=False) >= 0.95
