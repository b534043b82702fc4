"""What a call of FlashInfer's decode kernel on CUDA cores must load, derived from its source.

LDG counts more than index loads. It includes prefetches past the last tile (the hardware counts
instructions whose lanes are all off), a constant per thread block and a term per split.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from pagebench.kernels.adapter import Loads
from pagebench.layouts.shape import DTYPE_BYTES, Shape

FIDECODE_STAGES = 2  # num_stages_smem from compute capability 8.0 on
FIDECODE_LEAST_CHUNK = 128  # tokens; scheduler.cuh
LSE_BYTES = 4  # float32, one for each split and head


def fidecode_loads(shape: Shape, resolved: Mapping[str, Any]) -> Loads:
    """Loads of FlashInfer's decode kernel on CUDA cores, and of its merge kernel where known.

    For each tile and head, a merge reads a row of partials, in the output's type, and its LSE.
    """
    tiles = int(resolved.get("tiles", 0))
    if not tiles:
        return Loads()
    decode, merge = fidecode_ldg(shape, tiles), fidecode_merge_ldg(shape, resolved)
    rows = tiles * shape.q_heads if tiles > shape.batch else 0
    merge_bytes = rows * (shape.head_dim * DTYPE_BYTES[shape.q_dtype] + LSE_BYTES)
    ldg = None if merge is None else decode + merge
    return Loads(ldg, decode, merge_bytes, _grids(shape, tiles, resolved))


def _grids(
    shape: Shape, tiles: int, resolved: Mapping[str, Any]
) -> tuple[tuple[int, int, int], ...]:
    """The launches of that plan; empty where the merge kernel's is not known."""
    decode = (tiles, shape.kv_heads, 1)
    if tiles == shape.batch:
        return (decode,)
    blocks = resolved.get("merge_blocks")
    return () if blocks is None else (decode, (int(blocks), 1, 1))


def fidecode_ldg(shape: Shape, tiles: int) -> int:
    """LDG of BatchDecodeWithPagedKVCacheKernel (decode.cuh, page.cuh 0.7.2.post1).

    `tiles` is the plan's number of (request, chunk) pairs. Each warp loads eight values once:
    request index, tile index, chunk size, the request's begin, its end, its last page length, the
    end of all requests, and the request's begin again. It loads queries 16 bytes at a time, for as
    many elements as a KV vector has. A thread then loads one index per token row, before the first
    tile and again every `bdx` iterations, two iterations ahead.
    """
    element = DTYPE_BYTES[shape.dtype]
    vector = max(16 // element, shape.head_dim // 32)
    queries = ceil(vector * DTYPE_BYTES[shape.q_dtype] / 16)
    bdx = shape.head_dim // vector
    bdz = max(1, 128 // (bdx * shape.group))
    threads = bdx * shape.group * bdz
    rows = 1 if shape.group > 1 else (2 if element == 1 else 4)
    tokens = rows * shape.group * bdz  # of one iteration
    chunk = _fidecode_chunk(shape, tiles)
    loads = 0
    for length in shape.lengths().tolist():
        for begin in range(0, length, chunk):
            iterations = ceil(min(chunk, length - begin) / tokens)
            again = (iterations - 1 + FIDECODE_STAGES) // bdx - (FIDECODE_STAGES - 1) // bdx
            loads += ceil(threads / 32) * (8 + queries + rows * (1 + again))
    return loads * shape.kv_heads


def fidecode_merge_ldg(shape: Shape, resolved: Mapping[str, Any]) -> int | None:
    """LDG of PersistentVariableLengthMergeStatesKernel (cascade.cuh 0.7.2.post1); 0 without splits.

    Every warp of every block loads the number of requests. For a row, of one request and head, each
    warp loads the row's begin and end, the begin again for three of the four tiles in flight, and
    once more in each iteration of `bdy` chunks. Warps that own a chunk load the begin and the
    chunk's LSE. None where this is not known: other than head dim 128 and 16-bit elements, an
    unknown number of blocks, or rows of a single chunk, which are copied.
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
    """Tokens of a chunk: the fewest pages that give at most `tiles` tiles (as scheduler.cuh)."""
    lengths = shape.lengths().tolist()
    if tiles == shape.batch:
        return shape.kv_len  # the plan does not split
    pages = [shape.pages(length) for length in lengths]
    least = max(FIDECODE_LEAST_CHUNK // shape.page_size, 1)
    sizes = range(least, max(pages) + 1)
    fewest = next(size for size in sizes if sum(ceil(count / size) for count in pages) <= tiles)
    return fewest * shape.page_size
