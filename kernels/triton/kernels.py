"""Split-KV paged decode in Triton: one body, three ways to read its indices.

`MODE` is the experiment. Only `load_entries` and `pages_of_rows` depend on it. `token` and `row`
load a vector with one entry per token row. `tile` loads one scalar per page, so the smaller the
pages, the more load instructions it needs. No `from __future__ import annotations` here: Triton
reads the `tl.constexpr` annotations themselves.
"""

# mypy: ignore-errors
import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def load_entries(
    entries, start, end, MODE: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Raw entries of the tile at token `start`, a tuple: one int32 [BLOCK_N], or an int32 per page.

    `start` is a multiple of BLOCK_N, so the tile is whole pages or lies in one page. Nothing at or
    past token `end` is read: a tile past the last one costs instructions but no bytes.
    """
    first = entries + start // PAGE_SIZE
    if MODE == "tile":
        loaded = ()
        for page in tl.static_range(max(1, BLOCK_N // PAGE_SIZE)):
            loaded += (tl.load(first + page, mask=start + page * PAGE_SIZE < end, other=0),)
    else:
        row = tl.arange(0, BLOCK_N)
        loaded = (tl.load(first + row // PAGE_SIZE, mask=start + row < end, other=0),)
    return loaded


@triton.jit
def pages_of_rows(loaded, MODE: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK_N: tl.constexpr):
    """The page of each token row, int32 [BLOCK_N], from what `load_entries` returned."""
    row = tl.arange(0, BLOCK_N)
    pages = tl.zeros([BLOCK_N], tl.int32) + loaded[0]
    if MODE == "tile":
        for page in tl.static_range(1, max(1, BLOCK_N // PAGE_SIZE)):
            pages = tl.where(row // PAGE_SIZE == page, loaded[page], pages)
    return pages


@triton.jit
def load_planted(entries, start, length, PAGE_SIZE: tl.constexpr, EXTRA_LOADS: tl.constexpr):
    """Read EXTRA_LOADS neighbouring entries from the tile's first on, or the request's last ones.

    Nothing uses the values. Where a request was replanned to fewer entries than EXTRA_LOADS, the
    loads begin at its first entry and run into those that follow it in `indices`.
    """
    last = tl.cdiv(length, PAGE_SIZE) - EXTRA_LOADS
    first = entries + tl.maximum(tl.minimum(start // PAGE_SIZE, last), 0)
    for extra in tl.static_range(EXTRA_LOADS):
        tl.load(first + extra, volatile=True)  # or the compiler would drop it


# Triton would specialise on an int that is 1 or a multiple of 16: another binary for some lengths.
@triton.jit(do_not_specialize=["tiles_per_split"])
def split_decode(
    q,  # q_dtype [batch, q_heads, HEAD_DIM]
    k,  # pools of pages; both have the three strides below, and HEAD_DIM is contiguous
    v,
    out,  # q_dtype [batch, q_heads, HEAD_DIM], written where IS_WHOLE
    partial,  # float32 [batch, q_heads, splits, HEAD_DIM], written otherwise
    lse,  # float32 [batch, q_heads, splits], base 2; -inf for a split without tokens
    lengths,  # int32 [batch]
    indices,  # int32: the rows of the table one after another, or the slots of the CSR
    first_entry,  # int32 [batch], where in `indices` each request begins
    stride_page,
    stride_token,
    stride_head,
    tiles_per_split,
    MODE: tl.constexpr,  # token, row or tile
    PAGE_SIZE: tl.constexpr,
    GROUP: tl.constexpr,  # query heads per KV head
    HEAD_DIM: tl.constexpr,
    BLOCK_H: tl.constexpr,  # GROUP padded to what tl.dot takes
    BLOCK_N: tl.constexpr,  # tokens per tile
    IS_WHOLE: tl.constexpr,  # one split, so nothing to merge
    EXTRA_LOADS: tl.constexpr,  # planted: entries read per tile beyond those needed
    UPCAST: tl.constexpr,  # bf16 tl.dot is wrong under the interpreter (triton issue 11584)
):
    """Attention of one KV head's queries over one split of one request.

    Heads are the fastest grid axis. With NHD the heads of a token are neighbours in memory, so CTAs
    that run at the same time read whole 2 KiB rows of DRAM and share the index lines in L2.
    """
    kv_head, split, request = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + request)
    entries = indices + tl.load(first_entry + request)
    first_tile = split * tiles_per_split
    last_tile = tl.minimum(first_tile + tiles_per_split, tl.cdiv(length, BLOCK_N))
    end = tl.minimum(last_tile * BLOCK_N, length)

    head = tl.arange(0, BLOCK_H)
    row = tl.arange(0, BLOCK_N)
    dim = tl.arange(0, HEAD_DIM)
    q_row = (request * tl.num_programs(0) + kv_head) * GROUP + head
    is_head = head < GROUP
    queries = tl.load(q + q_row[:, None] * HEAD_DIM + dim, mask=is_head[:, None], other=0.0)

    top = tl.full([BLOCK_H], float("-inf"), tl.float32)
    # Weights are summed after the loop: a sum over warps in every tile would cost three barriers.
    weight = tl.zeros([BLOCK_H, BLOCK_N], tl.float32)
    mix = tl.zeros([BLOCK_H, HEAD_DIM], tl.float32)
    loaded = load_entries(entries, first_tile * BLOCK_N, end, MODE, PAGE_SIZE, BLOCK_N)
    for tile in range(first_tile, last_tile):
        start = tile * BLOCK_N
        is_live = start + row < end
        pages = pages_of_rows(loaded, MODE, PAGE_SIZE, BLOCK_N)
        # The sum stays below PAGE_SIZE, because a tile is whole pages or lies in one page.
        in_page = (start & (PAGE_SIZE - 1)) + (row & (PAGE_SIZE - 1))
        at = pages.to(tl.int64) * stride_page + in_page * stride_token + kv_head * stride_head
        # Unused slots hold NaN, and NaN times a weight of 0 is NaN: masked rows must read 0.
        keys = tl.load(k + at[:, None] + dim, mask=is_live[:, None], other=0.0)
        values = tl.load(v + at[:, None] + dim, mask=is_live[:, None], other=0.0)
        keys, values = keys.to(queries.dtype), values.to(queries.dtype)
        # The next tile's entries stay in registers for a whole iteration. Triton's own pipeliner
        # would move vectors through shared memory and not prefetch scalars at all.
        loaded = load_entries(entries, start + BLOCK_N, end, MODE, PAGE_SIZE, BLOCK_N)
        if UPCAST:
            scores = tl.dot(queries.to(tl.float32), tl.trans(keys.to(tl.float32)))
        else:
            scores = tl.dot(queries, tl.trans(keys))
        scores = tl.where(is_live, scores * (HEAD_DIM**-0.5 * LOG2_E), float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))  # finite: every tile has a live token
        weights = tl.exp2(scores - new_top[:, None])
        decay = tl.exp2(top - new_top)
        weight = weight * decay[:, None] + weights
        if UPCAST:
            mix = tl.dot(weights, values.to(tl.float32), mix * decay[:, None])
        else:
            mix = tl.dot(weights.to(values.dtype), values, mix * decay[:, None])
        top = new_top
        if EXTRA_LOADS > 0:
            load_planted(entries, start, length, PAGE_SIZE, EXTRA_LOADS)

    total = tl.sum(weight, 1)
    mix = mix / tl.where(total > 0, total, 1.0)[:, None]
    if IS_WHOLE:
        tl.store(out + q_row[:, None] * HEAD_DIM + dim, mix, mask=is_head[:, None])
    else:
        at_split = q_row * tl.num_programs(1) + split
        tl.store(partial + at_split[:, None] * HEAD_DIM + dim, mix, mask=is_head[:, None])
        tl.store(lse + at_split, tl.where(total > 0, top + tl.log2(total), float("-inf")), is_head)


@triton.jit(do_not_specialize=["splits"])
def merge_splits(
    partial,  # float32 [rows, splits, HEAD_DIM]
    lse,  # float32 [rows, splits], base 2
    out,  # q_dtype [rows, HEAD_DIM]
    splits,
    HEAD_DIM: tl.constexpr,
    BLOCK_S: tl.constexpr,  # splits, padded to a power of two
    SPIN_NS: tl.constexpr,  # planted: nanoseconds that each program waits before it begins
):
    """One program per (request, query head): the mean of its splits, weighted by 2**lse."""
    if SPIN_NS > 0:
        began = globaltimer()
        while globaltimer() - began < SPIN_NS:
            pass
    at_row = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    split = tl.arange(0, BLOCK_S)
    dim = tl.arange(0, HEAD_DIM)
    is_split = split < splits
    scale = tl.load(lse + at_row * splits + split, mask=is_split, other=float("-inf"))
    at = (at_row * splits + split)[:, None] * HEAD_DIM + dim
    parts = tl.load(partial + at, mask=is_split[:, None], other=0.0)
    top = tl.max(scale, 0)
    weights = tl.exp2(scale - tl.where(top > float("-inf"), top, 0.0))
    total = tl.sum(weights, 0)
    mean = tl.sum(parts * weights[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(out + at_row * HEAD_DIM + dim, mean)
