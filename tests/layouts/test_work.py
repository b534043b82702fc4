"""Predicted work against numbers worked out by hand."""

from __future__ import annotations

import pytest

from pagebench.harness.cell import Cell
from pagebench.layouts.lowering import lower
from pagebench.layouts.shape import Shape
from pagebench.layouts.sharing import Sharing, share
from pagebench.layouts.table import page_table
from pagebench.layouts.work import Work, predict
from pagebench.profiles.dram import nominal_dram_gbps


def work_of(name: str, kind: str) -> Work:
    cell = Cell.parse(name)
    return predict(cell.shape, cell.streams, kind)


@pytest.mark.parametrize(
    ("kind", "page", "entries"),
    [("page_table", 16, 16_384), ("csr_pages", 16, 16_384), ("token_indices", 16, 262_144),
     ("token_indices", 1, 262_144), ("page_table", 128, 2_048)],
)  # fmt: skip
def test_the_positive_control_has_one_entry_a_page_or_a_token(
    kind: str, page: int, entries: int
) -> None:
    assert work_of(f"xqa_shared_p{page}", kind).index_entries == entries


def test_a_token_takes_4096_bytes() -> None:
    assert Shape(1, 1, 1).token_kv_bytes == 2 * 8 * 128 * 2 == 4096
    assert Shape(1, 1, 1, dtype="e4m3").token_kv_bytes == 2048
    assert Shape(1, 1, 1, kv_heads=1, q_heads=8, head_dim=64).token_kv_bytes == 256


def test_shared_tokens_are_stored_once_and_read_by_all() -> None:
    work = work_of("xqa_shared_p16", "page_table")
    assert work.distinct_kv_bytes == 8192 * 4096
    assert work.read_kv_bytes == 32 * 8192 * 4096


def test_distinct_tokens_are_read_once() -> None:
    work = work_of("xqa_distinct_p16", "page_table")
    assert work.distinct_kv_bytes == work.read_kv_bytes == 8 * 4096 * 4096


def test_a_prefix_is_stored_once_and_its_tails_once_each() -> None:
    work = work_of("xqa_prefix50_p16", "page_table")
    assert work.distinct_kv_bytes == (2048 + 8 * 2048) * 4096
    assert work.read_kv_bytes == 8 * 4096 * 4096


def test_compulsory_bytes_add_indices_queries_and_outputs() -> None:
    work = work_of("xqa_shared_p16", "page_table")
    queries = outputs = 32 * 16 * 128 * 2
    assert work.compulsory_bytes == 33_554_432 + 16_384 * 4 + queries + outputs == 33_882_112


def test_queries_stay_16_bits_with_e4m3() -> None:
    work = work_of("xqa_shared_p16_e4m3", "page_table")
    assert work.compulsory_bytes == 16_777_216 + 16_384 * 4 + 2 * 131_072


def test_flop_are_two_a_multiply_add_for_qk_and_for_pv() -> None:
    assert work_of("xqa_shared_p16", "page_table").flop == 4 * 32 * 8192 * 16 * 128
    assert work_of("xqa_distinct_p16_b1_l1_h1x1_d1", "page_table").flop == 4


def test_ragged_work_counts_each_requests_own_tokens() -> None:
    shape = Shape(5, 300, 16, ragged_percent=60)  # 300, 215, 127, 143 and 123 tokens
    work = predict(shape, share(Sharing("distinct"), shape), "page_table")
    assert work.index_entries == 19 + 14 + 8 + 9 + 8
    assert work.distinct_kv_bytes == 908 * 4096
    assert work.flop == 4 * 908 * 16 * 128


def test_a_padded_table_adds_no_entries() -> None:
    assert work_of("xqa_shared_p16_w16384", "page_table") == work_of("xqa_shared_p16", "page_table")


def test_planted_work_is_no_work_of_the_layout() -> None:
    planted = work_of("tritontile_distinct_p16_x8_y500", "page_table")
    assert planted == work_of("tritontile_distinct_p16", "page_table")


@pytest.mark.parametrize("sharing", [Sharing("distinct"), Sharing("shared"), Sharing("prefix", 60)])
@pytest.mark.parametrize("kind", ["token_indices", "csr_pages", "page_table"])
def test_predicted_entries_are_those_that_lowering_makes(sharing: Sharing, kind: str) -> None:
    shape = Shape(4, 300, 16, ragged_percent=40, seed=5, table_tokens=500)
    streams = share(sharing, shape)
    table = page_table(shape, streams, Cell.parse("xqa_shared_scatter_p16").placement, "cpu")
    assert predict(shape, streams, kind).index_entries == lower(table, kind).entries


@pytest.mark.parametrize(
    ("bits", "mhz", "gbps"),
    [(6016, 3201, 4814.0), (5120, 2619, 3352.32), (5120, 1593, 2039.04), (384, 10501, 1008.096)],
)  # H200 as its driver says (the data sheet: 4.8 TB/s), H100 SXM, A100 80 GB, RTX 4090
def test_nominal_dram_bandwidth_is_bus_width_times_clock_twice(
    bits: int, mhz: int, gbps: float
) -> None:
    assert nominal_dram_gbps(bits, mhz) == pytest.approx(gbps, rel=1e-4)
