"""What a call of our Triton kernels must load, derived from their source before it runs.

LDG counts more than index loads. It includes prefetches past the last tile (the hardware counts
instructions whose lanes are all off), a constant per thread block and a term per split.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from pagebench.kernels.adapter import Loads
from pagebench.layouts.shape import Shape

FLOAT_BYTES = 4  # of a partial output's element and of its LSE


def triton_loads(mode: str, shape: Shape, resolved: Mapping[str, Any]) -> Loads:
    """Loads of our own kernels; LDG of 8-bit KV is not known.

    A merge reads the float32 partials and LSE of each split.
    """
    splits = int(resolved["splits"])
    rows = shape.batch * splits * shape.q_heads if splits > 1 else 0
    ldg = triton_ldg(mode, shape, resolved) if shape.dtype != "e4m3" else None
    decode, merge = (shape.kv_heads, splits, shape.batch), (shape.batch, shape.q_heads, 1)
    grids = (decode, merge) if splits > 1 else (decode,) if ldg is not None else ()
    return Loads(ldg, merge_bytes=rows * (shape.head_dim + 1) * FLOAT_BYTES, grids=grids)


def triton_ldg(mode: str, shape: Shape, resolved: Mapping[str, Any]) -> int:
    """LDG of `split_decode` and, with splits, `merge_splits` (kernels/triton/kernels.py).

    Every warp loads the length and the request's first entry. Queries are loaded 16 bytes per lane;
    the compiler leaves out rows that belong to no head. Entries are loaded once before the loop,
    once in each tile for the tile after it, and once for each of the num_stages - 1 tiles that
    Triton's pipeline has in flight ahead of the loop. Past the end these are predicated off, and
    counted. Planted loads feed no copy, so the pipeline does not prefetch them: they are loaded
    once per tile.
    """
    block_n, warps = int(resolved["block_n"]), int(resolved["num_warps"])
    splits, ahead = int(resolved["splits"]), int(resolved["num_stages"]) - 1
    lanes_a_row = shape.head_dim * 2 // 16
    rows_a_load = 32 // lanes_a_row * warps
    by_row = block_n // rows_a_load  # a warp's rows of a tile, with one entry each
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
    """One program per (request, query head): partials 16 bytes per lane, and the LSE twice.

    Triton loads the LSE in two layouts instead of converting one to the other (counted in the
    kernel's SASS). The layout for the reduction has one split per lane. The layout that scales the
    partials has the rows that a lane holds of them.
    """
    padded = 1 << (splits - 1).bit_length()
    partials = max(warps, ceil(padded * shape.head_dim * 4 / 512))
    rows_a_load = warps * max(1, 32 * 4 // shape.head_dim)
    lse = warps * (ceil(padded / 32) + ceil(padded / rows_a_load))
    return shape.batch * shape.q_heads * (partials + lse)
