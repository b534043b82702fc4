"""The raw CSV page, as recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes import DATA
from fakes.ncu_pages import PAGE, THREE
from pagebench.profiles import ncu_page
from pagebench.profiles.counters import KernelRow
from pagebench.profiles.metrics import LAUNCH, PASSES, names_on
from pagebench.profiles.ncu import NcuError

ROW = KernelRow("k", "(1)", "(32)", {}, {}, 1, "")


def test_launch_facts_and_passes_are_columns_that_ncu_prints() -> None:
    header, _, _ = ncu_page.read_page(PAGE)
    assert {*LAUNCH.values(), PASSES} <= set(header)


def test_a_recorded_page_is_read_by_column_name_units_and_separators_apart() -> None:
    first, second = ncu_page.parse(PAGE, names_on("gh100"))
    assert first.symbol.startswith("kernel_mha(")
    assert (first.grid, first.block, first.passes) == ("(1, 8, 32)", "(128, 1, 2)", 6)
    assert first.values["ldg"] == second.values["ldg"] == 407_552
    assert first.values["l1_sectors"] == 33_953_792
    assert first.launch["registers"] == 128


def test_a_cell_is_not_taken_for_another_whose_name_begins_alike() -> None:
    ranges = ["<default domain>:xqa_shared_p16:none", "x:xqa_shared_p16_b4:none"]
    rows = [replace(ROW, range_name=name) for name in ranges]
    assert ncu_page.rows_of(rows, "xqa_shared_p16") == [rows[0]]
    assert ncu_page.rows_of(rows, "xqa_shared_p16_b4") == [rows[1]]


def test_many_cells_are_told_apart_by_their_ranges() -> None:
    rows = ncu_page.parse(THREE, names_on("gh100"))
    assert len(ncu_page.rows_of(rows, "fidecode_distinct_p1")) == 4  # decode and merge, twice
    assert len(ncu_page.rows_of(rows, "tritontile_distinct_p64")) == 4
    assert len(ncu_page.rows_of(rows, "xqa_shared_p64")) == 2
    assert ncu_page.rows_of(rows, "xqa_shared_p6") == []


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
            "Performance Counters on the target device 0.",
            "run as root",
        ),
        ("==ERROR== Profiling failed because a driver resource was unavailable.", "dcgmi"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "gVisor"),
        ((DATA / "ncu_no_kernels.txt").read_text(), "no kernel ran"),
    ],
)
def test_trouble_is_one_line_with_its_remedy(said: str, remedy: str) -> None:
    with pytest.raises(NcuError, match=remedy) as caught:
        ncu_page.parse(said, names_on("gh100"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234,567", 1_234_567.0),
        ("5.35", 5.35),
        ("n/a", None),
        ("", None),
        ("PolicySpread", None),
    ],
)
def test_numbers_as_ncu_prints_them(text: str, value: float | None) -> None:
    assert ncu_page.number(text) == value
