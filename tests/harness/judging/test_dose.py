"""Dose and response: on made-up and recorded numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from fakes import H200
from fakes.made import evidence, lost, rounds
from pagebench.harness.contrasts import LADDERS
from pagebench.harness.judging.dose import dose_of, groups_of
from pagebench.harness.judging.explain import (
    Conclusion,
    candidates,
    conclude,
    explain,
    explanations,
    moves,
)
from pagebench.harness.records import codec
from pagebench.harness.records.dose import Dose, Spread, Step
from pagebench.harness.records.select import Evidence
from pagebench.harness.show.sentences import dose_lines, follows
from pagebench.harness.timing.interleaved import Interleaved, NotTimed

recorded = pytest.mark.skipif(not H200.exists(), reason="the records are not installed")


def steps(*middles: float, half: float = 1.0) -> list[Step]:
    return [Step(us - half, us, us + half) for us in middles]


LDG = {"ldg": (400.0, 200.0, 100.0, 100.0)}
LOCAL = {"local_loads": (50.0, 50.0, 0.0, 0.0)}


def dose(moved: Sequence[Step], counters: Mapping[str, tuple[float, ...]]) -> Dose:
    places = tuple(map(str, range(len(moved) + 1)))
    return Dose(
        regime="made up",
        knob="knob",
        cells=places,
        values=places,
        processes=4,
        times=(Spread(1.0, 1.0, 1.0),) * len(places),
        steps=tuple(moved),
        counters=counters,
    )


def concluded(moved: Sequence[Step], counters: Mapping[str, tuple[float, ...]]) -> Conclusion:
    return conclude(dose(moved, counters))


# --- which counter does time follow? ----------------------------------------------------------


def test_time_that_falls_with_a_counter_follows_it_at_one_cost() -> None:
    (found,) = explanations(steps(-20, -10, 0), LDG)
    assert found.fits
    assert found.us_per_count == pytest.approx((0.1,))
    assert found.steps_us == pytest.approx((-20, -10, 0))


def test_two_mechanisms_at_different_values_of_the_knob_are_named_together() -> None:
    made = dose(steps(-8, -34, 0), LDG | LOCAL)
    found = conclude(made)
    assert [each.counters for each in found.tried if each.fits] == [("ldg", "local_loads")]
    (pair,) = [each for each in found.tried if each.fits]
    assert pair.us_per_count == pytest.approx((0.04, 0.6))
    assert dose_lines(made)[-1] == "no single counter explains every step"
    assert not pair.tested  # two costs, and two steps at which either counter moves
    assert (found.follows, found.untested) == ((), (("ldg", "local_loads"),))
    assert follows(made) == "possibly ldg with local_loads (not tested)"


def test_two_costs_are_tested_by_three_steps() -> None:
    counters = {"ldg": (800.0, 400.0, 200.0, 100.0), "local_loads": (0.0, 0.0, 50.0, 50.0)}
    assert concluded(steps(-40, 30, -10), counters).follows == (("ldg", "local_loads"),)
    assert concluded(steps(-40, 30, -20), counters).follows == ()


def test_a_cost_that_gives_every_step_is_found_where_least_squares_misses_one() -> None:
    flat = [Step(-1.0, 0.0, 1.0), Step(-1.0, 0.0, 1.0), Step(0.9, 1.9, 2.9)]
    found = explain(flat, {"ldg": [0.0, 1.0, 2.0, 3.0]}, ("ldg",))  # 0.63 by least squares
    assert found.fits
    assert 0.9 <= found.us_per_count[0] <= 1.0
    assert not explain([*flat[:2], Step(1.1, 2.0, 2.9)], {"ldg": [0.0, 1, 2, 3]}, ("ldg",)).fits


def test_steps_without_width_that_no_cost_gives_are_told_so() -> None:
    found = explain([Step(0, 0, 0), Step(5, 5, 5)], {"ldg": [400.0, 200.0, 100.0]}, ("ldg",))
    assert not found.fits


def test_a_counter_that_moves_once_has_a_cost_that_nothing_tests() -> None:
    made = dose(steps(0, -30, 0), LOCAL)
    found = conclude(made)
    assert (found.follows, found.untested) == ((), (("local_loads",),))
    assert "the cost is not" in dose_lines(made)[1]
    assert concluded(steps(-20, -30, 0), LOCAL).untested == ()


def test_time_that_no_counter_gives_is_unexplained() -> None:
    made = dose(steps(-34, -1, 0), LDG | LOCAL)
    assert not any(each.fits for each in conclude(made).tried)
    assert dose_lines(made)[-1] == "no counter and no pair of counters explains every step"


def test_more_work_is_never_faster() -> None:
    growing = {"instructions": [100.0, 200.0, 300.0, 400.0]}
    (found,) = explanations(steps(-20, -20, -20), growing)
    assert found.us_per_count == (0.0,)
    assert not found.fits


def test_two_steps_cannot_test_two_costs() -> None:
    two = {"ldg": (0.0, 100.0, 150.0), "local_loads": (0.0, 1.0, 1000.0)}
    found = concluded(steps(5, 90), two)
    assert (found.follows, found.untested) == ((), (("ldg", "local_loads"),))


def test_counters_that_move_alike_are_one_candidate() -> None:
    twins = LDG | {"l1_requests": (900.0, 700.0, 600.0, 600.0), "tma": (5.0,) * 4} | LOCAL
    assert candidates(twins) == {"ldg": ("l1_requests",), "local_loads": ()}


def test_a_step_within_its_interval_fits_and_one_outside_does_not() -> None:
    assert explain(steps(-20, -11.9, 0, half=2.0), LDG, ["ldg"]).fits
    assert not explain(steps(-20, -14, 0, half=2.0), LDG, ["ldg"]).fits


def test_time_that_does_not_move_follows_nothing() -> None:
    still = steps(0.2, -0.3, 0.1)
    assert not moves(still)
    assert explanations(still, LDG) == []
    assert dose_lines(dose(still, LDG))[-1].endswith("the time does not change")
    assert "no stable counter" in dose_lines(dose(steps(-5, 0, 0), {}))[-1]


def test_without_counters_nothing_is_tried() -> None:
    assert concluded(steps(-5, 0, 0), {}) == Conclusion((), (), ())


def ladder_group(times: Sequence[float], processes: int = 4) -> Interleaved:
    group = Interleaved(LADDERS[0].cells, 3)
    for process in range(processes):
        there = [us * (1 + 1e-4 * process * index) for index, us in enumerate(times)]
        group.add(rounds(group.cells, there))
    return group


@recorded
def test_a_dose_record_holds_times_steps_counters() -> None:
    group = ladder_group((215.0, 181.0, 180.0, 178.0))
    made = dose_of(LADDERS[0], group, "cold", evidence("study_other_gpu.jsonl"))
    assert codec.from_json(json.loads(codec.encode(made))) == made
    assert made.values == ("16", "32", "64", "128")
    assert made.steps[0].middle_us == pytest.approx(-34, abs=0.2)
    assert made.counters["ldg"] == (407552, 204800, 103424, 103424)
    assert conclude(made).follows == ()
    assert "dram_read_bytes" not in made.counters  # it did not repeat
    assert (made.processes, made.caveats) == (4, ())


def test_a_step_is_no_surer_than_the_least_effect() -> None:
    step = dose_of(LADDERS[0], ladder_group((200.0,) * 4), "cold", Evidence()).steps[0]
    assert step.high_us - step.middle_us >= 0.8 - 1e-9  # 0.4 % of 200 us
    assert step.middle_us - step.low_us >= 0.8 - 1e-9


def test_a_ladder_without_times_has_no_dose() -> None:
    (group, *_) = groups_of(LADDERS)
    group.add(lost(group.cells, "refused", "too large"))
    with pytest.raises(NotTimed, match="shared: refused: too large") as failed:
        dose_of(LADDERS[0], group, "cold", Evidence())
    assert not failed.value.crashed


def test_all_steps_of_all_ladders_are_judged_together() -> None:
    assert [group.among for group in groups_of(LADDERS)] == [9, 9, 9]
