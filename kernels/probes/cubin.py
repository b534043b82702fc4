"""Run our CUDA sources without a build step: nvcc makes a cubin, and the driver API runs it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any


class CubinError(RuntimeError):
    """nvcc is missing or does not compile a source, or the driver refuses a call."""


def compile_cubin(source: Path, capability: tuple[int, int], where: Path) -> Path:
    """Compile `source` to a cubin in the folder `where`; CubinError, in one line, if nvcc fails."""
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
    """A cubin loaded into the current CUDA context; CubinError where the driver refuses it."""

    def __init__(self, cubin: Path) -> None:
        self._driver: Any = ctypes.CDLL("libcuda.so.1")
        self._module = ctypes.c_void_p()
        self._call("cuModuleLoad", ctypes.byref(self._module), str(cubin).encode())

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code:
            raise CubinError(f"{name} failed with CUDA error {code}")

    def launch(self, kernel: str, blocks: int, threads: int, *words: int) -> None:
        """Run a kernel on the default stream; `words` are its 64-bit arguments.

        CubinError where the driver refuses the launch.
        """
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), self._module, kernel.encode())
        values = [ctypes.c_uint64(word) for word in words]
        packed = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values)
        )
        self._call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, None, packed, None)
