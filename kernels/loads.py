"""Global loads (LDG) that a call must execute, derived from kernel source before it runs.

LDG is more than index loads: what is prefetched past the last tile counts too (the hardware counts
instructions whose lanes are all off), and so do a constant a thread block and a term a split.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from pagebench.layouts.shape import DTYPE_BYTES, Shape

XQA_WARPS = 4  # that stage K, and as many that stage V
XQA_CTA_TOKENS = 256  # four K warps of 64 tokens
FIDECODE_STAGES = 2  # num_stages_smem from compute capability 8.0 on
FIDECODE_LEAST_CHUNK = 128  # tokens; scheduler.cuh


def predicted_ldg(
    kernel: str, shape: Shape, resolved: Mapping[str, Any], capability: tuple[int, int]
) -> int | None:
    """LDG of one call, or None for a kernel whose source has not been counted."""
    if kernel == "xqa" and "mha.cu" in str(resolved.get("kernel")):
        return xqa_ldg(shape, int(resolved["splits"]), capability)
    if kernel in ("tritontoken", "tritonrow", "tritontile") and shape.dtype != "e4m3":
        return triton_ldg(kernel.removeprefix("triton"), shape, resolved)
    return None


def decode_kernel_ldg(kernel: str, shape: Shape, resolved: Mapping[str, Any]) -> int | None:
    """LDG of the first kernel alone, for calls whose merge kernel's source is not counted."""
    if kernel == "fidecode" and resolved.get("splits"):
        return fidecode_ldg(shape, int(resolved["splits"]))
    return None


def fidecode_ldg(shape: Shape, splits: int) -> int:
    """FlashInfer's BatchDecodeWithPagedKVCacheKernel (decode.cuh, page.cuh 0.7.2.post1).

    Every warp loads nine values once: request and tile index, chunk size, the request's two ends
    and last page length, the end of all, its begin again, and queries. Then a thread loads
    one index a token row: before the first tile, and again each `bdx` iterations, two ahead.
    """
    element = DTYPE_BYTES[shape.dtype]
    bdx = shape.head_dim // max(16 // element, shape.head_dim // 32)
    threads = (256 if element == 1 else 512) if shape.group == 8 else 128
    threads = max(threads, bdx * shape.group)
    bdz = threads // (bdx * shape.group)
    rows = 1 if shape.group > 1 else (2 if element == 1 else 4)
    tokens = rows * shape.group * bdz  # an iteration's
    loads = 0
    for length in shape.lengths().tolist():
        chunk = max(FIDECODE_LEAST_CHUNK, ceil(shape.kv_len / splits)) if splits > 1 else length
        for begin in range(0, length, chunk):
            iterations = ceil(min(chunk, length - begin) / tokens)
            again = (iterations - 1 + FIDECODE_STAGES) // bdx - (FIDECODE_STAGES - 1) // bdx
            loads += threads // 32 * (9 + rows * (1 + again))
    return loads * shape.kv_heads


def xqa_ldg(shape: Shape, splits: int, capability: tuple[int, int]) -> int:
    """csrc/xqa/mha.cu and mhaUtils.cuh `getPage` (FlashInfer 0.7.2.post1), head dim up to 256.

    Warps load a tile's page indices one at a time, K once before the first tile and once a tile,
    V likewise but one tile further ahead; every warp loads the context length once. With splits the
    last block of a head reads each split's row maximum.
    """
    k_pages, v_pages, v_calls, v_ahead = _xqa_tile(shape, capability)
    loads = 0
    for length in shape.lengths().tolist():
        tiles = ceil(length / XQA_CTA_TOKENS)
        for split in range(splits):
            mine = max(0, ceil((tiles - split) / splits))
            k = XQA_WARPS * k_pages * (1 + mine)
            v = XQA_WARPS * v_pages * (1 + v_ahead + v_calls * mine)
            loads += k + v + 2 * XQA_WARPS
        loads += splits if splits > 1 else 0
    return loads * shape.kv_heads


def _xqa_tile(shape: Shape, capability: tuple[int, int]) -> tuple[int, int, int, int]:
    """Pages a K call and a V call load, V calls a tile, and V calls ahead of the first tile."""
    page = shape.page_size
    head = next(dim for dim in (64, 128, 256) if dim >= shape.head_dim)
    sm = capability[0] * 10 + capability[1]
    v_tokens = 32 if sm in (86, 89, 120, 121) else 64  # of a V tile
    warps_a_group = min(head // 64, 4)
    stride = v_tokens * (4 // warps_a_group)
    x_tiles = 1 if stride < 64 else stride // 64
    x_iters, v_iters = 4 // x_tiles, 64 * x_tiles // stride
    x_stride = stride * v_iters
    if x_stride <= page:
        calls, ahead = x_iters // (page // x_stride), int(page == x_stride and v_iters == 1)
    else:
        calls, ahead = x_iters * v_iters, 1
    return max(1, 64 // page), max(1, v_tokens // page), calls, ahead


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

    Triton loads the LSE once in the layout that is reduced and again in the one that scales the
    partials, rather than moving it between them (three LDG in the kernel's SASS at few splits).
    """
    padded = 1 << (splits - 1).bit_length()
    partials = max(warps, ceil(padded * shape.head_dim * 4 / 512))
    return shape.batch * shape.q_heads * (partials + 2 * warps * ceil(padded / 32))
