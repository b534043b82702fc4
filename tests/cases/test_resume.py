"""A file is gone on with only where its records are what would be measured now."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes import made, pagebench, pagebench_here
from pagebench.harness.cell import Cell
from pagebench.harness.cli.judging import judging_options, timed
from pagebench.harness.contrasts import find_contrasts
from pagebench.harness.environment import Environment, environment_seen
from pagebench.harness.judging.attack import attack_of
from pagebench.harness.judging.verdict import verdict_of
from pagebench.harness.records import store
from pagebench.harness.records.rounds import Rounds
from pagebench.harness.records.select import Evidence
from pagebench.harness.records.timing import Timing
from pagebench.harness.timing.interleaved import Interleaved
from pagebench.harness.timing.options import Options
from pagebench.harness.timing.rounds import unmeasured_rounds
from pagebench.harness.workers import interleave as interleaving
from pagebench.harness.workers import resume as resuming
from pagebench.harness.workers.bench import Bench
from pagebench.harness.workers.interleave import beforehand, minutes
from pagebench.harness.workers.resume import identity_now, why_again
from pagebench.kernels.device import CPU

CELL = "gather_distinct_p16_b2_l64"
RUN = ("run", CELL, "--device", "cpu", "--seconds", "0.05", "--out", "a.jsonl")
KERNEL = """
from pagebench.kernels.gather import Gather

class Mine(Gather):
    name = "mine"

ADAPTER = Mine()
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Timing:
    folder = tmp_path_factory.mktemp("measured")
    assert pagebench(*RUN, cwd=folder).returncode == 0
    (timing,) = store.read([folder / "a.jsonl"], Timing).of(Timing)
    return timing


def environment(timing: Timing, **changes: Any) -> Timing:
    return replace(timing, environment=replace(timing.environment, **changes))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (lambda t: environment(t, cpu="Another CPU"), "CPU was Another CPU, is "),
        (lambda t: environment(t, variables={"OMP_NUM_THREADS": "3"}), "variables was OMP_NUM_"),
        (
            lambda t: environment(t, versions={**t.environment.versions, "torch": "1.0"}),
            "torch was 1.0, is ",
        ),
        (lambda t: replace(t, asked=replace(t.asked, seconds=9.0)), "--seconds 9"),
        (lambda t: replace(t, asked=replace(t.asked, kernel="mine.py")), "another kernel file"),
        (lambda t: replace(t, status="crashed", samples=None, reason="died"), "it crashed"),
        (lambda t: replace(t, status="refused", samples=None, reason="no room"), "it was refused"),
    ],
    ids=["cpu", "variables", "versions", "seconds", "file", "crashed", "refused"],
)
def test_what_would_be_measured_otherwise_is_measured_again_and_why_is_said(
    changed: Callable[[Timing], Timing], says: str, measured: Timing, tmp_path: Path
) -> None:
    """3acd176 said "1 of 1 are already in a.jsonl" of records of another CPU, of other versions,
    seconds or kernel files, and of a cell that crashed."""
    store.append(tmp_path / "a.jsonl", changed(measured))
    done = pagebench(*RUN, "--resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "0 of 1 are already in a.jsonl" in done.stderr
    assert f"1 measured again: {says}" in done.stderr
    assert len(store.read([tmp_path / "a.jsonl"], Timing).of(Timing)) == 2


def test_what_was_measured_as_it_would_be_now_is_skipped(measured: Timing, tmp_path: Path) -> None:
    store.append(tmp_path / "a.jsonl", measured)
    done = pagebench(*RUN, "--resume", cwd=tmp_path)
    assert "1 of 1 are already in a.jsonl" in done.stderr
    assert "again" not in done.stderr
    assert len(store.read([tmp_path / "a.jsonl"], Timing).of(Timing)) == 1


@pytest.mark.parametrize(
    ("then", "field"),
    [
        ({"gpu": "NVIDIA L40S"}, "gpu"),
        ({"uuid": "GPU-2"}, "uuid"),
        ({"driver": "1.0"}, "driver"),
        ({"mig_slice": "1g.18gb", "mig": True}, "mig_slice"),
    ],
)
def test_another_gpu_is_another_measurement(
    then: dict[str, Any], field: str, measured: Timing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3acd176 took an L40S's record for an H200's."""
    facts: dict[str, Any] = {"gpu": "NVIDIA H200", "uuid": "GPU-1", "driver": "2.0", "mig": False}
    here = Environment(**facts)
    monkeypatch.setattr(resuming, "environment_seen", lambda device: here)
    now, options = identity_now(CPU, Options(seconds=0.05)), Options(seconds=0.05)
    was = replace(measured, environment=replace(here, **then))
    assert field in [getattr(each, "field", each) for each in why_again(was, options, now)]
    assert why_again(replace(measured, environment=here), options, now) == ()


def test_an_edited_kernel_file_is_measured_again(tmp_path: Path) -> None:
    """3acd176 compared no content: an edited file's old time stood for the new one."""
    file = tmp_path / "mine.py"
    file.write_text(KERNEL)
    run = ("run", "mine_distinct_p16_b2_l64", *RUN[2:], "--kernel", "mine.py")
    assert pagebench(*run, cwd=tmp_path).returncode == 0
    assert "1 of 1 are" in pagebench(*run, "--resume", cwd=tmp_path).stderr
    file.write_text(KERNEL + "# edited")
    said = pagebench(*run, "--resume", cwd=tmp_path).stderr
    assert "1 measured again: another content of the kernel file" in said


# --- judge ----------------------------------------------------------------------------------------

PAIR = (Cell.parse(CELL), Cell.parse("gather_distinct_p32_b2_l64"))


def bench(out: Path, **options: Any) -> Bench:
    return Bench(CPU, Options(clock="wall", **options), out, lambda text: None)


def process(number: int, **changes: Any) -> Rounds:
    found = made.rounds(PAIR, [100.0, 200.0])
    told = {"clock": "wall", "l2": "cold", "environment": environment_seen(CPU)}
    return replace(found, process=number, **{**told, **changes})


def run_again(out: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[int]:
    """The numbers of the processes that are measured after what the file holds."""
    asked: list[int] = []

    def one_process(groups: list[Interleaved], at: Bench) -> None:
        asked.append(at.options.process)
        for group in groups:
            group.add(process(at.options.process))

    monkeypatch.setattr(interleaving, "_one_process", one_process)
    timed([Interleaved(PAIR, 1)], bench(out, **options), resume=True)
    return asked


def test_judge_goes_on_after_the_processes_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """3acd176 began again after twelve minutes."""
    out = tmp_path / "a.jsonl"
    store.append(out, process(0), process(1), process(2))
    assert run_again(out, monkeypatch) == [3]
    assert "3 processes of it in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ({"environment": Environment(cpu="Another CPU")}, "CPU was Another CPU, is "),
        ({"kernel_sha": "1" * 64}, "another content of the kernel file"),
        ({"status": "crashed", "reason": "died", "rounds": (), "floor_us": None}, "it crashed"),
    ],
)
def test_judge_measures_again_what_was_measured_otherwise(
    second: dict[str, Any],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "a.jsonl"
    store.append(out, process(0), process(1, **second), process(2))
    assert run_again(out, monkeypatch) == [1, 2, 3]
    assert f"measured again: {says}" in capsys.readouterr().err


def test_the_last_run_of_a_file_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a.jsonl"
    store.append(out, *map(process, range(4)), process(0), process(1))
    assert run_again(out, monkeypatch) == [2, 3]


def test_judge_says_beforehand_how_long_it_may_take() -> None:
    """3acd176 said nothing for 12 minutes 40."""
    group = Interleaved(PAIR, 1)
    assert "4 to 8 processes of 2 cells" in beforehand([group], 1800)
    for number in range(4):
        group.add(process(number))
    assert beforehand([group], 1800) == "all is decided: no process is needed"
    assert [minutes(each) for each in (40.2, 99, 760)] == ["40 s", "99 s", "13 min"]
    done = pagebench_here("judge", *[cell.name for cell in PAIR], "--resume", "--device", "cpu")
    assert done.returncode == 2
    assert "--resume needs --out FILE" in done.stderr


def test_records_of_judge_hold_the_hash_of_the_kernels_file(tmp_path: Path) -> None:
    """3acd176 held no content of a plug-in."""
    (tmp_path / "mine.py").write_text(KERNEL)
    sha = sha256(KERNEL.encode()).hexdigest()
    options = judging_options(PAIR, CPU, tmp_path / "mine.py")
    assert options.kernel_sha == sha
    assert unmeasured_rounds(PAIR, options, "crashed", "died").kernel_sha == sha
    group = Interleaved(PAIR, 1)
    for number in range(4):
        group.add(process(number, kernel_sha=sha))
    (contrast,) = find_contrasts([cell.name for cell in PAIR])
    assert verdict_of(contrast, group, "cold", Evidence()).kernel_sha == sha
    assert attack_of("context", [group, group]).kernel_sha == sha
