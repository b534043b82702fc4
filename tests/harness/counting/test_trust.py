"""Whose calibration counts, and that nothing is built on what it found wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes.ncu_pages import GPU, HERE, NAME, Fake
from pagebench.harness.cell import Cell
from pagebench.harness.counting.trust import (
    CALIBRATIONS,
    counted_and_trusted,
    newest,
    without_distrusted,
)
from pagebench.harness.records import codec, store
from pagebench.harness.records.calibration import Calibration
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
    assert newest(GPU.name, "2025.3.1", (file,)) is None
    write_line(file)
    write_line(file, **changes)
    assert newest(GPU.name, "2025.3.1", (file,)) == WRONG


def test_a_line_that_says_little_more_than_its_kind_is_passed_over(in_tmp: Path) -> None:
    file = in_tmp / "c.jsonl"
    file.write_text(
        '{"kind":"calibration"}\n'
        f'{{"kind":"calibration","gpu":"{GPU.name}","ncu":"2025.3.1","schema":1}}\n'
    )
    assert newest(GPU.name, "2025.3.1", (file,)) is None


def test_a_file_that_holds_something_else_is_an_error(in_tmp: Path) -> None:
    (in_tmp / "c.jsonl").write_text("something else\n")
    with pytest.raises(StoreError, match=r"c\.jsonl, line 1: not a JSON record"):
        newest(GPU.name, "2025.3.1", (in_tmp / "c.jsonl",))


def test_the_newest_calibration_of_that_gpu_and_ncu_counts(in_tmp: Path) -> None:
    file = in_tmp / "c.jsonl"
    for gpu, date in ((GPU.name, "b"), (GPU.name, "a"), ("other", "c")):
        store.append(file, replace(WRONG, gpu=gpu, ncu="1", started=date))
    found = newest(GPU.name, "1", (file,))
    assert found is not None
    assert found.started == "b"
    assert newest(GPU.name, "2", (file,)) is None
    assert newest(GPU.name, "1", (in_tmp / "none.jsonl",)) is None
