"""judge, dose, attack and selftest: with a fake interleaving, and from end to end on a CPU."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from fakes import H200, TESTS, pagebench
from fakes.made import lost, rounds
from pagebench.harness.cli import judging as commands
from pagebench.harness.contrasts import CONTRASTS, LADDERS
from pagebench.harness.errors import UserError
from pagebench.harness.records import store
from pagebench.harness.records.dose import Dose
from pagebench.harness.records.verdict import Verdict
from pagebench.harness.timing.interleaved import Interleaved
from pagebench.harness.workers.bench import Bench
from pagebench.kernels.device import Device

GPU = Device("cuda", "NVIDIA H200", 0, (9, 0))
COUNTERS = H200 / "counters.jsonl"
recorded = pytest.mark.skipif(not H200.exists(), reason="the records are not installed")


def slower(groups: Sequence[Interleaved], bench: Bench) -> None:
    """Four processes; every cell takes five per cent more than the one before."""
    for group in groups:
        for _ in range(4):
            group.add(rounds(group.cells, [200 * 1.05**i for i in range(len(group.cells))]))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """On a GPU that takes every cell, with times made up: the files that are read, in order."""
    found: list[Path] = []
    read = store._lines
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(store, "_lines", lambda path: found.append(path) or read(path))
    monkeypatch.setattr(commands, "device_and_kernel", lambda *_: GPU)
    monkeypatch.setattr(commands, "refuse_named", lambda *_: None)
    monkeypatch.setattr(commands, "interleave", slower)
    return found


@recorded
def test_judge_all_opens_its_file_once(
    opened: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    assert commands.judge(["all"], [COUNTERS], out) == 1  # not all as predicted
    assert opened == [COUNTERS]
    verdicts = store.read([out], Verdict).of(Verdict)
    assert [each.contrast for each in verdicts] == [each.name for each in CONTRASTS]
    said = capsys.readouterr()
    assert said.err == f"9 verdicts in {out}, after the processes behind\n"
    head = "exposed, as predicted, its cause in doubt: xqa_shared_p64 against xqa_shared_p16\n"
    assert f"{head}  time x 1.05" in said.out
    assert "what binds" not in said.out  # there are no ceilings in that file


@recorded
def test_dose_all_opens_its_file_once(
    opened: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    commands.dose(["all"], [COUNTERS], out)
    assert opened == [COUNTERS]
    doses = store.read([out], Dose).of(Dose)
    assert [each.regime for each in doses] == [each.name for each in LADDERS]
    said = capsys.readouterr().out
    assert "shared: the time follows: no counter\n" in said
    assert "  time changes step by step (interleaved samples): +10.0 [" in said


@recorded
def test_a_ladder_without_times_is_told_after_the_others_are_written(
    opened: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(groups: Sequence[Interleaved], bench: Bench) -> None:
        slower(groups[1:], bench)
        groups[0].add(lost(groups[0].cells, "wrong", "off by 2"))

    monkeypatch.setattr(commands, "interleave", broken)
    out = tmp_path / "out.jsonl"
    with pytest.raises(SystemExit) as ended:
        commands.dose(["all"], [COUNTERS], out)
    assert ended.value.code == 1
    assert [each.regime for each in store.read([out]).of(Dose)] == ["distinct", "short"]
    assert capsys.readouterr().err == "shared: wrong: off by 2\n"


@pytest.mark.parametrize("name", ["distinct", "short"])
@recorded
def test_files_that_were_named_must_have_counters_of_the_cells(
    opened: list[Path], name: str, tmp_path: Path
) -> None:
    study = tmp_path / "none.jsonl"
    study.write_text("")
    with pytest.raises(UserError, match=r"^--counters: no counters of all cells in .*none.jsonl$"):
        commands.dose([name], [study], tmp_path / "out.jsonl")


@pytest.mark.parametrize("rate", [{"gbps": None}, {"gbps": 0.0}, {"gbps": "x"}])
def test_damaged_ceilings_are_refused_before_anything_is_timed(
    rate: dict[str, object], tmp_path: Path
) -> None:
    point = {"bytes_read": 2**20, "saturated": True} | rate
    line = {"kind": "ceilings", "schema": 1, "gpu": "g", "dram_read": [point], "environment": {}}
    (tmp_path / "c.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(UserError, match=r"c\.jsonl, line 1: a ceilings record"):
        commands._evidence([tmp_path / "c.jsonl"], [], "both cells")


# --- from end to end --------------------------------------------------------------------------


def test_judge_finds_a_large_difference_on_a_cpu_from_end_to_end(tmp_path: Path) -> None:
    cells = ["gather_distinct_p16_b2_l64", "gather_distinct_p16_b2_l2048"]
    done = pagebench("judge", *cells, "--device", "cpu", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["time"]["word"] == "changed"
    assert record["time"]["ratio"] > 2
    assert record["verdict"] == "likely exposed"  # there are no counters of a CPU
    (path,) = (tmp_path / "runs").glob("*.jsonl")
    assert f"1 verdict in {path.relative_to(tmp_path)}" in done.stderr
    assert path.read_text().count('"kind":"rounds"') == record["time"]["processes"]


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("judge", "all"), "judge all needs an NVIDIA GPU"),
        (("dose", "shared"), "dose shared needs an NVIDIA GPU"),
        (("selftest",), "selftest needs an NVIDIA GPU"),
        (
            ("judge", "xqa_shared_p16", "xqa_shared_p64"),
            "xqa_shared_p16: xqa needs an NVIDIA GPU; on the CPU use reference or gather",
        ),
    ],
)
def test_without_a_gpu_a_page_of_conclusions_is_named(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = pagebench(*words, "--device", "cpu", cwd=tmp_path)
    elsewhere = "; `pagebench study FILE...` draws what was concluded elsewhere"
    assert (done.returncode, done.stderr) == (2, f"{message}{elsewhere}\n")
    assert not list(tmp_path.iterdir())
