"""Whose calibration counts, and that nothing is built on what it found wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes import pagebench_here
from fakes.ncu_pages import GPU, HERE, NAME, Fake
from pagebench.harness.cell import Cell
from pagebench.harness.cli import counting as cli
from pagebench.harness.counting import profile
from pagebench.harness.counting.trust import (
    CALIBRATIONS,
    counted_and_trusted,
    of_model,
    without_distrusted,
)
from pagebench.harness.records import codec, store
from pagebench.harness.records.calibration import Calibration
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.store import StoreError

WRONG = Calibration(
    gpu=GPU.name,
    chip="gh100",
    ncu="2025.3.1",
    started="2026-01-01",
    seen={"cal_ldg": {"ldg": (1.0, 1.0)}},
    expected={"cal_ldg": {"ldg": 2}},
    environment=HERE,
)


def write_line(file: Path, **changes: Any) -> None:
    """A calibration as JSON, with other values."""
    with file.open("a") as lines:
        lines.write(f"{codec.json.dumps(codec.to_json(WRONG) | changes)}\n")


def test_what_a_calibration_found_wrong_is_nowhere_in_the_record(fake: Fake) -> None:
    store.append(CALIBRATIONS, WRONG)
    fake()
    (record,) = counted_and_trusted([Cell.parse(NAME)], GPU, str)
    assert (record.calibrated, record.distrusted) == (True, ("ldg",))
    assert "ldg" not in record.total
    assert all("ldg" not in kernel.values for kernel in record.kernels)
    assert "ldg" not in record.off


def test_that_nothing_is_calibrated_is_said_once(fake: Fake) -> None:
    fake()
    said: list[str] = []
    (record,) = counted_and_trusted([Cell.parse(NAME)], GPU, said.append)
    lines = ["counters are not calibrated on this GPU and ncu: run pagebench calibrate"]
    assert said == lines
    assert not record.calibrated
    said.clear()
    assert without_distrusted([record, record], said.append) == [record, record]
    assert said == lines
    assert without_distrusted([], said.append) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"seen": {}},
        {"seen": {"cal_ldg": {"ldg": ["x", 1]}}},
        {"expected": {"cal_ldg": {"no such counter": 1}}},
        {"schema": 99},
        {"schema": None},
    ],
)
def test_a_calibration_that_is_damaged_or_of_another_making_is_passed_over(
    changes: dict[str, Any], in_tmp: Path
) -> None:
    file = in_tmp / "c.jsonl"
    write_line(file, **changes)
    assert of_model(GPU.name, "2025.3.1", (file,)) == []
    write_line(file)
    write_line(file, **changes)
    assert of_model(GPU.name, "2025.3.1", (file,)) == [WRONG]


def test_a_line_that_says_little_more_than_its_kind_is_passed_over(in_tmp: Path) -> None:
    file = in_tmp / "c.jsonl"
    file.write_text(
        '{"kind":"calibration"}\n'
        f'{{"kind":"calibration","gpu":"{GPU.name}","ncu":"2025.3.1","schema":1}}\n'
    )
    assert of_model(GPU.name, "2025.3.1", (file,)) == []


def test_a_file_that_holds_something_else_is_an_error(in_tmp: Path) -> None:
    (in_tmp / "c.jsonl").write_text("something else\n")
    with pytest.raises(StoreError, match=r"c\.jsonl, line 1: not a JSON record"):
        of_model(GPU.name, "2025.3.1", (in_tmp / "c.jsonl",))


def test_the_newest_calibration_of_that_gpu_and_ncu_counts(in_tmp: Path) -> None:
    file = in_tmp / "c.jsonl"
    for gpu, date in ((GPU.name, "b"), (GPU.name, "a"), ("other", "c")):
        store.append(file, replace(WRONG, gpu=gpu, ncu="1", started=date))
    assert [each.started for each in of_model(GPU.name, "1", (file,))] == ["a", "b"]
    assert of_model(GPU.name, "2", (file,)) == []
    assert of_model(GPU.name, "1", (in_tmp / "none.jsonl",)) == []


# --- Which GPU and software a calibration is of ---------------------------------------------------

OF_MODEL: dict[str, dict[str, Any]] = {
    "sm_count 66 and 132": {"sm_count": 66},
    "mig_slice 1g.18gb and the whole GPU": {"mig_slice": "1g.18gb"},
    "capability (9, 1) and (9, 0)": {"capability": (9, 1)},
}
OF_SOFTWARE: dict[str, dict[str, Any]] = {
    "driver 570.9 and 580.1": {"driver": "570.9"},
    "cuda 12.8 and 13.0": {"cuda": "12.8"},
    "library torch 2.9.0 and 2.13.0": {"versions": {"torch": "2.9.0"}},
    "variables CUDA_X=1 and none": {"variables": {"CUDA_X": "1"}},
}
NO_MATTER: dict[str, dict[str, Any]] = {"uuid": {"uuid": "GPU-2"}, "cpu": {"cpu": "another"}}
ALL_KNOWN = replace(
    HERE, sm_count=132, mig=False, driver="580.1", cuda="13.0", versions={"torch": "2.13.0"},
    variables={}, cpu="one",
)  # fmt: skip
UNCALIBRATED = "counters are not calibrated on this GPU and ncu: run pagebench calibrate"


def profiled(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, *calibrations: Calibration
) -> tuple[bool, str]:
    """Whether counters that `pagebench profile` counts are calibrated, and what it says."""
    store.append(CALIBRATIONS, *calibrations)
    monkeypatch.setattr(profile, "environment", lambda device: ALL_KNOWN)
    monkeypatch.setattr(cli, "device_and_kernel", lambda device, kernel: GPU)
    monkeypatch.setattr(cli, "refusal", lambda cell, device: None)
    monkeypatch.setattr(cli, "refuse_named", lambda *given: None)
    fake()
    done = pagebench_here("profile", NAME, "--out", "c.jsonl")
    assert done.returncode == 0, done.stderr
    (record,) = store.read([Path("c.jsonl")], Counters).of(Counters)
    return record.calibrated, done.stderr


def of(date: str = "2026-01-01", **facts: Any) -> Calibration:
    return replace(WRONG, started=date, environment=replace(ALL_KNOWN, **facts))


@pytest.mark.parametrize("name", [*OF_MODEL, *OF_SOFTWARE, *NO_MATTER])
def test_a_calibration_of_another_model_is_not_used_and_other_software_is_named(
    name: str, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3acd176 took any of a GPU of that name."""
    facts = (OF_MODEL | OF_SOFTWARE | NO_MATTER)[name]
    is_used, said = profiled(fake, monkeypatch, of(**facts))
    assert is_used is (name not in OF_MODEL)
    assert (f"the calibration of this GPU model is of another: {name}" in said) is not is_used
    assert (UNCALIBRATED in said) is not is_used
    other = f"the calibration was made under other software: {name}"
    assert (other in said) is (name in OF_SOFTWARE)


@pytest.mark.parametrize("name", OF_MODEL)
def test_an_older_calibration_of_this_very_model_is_used_and_the_newer_is_named(
    name: str, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest of that name was taken, or none."""
    both = of("2026-01-01"), of("2026-02-02", **OF_MODEL[name])
    is_used, said = profiled(fake, monkeypatch, *both)
    assert is_used
    assert f"is of another: {name}" in said
    assert UNCALIBRATED not in said


def test_nothing_is_said_of_a_calibration_that_was_made_alike(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_used, said = profiled(fake, monkeypatch, of())
    assert is_used
    assert "alibrat" not in said
