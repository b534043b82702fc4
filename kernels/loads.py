"""What a call must load, derived from kernel source before it runs: LDG, and what merges read.

LDG is more than index loads: what is prefetched past the last tile counts too (the hardware counts
instructions whose lanes are all off), and so do a constant a thread block and a term a split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from pagebench.kernels.adapter import Loads
from pagebench.layouts.shape import DTYPE_BYTES, Shape

XQA_WARPS = 4  # that stage K, and as many that stage V
XQA_WARP_TOKENS = 64
XQA_CTA_TOKENS = XQA_WARPS * XQA_WARP_TOKENS
FIDECODE_STAGES = 2  # num_stages_smem from compute capability 8.0 on
FIDECODE_LEAST_CHUNK = 128  # tokens; scheduler.cuh


def xqa_loads(
    shape: Shape, resolved: Mapping[str, Any], capability: tuple[int, int] | None
) -> Loads:
    """XQA's, but for Hopper's 8-bit kernel (mha_sm90.cu), which has not been counted."""
    if capability is None or "mha.cu" not in str(resolved.get("kernel")):
        return Loads()
    return Loads(xqa_ldg(shape, int(resolved["splits"]), capability))


def fidecode_loads(shape: Shape, resolved: Mapping[str, Any]) -> Loads:
    """FlashInfer's decode kernel on CUDA cores, and its merge kernel where that is known.

    A merge reads a row of partials and its LSE a tile of the plan, in the output's type.
    """
    tiles = int(resolved.get("tiles", 0))
    if not tiles:
        return Loads()
    decode, merge = fidecode_ldg(shape, tiles), fidecode_merge_ldg(shape, resolved)
    rows = tiles * shape.q_heads if tiles > shape.batch else 0
    merge_bytes = rows * _row_bytes(shape, DTYPE_BYTES[shape.q_dtype])
    return Loads(None if merge is None else decode + merge, decode, merge_bytes)


def triton_loads(mode: str, shape: Shape, resolved: Mapping[str, Any]) -> Loads:
    """Our own, but for LDG of 8-bit KV; a merge reads float32 partials and LSE of each split."""
    splits = int(resolved["splits"])
    rows = shape.batch * splits * shape.q_heads if splits > 1 else 0
    ldg = triton_ldg(mode, shape, resolved) if shape.dtype != "e4m3" else None
    return Loads(ldg, merge_bytes=rows * _row_bytes(shape, 4))


def _row_bytes(shape: Shape, element: int) -> int:
    """A split's partial output of one head, and its LSE, which is float32."""
    return shape.head_dim * element + 4


def fidecode_ldg(shape: Shape, tiles: int) -> int:
    """FlashInfer's BatchDecodeWithPagedKVCacheKernel (decode.cuh, page.cuh 0.7.2.post1).

    `tiles` is the plan's number of (request, chunk) pairs. Every warp loads eight values once:
    request and tile index, chunk size, the request's two ends and last page length, the end of all
    and its begin again; and queries, 16 bytes at a time for as many elements as a KV vector has.
    Then a thread loads one index a token row: before the first tile, and again each `bdx`
    iterations, two ahead.
    """
    element = DTYPE_BYTES[shape.dtype]
    vector = max(16 // element, shape.head_dim // 32)
    queries = ceil(vector * DTYPE_BYTES[shape.q_dtype] / 16)
    bdx = shape.head_dim // vector
    bdz = max(1, 128 // (bdx * shape.group))
    threads = bdx * shape.group * bdz
    rows = 1 if shape.group > 1 else (2 if element == 1 else 4)
    tokens = rows * shape.group * bdz  # an iteration's
    chunk = _fidecode_chunk(shape, tiles)
    loads = 0
    for length in shape.lengths().tolist():
        for begin in range(0, length, chunk):
            iterations = ceil(min(chunk, length - begin) / tokens)
            again = (iterations - 1 + FIDECODE_STAGES) // bdx - (FIDECODE_STAGES - 1) // bdx
            loads += ceil(threads / 32) * (8 + queries + rows * (1 + again))
    return loads * shape.kv_heads


def fidecode_merge_ldg(shape: Shape, resolved: Mapping[str, Any]) -> int | None:
    """PersistentVariableLengthMergeStatesKernel (cascade.cuh 0.7.2.post1), head dim 128, 16 bits.

    Every warp of every block loads the number of requests. A row, of a request and a head, loads
    its two ends, the first again for three of the four tiles under way, and once more each
    iteration of `bdy` chunks; warps that own a chunk load the first end and the chunk's LSE. None
    where that is not known: without a split, or with rows of a single chunk, which are copied.
    """
    if int(resolved["tiles"]) == shape.batch:
        return 0
    if shape.head_dim != 128 or DTYPE_BYTES[shape.q_dtype] != 2 or "merge_blocks" not in resolved:
        return None
    warps, bdy = 4, 8
    chunk = _fidecode_chunk(shape, int(resolved["tiles"]))
    chunks: list[int] = [ceil(length / chunk) for length in shape.lengths().tolist()]
    if min(chunks) < 2 or max(chunks) > 32 * warps:
        return None
    rows = sum(warps * (5 + ceil(count / bdy)) + 2 * ceil(count / 32) for count in chunks)
    return int(rows * shape.q_heads + warps * int(resolved["merge_blocks"]))


def _fidecode_chunk(shape: Shape, tiles: int) -> int:
    """Tokens of a chunk: the fewest pages that make so few tiles (scheduler.cuh's search)."""
    lengths = shape.lengths().tolist()
    if tiles == shape.batch:
        return shape.kv_len  # the plan does not split
    pages = [shape.pages(length) for length in lengths]
    least = max(FIDECODE_LEAST_CHUNK // shape.page_size, 1)
    fits = (size for size in range(least, max(pages) + 1)
            if sum(ceil(count / size) for count in pages) <= tiles)  # fmt: skip
    return next(fits) * shape.page_size


def xqa_ldg(shape: Shape, splits: int, capability: tuple[int, int]) -> int:
    """csrc/xqa/mha.cu and mhaUtils.cuh `getPage` (FlashInfer 0.7.2.post1), head dim up to 256.

    Warps load a tile's page indices one at a time, K once before the first tile and once a tile,
    V likewise but one tile further ahead, and K too where a head of it is one part; in a last tile
    that is not full, warps whose tokens lie past its end do nothing (SHORT_SEQ_OPT). Every warp
    loads the context length once. With splits the last block of a head reads each split's row
    maximum.
    """
    tile = _xqa_tile(shape, capability)
    loads = 0
    for length in shape.lengths().tolist():
        tiles = ceil(length / XQA_CTA_TOKENS)
        ahead = tile.k_pages * tile.k_ahead + tile.v_pages * tile.v_ahead
        loads += splits * XQA_WARPS * (ahead + 2) + _first_loads(shape, tile, length, splits)
        for index in range(tiles):
            tokens = min(XQA_CTA_TOKENS, length - index * XQA_CTA_TOKENS)
            k_calls = ceil(tokens / XQA_WARP_TOKENS)
            loads += tile.k_pages * k_calls + tile.v_pages * tile.v_calls(tokens)
        loads += splits if splits > 1 else 0
    return loads * shape.kv_heads


def _first_loads(shape: Shape, tile: _XqaTile, length: int, splits: int) -> int:
    """What K and V warps load before the first tile, also those whose tokens lie past the end.

    Guarded off, such a load is counted. In modules of page 64 the compiler branches round it
    instead (SASS of all groups at head dim 128, nvcc 13.0 for sm_90a), and it is not.
    """
    if shape.page_size != XQA_WARP_TOKENS:
        return splits * XQA_WARPS * (tile.k_pages + tile.v_pages)
    pages, warps = shape.pages(length), XQA_WARPS // tile.groups
    begins = [XQA_WARPS * split for split in range(splits)]
    k_warps = sum(begin + warp < pages for begin in begins for warp in range(XQA_WARPS))
    v_groups = sum(
        begin + group // tile.groups_an_x_tile < pages
        for begin in begins
        for group in range(tile.groups)
    )
    return k_warps * tile.k_pages + v_groups * warps * tile.v_pages


@dataclass(frozen=True, slots=True)
class _XqaTile:
    """How the four V warps walk a tile of 256 tokens: groups of warps, in steps of whole X tiles.

    `k_ahead` and `v_ahead` are 1 where the call before the first tile loads pages too, and
    `steps_a_page` is how many steps share one page.
    """

    k_pages: int  # that a K call loads
    k_ahead: int
    v_pages: int
    v_ahead: int
    groups: int
    groups_an_x_tile: int
    steps: int
    x_tiles_a_step: int
    v_iters: int
    steps_a_page: int

    def v_calls(self, tokens: int) -> int:
        """Calls that load pages, of all warps together, in a tile that holds so many tokens."""
        warps = XQA_WARPS // self.groups
        return sum(
            warps * self.v_iters
            for group in range(self.groups)
            for step in range(self.steps)
            if self._first_token(group, step) < tokens and (step + 2) % self.steps_a_page == 0
        )

    def _first_token(self, group: int, step: int) -> int:
        return XQA_WARP_TOKENS * (step * self.x_tiles_a_step + group // self.groups_an_x_tile)


def _xqa_tile(shape: Shape, capability: tuple[int, int]) -> _XqaTile:
    page = shape.page_size
    head = next(dim for dim in (64, 128, 256) if dim >= shape.head_dim)
    sm = capability[0] * 10 + capability[1]
    small = sm in (86, 89, 120, 121)  # shared memory
    v_tokens, k_part_bytes = (32, 64) if small else (64, 128)  # of a V tile, of a K head
    groups = XQA_WARPS // min(head // 64, 4)
    stride = v_tokens * groups
    x_tiles = max(1, stride // XQA_WARP_TOKENS)
    v_iters = XQA_WARP_TOKENS * x_tiles // stride
    x_stride = stride * v_iters
    steps_a_page = max(1, page // x_stride)
    return _XqaTile(
        k_pages=max(1, XQA_WARP_TOKENS // page),
        k_ahead=int(head * DTYPE_BYTES[shape.dtype] <= k_part_bytes),
        v_pages=max(1, v_tokens // page),
        v_ahead=int(x_stride > page or (steps_a_page == 1 and v_iters == 1)),
        groups=groups,
        groups_an_x_tile=XQA_WARP_TOKENS // v_tokens,
        steps=XQA_WARPS // x_tiles,
        x_tiles_a_step=x_tiles,
        v_iters=1 if x_stride <= page else v_iters,
        steps_a_page=steps_a_page,
    )


def triton_ldg(mode: str, shape: Shape, resolved: Mapping[str, Any]) -> int:
    """kernels/triton_kernels.py: `split_decode`, and `merge_splits` where there are splits.

    Every warp loads the length and the request's first entry; queries come 16 bytes a lane, rows
    that no head can own left out by the compiler. Entries are loaded once before the loop, once a
    tile for the tile after it, and once for each of the num_stages - 1 tiles that Triton's pipeline
    has in flight ahead of the loop: at the end those are guarded off, and counted. Planted loads
    feed no copy, so the pipeline does not run ahead with them: once a tile, in the loop alone.
    """
    block_n, warps = int(resolved["block_n"]), int(resolved["num_warps"])
    splits, ahead = int(resolved["splits"]), int(resolved["num_stages"]) - 1
    lanes_a_row = shape.head_dim * 2 // 16
    rows_a_load = 32 // lanes_a_row * warps
    by_row = block_n // rows_a_load  # a warp's rows of a tile: one entry each
    per_tile = by_row if mode != "tile" else max(1, block_n // shape.page_size)
    queries = warps * ceil(shape.group / rows_a_load)
    tiles_a_split = ceil(ceil(shape.kv_len / block_n) / splits)
    loads = 0
    for length in shape.lengths().tolist():
        tiles = ceil(length / block_n)
        for split in range(splits):
            mine = min(max(0, tiles - split * tiles_a_split), tiles_a_split)
            entries = per_tile * (1 + ahead + mine) + shape.planted_loads * mine
            loads += warps * (2 + entries) + queries
    loads *= shape.kv_heads
    return loads + (_merge_ldg(shape, splits, warps) if splits > 1 else 0)


def _merge_ldg(shape: Shape, splits: int, warps: int) -> int:
    """One program a (request, query head): partials 16 bytes a lane, and the LSE twice a warp.

    Triton loads the LSE once in the layout that is reduced, a split a lane, and again in the one
    that scales the partials, a split a load of the rows that a lane holds of them, rather than
    moving it between the two (counted in the kernel's SASS).
    """
    padded = 1 << (splits - 1).bit_length()
    partials = max(warps, ceil(padded * shape.head_dim * 4 / 512))
    rows_a_load = warps * max(1, 32 * 4 // shape.head_dim)
    lse = warps * (ceil(padded / 32) + ceil(padded / rows_a_load))
    return shape.batch * shape.q_heads * (partials + lse)
