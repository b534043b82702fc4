"""The ceiling probes: what each executes by construction, and how to launch it.

`WARPS` are warps an SM, in blocks of 16 or all in one; a call's work is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pagebench.kernels.probes.cubin import Module

if TYPE_CHECKING:
    from torch import Tensor

SOURCE = Path(__file__).with_name("ceilings.cu")
# An mma.sync probe holds too many registers for 64 warps.
WARPS = {
    "ceil_l2": (8, 16, 32, 64),
    "ceil_issue": (16, 32, 64),
    "ceil_fma": (16, 32, 64),
    "ceil_matrix": (8, 16, 32),
}
MOST_WARPS_A_BLOCK = 16
LAUNCHES = (1, 2, 4, 8)  # calls of the empty kernel in one bracket of the clock

# Warp instructions of one round of the loop, and rounds times warps an SM: about a millisecond.
INSTRUCTIONS = {"ceil_issue": 512, "ceil_fma": 512, "ceil_matrix": 64}
ROUND_WARPS = {"ceil_issue": 16384, "ceil_fma": 16384, "ceil_matrix": 16384}
L2_LOADS = 4  # 16-byte loads of a lane in one tile
L2_SHARE = 3  # of the L2 that the window takes one part: it must fit either half of a split L2
L2_BYTES = 4 << 30  # read by one call, about


@dataclass(frozen=True, slots=True)
class Probe:
    """One call of a probe and its work: warp instructions, or bytes."""

    run: Callable[[], object]
    work: int


def instructions(
    module: Module, kernel: str, multiprocessors: int, warps: int, sink: Tensor
) -> Probe:
    """`kernel` is a key of INSTRUCTIONS, `sink` float32 [1]. Loop control is not counted."""
    rounds = ROUND_WARPS[kernel] // warps
    words = (sink.data_ptr(), rounds)
    grid, threads = _launch(multiprocessors, warps)
    return Probe(
        lambda: module.launch(kernel, grid, threads, *words),
        multiprocessors * warps * rounds * INSTRUCTIONS[kernel],
    )


def l2_read(
    module: Module, multiprocessors: int, warps: int, window: Tensor, sink: Tensor
) -> Probe:
    """Every block reads its share of `window`, float32 [n], from L2. Work is in bytes.

    `warps` is one of `l2_warps` for that window.
    """
    grid, threads = _launch(multiprocessors, warps)
    tile_bytes = threads * L2_LOADS * 16
    tiles = window.nbytes // (grid * tile_bytes)
    rounds = max(1, L2_BYTES // (grid * tiles * tile_bytes))
    words = (sink.data_ptr(), rounds, window.data_ptr(), tiles)
    return Probe(
        lambda: module.launch("ceil_l2", grid, threads, *words),
        grid * rounds * tiles * tile_bytes,
    )


def l2_warps(multiprocessors: int, window_bytes: int) -> tuple[int, ...]:
    """Those warps an SM whose blocks have a tile each in the window."""
    a_warp = 32 * L2_LOADS * 16 * multiprocessors
    return tuple(warps for warps in WARPS["ceil_l2"] if warps * a_warp <= window_bytes)


def _launch(multiprocessors: int, warps: int) -> tuple[int, int]:
    """Blocks, and threads of one, that put so many warps on every SM."""
    blocks = max(1, warps // MOST_WARPS_A_BLOCK)
    return multiprocessors * blocks, warps // blocks * 32


def empty(module: Module, launches: int) -> Callable[[], object]:
    """A call of as many empty kernels."""

    def run() -> None:
        for _ in range(launches):
            module.launch("ceil_empty", 1, 32)

    return run
