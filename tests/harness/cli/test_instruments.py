"""The commands of instruments and of a cell's card: what they print, and how they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fakes import H200, pagebench
from fakes.ncu_pages import GPU, HERE, NAME
from pagebench.harness.cli import instruments as cli
from pagebench.harness.counting.trust import CALIBRATIONS
from pagebench.harness.instruments import calibrate as calibration
from pagebench.harness.records import store
from pagebench.harness.records.calibration import Calibration
from pagebench.harness.records.ceilings import Launches, MeasuredCeilings
from pagebench.profiles.ceilings import Point

OTHER = "xqa_shared_p64"
SEEN: dict[str, dict[str, tuple[float, ...]]] = {
    "cal_ldg": {"ldg": (5.0, 5.0), "l1_requests": (5.0, 5.0)},
    "cal_bulk": {"ldg": (0.0, 0.0), "l1_requests": (0.0, 0.0)},
}


def calibrated(ldg: int) -> Calibration:
    """One in which `cal_ldg` should show as many loads, and shows five."""
    wanted = {"cal_ldg": {"ldg": ldg}, "cal_bulk": {"ldg": 0}}
    return Calibration(
        gpu=GPU.name,
        chip="gh100",
        ncu="1",
        started="2026-01-01",
        seen=SEEN,
        expected=wanted,
        environment=HERE,
    )


@pytest.mark.parametrize(("ldg", "code"), [(5, 0), (6, 1)])
def test_calibrate_keeps_its_record_where_counting_looks_and_says_what_disagrees(
    ldg: int,
    code: int,
    in_tmp: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cli, "device_and_kernel", lambda device, kernel: GPU)
    monkeypatch.setattr(calibration, "calibrate", lambda device, progress: calibrated(ldg))
    assert cli.calibrate(out=in_tmp / "mine.jsonl") == code
    for file in (CALIBRATIONS, in_tmp / "mine.jsonl"):
        (found,) = store.read([file], Calibration).of(Calibration)
        assert found.seen == SEEN
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["kernel", "ldg"],
        ["cal_ldg", "5"],
        ["cal_bulk", "0"],
    ]
    assert lines[3:] == ["l1_requests of cal_bulk: not counted"]
    wrong = f"disagrees: ldg: [5.0, 5.0] in cal_ldg, which executes {ldg}\n"
    assert said.err == (wrong if code else "")
    assert cli.calibrate(as_json=True) == code
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["sees_async"] == {"l1_requests of cal_bulk": False}


def test_ceilings_are_kept_and_drawn(
    in_tmp: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = MeasuredCeilings(
        gpu=GPU.name,
        dram_read=(Point(2**20, 4000.0, True),),
        launch_us=Launches(by_launches={1: 3.0, 2: 4.0}, saturated=True),
        environment=HERE,
    )
    monkeypatch.setattr(cli, "device_and_kernel", lambda device, kernel: GPU)
    monkeypatch.setattr(cli, "measure_ceilings", lambda device, progress: found)
    cli.ceilings()
    shown = capsys.readouterr().out
    assert "dram_read_gbps of 1 MB" in shown
    assert shown.endswith("1 record in runs/ceilings.jsonl\n")
    (kept,) = store.read([Path("runs/ceilings.jsonl")], MeasuredCeilings).of(MeasuredCeilings)
    assert kept.ceilings() == found.ceilings()
    cli.ceilings(as_json=True)
    assert json.loads(capsys.readouterr().out)["launch_us"]["first"] == 3.0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["ceilings", "--device", "cpu"], "those of another machine are read from"),
        (["calibrate", "--device", "cpu"], "the NVIDIA GPU that counts; without one, "),
        (["calibrate", "--device", "tpu"], "device tpu: use auto, cpu, cuda or cuda:N"),
        (["show", "xqa_shared_q16"], "unknown word q16"),
        (["show", NAME, "none.jsonl"], "none.jsonl: No such file"),
        (["show", NAME, "--kernel", "none.py"], "--kernel none.py: no such file"),
        (["show", NAME], "no records in runs/"),
    ],
)
def test_what_is_wrong_is_one_line(words: list[str], says: str, in_tmp: Path) -> None:
    done = pagebench(*words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert says in line


def test_show_reads_each_file_once_for_both_cells(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []
    lines = store._lines

    def noted(path: Path) -> Any:
        seen.append(path)
        return lines(path)

    monkeypatch.setattr(store, "_lines", noted)
    cli.show(NAME, [H200 / "counters.jsonl"], against=OTHER)
    assert seen == [H200 / "counters.jsonl"]
    shown = capsys.readouterr().out
    assert f"  against   {OTHER}: module different" in shown
    cli.show(NAME, [H200 / "counters.jsonl"], against=OTHER, as_json=True)
    assert json.loads(capsys.readouterr().out)["against"]["cell"] == OTHER
