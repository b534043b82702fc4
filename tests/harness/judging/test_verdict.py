"""Verdicts: every word reached, on made-up and recorded counters."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from fakes.made import change, count, evidence, lost, rounds
from pagebench.harness.cell import Cell
from pagebench.harness.contrasts import CONTRASTS, Contrast
from pagebench.harness.environment import Environment
from pagebench.harness.judging.verdict import ESTABLISHED, IN_DOUBT, Judgement, judge, verdict_of
from pagebench.harness.judging.work import work_between, work_of
from pagebench.harness.records import codec
from pagebench.harness.records.caveats import (
    NoCounters,
    NothingRepeats,
    NoTime,
    OppositeWays,
    OtherBinary,
    ShortCall,
    WideInterval,
)
from pagebench.harness.records.select import Evidence
from pagebench.harness.records.verdict import WORDS, Change, SameBinary, Verdict, Work
from pagebench.harness.show.sentences import headline, time_line, verdict_lines
from pagebench.harness.timing.interleaved import Interleaved
from pagebench.profiles.counters import Count

ALIKE = SameBinary(symbol=True, launch=True, resources=True)
OTHER = SameBinary(symbol=True, launch=True, resources=False)


def work(
    changed: Mapping[str, float | None],
    same: SameBinary = ALIKE,
    from_knob: tuple[str, ...] = (),
) -> Work:
    return Work(changed, ("ldg", "ldgsts"), from_knob, same)


DOUBT = OtherBinary(("resources",), ("ldg",))
MORE, SAME = {"ldg": 3.9, "flop": 1.0}, {"ldg": 1.0, "flop": 1.0}
UNSTABLE = Work({}, (), (), ALIKE)
CASES = [
    ("same", work({}), {}, 50, Judgement("absent")),
    ("changed", work({}), {}, 50, Judgement("unexplained")),
    ("same", work({"ldg": 3.9}), {}, 50, Judgement("hidden", ESTABLISHED)),
    ("changed", work({"ldg": 3.9}), {}, 50, Judgement("exposed", ESTABLISHED)),
    ("changed", work({"ldg": 3.9}, OTHER), {}, 50, Judgement("exposed", IN_DOUBT, (DOUBT,))),
    ("same", work({"ldg": 3.9}, OTHER), {}, 50, Judgement("hidden", IN_DOUBT, (DOUBT,))),
    ("changed", work({"ldg": 3.9}, OTHER, ("ldg",)), {}, 50, Judgement("exposed", ESTABLISHED)),
    ("same", work({"ldg": 3.9}, OTHER, ("ldg",)), {}, 50, Judgement("hidden", ESTABLISHED)),
    ("changed", work({"ldg": 3.9}), {}, 9, Judgement("floor", caveats=(ShortCall(9),))),
    ("unclear", work({"ldg": 3.9}), {}, 50, Judgement("unclear", caveats=(WideInterval(),))),
    ("changed", None, MORE, 50, Judgement("likely exposed", IN_DOUBT, (NoCounters(),))),
    ("same", None, MORE, 50, Judgement("likely hidden", IN_DOUBT, (NoCounters(),))),
    ("changed", None, SAME, 50, Judgement("likely unexplained", caveats=(NoCounters(),))),
    ("same", UNSTABLE, SAME, 50, Judgement("likely absent", caveats=(NothingRepeats(),))),
    (
        "unclear",
        None,
        MORE,
        50,
        Judgement("unclear", caveats=(WideInterval(), NoCounters())),
    ),
]


def told(
    time: Change, done: Work | None, floors: float, expected: Mapping[str, float] = MORE
) -> list[str]:
    """All lines of the verdict from these."""
    found = judge(time, done, floors, expected)
    verdict = Verdict(
        contrast="",
        knob="",
        cells=("a", "b"),
        word=found.word,
        cause=found.cause,
        among=1,
        time=time,
        time_us=(100.0, 110.0),
        floors=floors,
        work=done,
        caveats=found.caveats,
    )
    return verdict_lines(verdict)


@pytest.mark.parametrize(("time", "done", "expected", "floors", "found"), CASES)
def test_the_word_follows_from_time_work_and_binary(
    time: str, done: Work | None, expected: dict[str, float], floors: float, found: Judgement
) -> None:
    assert judge(change(time), done, floors, expected) == found
    assert time_line(change(time), 1) in told(change(time), done, floors)


def test_work_and_time_that_move_in_opposite_directions_are_not_cause_and_effect() -> None:
    slower, faster = change(ratio=1.1), change(ratio=0.9)
    more = work({"ldg": 3.9, "instructions": 0.9}, ALIKE, ("ldg",))
    assert judge(slower, more, 50).word == "exposed"
    assert judge(faster, more, 50).word == "unexplained"
    other = work({"ldg": 3.9}, OTHER, ("ldg",))
    opposite = Judgement("unexplained", caveats=(OppositeWays(predicted=True),))
    assert judge(faster, other, 50) == opposite
    assert "opposite directions" in told(faster, other, 50)[-1]
    assert judge(faster, work({"ldg": 0.5}), 50).word == "exposed"
    assert judge(faster, work({"local_loads": None}), 50).word == "unexplained"
    likely = Judgement("likely unexplained", caveats=(OppositeWays(predicted=True), NoCounters()))
    assert judge(faster, None, 50, MORE) == likely


def test_every_word_is_reached() -> None:
    assert {found.word for *_, found in CASES} == set(WORDS)


def test_a_verdict_names_what_moved_and_what_was_predicted() -> None:
    text = " ".join(told(change(), work({"ldg": 3.94}, OTHER, ("ldg",)), 50))
    assert "ldg x 3.94" in text
    assert "as predicted from layout or source: ldg" in text


# --- work -------------------------------------------------------------------------------------


def test_only_stable_counters_are_work_and_small_traffic_differences_are_none() -> None:
    one = {"ldg": count(100), "l2_sectors": count(1000), "dram_read_bytes": count(50, False)}
    other = {"ldg": count(101), "l2_sectors": count(1005), "dram_read_bytes": count(99)}
    found = work_of(one, other, {"ldg": 1.01}, ALIKE)
    assert found.compared == ("ldg", "l2_sectors")
    assert found.changed == {"ldg": 1.01}
    assert found.from_knob == ("ldg",)


def test_a_count_is_as_predicted_to_the_last_one() -> None:
    found = work_of({"ldg": count(1000)}, {"ldg": count(1005)}, {"ldg": 1.0}, OTHER)
    assert found.from_knob == ()
    assert judge(change(), found, 50).cause == IN_DOUBT


@pytest.mark.parametrize(("ratio", "word"), [(1.1, "exposed"), (0.9, "unexplained")])
def test_fewer_hits_are_more_work(ratio: float, word: str) -> None:
    one, other = ({"l2_hits": count(hits), "l2_misses": count(100 - hits)} for hits in (96, 80))
    done = work_of(one, other, {}, ALIKE)
    found = judge(change(ratio=ratio), done, 50)
    opposite = Judgement(word, caveats=(OppositeWays(predicted=False),))
    assert found == (Judgement(word, ESTABLISHED) if word == "exposed" else opposite)
    last = told(change(ratio=ratio), done, 50)[-1]
    assert ratio > 1 or last.startswith("work and the time moved in opposite")


@pytest.mark.parametrize(
    ("hits", "stable", "moved"), [(50.5, True, False), (52.0, True, True), (52.0, False, False)]
)
def test_a_hit_rate_moves_by_points_and_only_where_its_counts_repeat(
    hits: float, stable: bool, moved: bool
) -> None:
    def total(hit: float, repeats: bool) -> dict[str, Count]:
        return {"l2_hits": count(hit, repeats), "l2_misses": count(100 - hit)}

    found = work_of(total(50.0, True), total(hits, stable), {}, ALIKE)
    assert ("l2_hit_pct" in found.changed) is moved
    assert ("l2_hit_pct" in found.compared) is stable


def test_without_counters_there_is_no_work() -> None:
    cells = (Cell.parse("xqa_shared_p16"), Cell.parse("xqa_shared_p17"))
    assert work_between(cells, evidence()) is None


# --- records ----------------------------------------------------------------------------------


def contrast(name: str) -> Contrast:
    return next(each for each in CONTRASTS if each.name == name)


def measured(contrast: Contrast, *ratios: float) -> Interleaved:
    """Processes of 200 us and that many times as much, without noise within a process."""
    group = Interleaved(contrast.cells, 1)
    for ratio in ratios:
        group.add(rounds(contrast.cells, *[(200.0, 200 * ratio)] * 3))
    return group


def test_a_failed_prediction_is_the_headline() -> None:
    verdict = Verdict(contrast="", knob="", cells=("a", "b"), word="exposed", among=1)
    assert headline(replace(verdict, predicts="hidden")) == "exposed, but hidden was predicted"
    assert headline(replace(verdict, word="absent", predicts="absent")) == "absent, as predicted"
    assert headline(replace(verdict, word="absent")) == "absent"


def test_a_verdict_record_holds_what_it_rests_on() -> None:
    group = measured(contrast("positive"), 1.22, 1.221, 1.219, 1.22)
    made = verdict_of(contrast("positive"), group, "cold", evidence())
    verdict = codec.from_json(json.loads(codec.encode(made)))
    assert verdict == made
    assert headline(made) == "exposed, as predicted, its cause in doubt"
    assert made.time is not None
    assert made.time.ratio == pytest.approx(1.22, abs=1e-3)
    assert made.time_us == pytest.approx((200, 244))
    assert made.floors == 80
    assert made.work is not None
    assert made.work.changed["ldg"] == pytest.approx(3.9406, abs=1e-3)
    lines = verdict_lines(made)
    assert "detectable effect" in lines[0]
    assert any("local_loads from zero" in line for line in lines)


def test_a_contrast_whose_cells_fail_is_unclear_and_says_why() -> None:
    group = Interleaved(contrast("positive").cells, 1)
    group.add(lost(group.cells, "wrong", "off by 2"))
    verdict = verdict_of(contrast("positive"), group, "cold", Evidence())
    assert (verdict.word, verdict.time, verdict.status) == ("unclear", None, "wrong")
    assert verdict.caveats == (NoTime("wrong", "off by 2"),)
    assert verdict_lines(verdict) == ["no time: wrong: off by 2"]


def test_caveats_of_the_word_come_before_those_of_the_times() -> None:
    group = measured(contrast("positive"), 1.22, 1.221, 1.219, 1.22)
    group.add(lost(group.cells))
    group.measured[0] = replace(group.measured[0], throttle=("power cap",))
    verdict = verdict_of(contrast("positive"), group, "cold", Evidence())
    assert [each.__struct_config__.tag for each in verdict.caveats] == [
        "no counters",
        "lost process",
        "throttled",
    ]


def test_counters_of_another_gpu_or_cache_state_say_nothing() -> None:
    group = measured(contrast("positive"), 1.22, 1.221, 1.219, 1.22)
    there = Environment(gpu="L4")
    elsewhere = Evidence(tuple(replace(c, environment=there) for c in evidence().counters))
    assert verdict_of(contrast("positive"), group, "cold", elsewhere).work is None
    assert verdict_of(contrast("positive"), group, "warm", evidence()).work is None
