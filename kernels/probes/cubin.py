"""CUDA sources of ours without a build: nvcc makes a cubin, the driver's own API runs it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any


class CubinError(RuntimeError):
    """A source that nvcc does not compile, or a launch that the driver refuses."""


def compile_cubin(source: Path, capability: tuple[int, int], where: Path) -> Path:
    """A cubin of `source` in the folder `where`; CubinError, in one line, where nvcc fails."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    cubin = where / f"{source.stem}.cubin"
    arch = f"sm_{capability[0]}{capability[1]}"
    words = [nvcc, "-cubin", f"-arch={arch}", "-o", str(cubin), str(source)]
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except OSError as error:
        raise CubinError(f"{source.name} needs nvcc: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it failed and said nothing"]
        raise CubinError(f"nvcc: {said[0]}")
    return cubin


class Module:
    """A loaded cubin; `launch` runs one of its kernels on the current context's default stream."""

    def __init__(self, cubin: Path) -> None:
        self._driver: Any = ctypes.CDLL("libcuda.so.1")
        self._module = ctypes.c_void_p()
        self._call("cuModuleLoad", ctypes.byref(self._module), str(cubin).encode())

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code:
            raise CubinError(f"{name} failed with CUDA error {code}")

    def launch(self, kernel: str, blocks: int, threads: int, *words: int) -> None:
        """`words` are the kernel's arguments, each of 64 bits: pointers and uint64_t."""
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), self._module, kernel.encode())
        values = [ctypes.c_uint64(word) for word in words]
        packed = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values)
        )
        self._call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, None, packed, None)
