"""What FlashInfer's decode and merge kernels load by their source."""

from __future__ import annotations

from pagebench.harness.cell import Cell
from pagebench.kernels.flashinfer.loads import _fidecode_chunk, fidecode_ldg
from pagebench.kernels.registry import loads_of


def test_a_merge_of_unknown_blocks_is_not_predicted() -> None:
    shape = Cell.parse("fidecode_distinct_p1_b4_l8192").shape
    assert loads_of("fidecode", shape, {"tiles": 148}, (9, 0)).ldg is None


def test_flashinfers_loads_do_not_depend_on_the_page_size() -> None:
    loads = {fidecode_ldg(Cell.parse(f"fidecode_distinct_p{p}").shape, 8) for p in (1, 16, 64)}
    assert len(loads) == 1


def test_a_plans_chunk_is_the_fewest_pages_that_make_so_few_tiles() -> None:
    """2,100 to 3,000 tokens on pages of 16; the scheduler's grid had 89 tiles on an H200."""
    shape = Cell.parse("fidecode_distinct_p16_b4_l3000_r30").shape
    pages = [shape.pages(length) for length in shape.lengths().tolist()]
    chunk = _fidecode_chunk(shape, 89)
    assert sum(-(-count * 16 // chunk) for count in pages) == 89
    assert chunk == 128  # the least there is
    assert _fidecode_chunk(shape, 4) == 3000
    assert _fidecode_chunk(shape, 88) == 144


def test_a_block_that_is_no_whole_number_of_warps_has_one_more() -> None:
    """Group 3 at head dim 64: 8 x 3 x 5 = 120 threads, so four warps; by source, uncounted."""
    shape = Cell.parse("fidecode_distinct_p1_b1_l300_h12x4_d64").shape
    tokens = 3 * 5
    again = (300 // tokens - 1 + 2) // 8 - 1 // 8
    assert fidecode_ldg(shape, 1) == 4 * (8 + 1 + 1 + again) * 4
