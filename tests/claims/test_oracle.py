"""What the recorded runs of wrong and of right kernels say, as README and docs claim it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagebench.harness.cell import Cell
from pagebench.harness.instruments.oracle import planted
from pagebench.harness.records import store
from pagebench.harness.records.oracle import Oracle
from pagebench.harness.records.timing import QUESTIONS, Timing
from pagebench.harness.suites import find_suite

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
SHIPPED = ("pages", "kernels", "models", "placements", "types")


def tried(name: str) -> list[Oracle]:
    return list(store.read([RESULTS / f"{name}.jsonl"], Oracle).of(Oracle))


def newest(suite: str) -> dict[str, Timing]:
    path = RESULTS / "h200" / f"oracle_{suite}.jsonl"
    return {timing.cell: timing for timing in store.read([path], Timing).of(Timing)}


def test_every_planted_kernel_was_tried_with_twenty_seeds_by_one_clean_commit() -> None:
    found = tried("cpu/oracle")
    assert {each.cell for each in found} == {each.cell.name for each in planted("cpu")}
    assert {len(each.runs) for each in found} == {20}
    assert len({each.environment.commit for each in found}) == 1
    assert not any(each.environment.dirty for each in found)


@pytest.mark.parametrize("name", ["cpu/oracle", "h200/oracle"])
def test_the_wrong_ones_were_found_in_every_run_and_the_innocent_in_none(name: str) -> None:
    for each in tried(name):
        assert each.is_as_expected in (True, None), each.cell
        assert all(run.failed in QUESTIONS for run in each.runs if run.status != "measured")
    wrong = {each.kernel for each in tried("cpu/oracle") if each.expected == "wrong"}
    assert len(wrong) >= 20


def test_those_from_public_reports_were_found_and_the_right_ones_not() -> None:
    found = {each.kernel: each.found for each in tried("cpu/oracle_cases")}
    assert {name for name, count in found.items() if count == 0} == {"right", "prints"}
    assert {count for count in found.values() if count} == {20}


def test_the_large_pool_is_beyond_two_to_the_31_elements() -> None:
    for each in tried("h200/oracle"):
        shape = Cell.parse(each.cell).shape
        assert shape.batch * shape.kv_len * shape.kv_heads * shape.head_dim > 2**31
        assert each.environment.gpu == "NVIDIA H200"


@pytest.mark.parametrize("suite", SHIPPED)
def test_no_shipped_kernel_was_found_wrong(suite: str) -> None:
    """XQA with e4m3 and a partial page reads past the end, and is poisoned for that."""
    for timing in newest(suite).values():
        cell = Cell.parse(timing.cell)
        shape = cell.shape
        partial = bool((shape.lengths() % shape.page_size).any())
        reads_past = cell.kernel == "xqa" and shape.dtype == "e4m3" and partial
        assert timing.status == ("poisoned" if reads_past else "measured"), timing.reason
        assert timing.check is not None
        if timing.samples:
            assert timing.check.error_needles == 0


@pytest.mark.parametrize("suite", SHIPPED[:-1])
def test_the_suites_are_whole(suite: str) -> None:
    assert set(newest(suite)) == {cell.name for cell in find_suite(suite).cells}


def test_all_types_ragged_lengths_and_wide_batches_are_there() -> None:
    shapes = [Cell.parse(name).shape for name in newest("types")]
    assert {shape.dtype for shape in shapes} == {"bf16", "fp16", "e4m3"}
    assert any(shape.ragged_percent for shape in shapes)
    assert any(shape.kv_len % 256 for shape in shapes)
    assert any((shape.batch, shape.kv_len) == (65, 32768) for shape in shapes)
