"""What a study measures, with every instrument replaced: nothing here was measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes.made import evidence, lost, rounds
from pagebench.harness.cell import Cell
from pagebench.harness.environment import Environment
from pagebench.harness.errors import UserError
from pagebench.harness.instruments.calibrate import calibrate
from pagebench.harness.records import store
from pagebench.harness.records.calibration import Calibration
from pagebench.harness.records.ceilings import MeasuredCeilings
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.speed import Speed
from pagebench.harness.records.verdict import COUNTED, Verdict
from pagebench.harness.study import measure as study_run
from pagebench.harness.study.read import read
from pagebench.harness.study.sections import study
from pagebench.harness.timing.interleaved import Interleaved
from pagebench.kernels.device import CPU, Device
from pagebench.profiles.ceilings import Point

GPU = Device("cuda", "NVIDIA H200", 0, (9, 0))
ENVIRONMENT = Environment(gpu="NVIDIA H200", capability=(9, 0), uuid="GPU-0")
CEILINGS = MeasuredCeilings(
    gpu="NVIDIA H200", dram_read=(Point(2**30, 4500.0, True),), environment=ENVIRONMENT
)
CALIBRATION = Calibration(
    gpu="NVIDIA H200", chip="gh100", ncu="2025.3.1", started="2026-01-01", seen={}, expected={}
)
RESOLVED = {"block_n": 64, "num_warps": 4, "num_stages": 3, "splits": 4}


def interleaved(groups: Sequence[Interleaved], *_: Any) -> None:
    """Four processes; every cell takes a microsecond more than the one before, in the call that
    was counted."""
    called = {each.cell: each.resolved for each in evidence().counters}
    for group in groups:
        times = [200.0 + index for index in range(len(group.cells))]
        resolved = tuple(called.get(cell.name, RESOLVED) for cell in group.cells)
        for process in range(4):
            there = [us + process * 0.01 * i for i, us in enumerate(times)]
            told = rounds(group.cells, *[there] * 3, environment=ENVIRONMENT, resolved=resolved)
            group.add(told)


def counted(cells: Sequence[Cell], *_: Any, **__: Any) -> list[Counters]:
    """The counters recorded on the H200, for those cells that have any."""
    names = {cell.name for cell in cells}
    return [each for each in evidence().counters if each.cell in names]


def no_counters(*_: Any, **__: Any) -> list[Counters]:
    raise UserError("ERR_NVGPUCTRPERM: ask for permission")


def kinds(path: Path) -> dict[str, int]:
    lines = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    return {kind: lines.count(kind) for kind in lines}


def run(
    monkeypatch: pytest.MonkeyPatch, out: Path, device: Device = GPU, **fakes: Any
) -> list[str]:
    """What it says of a study with these instruments, by their names in `study.measure`."""
    told: dict[str, Any] = {
        "measure_ceilings": lambda *_: CEILINGS,
        "sweep": lambda *_: iter(()),
        "calibrate": lambda *_: CALIBRATION,
        "CALIBRATIONS": out.with_name("calibration.jsonl"),
        "counted_and_trusted": counted,
        "interleave": interleaved,
        "environment": lambda device: ENVIRONMENT,
        "bandwidth_of": lambda device: None,
        "refusal": lambda *_: None,
    }
    for name, fake in (told | fakes).items():
        monkeypatch.setattr(study_run, name, fake)
    monkeypatch.setattr("pagebench.harness.judging.attack.refusal", lambda *_: None)
    said: list[str] = []
    study_run.measure_study(device, out, said.append)
    return said


def words(path: Path) -> set[str]:
    return {verdict.word for verdict in store.read([path], Verdict).of(Verdict)}


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
    (spent,) = store.read([out], Speed).of(Speed)
    assert (spent.what, spent.limit_s) == ("make study", 600)
    assert 0 <= spent.seconds < 60
    page = study(read([out]))
    drawn = {each.anchor for each in page.sections if not each.missing}
    assert {"verdicts", "dose", "attacks", "planted", "ceilings"} <= drawn


def test_without_permission_to_count_the_study_goes_on_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "study.jsonl"
    said = run(monkeypatch, out, counted_and_trusted=no_counters)
    assert any("no counters: ERR_NVGPUCTRPERM" in line for line in said)
    assert kinds(out)["verdict"] == 13
    assert words(out) <= {f"likely {word}" for word in COUNTED}


def test_on_a_chip_without_known_counters_the_study_goes_on_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "study.jsonl"
    said = run(monkeypatch, out, Device("cuda", "T4", 0, (7, 5)), calibrate=calibrate)
    assert any("no counters: no counters are mapped for" in line for line in said)
    assert kinds(out)["verdict"] == 13


def test_a_group_without_times_costs_its_own_conclusion_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(groups: Sequence[Interleaved], *rest: Any) -> None:
        interleaved(groups, *rest)
        for group in groups:
            if len(group.cells) == 4 and group.cells[0].sharing.kind == "shared":
                group.measured.clear()
                group.add(lost(group.cells))

    out = tmp_path / "study.jsonl"
    said = run(monkeypatch, out, interleave=broken)
    assert any("no conclusion: shared: crashed: no" in line for line in said)
    assert (kinds(out)["dose"], kinds(out)["verdict"], kinds(out)["planted"]) == (2, 13, 1)


def test_without_nvcc_there_are_no_ceilings_and_all_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_nvcc(*_: Any) -> MeasuredCeilings:
        raise UserError("the probes need nvcc")

    out = tmp_path / "study.jsonl"
    said = run(monkeypatch, out, measure_ceilings=no_nvcc)
    assert any("no conclusion: the probes need nvcc" in line for line in said)
    assert "ceilings" not in kinds(out)
    assert kinds(out)["verdict"] == 13


def test_a_cpu_has_no_study_to_measure(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--measure needs a GPU"):
        study_run.measure_study(CPU, tmp_path / "study.jsonl", print)
    assert not list(tmp_path.iterdir())


def test_counters_are_not_read_from_the_file_that_they_go_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    evidence()
    opened: list[Path] = []
    monkeypatch.setattr(store, "_lines", opened.append)
    out = tmp_path / "study.jsonl"
    run(monkeypatch, out)
    assert opened == []
    monkeypatch.undo()
    assert {"exposed", "likely exposed"} < words(out)


@pytest.mark.parametrize(
    "instrument",
    ["measure_ceilings", "calibrate", "counted_and_trusted", "interleave", "planted_of"],
)
@pytest.mark.parametrize("bug", [KeyError("cells"), ValueError("zip() argument 2 is shorter")])
def test_a_bug_of_ours_ends_the_study(
    instrument: str, bug: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: Any) -> None:
        raise bug

    fakes: dict[str, Callable[..., None]] = {instrument: broken}
    with pytest.raises(type(bug)):
        run(monkeypatch, tmp_path / "study.jsonl", **fakes)


def test_where_no_other_kernel_can_be_tried_one_attack_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def none(*_: Any) -> None:
        raise UserError("no other kernel takes both cells: there is none")

    monkeypatch.setattr("pagebench.harness.judging.attack.switched", none)
    out = tmp_path / "study.jsonl"
    said = run(monkeypatch, out)
    assert any("no other kernel to try: no other kernel takes both" in line for line in said)
    assert kinds(out)["attack"] == 1
