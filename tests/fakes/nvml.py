"""NVML without a GPU: what a machine's library would answer, told by a description."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

DRIVER_FILE = "/dev/nvidiactl"


class NVMLError(Exception):
    """What pynvml raises: its text is NVML's."""


@dataclass(frozen=True)
class Gpu:
    """A GPU, or with `parent` a slice of one. Queries that `answers` lacks are not supported."""

    uuid: str
    name: str
    capability: tuple[int, int] = (9, 0)
    answers: Mapping[str, Any] = field(default_factory=dict)
    parent: str | None = None


A100 = Gpu("GPU-a1000000-1111-0000-0000-000000000001", "NVIDIA A100-SXM4-80GB", (8, 0))
L40S = Gpu("GPU-a1400000-2222-0000-0000-000000000002", "NVIDIA L40S", (8, 9))
H200 = Gpu("GPU-c2000000-3333-0000-0000-000000000003", "NVIDIA H200", (9, 0))


def install(
    gpus: Sequence[Gpu], slices: Sequence[Gpu] = (), *, fails: str = "", has_driver: bool = True
) -> ModuleType:
    """Put this NVML where `import pynvml` finds it; `fails` is what starting it says."""
    library = Library(gpus, slices, fails)
    sys.modules["pynvml"] = library
    exists = os.path.exists
    os.path.exists = lambda path: has_driver if path == DRIVER_FILE else exists(path)  # type: ignore[assignment]
    return library


class Library(ModuleType):
    """The module pynvml. A query that is not written out answers from the GPU's `answers`."""

    NVMLError = NVMLError

    def __init__(self, gpus: Sequence[Gpu], slices: Sequence[Gpu], fails: str) -> None:
        super().__init__("pynvml")
        self._gpus, self._slices, self._fails = gpus, slices, fails

    def nvmlInit(self) -> None:
        if self._fails:
            raise NVMLError(self._fails)

    def nvmlDeviceGetCount(self) -> int:
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:
        if index not in range(len(self._gpus)):
            raise NVMLError("Invalid Argument")
        return self._gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Gpu:
        return self._one([gpu for gpu in (*self._gpus, *self._slices) if gpu.uuid == uuid], 0)

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: Gpu) -> int:
        return 7 if self._slices else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: Gpu, index: int) -> Gpu:
        return self._one([each for each in self._slices if each.parent == gpu.uuid], index)

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, gpu: Gpu) -> Gpu:
        return self._one([each for each in self._gpus if each.uuid == gpu.parent], 0)

    def _one(self, those: list[Gpu], index: int) -> Gpu:
        if index not in range(len(those)):
            raise NVMLError("Not Found")
        return those[index]

    def nvmlDeviceGetUUID(self, gpu: Gpu) -> str:
        return gpu.uuid

    def nvmlDeviceGetName(self, gpu: Gpu) -> str:
        return gpu.name

    def nvmlDeviceGetCudaComputeCapability(self, gpu: Gpu) -> tuple[int, int]:
        return gpu.capability

    def __getattr__(self, query: str) -> Any:
        if not query.startswith("nvml"):
            raise AttributeError(query)

        def answer(*arguments: Any) -> Any:
            gpu = arguments[0] if arguments else None
            if not isinstance(gpu, Gpu) or query not in gpu.answers:
                raise NVMLError("Not Supported")
            found = gpu.answers[query]
            return found(*arguments[1:]) if callable(found) else found

        return answer


def processes(*pids: int) -> Any:
    """An answer: these processes have a context on the GPU."""
    return lambda *_: [SimpleNamespace(pid=pid) for pid in pids]
