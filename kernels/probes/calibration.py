"""The calibration kernels: what each executes by construction, and a process that runs them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pagebench.kernels.probes.cubin import Module, compile_cubin

SOURCE = Path(__file__).with_name("calibration.cu")
BLOCKS, THREADS, ROUNDS, BULK_BYTES = 264, 128, 64, 2048
WARP_LOADS = BLOCKS * (THREADS // 32) * ROUNDS
BULK_COPIES = BLOCKS * ROUNDS
# The compiler predicates the copy instead of branching around it, and the hardware counts a warp
# that is predicated off: with one warp per block there is no such warp (docs/log.md).
BULK_THREADS = 32
KERNELS = ("cal_ldg", "cal_predicated", "cal_async_ca", "cal_async_cg", "cal_local", "cal_bulk")

# What each kernel executes, by our counters' names: 0 of every counter that is not listed.
EXPECTED: dict[str, dict[str, int]] = {
    "cal_ldg": {"ldg": WARP_LOADS, "ldg_active": WARP_LOADS},
    "cal_predicated": {"ldg": WARP_LOADS, "ldg_active": WARP_LOADS // 2},
    "cal_async_ca": {"ldgsts": WARP_LOADS, "ldgsts_active": WARP_LOADS},
    "cal_async_cg": {"ldgsts": WARP_LOADS, "ldgsts_active": WARP_LOADS},
    "cal_local": {"local_loads": WARP_LOADS, "local_stores": WARP_LOADS},
    "cal_bulk": {"tma": BULK_COPIES},
}
# What they read, at 16 sectors per warp load: every byte once from L2, and from DRAM where caches
# are cold. cal_local is left out, because it is not known how many of its loads miss L1.
SECTORS, SECTOR_BYTES = 16, 32
READ_LOADS = {
    "cal_ldg": WARP_LOADS,
    "cal_predicated": WARP_LOADS // 2,
    "cal_async_ca": WARP_LOADS,
    "cal_async_cg": WARP_LOADS,
    "cal_bulk": BULK_COPIES * BULK_BYTES // (SECTORS * SECTOR_BYTES),
}
COUNTED = ("ldg", "ldg_active", "ldgsts", "ldgsts_active", "tma", "local_loads", "local_stores")


def kernels_on(capability: tuple[int, int]) -> tuple[str, ...]:
    """The kernels that run there: bulk copies exist from compute capability 9.0 on."""
    return KERNELS if capability >= (9, 0) else KERNELS[:-1]


def main(device: int = 0) -> None:
    """Run every kernel twice between profiler start and stop, for ncu to count.

    CubinError where the kernels do not compile or launch.
    """
    import torch
    import torch.cuda.nvtx as nvtx
    import torch.cuda.profiler as profiler

    torch.cuda.set_device(device)
    capability = torch.cuda.get_device_capability()
    source = torch.randn(BLOCKS * ROUNDS * THREADS * 4, device="cuda")
    sink = torch.zeros(1, device="cuda")
    with tempfile.TemporaryDirectory() as scratch:
        module = Module(compile_cubin(SOURCE, capability, Path(scratch)))
        torch.cuda.synchronize()
        profiler.start()  # type: ignore[no-untyped-call]
        for _ in range(2):
            for kernel in kernels_on(capability):
                nvtx.range_push(kernel)  # type: ignore[no-untyped-call]
                threads = BULK_THREADS if kernel == "cal_bulk" else THREADS
                module.launch(kernel, BLOCKS, threads, source.data_ptr(), sink.data_ptr())
                torch.cuda.synchronize()
                nvtx.range_pop()  # type: ignore[no-untyped-call]
        profiler.stop()  # type: ignore[no-untyped-call]
