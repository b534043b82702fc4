"""Read a buffer as fast as DRAM gives it: the probe behind the bandwidth ceiling.

No `from __future__ import annotations` here: Triton reads the `tl.constexpr` annotations.
"""

# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def stream_read(
    source,  # float32 [count], 16 bytes a lane
    sums,  # float32 [programs]: what keeps the loads alive
    count,
    TILE: tl.constexpr,  # elements a program reads at a time
):
    """Each program strides over the buffer tile by tile and sums what it reads."""
    lane = tl.arange(0, TILE)
    total = tl.zeros([TILE], tl.float32)
    step = tl.num_programs(0).to(tl.int64) * TILE
    for start in range(tl.program_id(0).to(tl.int64) * TILE, count, step):
        total += tl.load(source + start + lane, mask=start + lane < count, other=0.0)
    tl.store(sums + tl.program_id(0), tl.sum(total, 0))
