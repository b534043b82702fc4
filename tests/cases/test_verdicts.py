"""Verdicts under fire: other binaries, missing counters, races, one-sided trouble, exit codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes import H200
from fakes.made import change, count, lost, rounds
from pagebench.harness.cli import judging as commands
from pagebench.harness.judging.verdict import Judgement, judge
from pagebench.harness.judging.work import from_code, work_of
from pagebench.harness.records import store
from pagebench.harness.records.caveats import NoCounters, OneSided, OtherBinary
from pagebench.harness.records.rounds import Rounds, Side
from pagebench.harness.records.verdict import SameBinary, Verdict
from pagebench.harness.timing.interleaved import Interleaved
from pagebench.harness.workers.bench import Bench
from pagebench.kernels.device import Device

GPU = Device("cuda", "NVIDIA H200", 0, (9, 0))
COUNTERS = H200 / "counters.jsonl"
PAIR = ["xqa_shared_p64", "xqa_shared_p16"]
ALL_DIFFER = SameBinary(module=False, symbol=False, launch=False, resources=False)
recorded = pytest.mark.skipif(not H200.exists(), reason="the records are not installed")
Processes = Callable[[Interleaved], Sequence[Rounds]]


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[int, Verdict]]:
    """`pagebench judge` with processes that are made up: its exit code and its last verdict."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "device_and_kernel", lambda *_: GPU)
    monkeypatch.setattr(commands, "refuse_named", lambda *_: None)

    def run(names: list[str], processes: Processes, *files: Path) -> tuple[int, Verdict]:
        def measured(groups: Sequence[Interleaved], bench: Bench) -> None:
            for group in groups:
                for each in processes(group):
                    group.add(each)

        monkeypatch.setattr(commands, "interleave", measured)
        out = tmp_path / "out.jsonl"
        code = commands.judge(names, list(files) or None, out)
        return code, store.read([out], Verdict).of(Verdict)[-1]

    return run


def slower(by: float, **fields: Any) -> Processes:
    """Four processes in which the second cell takes that many times as long."""
    return lambda group: [rounds(group.cells, [200.0, 200.0 * by], **fields)] * 4


# --- Another binary -------------------------------------------------------------------------------


def test_one_met_prediction_does_not_clear_another_binary() -> None:
    """3acd176 said `exposed` and nothing else: LDG came as predicted, local loads from none did
    not count."""
    one = {"ldg": count(100), "local_loads": count(0), "instructions": count(1000)}
    other = {"ldg": count(394), "local_loads": count(2000), "instructions": count(1000)}
    work = work_of(one, other, {"ldg": 3.94}, ALL_DIFFER)
    doubt = OtherBinary(("module", "symbol", "launch", "resources"), ("local_loads",))
    assert judge(change(), work, 50) == Judgement("exposed", "in doubt", (doubt,))
    assert judge(change("same"), work, 50) == Judgement("hidden", "in doubt", (doubt,))


@pytest.mark.parametrize(
    "counter", ["instructions", "ldgsts", "tma", "l1_requests", "l2_sectors", "local_stores"]
)
def test_any_counter_that_nothing_predicts_leaves_the_cause_in_doubt(counter: str) -> None:
    """3acd176 cleared each of these too, by the same single prediction."""
    one = {"ldg": count(100), counter: count(100)}
    other = {"ldg": count(394), counter: count(150)}
    work = work_of(one, other, {"ldg": 3.94}, ALL_DIFFER)
    assert work.unpredicted == (counter,)
    assert judge(change(), work, 50).cause == "in doubt"


def test_what_the_machine_code_says_beforehand_is_predicted() -> None:
    """3acd176 knew nothing of a kernel's machine code."""
    one = {"ldg": count(100), "local_loads": count(0), "local_stores": count(0)}
    other = {"ldg": count(394), "local_loads": count(2000), "local_stores": count(30)}
    code = from_code({"ldl": 0, "stl": 0}, {"ldl": 12, "stl": 4})
    work = work_of(one, other, {"ldg": 3.94}, ALL_DIFFER, code)
    assert work.from_code == ("local_loads", "local_stores")
    assert judge(change(), work, 50) == Judgement("exposed", "established")
    back = work_of(other, one, {"ldg": 1 / 3.94}, ALL_DIFFER, from_code({"ldl": 9}, {"ldl": 0}))
    assert back.unpredicted == ("local_stores",)


def test_code_that_has_local_memory_on_both_sides_predicts_no_amount() -> None:
    """Or any change of local loads would count as predicted."""
    assert from_code({"ldl": 3, "stl": 0}, {"ldl": 12, "stl": 0}) == {}
    assert from_code({}, {"ldl": 12}) == {}
    assert from_code({"ldl": "n/a"}, {"ldl": 12}) == {}


@recorded
def test_xqas_pages_stay_exposed_with_their_cause_in_doubt(
    judged: Callable[..., tuple[int, Verdict]], capsys: pytest.CaptureFixture[str]
) -> None:
    """3acd176 printed `exposed, as predicted` without a word on the other binary."""
    code, found = judged(["positive"], slower(1.2), COUNTERS)
    assert (code, found.word, found.cause) == (0, "exposed", "in doubt")
    said = capsys.readouterr().out
    assert said.startswith("exposed, as predicted, its cause in doubt: xqa_shared_p64")
    assert "no prediction gives the ratio of instructions, local_loads" in said


# --- Without counters -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "cells", "word"),
    [
        (1.2, PAIR, "likely exposed"),
        (1.0, PAIR, "likely hidden"),
        (1.2, ["xqa_distinct_p16", "xqa_distinct_scatter_p16"], "likely unexplained"),
        (1.0, ["xqa_distinct_p16", "xqa_distinct_scatter_p16"], "likely absent"),
        (0.8, PAIR, "likely unexplained"),
    ],
)
def test_without_counters_time_and_predictions_conclude(
    by: float,
    cells: list[str],
    word: str,
    judged: Callable[..., tuple[int, Verdict]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """3acd176 said `unclear` to all of these, however clear the time was."""
    code, found = judged(cells, slower(by))
    assert (code, found.word) == (0, word)
    assert NoCounters(tuple(cells)) in found.caveats
    assert found.expected
    said = capsys.readouterr().out
    assert "work predicted and not counted: " in said
    assert f"pagebench profile {' '.join(cells)} counts work" in said
    assert "unclear" not in said


# --- A wrong base, and trouble on one side --------------------------------------------------------


@pytest.mark.parametrize("status", ["wrong", "poisoned", "rejected"])
@pytest.mark.parametrize("good", [1, 4, 6])
@recorded
def test_a_wrong_output_in_any_process_withdraws_the_ratio(
    status: str, good: int, judged: Callable[..., tuple[int, Verdict]]
) -> None:
    """3acd176 kept the ratio of four good processes and named the wrong one in a caveat."""

    def processes(group: Interleaved) -> list[Rounds]:
        four = rounds(group.cells, [200.0, 240.0])
        return [four] * good + [lost(group.cells, status, "off by 2")]

    code, found = judged(["positive"], processes, COUNTERS)
    assert (code, found.word, found.time, found.time_us) == (1, "unclear", None, None)


@recorded
def test_a_crash_after_four_good_processes_is_a_caveat(
    judged: Callable[..., tuple[int, Verdict]],
) -> None:
    """A death says nothing of outputs that were checked; here 3acd176 was right."""

    def processes(group: Interleaved) -> list[Rounds]:
        return [rounds(group.cells, [200.0, 240.0])] * 4 + [lost(group.cells)]

    code, found = judged(["positive"], processes, COUNTERS)
    assert found.time is not None
    assert code == 1  # the crash


SIDES = [
    (Side(throttle=("power cap",)), Side(), ("throttled", "xqa_shared_p64")),
    (Side(), Side(other_processes=1), ("others on the GPU", "xqa_shared_p16")),
]


@pytest.mark.parametrize(("one", "other", "found"), SIDES)
@recorded
def test_what_disturbs_one_side_alone_is_not_judged(
    one: Side, other: Side, found: tuple[str, str], judged: Callable[..., tuple[int, Verdict]]
) -> None:
    """3acd176 read throttling once a round and neighbours once a process: no side was known."""
    code, verdict = judged(["positive"], slower(1.2, sides=(one, other)), COUNTERS)
    assert (code, verdict.word, verdict.cause) == (2, "unclear", None)
    assert OneSided(found[0], (found[1],)) in verdict.caveats


@recorded
def test_what_disturbs_both_sides_is_a_caveat(judged: Callable[..., tuple[int, Verdict]]) -> None:
    """As in 3acd176: both cells ran under the power cap."""
    capped = (Side(throttle=("power cap",)),) * 2
    code, verdict = judged(["positive"], slower(1.2, sides=capped), COUNTERS)
    assert (code, verdict.word) == (0, "exposed")


# --- Exit codes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "by", "code"),
    [
        (["positive"], 1.2, 0),
        (["positive"], 1.0, 1),
        (PAIR, 1.0, 0),
        (["vanishing"], 1.2, 1),
        (["positive", "vanishing"], 1.2, 1),
    ],
)
@recorded
def test_the_exit_code_says_whether_it_came_as_predicted(
    names: list[str], by: float, code: int, judged: Callable[..., tuple[int, Verdict]]
) -> None:
    """3acd176 exited with 0 whatever the verdict."""
    assert judged(names, slower(by), COUNTERS)[0] == code


@recorded
def test_what_cannot_be_judged_exits_with_2(judged: Callable[..., tuple[int, Verdict]]) -> None:
    """3acd176 exited with 0 for a noisy pair and for a call of a few floors."""

    def noisy(group: Interleaved) -> list[Rounds]:
        return [rounds(group.cells, [200.0, 200.0 * by]) for by in (1.1, 0.9) * 4]

    assert judged(["positive"], noisy, COUNTERS)[0] == 2

    def short(group: Interleaved) -> list[Rounds]:
        return [replace(each, floor_us=100.0) for each in slower(1.2)(group)]

    assert judged(["positive"], short, COUNTERS)[0] == 2
