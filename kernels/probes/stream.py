"""The probe of the DRAM ceiling: read a buffer as fast as DRAM delivers it.

No `from __future__ import annotations` here: Triton reads the `tl.constexpr` annotations.
"""

# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def stream_read(
    source,  # float32 [count], 16 bytes per lane
    sums,  # float32 [programs]: keeps the compiler from removing the loads
    count,
    TILE: tl.constexpr,  # elements that a program reads at a time
):
    """Each program reads every tile of its stride and sums the elements."""
    lane = tl.arange(0, TILE)
    total = tl.zeros([TILE], tl.float32)
    step = tl.num_programs(0).to(tl.int64) * TILE
    for start in range(tl.program_id(0).to(tl.int64) * TILE, count, step):
        total += tl.load(source + start + lane, mask=start + lane < count, other=0.0)
    tl.store(sums + tl.program_id(0), tl.sum(total, 0))
