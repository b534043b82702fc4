"""Dose and response, attacks, the self-test and interleaving: on made-up and recorded numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes import H200, TESTS, pagebench
from pagebench.harness.cell import Cell
from pagebench.harness.cli import judging as cli_judge
from pagebench.harness.contrasts import LADDERS, Ladder, planted_contrasts, spin_ns
from pagebench.harness.environment import bandwidth_of
from pagebench.harness.instruments.planted import planted_cells, planted_record
from pagebench.harness.judging import attack as attacks
from pagebench.harness.judging.dose import Step, candidates, explain, explanations, moves
from pagebench.harness.judging.ladder import conclusion, dose_of, follows, sentences
from pagebench.harness.records import store
from pagebench.harness.timing.measure import Options
from pagebench.harness.timing.rounds import build_order
from pagebench.harness.workers import interleave as interleaving
from pagebench.harness.workers.interleave import Interleaved, interleave
from pagebench.harness.workers.worker import WorkerLost
from pagebench.kernels.device import CPU, Device

recorded = pytest.mark.skipif(not H200.exists(), reason="the records are not installed")
PLANTED = planted_contrasts()
GPU = Device("cuda", "NVIDIA H200", 0, (9, 0))


def steps(*middles: float, half: float = 1.0) -> list[Step]:
    return [Step(us - half, us, us + half) for us in middles]


LDG = {"ldg": [400.0, 200.0, 100.0, 100.0]}
LOCAL = {"local_loads": [50.0, 50.0, 0.0, 0.0]}


# --- which counter does time follow? ----------------------------------------------------------


def test_time_that_falls_with_a_counter_follows_it_at_one_cost() -> None:
    (found,) = explanations(steps(-20, -10, 0), LDG)
    assert found.fits
    assert found.us_per_count == pytest.approx((0.1,))
    assert found.steps_us == pytest.approx((-20, -10, 0))


def test_two_mechanisms_at_different_values_of_the_knob_are_named_together() -> None:
    found = explanations(steps(-8, -34, 0), LDG | LOCAL)
    assert [each.counters for each in found if each.fits] == [("ldg", "local_loads")]
    (pair,) = [each for each in found if each.fits]
    assert pair.us_per_count == pytest.approx((0.04, 0.6))
    assert sentences(steps(-8, -34, 0), LDG | LOCAL, found)[-1] == "no single counter does"
    assert not pair.tested  # two costs, and two steps at which either counter moves
    found_out = conclusion(steps(-8, -34, 0), LDG | LOCAL)
    assert (found_out["follows"], found_out["untested"]) == ([], [["ldg", "local_loads"]])
    assert follows(found_out | {"counters": LDG}) == "perhaps ldg with local_loads"


def test_two_costs_are_tested_by_three_steps() -> None:
    counters = {"ldg": [800.0, 400.0, 200.0, 100.0], "local_loads": [0.0, 0.0, 50.0, 50.0]}
    found = conclusion(steps(-40, 30, -10), counters)
    assert found["follows"] == [["ldg", "local_loads"]]
    assert conclusion(steps(-40, 30, -20), counters)["follows"] == []


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
    found = conclusion(steps(0, -30, 0), LOCAL)
    assert (found["follows"], found["untested"]) == ([], [["local_loads"]])
    assert "the cost is not" in found["because"][1]
    assert conclusion(steps(-20, -30, 0), LOCAL)["untested"] == []


def test_time_that_no_counter_gives_is_unexplained() -> None:
    found = explanations(steps(-34, -1, 0), LDG | LOCAL)
    assert not any(each.fits for each in found)
    assert "unexplained" in sentences(steps(-34, -1, 0), LDG | LOCAL, found)[-1]


def test_more_work_is_never_faster() -> None:
    growing = {"instructions": [100.0, 200.0, 300.0, 400.0]}
    (found,) = explanations(steps(-20, -20, -20), growing)
    assert found.us_per_count == (0.0,)
    assert not found.fits


def test_two_steps_cannot_test_two_costs() -> None:
    two = {"ldg": [0.0, 100.0, 150.0], "local_loads": [0.0, 1.0, 1000.0]}
    found = conclusion(steps(5, 90), two)
    assert (found["follows"], found["untested"]) == ([], [["ldg", "local_loads"]])


def test_counters_that_move_alike_are_one_candidate() -> None:
    twins = LDG | {"l1_requests": [900.0, 700.0, 600.0, 600.0], "tma": [5.0] * 4} | LOCAL
    assert candidates(twins) == {"ldg": ("l1_requests",), "local_loads": ()}


def test_a_step_within_its_interval_fits_and_one_outside_does_not() -> None:
    assert explain(steps(-20, -11.9, 0, half=2.0), LDG, ["ldg"]).fits
    assert not explain(steps(-20, -14, 0, half=2.0), LDG, ["ldg"]).fits


def test_time_that_does_not_move_follows_nothing() -> None:
    still = steps(0.2, -0.3, 0.1)
    assert not moves(still)
    assert explanations(still, LDG) == []
    assert sentences(still, LDG, [])[-1].endswith("time follows nothing")
    assert "no stable counter" in sentences(steps(-5, 0, 0), {}, [])[-1]


@recorded
@pytest.mark.parametrize("name", ["study", "study_other_gpu", "study_third_gpu"])
def test_recorded_doses_follow_from_their_steps_and_counters(name: str) -> None:
    lines = list(store.read_kind([H200 / f"{name}.jsonl"], "dose"))
    assert [line["regime"] for line in lines] == [ladder.name for ladder in LADDERS]
    for line in lines:
        found = conclusion([Step(*step) for step in line["steps_us"]], line["counters"])
        fitting = [*found["follows"], *found["untested"]]
        assert fitting == [*line["follows"], *line.get("untested", ())]


def ladder_group(times: Sequence[float], processes: int = 4) -> Interleaved:
    group = Interleaved(tuple(map(Cell.parse, LADDERS[0].cells)), 3)
    for process in range(processes):
        there = [us * (1 + 1e-4 * process * index) for index, us in enumerate(times)]
        group.add({
            "status": "measured", "floor_us": 2.5, "rounds": [[*there, *reversed(there)]],
            "environment": {"gpu": "NVIDIA H200"}, "resolved": [{}] * 4,
        })  # fmt: skip
    return group


@recorded
def test_a_dose_record_holds_times_steps_counters_and_reasons() -> None:
    group = ladder_group((215.0, 181.0, 180.0, 178.0))
    made = dose_of(LADDERS[0], group, Options(), [H200 / "study_other_gpu.jsonl"])
    record = json.loads(json.dumps(made, allow_nan=False))
    assert record["values"] == ["16", "32", "64", "128"]
    assert record["steps_us"][0][1] == pytest.approx(-34, abs=0.2)
    assert record["counters"]["ldg"] == [407552, 204800, 103424, 103424]
    assert record["follows"] == []
    assert "dram_read_bytes" not in record["counters"]  # it did not repeat


def test_a_step_is_no_surer_than_the_least_effect() -> None:
    record = dose_of(LADDERS[0], ladder_group((200.0,) * 4), Options(), [])
    low, middle, high = record["steps_us"][0]
    assert high - middle >= 0.8 - 1e-9  # 0.4 % of 200 us
    assert middle - low >= 0.8 - 1e-9


# --- attacks ----------------------------------------------------------------------------------


def variant(delta: tuple[float, float, float], work: float, word: str = "changed") -> Any:
    return {"cells": ["a", "b"], "time": {"word": word}, "delta_us": list(delta),
            "work": {"ldg": work}}  # fmt: skip


SCALED = [
    ([((8, 9, 10), 50), ((17, 18, 19), 100), ((34, 36, 38), 200)], "scales"),
    ([((8, 9, 10), 50), ((8.5, 9, 9.5), 100), ((8, 9, 10), 200)], "constant"),
    ([((8, 9, 10), 50), ((29, 30, 31), 100), ((34, 36, 38), 200)], "neither"),
    ([((8, 9, 10), 0), ((17, 18, 19), 0), ((34, 36, 38), 0)], "neither"),
    ([((-5, 20, 45), 100), ((5, 20, 35), 200), ((-20, 20, 60), 400)], "unclear"),
]


@pytest.mark.parametrize(("deltas", "word"), SCALED)
def test_an_effect_scales_with_the_work_or_not(
    deltas: list[tuple[tuple[float, float, float], float]], word: str
) -> None:
    assert attacks._scaling([variant(*each) for each in deltas])[0] == word


def test_what_has_no_effect_cannot_be_attacked() -> None:
    same = variant((-1, 0, 1), 5, "same")
    assert attacks._scaling([same] * 3)[0] == "no effect"
    assert attacks._switching([same, variant((8, 9, 10), 5)])[0] == "no effect"


@pytest.mark.parametrize(
    ("other", "word"),
    [(variant((-1, 0, 1), 0, "same"), "vanishes"), (variant((3, 4, 5), 0), "survives"),
     (variant((-5, -4, -3), 0), "reverses"), (variant((-5, 4, 9), 0, "unclear"), "unclear")],
)  # fmt: skip
def test_another_kernel_loses_the_effect_or_keeps_it(other: Any, word: str) -> None:
    assert attacks._switching([variant((8, 9, 10), 5), other])[0] == word


def test_the_other_kernel_is_the_first_that_takes_both_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells = (Cell.parse("xqa_shared_p64"), Cell.parse("xqa_shared_p16"))
    monkeypatch.setattr(attacks, "refusal", lambda cell, device: None)
    assert [cell.name for cell in attacks.switched(cells, GPU, None)[1]] == [
        "tritonrow_shared_p64", "tritonrow_shared_p16",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="the cells have that kernel"):
        attacks.switched(cells, GPU, "xqa")
    monkeypatch.undo()
    assert attacks.switched(cells, CPU, None)[1][0].kernel == "gather"
    with pytest.raises(ValueError, match=r"^fidecode needs an NVIDIA GPU"):
        attacks.switched(cells, CPU, "fidecode")
    huge = (Cell.parse("xqa_shared_p64_d96"), Cell.parse("xqa_shared_p16_d96"))
    monkeypatch.setattr(attacks, "refusal", lambda cell, device: f"{cell.kernel} does not")
    with pytest.raises(ValueError, match="no other kernel takes both cells: tritonrow does not"):
        attacks.switched(huge, CPU, None)


@pytest.mark.parametrize(
    ("how", "one", "other", "message"),
    [("kernel", "xqa_shared_p16", "xqa_shared_p16", "two cells that differ"),
     ("kernel", "xqa_shared_p16", "tritonrow_shared_p16", "cells of one kernel"),
     ("context", "xqa_shared_p16", "xqa_shared_p16_l4096", "one context length")],
)  # fmt: skip
def test_pointless_attacks_are_refused(how: str, one: str, other: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attacks.check(how, (Cell.parse(one), Cell.parse(other)))


def test_the_context_is_halved_exactly_or_not_at_all() -> None:
    pairs = attacks.scaled((Cell.parse("xqa_shared_p64"), Cell.parse("xqa_shared_p16")))
    assert [pair[0].shape.kv_len for pair in pairs] == [4096, 8192, 16384]
    odd = Cell.parse("xqa_shared_p64_l33"), Cell.parse("xqa_shared_p16_l33")
    with pytest.raises(ValueError, match="give an even one, not l33"):
        attacks.scaled(odd)


@recorded
@pytest.mark.parametrize("name", ["study", "study_other_gpu", "study_third_gpu"])
def test_recorded_attacks_follow_from_their_variants(name: str) -> None:
    words = {}
    for line in store.read_kind([H200 / f"{name}.jsonl"], "attack"):
        conclude = attacks._scaling if line["attack"] == "context" else attacks._switching
        assert conclude(line["variants"])[0] == line["word"]
        words[line["attack"]] = line["word"]
    assert words == {"context": "scales", "kernel": "reverses"}


@pytest.mark.parametrize("rate", [{"gbps": None}, {"gbps": 0.0}, {"gbps": "x"}])
def test_damaged_ceilings_are_refused_before_anything_is_timed(
    rate: dict[str, Any], tmp_path: Path
) -> None:
    point = {"bytes_read": 2**20, "saturated": True} | rate
    line = {"kind": "ceilings", "schema": 1, "gpu": "g", "dram_read": [point], "environment": {}}
    store.append_line(tmp_path / "c.jsonl", line)
    with pytest.raises(ValueError, match="a ceilings record is damaged"):
        cli_judge._files([tmp_path / "c.jsonl"], [], "both cells")


# --- the self-test ----------------------------------------------------------------------------


@recorded
def test_the_studys_planted_record_follows_from_its_verdicts_and_counters() -> None:
    (stored,) = store.read_kind([H200 / "study.jsonl"], "planted")
    lines = {line["contrast"]: line for line in store.read_kind([H200 / "study.jsonl"], "verdict")}
    made = planted_record([lines[c.name] for c in PLANTED], [H200 / "study.jsonl"])
    assert made["rows"] == stored["rows"]
    assert made["found_all"]


@recorded
def test_a_load_too_few_or_a_wrong_word_is_not_found(tmp_path: Path) -> None:
    lines = {line["contrast"]: line for line in store.read_kind([H200 / "study.jsonl"], "verdict")}
    verdicts = [lines[contrast.name] for contrast in PLANTED]
    wrong = [line | {"verdict": "absent"} for line in verdicts]
    assert not planted_record(wrong, [H200 / "study.jsonl"])["found_all"]
    less = tmp_path / "less.jsonl"
    for line in store.read_kind([H200 / "study.jsonl"], "counters"):
        ldg = line["total"]["ldg"]
        fewer = line["total"] | {"ldg": ldg | {"value": ldg["value"] - line["cell"].count("x64")}}
        store.append_line(less, line | {"total": fewer})
    rows = planted_record(verdicts, [less])["rows"]
    assert [row["cell"] for row in rows if not row["right"]] == [
        "tritontile_distinct_p64_l32768_x64"
    ]


@recorded
def test_without_the_counter_nothing_is_found(tmp_path: Path) -> None:
    lines = {line["contrast"]: line for line in store.read_kind([H200 / "study.jsonl"], "verdict")}
    without = tmp_path / "without.jsonl"
    for line in store.read_kind([H200 / "study.jsonl"], "counters"):
        total = {name: entry for name, entry in line["total"].items() if name != "ldg"}
        store.append_line(without, line | {"total": total})
    rows = planted_record([lines[contrast.name] for contrast in PLANTED], [without])["rows"]
    loads = [row for row in rows if row["instrument"] == "counter (LDG)"]
    assert [(row["found"], row["right"]) for row in loads] == [(None, False)] * 2


@pytest.mark.parametrize(
    ("gbps", "ns"), [(4814.304, 2500), (2039, 5500), (1555, 7000), (1008, 11_000), (448, 24_000)]
)
def test_the_planted_wait_is_one_per_cent_of_the_call_on_any_gpu(gbps: float, ns: int) -> None:
    """H200, H100 PCIe, A100, RTX 4090, RTX 5060 Ti: what is less than 0.4 % would be no change."""
    call_ns = 8 * 32_768 * 2 * 8 * 128 * 2 / gbps
    assert spin_ns(gbps) == ns
    assert 0.0095 < ns / call_ns < 0.0125


def test_the_planted_wait_of_a_gpu_that_does_not_say_is_as_on_an_h200() -> None:
    assert bandwidth_of(CPU) is None
    assert planted_contrasts()[-1].other.endswith("_y2500")


def test_planted_cells_are_counted_once_each() -> None:
    names = [cell.name for cell in planted_cells(PLANTED)]
    assert len(names) == len(set(names)) == 5


# --- interleaving over processes --------------------------------------------------------------


def pair(name: str) -> Interleaved:
    return Interleaved((Cell.parse(name), Cell.parse(name)), 1)


def record(ratio: float) -> dict[str, Any]:
    return {"status": "measured", "floor_us": 2.5, "rounds": [[100, 100 * ratio, 100 * ratio, 100]],
            "environment": {}, "resolved": [{}, {}]}  # fmt: skip


def test_decided_groups_wait_no_longer_and_failed_ones_cost_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quiet, noisy, broken = map(pair, ("xqa_shared_p16", "xqa_shared_p32", "xqa_shared_p64"))
    asked: list[list[str]] = []

    def one_process(groups: Sequence[Interleaved], options: Options, *_: Any) -> None:
        asked.append([group.cells[0].name for group in groups])
        for group in groups:
            if group is broken:
                group.add({"status": "crashed", "reason": "no"})
            else:
                noise = 0.05 * (-1) ** options.process if group is noisy else 0.0
                group.add(record(1.0 + noise + 1e-5 * options.process))

    monkeypatch.setattr(interleaving, "_one_process", one_process)
    interleave([quiet, noisy, broken], Options(), CPU, tmp_path / "out.jsonl", lambda text: None)
    assert asked[0] == ["xqa_shared_p16", "xqa_shared_p32", "xqa_shared_p64"]
    assert asked[1] == ["xqa_shared_p16", "xqa_shared_p32"]
    assert asked[-1] == ["xqa_shared_p32"]
    assert (len(asked), len(quiet.effects), len(noisy.effects)) == (8, 4, 8)
    assert quiet.step().word == "same"
    assert noisy.step().word == "unclear"
    assert (broken.failed, broken.crashed) == ("crashed: no", True)


def test_a_late_loss_leaves_what_enough_processes_have_said() -> None:
    group = pair("xqa_shared_p16")
    for process in range(4):
        group.add(record(1.1 + 1e-4 * process))
    group.add({"status": "crashed", "reason": "the worker died"})
    assert (group.failed, group.decided, group.crashed) == (None, True, True)
    assert group.step().word == "changed"
    assert group.notes == ["a process was lost: crashed: the worker died"]


def test_a_lost_worker_leaves_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> None:
        raise WorkerLost("the worker died of signal 9")

    monkeypatch.setattr(interleaving.Worker, "ask", die)
    group, out = pair("gather_distinct_p16_b2_l64"), tmp_path / "out.jsonl"
    interleave([group], Options(), CPU, out, lambda text: None)
    (line,) = store.read_kind([out], "group")
    assert (line["status"], line["reason"]) == ("crashed", "the worker died of signal 9")
    assert group.failed == "crashed: the worker died of signal 9"


def test_every_second_process_builds_in_the_other_order() -> None:
    assert [build_order(3, process) for process in (0, 1, 2)] == [[0, 1, 2], [2, 1, 0], [0, 1, 2]]


def test_a_clock_without_a_floor_divides_nothing_by_zero() -> None:
    group = pair("gather_distinct_p16_b2_l64")
    group.add(record(1.0) | {"floor_us": 0.0})
    assert group.floors > 1e4


def test_throttling_is_a_note() -> None:
    group = pair("xqa_shared_p16")
    group.add(record(1.0) | {"throttle": ["power cap"]})
    assert group.notes == ["throttled: power cap"]


def test_a_clock_that_moved_between_processes_and_neighbours_are_notes() -> None:
    group = pair("xqa_shared_p16")
    group.add(record(1.0) | {"spin_mhz": 1980, "environment": {"other_processes": 1}})
    group.add(record(1.0) | {"spin_mhz": 1950, "environment": {"other_processes": 0}})
    assert group.notes == ["1 other process on the GPU"]
    group.add(record(1.0) | {"spin_mhz": 1755, "environment": {"other_processes": None}})
    assert group.notes == ["SM clock moved 1755 to 1980 MHz", "1 other process on the GPU"]


def test_when_time_runs_out_two_processes_have_been_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    group = pair("xqa_shared_p16")
    monkeypatch.setattr(
        interleaving, "_one_process", lambda groups, *_: [g.add(record(1.1)) for g in groups]
    )
    interleave([group], Options(), CPU, tmp_path / "o.jsonl", lambda text: None, limit_s=-1.0)
    assert len(group.effects) == 2


def test_dose_runs_on_a_cpu_from_end_to_end(tmp_path: Path) -> None:
    cells = [f"gather_distinct_p16_b2_l{tokens}" for tokens in (64, 512, 2048)]
    done = pagebench("dose", *cells, "--device", "cpu", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["cells"] == cells
    assert found["values"] == ["64", "512", "2048"]
    assert found["knob"] == "kv len"
    assert all(step[1] > 0 for step in found["steps_us"])
    assert "no stable counter" in found["because"][-1]


@pytest.mark.parametrize("words", [("judge",), ("attack", "kernel"), ("dose",)])
def test_a_kernel_that_crashes_ends_in_one_line_and_exit_1(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    cells = [f"crashing_distinct_p{page}_b2_l64" for page in (16, 32, 64)]
    asked = cells if words == ("dose",) else cells[:2]
    kernel = TESTS / "crashing_kernel.py"  # cupy, or a stray read
    options = ("--device", "cpu", "--kernel", str(kernel))
    done = pagebench(*words, *asked, *options, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "crashed: " in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    (path,) = (tmp_path / "runs").glob("*.jsonl")
    assert '"status":"crashed"' in path.read_text()


def test_ladders_are_one_knob_in_order() -> None:
    for ladder in LADDERS:
        assert isinstance(ladder, Ladder)
        cells = list(map(Cell.parse, ladder.cells))
        pages = [cell.shape.page_size for cell in cells]
        assert pages == sorted(pages)
        axes = [{k: v for k, v in cell.axes().items() if k != "page_size"} for cell in cells]
        assert all(each == axes[0] for each in axes)
