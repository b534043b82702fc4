"""The ceiling probes: what each executes by construction, and how to launch it.

`WARPS` are warps per SM, in blocks of up to 16. A probe does about the same work at each of them.
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
# The mma.sync probe uses too many registers for 64 warps.
WARPS = {
    "ceil_l2": (8, 16, 32, 64),
    "ceil_issue": (16, 32, 64),
    "ceil_fma": (16, 32, 64),
    "ceil_matrix": (8, 16, 32),
}
MOST_WARPS_A_BLOCK = 16
LAUNCHES = (1, 2, 4, 8)  # launches of the empty kernel in one timed call

# Warp instructions of one round of the loop, and rounds x warps per SM: about a millisecond.
INSTRUCTIONS = {"ceil_issue": 512, "ceil_fma": 512, "ceil_matrix": 64}
ROUND_WARPS = {"ceil_issue": 16384, "ceil_fma": 16384, "ceil_matrix": 16384}
L2_LOADS = 4  # 16-byte loads per lane in one tile
L2_SHARE = 3  # the window is 1/3 of the L2, so that it fits either half of a split L2
L2_BYTES = 4 << 30  # read by one call, approximately


@dataclass(frozen=True, slots=True)
class Probe:
    """One call of a probe, and its work in warp instructions or bytes."""

    run: Callable[[], object]
    work: int


def instructions(
    module: Module, kernel: str, multiprocessors: int, warps: int, sink: Tensor
) -> Probe:
    """The probe of an instruction rate: `kernel` is a key of INSTRUCTIONS, `sink` float32 [1].

    Work is in warp instructions, without loop control.
    """
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
    """The probe of L2: every block reads its share of `window`, float32 [n]. Work is in bytes.

    `warps` per SM is one of `l2_warps` for that window.
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
    """The numbers of warps per SM at which every block has at least one tile of the window."""
    a_warp = 32 * L2_LOADS * 16 * multiprocessors
    return tuple(warps for warps in WARPS["ceil_l2"] if warps * a_warp <= window_bytes)


def _launch(multiprocessors: int, warps: int) -> tuple[int, int]:
    """Blocks, and threads per block, that put that many warps on every SM."""
    blocks = max(1, warps // MOST_WARPS_A_BLOCK)
    return multiprocessors * blocks, warps // blocks * 32


def empty(module: Module, launches: int) -> Callable[[], object]:
    """A call that launches that many empty kernels."""

    def run() -> None:
        for _ in range(launches):
            module.launch("ceil_empty", 1, 32)

    return run
