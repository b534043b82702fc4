"""The card of a cell: its newest time, counters and prediction, and counters over another's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes import H200
from pagebench.harness.environment import Environment
from pagebench.harness.errors import UserError
from pagebench.harness.records import store
from pagebench.harness.records.ceilings import MeasuredCeilings
from pagebench.harness.records.counters import Counters
from pagebench.harness.show.card import Card, contrast, joined, joined_card
from pagebench.harness.show.machine import against_json, card_json
from pagebench.harness.show.sentences import binding_line
from pagebench.profiles.ceilings import Point

PAGES, COUNTERS, STUDY = (H200 / f"{name}.jsonl" for name in ("pages", "counters", "study"))
LONG = "xqa_distinct_p64_b32_l8192"


def counted(card: Card) -> Counters:
    assert card.counters
    return card.counters


def test_one_card_joins_timing_counters_and_prediction() -> None:
    card = joined("xqa_shared_p16", [PAGES, COUNTERS])
    text = joined_card(card)
    for word in ("asked", "resolved", "floor", "GB/s", "407,552", "1.0000", "unstable"):
        assert word in text
    assert " 1 block per SM" in text
    assert json.loads(json.dumps(card_json(card)))["counters"]["cell"] == "xqa_shared_p16"


def test_a_stored_prediction_is_made_anew_when_it_is_read() -> None:
    """This cell was counted under an earlier formula, which flagged it."""
    cell = "xqa_distinct_p16_b4_l3000_d64"
    file = H200 / "counters_unseen_again.jsonl"
    (stored,) = [each for each in store.read([file], Counters).of(Counters) if each.cell == cell]
    assert stored.off == ["ldg"]
    found = counted(joined(cell, [file]))
    assert found.off == []
    assert found.predicted.ldg == found.total["ldg"].value
    assert found.total["ldg"] == stored.total["ldg"]


def test_a_contrast_says_which_stable_counters_moved_and_if_the_binary_did() -> None:
    small, large = (joined(f"xqa_distinct_p{page}", [COUNTERS]) for page in (16, 64))
    found = contrast(small, large)
    assert found.ratio["ldg"] == round(56_448 / 14_976, 4)
    assert "ldgsts" not in found.ratio  # KV copies do not depend on the page size
    assert found.same.launch
    text = joined_card(small, found)
    assert "xqa_distinct_p16 over xqa_distinct_p64: " in text
    assert "ldg x 3.7692" in text
    assert "local_loads from zero" in text  # page 64 has none
    assert "local_loads x 0.0000" in joined_card(large, contrast(large, small))
    told = json.loads(json.dumps(against_json(found)))
    assert (told["of"], told["ratio"]["local_loads"]) == ("xqa_distinct_p16", None)
    assert told["same"] == {"module": False, "symbol": True, "launch": True, "resources": False}


def test_a_contrast_needs_counters_of_both() -> None:
    timed = joined("xqa_shared_p32", [PAGES])
    with pytest.raises(UserError, match="no counters"):
        contrast(timed, timed)


def test_a_card_shows_the_share_of_what_the_gpu_reads(tmp_path: Path) -> None:
    measured = MeasuredCeilings(
        gpu="NVIDIA H200",
        dram_read=(Point(2**20, 4000.0, True),),
        environment=Environment(gpu="NVIDIA H200"),
    )
    store.append(tmp_path / "c.jsonl", measured)
    card = joined(LONG, [PAGES, tmp_path / "c.jsonl"])
    assert card.ceiling_gbps == 4000.0
    assert "of the measured 4000" in joined_card(card)


def test_a_cell_without_records_is_named() -> None:
    with pytest.raises(UserError, match="no records in"):
        joined("xqa_shared_p128", [H200 / "plan.jsonl"])


def test_a_card_without_a_time_or_counters_says_what_makes_them() -> None:
    assert f"no timing: pagebench run {LONG}" in joined_card(joined(LONG, [COUNTERS]))
    assert f"no counters: make ncu CELL={LONG}" in joined_card(joined(LONG, [PAGES]))


def test_a_card_says_what_binds_where_it_has_time_counters_and_ceilings() -> None:
    card = joined(LONG, [STUDY])
    assert card.path
    (line,) = [text for text in joined_card(card).splitlines() if "binds" in text]
    assert line == f"  binds     {binding_line(card.path)}"
    told = json.loads(json.dumps(card_json(card)))["binds"]
    assert (told["binding"], told["sentence"]) == ("DRAM", binding_line(card.path))
    assert told["path_us"] / told["time_us"] == told["share"]
    assert joined(LONG, [PAGES, COUNTERS]).path is None


def test_counters_of_another_gpu_are_told_from_the_times(tmp_path: Path) -> None:
    counters = counted(joined(LONG, [COUNTERS]))
    moved = replace(counters, environment=replace(counters.environment, uuid="GPU-another"))
    store.append(tmp_path / "c.jsonl", moved)
    text = joined_card(joined(LONG, [PAGES, tmp_path / "c.jsonl"]))
    assert "not the GPU of the timing" in text
    assert "not the GPU" not in joined_card(joined(LONG, [STUDY]))
