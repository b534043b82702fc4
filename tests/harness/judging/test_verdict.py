"""Verdicts: every word reached, on made-up and recorded counters, and end to end on a CPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import exp
from pathlib import Path

import pytest

from fakes import H200, pagebench
from pagebench.harness.cell import Cell
from pagebench.harness.contrasts import CONTRASTS, LADDERS, Contrast
from pagebench.harness.judging import judge as judging
from pagebench.harness.judging.verdict import WORDS, Verdict, Work, judge, work_of
from pagebench.harness.records import store
from pagebench.harness.timing.measure import Options, Session
from pagebench.harness.timing.rounds import ROUNDS, measure_group
from pagebench.harness.workers.interleave import Interleaved
from pagebench.kernels.device import CPU

ALIKE = {"symbol": True, "launch": True, "resources": True}
OTHER = ALIKE | {"resources": False}


def work(
    changed: Mapping[str, float | None],
    same: Mapping[str, bool] = ALIKE,
    from_knob: tuple[str, ...] = (),
) -> Work:
    return Work(changed, ("ldg", "ldgsts"), from_knob, same)


CASES = [
    ("same", work({}), 50, "absent"),
    ("changed", work({}), 50, "unexplained"),
    ("same", work({"ldg": 3.9}), 50, "hidden"),
    ("changed", work({"ldg": 3.9}), 50, "exposed"),
    ("changed", work({"ldg": 3.9}, OTHER), 50, "confounded"),
    ("changed", work({"ldg": 3.9}, OTHER, ("ldg",)), 50, "exposed"),
    ("same", work({"ldg": 3.9}, OTHER, ("ldg",)), 50, "hidden"),
    ("changed", work({"ldg": 3.9}), 9, "floor"),
    ("unclear", work({"ldg": 3.9}), 50, "unclear"),
    ("changed", None, 50, "unclear"),
    ("same", Work({}, (), (), ALIKE), 50, "unclear"),
]


@pytest.mark.parametrize(("time", "done", "floors", "word"), CASES)
def test_the_word_follows_from_time_work_and_binary(
    time: str, done: Work | None, floors: float, word: str
) -> None:
    found = judge(time, "time x 1.1", done, floors)
    assert found.word == word
    assert "time x 1.1" in found.because


def test_work_and_time_that_move_in_opposite_directions_are_not_cause_and_effect() -> None:
    more = work({"ldg": 3.9, "instructions": 0.9}, ALIKE, ("ldg",))
    assert judge("changed", "", more, 50, slower=True).word == "exposed"
    assert judge("changed", "", more, 50, slower=False).word == "unexplained"
    other = work({"ldg": 3.9}, OTHER, ("ldg",))
    found = judge("changed", "", other, 50, slower=False)
    assert found.word == "confounded"
    assert "opposite directions" in found.because[-1]
    assert judge("changed", "", work({"ldg": 0.5}), 50, slower=False).word == "exposed"
    assert judge("changed", "", work({"local_loads": None}), 50, slower=False).word == "unexplained"


def test_every_word_is_reached() -> None:
    assert {word for *_, word in CASES} == set(WORDS)


def test_a_verdict_names_what_moved_and_what_was_predicted() -> None:
    text = " ".join(judge("changed", "t", work({"ldg": 3.94}, OTHER, ("ldg",)), 50).because)
    assert "ldg x 3.94" in text
    assert "as predicted from layout or source: ldg" in text


def entry(value: float, stable: bool = True) -> dict[str, float]:
    return {"value": value, "stable": stable, "spread": 0.0}


def test_only_stable_counters_are_work_and_small_traffic_differences_are_none() -> None:
    one = {"ldg": entry(100), "l2_sectors": entry(1000), "dram_read_bytes": entry(50, False)}
    other = {"ldg": entry(101), "l2_sectors": entry(1005), "dram_read_bytes": entry(99)}
    found = work_of(one, other, {"ldg": 1.01}, ALIKE)
    assert found.compared == ("ldg", "l2_sectors")
    assert found.changed == {"ldg": 1.01}
    assert found.from_knob == ("ldg",)


def test_a_count_is_as_predicted_to_the_last_one() -> None:
    found = work_of({"ldg": entry(1000)}, {"ldg": entry(1005)}, {"ldg": 1.0}, OTHER)
    assert found.from_knob == ()
    assert judge("changed", "", found, 50).word == "confounded"


@pytest.mark.parametrize(("slower", "word"), [(True, "exposed"), (False, "unexplained")])
def test_fewer_hits_are_more_work(slower: bool, word: str) -> None:
    one, other = ({"l2_hits": entry(hits), "l2_misses": entry(100 - hits)} for hits in (96, 80))
    found = judge("changed", "", work_of(one, other, {}, ALIKE), 50, slower=slower)
    assert found.word == word
    assert slower or found.because[-1].startswith("work and the time moved in opposite")


def recorded(one: str, other: str) -> Work:
    cells = (Cell.parse(one), Cell.parse(other))
    found = judging.work_between(cells, [H200 / "counters.jsonl"])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("hits", "stable", "moved"), [(50.5, True, False), (52.0, True, True), (52.0, False, False)]
)
def test_a_hit_rate_moves_by_points_and_only_where_its_counts_repeat(
    hits: float, stable: bool, moved: bool
) -> None:
    def total(hit: float, repeats: bool) -> dict[str, dict[str, float]]:
        return {
            "l2_hits": {"value": hit, "stable": repeats},
            "l2_misses": {"value": 100 - hit, "stable": True},
        }

    found = work_of(total(50.0, True), total(hits, stable), {}, ALIKE)
    assert ("l2_hit_pct" in found.changed) is moved
    assert ("l2_hit_pct" in found.compared) is stable


def test_recorded_xqa_pages_move_the_loads_that_their_source_predicts() -> None:
    found = recorded("xqa_distinct_p64_b32_l8192", "xqa_distinct_p16_b32_l8192")
    assert found.changed["ldg"] == pytest.approx(407_552 / 103_424)
    assert "ldg" in found.from_knob
    assert found.changed["local_loads"] is None  # page 64 has none
    assert not found.same["resources"]  # another binary: but the loads are the knob's
    assert judge("changed", "t", found, 90).word == "exposed"


def test_recorded_page_128_against_64_changes_no_load() -> None:
    found = recorded("xqa_shared_p64", "xqa_shared_p128")
    assert "ldg" not in found.changed
    assert "ldgsts" not in found.changed


def test_recorded_scatter_moves_no_counter_so_its_slowdown_is_unexplained() -> None:
    b128 = "fidecode_distinct{}_p1_b128_l8192"
    found = recorded(b128.format(""), b128.format("_scatter"))
    assert found.changed == {}
    assert judge("changed", "t", found, 300).word == "unexplained"


def test_the_mechanism_contrast_moves_tile_and_not_row() -> None:
    tile, row = "tritontile_distinct_p{}_b32_l8192", "tritonrow_distinct_p{}_b32_l8192"
    assert recorded(tile.format(64), tile.format(16)).changed["ldg"] > 3.9
    assert "ldg" not in recorded(row.format(64), row.format(16)).changed


def test_without_counters_there_is_no_work() -> None:
    cells = (Cell.parse("xqa_shared_p16"), Cell.parse("xqa_shared_p17"))
    assert judging.work_between(cells, [H200 / "counters.jsonl"]) is None


def test_a_failed_prediction_is_the_headline() -> None:
    assert judging.headline(Verdict("exposed", ()), "hidden") == (
        "exposed, but hidden was predicted"
    )
    assert judging.headline(Verdict("absent", ()), "absent") == "absent, as predicted"
    assert judging.headline(Verdict("absent", ()), None) == "absent"


def measured(contrast: Contrast, *ratios: float, among: int = 1) -> Interleaved:
    """Processes of 200 us and that many times as much, without noise within a process."""
    group = Interleaved(judging.cells_of(contrast), among)
    for ratio in ratios:
        group.add({
            "status": "measured", "floor_us": 2.5,
            "rounds": [[200, 200 * ratio, 200 * ratio, 200]] * 3,
            "environment": {"gpu": "NVIDIA H200"}, "resolved": [{}, {}],
        })  # fmt: skip
    return group


def contrast(name: str) -> Contrast:
    return next(each for each in CONTRASTS if each.name == name)


def test_a_verdict_record_holds_what_it_rests_on() -> None:
    group = measured(contrast("positive"), 1.22, 1.221, 1.219, 1.22)
    made = judging.verdict_of(contrast("positive"), group, Options(), [H200 / "counters.jsonl"])
    record = json.loads(json.dumps(made, allow_nan=False))
    assert record["headline"] == "exposed, as predicted"
    assert record["time"]["ratio"] == pytest.approx(1.22, abs=1e-3)
    assert record["time_us"] == pytest.approx([200, 244])
    assert record["floors"] == 80
    assert record["work"]["changed"]["ldg"] == pytest.approx(3.9406, abs=1e-3)
    assert "would be found" in record["because"][0]
    assert any("local_loads from none" in line for line in record["because"])


def test_a_contrast_whose_cells_fail_is_unclear_and_says_why() -> None:
    group = Interleaved(judging.cells_of(contrast("positive")), 1)
    group.add({"status": "wrong", "reason": "off by 2"})
    record = judging.verdict_of(contrast("positive"), group, Options(), [])
    assert (record["verdict"], record["time"], record["status"]) == ("unclear", None, "wrong")
    assert record["because"] == ["no time: wrong: off by 2"]


def test_counters_of_another_gpu_or_cache_state_say_nothing(tmp_path: Path) -> None:
    group = measured(contrast("positive"), 1.22, 1.221, 1.219, 1.22)
    elsewhere = tmp_path / "elsewhere.jsonl"
    for line in store.read_kind([H200 / "counters.jsonl"], "counters"):
        store.append_line(elsewhere, line | {"environment": line["environment"] | {"gpu": "L4"}})
    assert judging.verdict_of(contrast("positive"), group, Options(), [elsewhere])["work"] is None
    warm = judging.verdict_of(
        contrast("positive"), group, Options(l2="warm"), [H200 / "counters.jsonl"]
    )
    assert warm["work"] is None


def test_one_of_many_contrasts_needs_a_wider_interval() -> None:
    alone = measured(contrast("positive"), 1.01, 1.012, 1.008).step()
    one_of_nine = measured(contrast("positive"), 1.01, 1.012, 1.008, among=9).step()
    assert one_of_nine.low < alone.low < 1.01 < alone.high < one_of_nine.high


def test_steps_of_a_ladder_are_timed_each_against_the_one_before() -> None:
    group = Interleaved(tuple(map(Cell.parse, LADDERS[0].cells)), 3)
    there = [400.0, 300.0, 150.0, 150.0]
    group.add({
        "status": "measured", "floor_us": 2.5, "rounds": [[*there, *reversed(there)]],
        "environment": {}, "resolved": [],
    })  # fmt: skip
    assert [exp(effect) for effect in group.effects[0]] == pytest.approx([0.75, 0.5, 1.0])
    assert group.times_us == [(400.0, 300.0, 150.0, 150.0)]
    assert group.floors == 60


@pytest.mark.parametrize("contrast", CONTRASTS, ids=lambda contrast: contrast.name)
def test_a_shipped_contrast_is_two_cells_and_a_promise(contrast: Contrast) -> None:
    assert contrast.predicts in WORDS
    one, other = Cell.parse(contrast.one), Cell.parse(contrast.other)
    differing = {axis for axis, value in one.axes().items() if other.axes()[axis] != value}
    assert len(differing) == (0 if contrast.name == "identity" else 1), differing
    assert (one.name, other.name) == (contrast.one, contrast.other)


SMALL = tuple(f"gather_distinct_p16_b2_l{tokens}" for tokens in (64, 128, 256))


@pytest.mark.parametrize("count", [2, 3])
def test_cells_are_interleaved_there_and_back_and_checked(count: int) -> None:
    cells = tuple(map(Cell.parse, SMALL[:count]))
    record = measure_group(cells, Options(clock="wall"), Session(CPU), lambda stage: None)
    assert record["status"] == "measured", record.get("reason")
    assert len(record["rounds"]) == ROUNDS
    assert all(len(each) == 2 * count for each in record["rounds"])
    assert all(check["error_after"] <= check["tolerance"] for check in record["check"])


def test_a_group_with_a_refused_cell_has_no_times() -> None:
    cells = (Cell.parse("gather_distinct_p16"), Cell.parse("xqa_shared_p16"))
    record = measure_group(cells, Options(clock="wall"), Session(CPU), lambda stage: None)
    assert record["status"] == "refused"
    assert "rounds" not in record


def test_judge_finds_a_large_difference_on_a_cpu_from_end_to_end(tmp_path: Path) -> None:
    cells = ["gather_distinct_p16_b2_l64", "gather_distinct_p16_b2_l2048"]
    done = pagebench("judge", *cells, "--device", "cpu", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["time"]["word"] == "changed"
    assert record["time"]["ratio"] > 2
    assert record["verdict"] == "unclear"  # there are no counters of a CPU
    (path,) = (tmp_path / "runs").glob("*.jsonl")
    assert f"1 verdict in {path.relative_to(tmp_path)}" in done.stderr
    assert path.read_text().count('"kind":"group"') == record["time"]["processes"]
