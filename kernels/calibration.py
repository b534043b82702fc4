"""Compile and launch the calibration kernels. nvcc makes a cubin, the driver's own API runs it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("calibration.cu")
BLOCKS, THREADS, ROUNDS, BULK_BYTES = 264, 128, 64, 2048
WARP_LOADS = BLOCKS * (THREADS // 32) * ROUNDS
BULK_COPIES = BLOCKS * ROUNDS
# The compiler guards the copy instead of branching round it, and the hardware counts a warp that is
# guarded off: with one warp a block there is none (docs/log.md).
BULK_THREADS = 32
KERNELS = ("cal_ldg", "cal_predicated", "cal_async_ca", "cal_async_cg", "cal_local", "cal_bulk")

# What each kernel executes, by our counters' names. A counter not named here executes none of it.
EXPECTED: dict[str, dict[str, int]] = {
    "cal_ldg": {"ldg": WARP_LOADS, "ldg_active": WARP_LOADS},
    "cal_predicated": {"ldg": WARP_LOADS, "ldg_active": WARP_LOADS // 2},
    "cal_async_ca": {"ldgsts": WARP_LOADS, "ldgsts_active": WARP_LOADS},
    "cal_async_cg": {"ldgsts": WARP_LOADS, "ldgsts_active": WARP_LOADS},
    "cal_local": {"local_loads": WARP_LOADS, "local_stores": WARP_LOADS},
    "cal_bulk": {"tma": BULK_COPIES},
}
COUNTED = ("ldg", "ldg_active", "ldgsts", "ldgsts_active", "tma", "local_loads", "local_stores")


def kernels_on(capability: tuple[int, int]) -> tuple[str, ...]:
    """Bulk copies exist from compute capability 9.0 on."""
    return KERNELS if capability >= (9, 0) else KERNELS[:-1]


def compile_cubin(capability: tuple[int, int], where: Path) -> Path:
    """A cubin of calibration.cu; RuntimeError, with nvcc's first complaint, where it fails."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    cubin = where / "calibration.cubin"
    arch = f"sm_{capability[0]}{capability[1]}"
    words = [nvcc, "-cubin", f"-arch={arch}", "-o", str(cubin), str(SOURCE)]
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except OSError as error:
        raise RuntimeError(f"calibration needs nvcc: {error}") from error
    if done.returncode:
        raise RuntimeError(f"nvcc: {done.stderr.strip().splitlines()[0]}")
    return cubin


class Module:
    """A loaded cubin; `launch` runs one of its kernels on the current context."""

    def __init__(self, cubin: Path) -> None:
        self._driver: Any = ctypes.CDLL("libcuda.so.1")
        self._module = ctypes.c_void_p()
        self._call("cuModuleLoad", ctypes.byref(self._module), str(cubin).encode())

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} failed with CUDA error {code}")

    def launch(self, kernel: str, threads: int, *pointers: int) -> None:
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), self._module, kernel.encode())
        values = [ctypes.c_void_p(pointer) for pointer in pointers]
        packed = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values)
        )
        self._call("cuLaunchKernel", function, BLOCKS, 1, 1, threads, 1, 1, 0, None, packed, None)


def main() -> None:
    """Run every kernel once between profiler start and stop: what ncu replays."""
    import torch
    import torch.cuda.nvtx as nvtx
    import torch.cuda.profiler as profiler

    capability = torch.cuda.get_device_capability()
    source = torch.randn(BLOCKS * ROUNDS * THREADS * 4, device="cuda")
    sink = torch.zeros(1, device="cuda")
    with tempfile.TemporaryDirectory() as scratch:
        module = Module(compile_cubin(capability, Path(scratch)))
        torch.cuda.synchronize()
        profiler.start()  # type: ignore[no-untyped-call]
        for _ in range(2):
            for kernel in kernels_on(capability):
                nvtx.range_push(kernel)  # type: ignore[no-untyped-call]
                threads = BULK_THREADS if kernel == "cal_bulk" else THREADS
                module.launch(kernel, threads, source.data_ptr(), sink.data_ptr())
                torch.cuda.synchronize()
                nvtx.range_pop()  # type: ignore[no-untyped-call]
        profiler.stop()  # type: ignore[no-untyped-call]
