"""Interleaving over processes: when a difference is decided, and what is said of the times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as with_options
from math import exp
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes.made import lost, rounds
from pagebench.harness.cell import Cell
from pagebench.harness.contrasts import LADDERS
from pagebench.harness.environment import Environment
from pagebench.harness.progress import silent
from pagebench.harness.records import store
from pagebench.harness.records.caveats import (
    ClockMoved,
    LostProcess,
    NoTime,
    OthersOnGpu,
    Throttled,
)
from pagebench.harness.records.rounds import Rounds
from pagebench.harness.timing.interleaved import Interleaved, NotTimed
from pagebench.harness.timing.options import Options
from pagebench.harness.workers import interleave as interleaving
from pagebench.harness.workers.bench import Bench
from pagebench.harness.workers.interleave import interleave
from pagebench.harness.workers.worker import WorkerLost
from pagebench.kernels.device import CPU


def pair(name: str) -> Interleaved:
    return Interleaved((Cell.parse(name), Cell.parse(name)), 1)


def told(group: Interleaved, ratio: float, **fields: Any) -> Rounds:
    return rounds(group.cells, (100.0, 100 * ratio), **fields)


def bench(tmp_path: Path) -> Bench:
    return Bench(CPU, Options(), tmp_path / "out.jsonl", silent)


# --- when it is done --------------------------------------------------------------------------


def test_decided_groups_wait_no_longer_and_failed_ones_cost_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quiet, noisy, broken = map(pair, ("xqa_shared_p16", "xqa_shared_p32", "xqa_shared_p64"))
    asked: list[list[str]] = []

    def one_process(groups: Sequence[Interleaved], bench: Bench) -> None:
        process = bench.options.process
        asked.append([group.cells[0].name for group in groups])
        for group in groups:
            if group is broken:
                group.add(lost(group.cells))
            else:
                noise = 0.05 * (-1) ** process if group is noisy else 0.0
                group.add(told(group, 1.0 + noise + 1e-5 * process))

    monkeypatch.setattr(interleaving, "_one_process", one_process)
    interleave([quiet, noisy, broken], bench(tmp_path))
    assert asked[0] == ["xqa_shared_p16", "xqa_shared_p32", "xqa_shared_p64"]
    assert asked[1] == ["xqa_shared_p16", "xqa_shared_p32"]
    assert asked[-1] == ["xqa_shared_p32"]
    assert (len(asked), len(quiet.measured), len(noisy.measured)) == (8, 4, 8)
    assert quiet.step().word == "same"
    assert noisy.step().word == "unclear"
    assert (broken.failed, broken.status) == (NoTime("crashed", "no"), "crashed")
    with pytest.raises(NotTimed, match=r"^broken: crashed: no$") as failed:
        broken.refuse_failed("broken")
    assert failed.value.crashed


def test_a_late_loss_leaves_what_enough_processes_have_said() -> None:
    group = pair("xqa_shared_p16")
    for process in range(4):
        group.add(told(group, 1.1 + 1e-4 * process))
    group.add(lost(group.cells, reason="the worker died"))
    assert (group.failed, group.decided, group.status) == (None, True, "crashed")
    assert group.step().word == "changed"
    assert group.caveats == (LostProcess("crashed", "the worker died"),)
    group.refuse_failed("has times")


def test_a_refusal_is_no_crash() -> None:
    group = pair("xqa_shared_p16")
    group.add(lost(group.cells, "refused", "too large"))
    with pytest.raises(NotTimed) as failed:
        group.refuse_failed("it")
    assert not failed.value.crashed


def test_a_lost_worker_leaves_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> None:
        raise WorkerLost("the worker died of signal 9")

    monkeypatch.setattr(interleaving.Worker, "ask", die)
    group, here = pair("gather_distinct_p16_b2_l64"), bench(tmp_path)
    interleave([group], here)
    (line,) = store.read([here.out], Rounds).of(Rounds)
    assert (line.status, line.reason) == ("crashed", "the worker died of signal 9")
    assert group.failed == NoTime("crashed", "the worker died of signal 9")


def test_when_time_runs_out_two_processes_have_been_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    group = pair("xqa_shared_p16")
    monkeypatch.setattr(
        interleaving, "_one_process", lambda groups, _: [g.add(told(g, 1.1)) for g in groups]
    )
    interleave([group], bench(tmp_path), limit_s=-1.0)
    assert len(group.measured) == 2


def test_each_process_has_its_number_and_the_options_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Options] = []
    monkeypatch.setattr(interleaving, "_one_process", lambda groups, at: seen.append(at.options))
    here = bench(tmp_path)
    interleave([pair("xqa_shared_p16")], here)
    assert seen == [with_options(here.options, process=process) for process in range(8)]


# --- what it says -----------------------------------------------------------------------------


def test_one_of_many_contrasts_needs_a_wider_interval() -> None:
    alone, one_of_nine = (measured_among(among).step() for among in (1, 9))
    assert one_of_nine.low < alone.low < 1.01 < alone.high < one_of_nine.high


def measured_among(among: int) -> Interleaved:
    group = Interleaved(pair("xqa_shared_p16").cells, among)
    for ratio in (1.01, 1.012, 1.008):
        group.add(told(group, ratio))
    return group


def test_steps_of_a_ladder_are_timed_each_against_the_one_before() -> None:
    group = Interleaved(LADDERS[0].cells, 3)
    group.add(rounds(group.cells, (400.0, 300.0, 150.0, 150.0)))
    effects = [exp(group.effects(step)[0]) for step in range(3)]
    assert effects == pytest.approx([0.75, 0.5, 1.0])
    assert [group.times_us(cell) for cell in range(4)] == [[400.0], [300.0], [150.0], [150.0]]
    assert group.floors == 60


def test_the_shortest_call_in_the_worst_process_counts_its_floors() -> None:
    group = pair("xqa_shared_p16")
    group.add(told(group, 2.0, floor_us=2.0))
    group.add(told(group, 0.5, floor_us=5.0))
    assert group.floors == 10


def test_a_clock_without_a_floor_divides_nothing_by_zero() -> None:
    group = pair("gather_distinct_p16_b2_l64")
    group.add(told(group, 1.0, floor_us=0.0))
    assert group.floors > 1e4


def test_where_it_ran_is_what_the_newest_measured_process_says() -> None:
    group = pair("xqa_shared_p16")
    assert (group.environment, group.resolved) == (Environment(), ())
    for gpu in ("one", "other"):
        environment = Environment(gpu=gpu)
        group.add(told(group, 1.0, environment=environment, resolved=({"splits": 4}, {})))
    group.add(lost(group.cells))
    assert group.environment == Environment(gpu="other")
    assert group.resolved == ({"splits": 4}, {})


def test_throttling_is_a_caveat() -> None:
    group = pair("xqa_shared_p16")
    group.add(told(group, 1.0, throttle=("power cap",)))
    assert group.caveats == (Throttled(("power cap",)),)
    group.add(told(group, 1.0, throttle=("hardware slowdown", "power cap")))
    assert group.caveats == (Throttled(("hardware slowdown", "power cap")),)


def test_a_clock_that_moved_between_processes_and_neighbours_are_caveats() -> None:
    group = pair("xqa_shared_p16")
    for spin_mhz, others in ((1980, 1), (1950, 0)):
        environment = Environment(other_processes=others)
        group.add(told(group, 1.0, spin_mhz=spin_mhz, environment=environment))
    assert group.caveats == (OthersOnGpu(1),)
    group.add(told(group, 1.0, spin_mhz=1755, environment=Environment()))
    assert group.caveats == (ClockMoved(1755, 1980), OthersOnGpu(1))


def test_caveats_stand_in_one_order() -> None:
    group = pair("xqa_shared_p16")
    busy = Environment(other_processes=2)
    one = told(group, 1.0, throttle=("power cap",), spin_mhz=1980, environment=busy)
    group.add(one)
    group.add(replace(one, spin_mhz=1755))
    group.add(lost(group.cells))
    kinds = [type(each) for each in group.caveats]
    assert kinds == [LostProcess, Throttled, ClockMoved, OthersOnGpu]
