"""What a study measures, with every instrument replaced: nothing here was measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes import H200
from pagebench.harness.cell import Cell
from pagebench.harness.records import store
from pagebench.harness.study import measure as study_run
from pagebench.harness.study.read import read
from pagebench.harness.study.sections import study
from pagebench.harness.workers.interleave import Interleaved
from pagebench.kernels.device import CPU, Device
from pagebench.profiles.metrics import chip_of
from pagebench.profiles.ncu import NcuError

GPU = Device("cuda", "NVIDIA H200", 0, (9, 0))
ENVIRONMENT = {"gpu": "NVIDIA H200", "capability": [9, 0], "uuid": "GPU-0"}
CEILINGS = {"kind": "ceilings", "schema": 1, "gpu": "NVIDIA H200", "environment": ENVIRONMENT,
            "dram_read": [{"bytes_read": 2**30, "gbps": 4500.0, "saturated": True}]}  # fmt: skip
CALIBRATION = {"kind": "calibration", "schema": 1, "gpu": "NVIDIA H200", "disagree": []}
RESOLVED = {"block_n": 64, "num_warps": 4, "num_stages": 3, "splits": 4}


def interleaved(groups: Sequence[Interleaved], *_: Any) -> None:
    """Four processes; every cell takes a microsecond more than the one before."""
    for group in groups:
        times = [200.0 + index for index in range(len(group.cells))]
        for process in range(4):
            rounds = [[t + process * 0.01 * i for i, t in enumerate(times)]] * 3
            group.add({
                "status": "measured", "floor_us": 2.5, "environment": ENVIRONMENT,
                "rounds": [[*there, *reversed(there)] for there in rounds],
                "resolved": [RESOLVED] * len(times),
            })  # fmt: skip


def counted(cells: Sequence[Cell], *_: Any, **__: Any) -> list[dict[str, Any]]:
    """The counters recorded on the H200, for those cells that have any."""
    names = {cell.name for cell in cells}
    return [line for line in store.read_kind([H200 / "counters.jsonl"], "counters")
            if line["cell"] in names]  # fmt: skip


def no_counters(*_: Any, **__: Any) -> list[dict[str, Any]]:
    raise NcuError("ERR_NVGPUCTRPERM: ask for permission")


def kinds(path: Path) -> dict[str, int]:
    lines = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    return {kind: lines.count(kind) for kind in lines}


def run(
    monkeypatch: pytest.MonkeyPatch,
    out: Path,
    count: Callable[..., Any] = counted,
    interleave: Callable[..., None] = interleaved,
    ceilings: Callable[..., dict[str, Any]] = lambda *_: CEILINGS,
) -> list[str]:
    monkeypatch.setattr(study_run, "measure_ceilings", ceilings)
    monkeypatch.setattr(study_run, "sweep", lambda *_: iter(()))
    monkeypatch.setattr(study_run, "calibrate", lambda *_: CALIBRATION)
    monkeypatch.setattr(study_run, "CALIBRATIONS", out.with_name("calibration.jsonl"))
    monkeypatch.setattr(study_run, "counted_and_trusted", count)
    monkeypatch.setattr(study_run, "interleave", interleave)
    monkeypatch.setattr(study_run, "environment", lambda device: ENVIRONMENT)
    monkeypatch.setattr(study_run, "refusal", lambda *_: None)
    monkeypatch.setattr("pagebench.harness.judging.attack.refusal", lambda *_: None)
    said: list[str] = []
    study_run.measure_study(GPU, out, said.append)
    return said


def test_a_study_leaves_records_of_every_kind_that_a_page_draws(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "study.jsonl"
    run(monkeypatch, out)
    found = kinds(out)
    assert found.pop("counters") > 20
    assert found == {
        "ceilings": 1,
        "calibration": 1,
        "speed": 1,
        "verdict": 13,
        "planted": 1,
        "dose": 3,
        "attack": 2,
    }
    (spent,) = store.read_kind([out], "speed")
    assert (spent["what"], spent["limit_s"]) == ("make study", 600)
    assert 0 <= spent["seconds"] < 60
    page = study(read([out]))
    drawn = {each.anchor for each in page.sections if not each.missing}
    assert {"verdicts", "dose", "attacks", "planted", "ceilings"} <= drawn


def test_without_permission_to_count_the_study_goes_on_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "study.jsonl"
    said = run(monkeypatch, out, no_counters)
    assert any("no counters: ERR_NVGPUCTRPERM" in line for line in said)
    assert kinds(out)["verdict"] == 13
    assert {line["verdict"] for line in store.read_kind([out], "verdict")} == {"unclear"}


def test_on_a_chip_without_known_counters_the_study_goes_on_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "study.jsonl"
    said = run(monkeypatch, out, lambda *_: chip_of((7, 5)))
    assert any("no counters: no counters are mapped for" in line for line in said)
    assert kinds(out)["verdict"] == 13


def test_a_group_without_times_costs_its_own_conclusion_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(groups: Sequence[Interleaved], *rest: Any) -> None:
        interleaved(groups, *rest)
        for group in groups:
            if len(group.cells) == 4 and group.cells[0].sharing.kind == "shared":
                group.effects.clear()
                group.add({"status": "crashed", "reason": "no"})

    out = tmp_path / "study.jsonl"
    said = run(monkeypatch, out, interleave=broken)
    assert any("no conclusion: shared: crashed: no" in line for line in said)
    assert (kinds(out)["dose"], kinds(out)["verdict"], kinds(out)["planted"]) == (2, 13, 1)


def test_without_nvcc_there_are_no_ceilings_and_all_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_nvcc(*_: Any) -> dict[str, Any]:
        raise ValueError("the probes need nvcc")

    out = tmp_path / "study.jsonl"
    said = run(monkeypatch, out, ceilings=no_nvcc)
    assert any("no conclusion: the probes need nvcc" in line for line in said)
    assert "ceilings" not in kinds(out)
    assert kinds(out)["verdict"] == 13


def test_a_cpu_has_no_study_to_measure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--measure needs a GPU"):
        study_run.measure_study(CPU, tmp_path / "study.jsonl", print)
    assert not list(tmp_path.iterdir())
