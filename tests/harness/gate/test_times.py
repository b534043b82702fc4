"""The statistics of two sides: against textbooks, and over many simulated cells."""

from __future__ import annotations

from math import exp, log
from statistics import fmean, variance

import numpy as np
import pytest

from fakes.compared import NOISE, later, samples, side, timing, written
from pagebench.harness.gate import times
from pagebench.harness.gate.compare import compare
from pagebench.harness.gate.sides import Side, sides
from pagebench.harness.gate.times import decided, holm, noise_of, processes_needed
from pagebench.harness.records import store
from pagebench.harness.records.store import Stored
from pagebench.harness.records.timing import Timing
from pagebench.harness.timing.effect import UNKNOWN, Estimate, Noise, unpaired, usual_noise


def stored(*timings: Timing) -> Stored:
    """As a file of them is read."""
    from pathlib import Path

    return Stored(tuple((Path("x"), each) for each in timings), frozenset({"timing"}))


def only(*timings: Timing) -> Side:
    (found,) = sides(stored(*timings)).values()
    return found


def test_two_sides_are_tested_as_welch_did() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(1)
    for _ in range(20):
        one, other = rng.normal(0, 0.01, 5).tolist(), rng.normal(0.005, 0.03, 8).tolist()
        found, known = unpaired(one, other), stats.ttest_ind(other, one, equal_var=False)
        assert found.p == pytest.approx(known.pvalue)
        low, high = known.confidence_interval(0.95)
        change = found.change(0.05)
        assert (log(change.low), log(change.high)) == pytest.approx((low, high))


def test_one_process_a_side_is_no_evidence() -> None:
    with pytest.raises(ValueError, match="two or more"):
        unpaired([0.0], [0.1, 0.2])


def test_equal_times_are_no_change_and_no_error() -> None:
    assert unpaired([0.0] * 4, [0.0] * 4).p == 1.0
    assert unpaired([0.0] * 4, [0.1] * 4).p == 0.0


def test_no_number_of_processes_makes_less_than_a_step_of_the_clock_certain() -> None:
    found = unpaired([0.0] * 50, [0.02] * 50, step=0.02)
    assert (found.p, found.change(0.05).word) == (1.0, "unclear")


def test_two_modes_are_as_certain_as_the_less_certain_one() -> None:
    sure, unsure = unpaired([0.0, 1e-4] * 2, [0.03, 0.0301] * 2), unpaired([0, 0.01], [0.02, 0.03])
    assert times.Estimates(sure, modes=(sure, unsure)).p == unsure.p > sure.p
    down = unpaired([0.03, 0.0301] * 2, [0.0, 1e-4] * 2)
    assert times.Estimates(sure, modes=(sure, down)).p == 1.0


def test_no_variance_is_taken_for_less_than_the_usual_one() -> None:
    usual = Noise(0.003**2, 2)
    assert usual.of(1e-12, 3) == Noise(0.003**2, 5)
    assert usual.of(0.01**2, 3).variance == pytest.approx((2 * 0.003**2 + 3 * 0.01**2) / 5)


def test_holm_holds_the_smallest_to_all_and_the_next_to_one_less() -> None:
    assert holm([0.5, 0.001, 0.004, 0.2], 0.02) == pytest.approx(
        [0.02 / 2, 0.02 / 4, 0.02 / 3, 0.02 / 2]
    )
    assert holm([0.006, 0.006], 0.02) == pytest.approx([0.02 / 2, 0.02 / 1])
    assert holm([0.9], 0.02) == [0.02]
    assert holm([]) == []


def test_holm_calls_nothing_changed_that_an_earlier_failure_stops() -> None:
    chances = [0.006, 0.0068, 0.0069]
    assert [p <= error for p, error in zip(chances, holm(chances, 0.02), strict=True)] == [
        True,
        True,
        True,
    ]
    chances = [0.0068, 0.0069, 0.0069]
    assert not any(p <= error for p, error in zip(chances, holm(chances, 0.02), strict=True))


def test_the_usual_noise_is_found_again() -> None:
    rng = np.random.default_rng(4)
    variances = 0.003**2 * 6 / rng.chisquare(6, 400)
    seen = [Noise(float(v * rng.chisquare(3) / 3), 3) for v in variances]
    found = usual_noise(seen)
    assert found.variance == pytest.approx(0.003**2, rel=0.2)
    assert found.freedom == pytest.approx(6, rel=0.4)


def test_noise_that_is_alike_everywhere_is_sure_and_few_say_nothing() -> None:
    rng = np.random.default_rng(4)
    alike = [Noise(variance(rng.normal(0, 0.002, 4).tolist()), 3) for _ in range(60)]
    assert usual_noise(alike).freedom > 20
    assert usual_noise(alike[:3]) == UNKNOWN
    assert usual_noise([Noise(0.0, 3)] * 60) == UNKNOWN


def test_processes_that_agree_by_chance_are_no_exact_cell() -> None:
    usual = Noise(0.003**2, 6)
    base, head = [0.0, 1e-5, -1e-5, 0.0], [0.006, 0.00601, 0.006, 0.00599]
    assert unpaired(base, head).p < 1e-6
    assert unpaired(base, head, usual).p > 1e-3


@pytest.mark.parametrize("noise", ["normal", "heavy"])
def test_a_sweep_of_24_simulated_cells_has_a_false_alarm_in_at_most_two_per_cent(
    noise: str,
) -> None:
    rng, alarms, trials = np.random.default_rng(8), 0, 300
    for _ in range(trials):
        scale = 0.003 * np.exp(rng.normal(0, 0.7, 24))[:, None]
        both = {
            "normal": rng.normal(0, 1, (24, 8)),
            "heavy": rng.standard_t(4, (24, 8)),
        }[noise]
        levels = (both * scale).tolist()
        usual = usual_noise(
            [Noise((variance(c[:4]) + variance(c[4:])) / 2, 6) for c in levels]
        ).half
        found = [unpaired(c[:4], c[4:], usual) for c in levels]
        errors = holm([each.p for each in found])
        words = [e.change(error).word for e, error in zip(found, errors, strict=True)]
        alarms += "changed" in words
    assert alarms / trials <= 0.02


def test_a_slowdown_of_the_size_that_is_stated_is_found_with_its_power() -> None:
    """The detectable effect of a cell is the cell's own: of a quiet one smaller than of a noisy."""
    rng, spread, found = np.random.default_rng(9), 0.002, 0
    stated = float(
        np.median(
            [unpaired(*rng.normal(0, spread, (2, 6)).tolist()).change(0.02).detectable
             for _ in range(200)]
        )
    )  # fmt: skip
    for _ in range(300):
        base, head = rng.normal(0, spread, (2, 6))
        found += (
            unpaired(base.tolist(), (head + log(1 + stated)).tolist()).change(0.02).word
            == "changed"
        )
    assert found / 300 >= 0.75


def test_the_number_of_processes_that_is_advised_decides() -> None:
    rng = np.random.default_rng(10)
    levels = rng.normal(0, 0.006, (2, 5)).tolist()
    found = times.Estimates(unpaired(*levels))
    needed = processes_needed(found, 0.02)
    assert needed is not None
    spread = found.whole.spread * (5 / needed) ** 0.5
    again = Estimate(0.0, spread, 2 * needed - 2, 2 * needed)
    assert decided(times.Estimates(again), 0.02).word == "same"


def test_cycles_are_known_only_where_every_process_says_its_clock() -> None:
    base = only(*side(100.0))
    assert times.tested(base, only(*side(100.0)), UNKNOWN).cycles is not None
    silent = only(*side(100.0, samples=samples(100.0, mhz=0)))
    assert times.tested(base, silent, UNKNOWN).cycles is None


def test_the_noise_of_a_side_is_that_between_its_processes() -> None:
    some = [(only(*side(100.0)), only(*side(100.0))) for _ in range(8)]
    between = variance([log(1 + each) for each in NOISE])
    assert noise_of(some).variance == pytest.approx(between, rel=0.2)


def test_a_comparison_of_a_file_with_itself_shifted_by_one_per_cent_says_so() -> None:
    found = compare(stored(*side(100.0)), stored(*later(side(101.0))))
    (row,) = found.rows
    assert row.time is not None
    assert row.time.ratio == pytest.approx(1.01, rel=1e-6)
    assert row.base is not None
    assert row.base.time_us == pytest.approx(exp(fmean([log(100.15)])), rel=1e-3)


def test_rows_do_not_depend_on_the_order_of_lines() -> None:
    lines = [*side(100.0), *side(40.0, "other_distinct_p16")]
    head = later([*side(103.0), *side(40.0, "other_distinct_p16")])
    one = compare(stored(*lines), stored(*head))
    assert compare(stored(*reversed(lines)), stored(*reversed(head))) == one


def test_files_are_read_as_they_are_written(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = written(tmp_path / "r.jsonl", *side(100.0), timing(100.0, 0, clock="graph"))
    keys = list(sides(store.read([path], Timing)))
    assert [key.clock for key in keys] == ["events", "graph"]
