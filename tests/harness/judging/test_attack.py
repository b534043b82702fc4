"""Attacks: which cells, and what an effect in other variants says; on made-up and recorded ones."""

from __future__ import annotations

import json

import pytest

from fakes.made import lost, rounds
from pagebench.harness.cell import Cell
from pagebench.harness.errors import UserError
from pagebench.harness.judging import attack as attacks
from pagebench.harness.records import codec
from pagebench.harness.records.attack import ExtraWork, Variant
from pagebench.harness.records.dose import Step
from pagebench.harness.records.verdict import Change
from pagebench.harness.show.sentences import attack_lines
from pagebench.harness.timing.interleaved import NotTimed
from pagebench.kernels.adapter import Refusal
from pagebench.kernels.device import CPU, Device

GPU = Device("cuda", "NVIDIA H200", 0, (9, 0))
XQA = (Cell.parse("xqa_shared_p64"), Cell.parse("xqa_shared_p16"))
Delta = tuple[float, float, float]


# --- what it says -----------------------------------------------------------------------------


def variant(delta: Delta, work: float, word: str = "changed") -> Variant:
    return Variant(
        cells=("a", "b"),
        time=Change(word, 1.1, 1.0, 1.2, 4, 0.01, 0.05),
        delta=Step(*delta),
        work=ExtraWork("ldg", work),
    )


SCALED = [
    ([((8, 9, 10), 50), ((17, 18, 19), 100), ((34, 36, 38), 200)], "scales"),
    ([((8, 9, 10), 50), ((8.5, 9, 9.5), 100), ((8, 9, 10), 200)], "constant"),
    ([((8, 9, 10), 50), ((29, 30, 31), 100), ((34, 36, 38), 200)], "neither"),
    ([((8, 9, 10), 0), ((17, 18, 19), 0), ((34, 36, 38), 0)], "neither"),
    ([((-5, 20, 45), 100), ((5, 20, 35), 200), ((-20, 20, 60), 400)], "unclear"),
]


@pytest.mark.parametrize(("deltas", "word"), SCALED)
def test_an_effect_scales_with_the_work_or_not(
    deltas: list[tuple[Delta, float]], word: str
) -> None:
    assert attacks.word_of("context", [variant(*each) for each in deltas]) == word


@pytest.mark.parametrize("deltas", [deltas for deltas, _ in SCALED[:3]])
def test_an_effect_scales_alike_where_both_it_and_the_work_fall(
    deltas: list[tuple[Delta, float]],
) -> None:
    falling = [variant((-high, -middle, -low), -work) for (low, middle, high), work in deltas]
    assert attacks.word_of("context", falling) == attacks.word_of(
        "context", [variant(*each) for each in deltas]
    )


def test_what_has_no_effect_cannot_be_attacked() -> None:
    same, unclear = (variant((-1, 0, 1), 5, word) for word in ("same", "unclear"))
    assert attacks.word_of("context", [same] * 3) == "no effect"
    assert attacks.word_of("kernel", [same, variant((8, 9, 10), 5)]) == "no effect"
    assert attacks.word_of("context", [unclear] * 3) == "unclear"
    assert attacks.word_of("kernel", [unclear, variant((8, 9, 10), 5)]) == "unclear"


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (variant((-1, 0, 1), 0, "same"), "vanishes"),
        (variant((3, 4, 5), 0), "survives"),
        (variant((-5, -4, -3), 0), "reverses"),
        (variant((-5, 4, 9), 0, "unclear"), "unclear"),
    ],
)
def test_another_kernel_loses_the_effect_or_keeps_it(other: Variant, word: str) -> None:
    assert attacks.word_of("kernel", [variant((8, 9, 10), 5), other]) == word


def test_an_attack_record_holds_every_variant_and_the_cells_given() -> None:
    groups = attacks.groups_of(attacks.scaled(XQA))
    assert [group.among for group in groups] == [3, 3, 3]
    for group, scale in zip(groups, attacks.SCALES, strict=True):
        for process in range(4):
            there = (200 * scale, 220 * scale + 1e-3 * process)
            group.add(rounds(group.cells, there))
    made = attacks.attack_of("context", groups)
    assert codec.from_json(json.loads(codec.encode(made))) == made
    assert made.cells == ("xqa_shared_p64", "xqa_shared_p16")
    assert made.variants[1].cells == made.cells
    assert made.word == "scales"  # 10, 20 and 40 us
    assert made.variants[1].delta.middle_us == pytest.approx(20, abs=0.01)
    assert made.variants[1].work == ExtraWork("index_entries", 32 * 8192 * (1 / 16 - 1 / 64))
    assert "does not single out a counter" in attack_lines(made)[-1]


def test_a_variant_without_times_leaves_no_attack() -> None:
    groups = attacks.groups_of(attacks.scaled(XQA))
    for group in groups:
        group.add(lost(group.cells))
    with pytest.raises(NotTimed, match=r"^xqa_shared_p64_l4096 .*: crashed: no$") as failed:
        attacks.attack_of("context", groups)
    assert failed.value.crashed


# --- which cells ------------------------------------------------------------------------------


def test_the_other_kernel_is_the_first_that_takes_both_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attacks, "refusal", lambda cell, device: None)
    assert [cell.name for cell in attacks.switched(XQA, GPU, None)[1]] == [
        "tritonrow_shared_p64",
        "tritonrow_shared_p16",
    ]
    with pytest.raises(UserError, match="the cells have that kernel"):
        attacks.switched(XQA, GPU, "xqa")
    monkeypatch.undo()
    assert attacks.switched(XQA, CPU, None)[1][0].kernel == "gather"
    with pytest.raises(UserError, match=r"^fidecode needs an NVIDIA GPU"):
        attacks.switched(XQA, CPU, "fidecode")
    huge = (Cell.parse("xqa_shared_p64_d96"), Cell.parse("xqa_shared_p16_d96"))
    monkeypatch.setattr(attacks, "refusal", lambda cell, device: Refusal(f"{cell.kernel} does not"))
    with pytest.raises(UserError, match="no other kernel takes both cells: tritonrow does not"):
        attacks.switched(huge, CPU, None)


@pytest.mark.parametrize(
    ("how", "one", "other", "message"),
    [
        ("kernel", "xqa_shared_p16", "xqa_shared_p16", "two cells that differ"),
        ("kernel", "xqa_shared_p16", "tritonrow_shared_p16", "cells of one kernel"),
        ("context", "xqa_shared_p16", "xqa_shared_p16_l4096", "one context length"),
    ],
)
def test_pointless_attacks_are_refused(how: str, one: str, other: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        attacks.check_pair(how, (Cell.parse(one), Cell.parse(other)))


def test_the_context_is_halved_exactly_or_not_at_all() -> None:
    pairs = attacks.scaled(XQA)
    assert [pair[0].shape.kv_len for pair in pairs] == [4096, 8192, 16384]
    odd = Cell.parse("xqa_shared_p64_l33"), Cell.parse("xqa_shared_p16_l33")
    with pytest.raises(UserError, match="give an even one, not l33"):
        attacks.scaled(odd)


def test_a_context_that_cannot_be_doubled_is_the_users_to_change() -> None:
    longest = (Cell.parse("xqa_shared_p64_l16777216"), Cell.parse("xqa_shared_p16_l16777216"))
    with pytest.raises(UserError, match=r"^attack context: kv_len is 33554432; use 1 to"):
        attacks.scaled(longest)
