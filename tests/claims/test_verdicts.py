"""What recorded counters and verdicts say of the shipped contrasts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import H200, RESULTS
from fakes.made import change, evidence
from pagebench.harness.cell import Cell
from pagebench.harness.judging.verdict import Judgement, judge
from pagebench.harness.judging.work import work_between
from pagebench.harness.records import caveats, store
from pagebench.harness.records.verdict import Verdict, Work

recorded = pytest.mark.skipif(not H200.exists(), reason="the records are not installed")


def between(one: str, other: str) -> Work:
    found = work_between((Cell.parse(one), Cell.parse(other)), evidence())
    assert found is not None
    return found


def test_recorded_xqa_pages_move_the_loads_that_their_source_predicts() -> None:
    found = between("xqa_distinct_p64_b32_l8192", "xqa_distinct_p16_b32_l8192")
    assert found.changed["ldg"] == pytest.approx(407_552 / 103_424)
    assert "ldg" in found.from_knob
    assert found.changed["local_loads"] is None  # page 64 has none
    assert not found.same.resources  # another binary: but the loads are the knob's
    judged = judge(change(), found, 90)
    assert (judged.word, judged.cause) == ("exposed", "in doubt")
    (doubt,) = judged.caveats
    assert isinstance(doubt, caveats.OtherBinary)
    assert {"local_loads", "local_stores", "l1_requests"} <= set(doubt.unpredicted)


def test_recorded_page_128_against_64_changes_no_load() -> None:
    found = between("xqa_shared_p64", "xqa_shared_p128")
    assert "ldg" not in found.changed
    assert "ldgsts" not in found.changed


def test_recorded_scatter_moves_no_counter_so_its_slowdown_is_unexplained() -> None:
    b128 = "fidecode_distinct{}_p1_b128_l8192"
    found = between(b128.format(""), b128.format("_scatter"))
    assert found.changed == {}
    assert judge(change(), found, 300).word == "unexplained"


def test_the_mechanism_contrast_moves_tile_and_not_row() -> None:
    tile, row = "tritontile_distinct_p{}_b32_l8192", "tritonrow_distinct_p{}_b32_l8192"
    assert (between(tile.format(64), tile.format(16)).changed["ldg"] or 0) > 3.9
    assert "ldg" not in between(row.format(64), row.format(16)).changed


def verdicts(path: Path) -> list[Verdict]:
    return store.read([path], Verdict).of(Verdict)


OLDER_RULES = {
    ("study_third_gpu.jsonl", "tile"): "before work and time had to move in one direction",
}


@recorded
@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.jsonl")), ids=lambda path: path.name)
def test_recorded_verdicts_follow_from_their_times_and_work(path: Path) -> None:
    """Their word, and the caveats that keep it from being another, of which none is of timing."""
    for verdict in verdicts(path):
        assert verdict.time is not None
        assert verdict.floors is not None
        found = judge(verdict.time, verdict.work, verdict.floors)
        own = tuple(c for c in verdict.caveats if not isinstance(c, caveats.TimingCaveat))
        is_older = (path.name, verdict.contrast) in OLDER_RULES
        read = Judgement(verdict.word, verdict.cause, own)
        assert (found == read) is not is_older, verdict.contrast


@recorded
def test_no_recorded_verdict_hides_an_effect_behind_another_binary() -> None:
    """What schema 2 called confounded has an effect, and its cause is in doubt or not named."""
    found = {each.contrast: each for each in verdicts(H200 / "study.jsonl")}
    read = {name: (found[name].word, found[name].cause) for name in CONFOUNDED}
    assert read == CONFOUNDED
    assert (found["positive"].word, found["positive"].cause) == ("exposed", "in doubt")


CONFOUNDED = {
    "saturation": ("unexplained", None),
    "tile": ("unexplained", None),
    "row": ("exposed", "in doubt"),
}


@recorded
def test_what_older_rules_judged_is_there() -> None:
    names = {(path.name, each.contrast) for path in H200.glob("*.jsonl") for each in verdicts(path)}
    assert set(OLDER_RULES) <= names
