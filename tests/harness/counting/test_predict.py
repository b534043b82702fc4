"""Predictions of counters, against every record, and of kernels that are not ours."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fakes.ncu_pages import every_recorded, recorded
from pagebench.harness.cell import Cell
from pagebench.harness.counting.predict import anew, predict_counters
from pagebench.harness.environment import Environment
from pagebench.harness.errors import UserError
from pagebench.harness.records.counters import How
from pagebench.kernels import registry
from pagebench.kernels.adapter import Loads
from pagebench.kernels.flashinfer.loads import fidecode_merge_ldg
from pagebench.kernels.gather import Gather
from pagebench.kernels.registry import KernelError, loads_of
from pagebench.layouts.shape import Shape

UNKNOWN = Environment()
HOPPER = Environment(capability=(9, 0))
Resolved = Mapping[str, str | int | float | bool]

# --- against the records --------------------------------------------------------------------------


def test_ldg_is_predicted_exactly_from_source_for_every_recorded_cell() -> None:
    judged = set()
    for record in every_recorded():
        cell = Cell.parse(record.cell)
        predicted = loads_of(cell.kernel, cell.shape, record.resolved, (9, 0)).ldg
        if predicted is not None:
            assert record.value("ldg") == predicted, record.cell
            judged.add(record.cell)
    assert len(judged) == 98  # with three of FlashInfer's that do not split


def test_flashinfers_decode_kernel_is_predicted_exactly_whatever_the_placement() -> None:
    judged = set()
    for record in every_recorded():
        cell = Cell.parse(record.cell)
        predicted = loads_of(cell.kernel, cell.shape, record.resolved, (9, 0)).decode_ldg
        if predicted is not None:
            assert record.kernels[0].values["ldg"] == (predicted, predicted)
            judged.add(record.cell)
    assert len(judged) == 30


def test_flashinfers_merge_kernel_is_predicted_exactly_from_its_grid() -> None:
    """Older records have no `merge_blocks`: the blocks are those that were launched."""
    judged = set()
    for record in every_recorded():
        cell, kernels = Cell.parse(record.cell), record.kernels
        if cell.kernel == "fidecode" and len(kernels) == 2:
            blocks = int(kernels[1].grid.strip("()").split(",")[0])
            assert record.resolved.get("merge_blocks", blocks) == blocks
            resolved = {**record.resolved, "merge_blocks": blocks}
            if fidecode_merge_ldg(cell.shape, resolved) is None:
                continue  # rows of a single chunk, which are copied
            assert kernels[1].values["ldg"][0] == fidecode_merge_ldg(cell.shape, resolved)
            total = loads_of("fidecode", cell.shape, resolved, (9, 0)).ldg
            assert total == record.value("ldg")
            judged.add(cell.name)
    assert len(judged) == 26


def test_dram_bytes_of_distinct_cells_are_the_compulsory_ones_and_what_merges_read() -> None:
    """Within 0.5 %, or 0.12 MB: a kernel's own code, constants and spills are read too."""
    judged = set()
    for record in map(anew, every_recorded()):
        predicted, read = record.predicted.dram_read_bytes, record.total["dram_read_bytes"]
        if predicted is not None and predicted > 2e6:
            assert read.stable, record.cell
            margin = max(0.005 * predicted, 0.12e6)
            assert abs(read.value - predicted) <= margin, record.cell
            judged.add(record.cell)
    assert len(judged) == 76


def test_a_stored_prediction_is_made_anew_when_it_is_read() -> None:
    """This cell was counted under an earlier formula, which flagged it."""
    cell = "xqa_distinct_p16_b4_l3000_d64"
    (stored,) = [each for each in recorded("counters_unseen_again") if each.cell == cell]
    assert stored.off == ["ldg"]
    found = anew(stored)
    assert found.off == []
    assert found.predicted.ldg == found.value("ldg")
    assert found.total == stored.total


def test_an_unknown_kernels_prediction_stays_as_it_was() -> None:
    record = recorded()[0]
    axes = replace(record.axes, kernel="foreign")
    foreign = replace(record, cell="foreign_shared_p16", axes=axes)
    assert anew(foreign) == foreign


# --- merges ---------------------------------------------------------------------------------------

TILE = {"block_n": 64, "num_warps": 4, "num_stages": 3}


@pytest.mark.parametrize(
    ("name", "resolved", "rows"),
    [
        ("fidecode_distinct_p1_b4_l8192", {"tiles": 148}, 148 * 16 * (256 + 4)),
        ("fidecode_distinct_p1_b4_l8192", {"tiles": 4}, 0),
        ("tritontile_distinct_p64", TILE | {"splits": 4}, 8 * 4 * 16 * (512 + 4)),
        ("tritontile_distinct_p64", TILE | {"splits": 1}, 0),
        ("xqa_distinct_p64", {"kernel": "kernel_mha (mha.cu)", "splits": 2}, 0),
    ],
)
def test_a_merge_reads_its_partials_from_dram_only_where_ncu_flushes_before_every_kernel(
    name: str, resolved: Resolved, rows: int
) -> None:
    """FlashInfer's partials are bf16, a tile of the plan each; ours float32, a split each."""
    cell = Cell.parse(name)
    assert loads_of(cell.kernel, cell.shape, resolved, (9, 0)).merge_bytes == rows
    read = {
        control: predict_counters(
            cell, resolved, UNKNOWN, How(chip="gh100", launches=2, cache_control=control)
        ).dram_read_bytes
        for control in ("all", "none", None)
    }
    assert read["all"] is not None
    assert read["none"] is not None
    assert read["all"] - read["none"] == rows
    assert read[None] == read["all"]  # a page that does not say


def test_kernels_whose_source_was_not_counted_are_not_predicted() -> None:
    hopper = {"kernel": "kernel_mha (mha_sm90.cu)", "splits": 1}
    fp8 = Cell.parse("xqa_distinct_p64_e4m3").shape
    assert loads_of("xqa", fp8, hopper, (9, 0)) == Loads()
    resolved = TILE | {"splits": 1}
    assert loads_of("tritontile", fp8, resolved, (9, 0)) == Loads()
    assert loads_of("gather", fp8, {"splits": 1}, (9, 0)) == Loads()


# --- kernels from elsewhere -----------------------------------------------------------------------


def own_kernel(monkeypatch: pytest.MonkeyPatch, formula: Any) -> Cell:
    """A cell of a kernel from elsewhere, gather but for what it says that it loads."""

    class Own(Gather):
        name = "own"

        def loads(self, shape: Shape, resolved: Any, capability: Any) -> Any:
            return formula(shape)

    monkeypatch.setitem(registry._from_files, "own", Own())
    return Cell.parse("own_distinct_p16")


def test_a_kernel_from_elsewhere_may_say_what_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = own_kernel(monkeypatch, lambda shape: Loads(ldg=shape.batch, merge_bytes=512))
    found = predict_counters(cell, {"kernel": "own"}, HOPPER)
    without = predict_counters(cell, {}, HOPPER)  # imported: not resolved
    assert (found.ldg, without.ldg) == (8, None)
    assert without.dram_read_bytes is not None
    assert found.dram_read_bytes == without.dram_read_bytes + 512


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        (lambda shape: 1 / 0, r"own\.loads\(\): ZeroDivisionError"),
        (lambda shape: 7, r"own\.loads\(\): TypeError: it returns int; return adapter\.Loads"),
        (lambda shape: Loads("8"), r"own\.loads\(\): TypeError"),  # type: ignore[arg-type]
    ],
)
def test_a_formula_that_fails_is_said_beside_what_is_predicted_without_it(
    formula: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = own_kernel(monkeypatch, formula)
    with pytest.raises(KernelError, match=says):
        loads_of("own", cell.shape, {"kernel": "own"}, None)
    found = predict_counters(cell, {"kernel": "own"}, UNKNOWN)
    assert (found.ldg, found.dram_read_bytes) == (None, None)
    assert found.failed is not None
    assert re.match(says, found.failed)


def test_a_formula_may_count_with_numpy_and_not_know_what_a_merge_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell = own_kernel(monkeypatch, lambda shape: Loads(shape.lengths().sum(), merge_bytes=None))
    found = predict_counters(cell, {"kernel": "own"}, UNKNOWN)
    assert json.loads(msgspec.json.encode(found))["ldg"] == 8 * 4096
    assert found.dram_read_bytes is None


def test_a_kernel_that_does_not_load_is_the_users_to_put_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "ADAPTERS", (("gather", "no.such.module:ADAPTER"),))
    with pytest.raises(UserError, match="kernel gather does not load: ModuleNotFoundError"):
        predict_counters(Cell.parse("gather_distinct_p16"), {}, UNKNOWN)
