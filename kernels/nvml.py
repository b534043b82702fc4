"""NVIDIA's management library: the GPUs and slices that it lists, in PCI order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from pagebench.kernels.visible import visible

NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2  # of nvml.h


class NvmlError(RuntimeError):
    """NVML is installed and failed; the message is its own words."""


class Device(Protocol):
    """What NVML must know of `device.Device` to find it."""

    @property
    def kind(self) -> str: ...
    @property
    def uuid(self) -> str: ...
    @property
    def index(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU or a slice of one. `whole` is the handle of the GPU that it is, or is cut from."""

    handle: Any
    whole: Any
    uuid: str
    name: str
    capability: tuple[int, int] | None
    is_slice: bool = False


class Nvml:
    """NVML, initialised. ImportError where its binding is not installed; NvmlError if it fails."""

    def __init__(self) -> None:
        import pynvml

        self.library: Any = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise NvmlError(str(error)) from error

    def read(self, query: str, *arguments: Any) -> Any:
        """What a query answers; None where this GPU, driver or binding does not."""
        try:
            return getattr(self.library, query)(*arguments)
        except (self.library.NVMLError, AttributeError):
            return None

    @cached_property
    def gpus(self) -> list[Gpu]:
        """All GPUs. NvmlError if one of them does not answer: it may be lost."""
        library = self.library
        try:
            count = library.nvmlDeviceGetCount()
            handles = [library.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
            names = [library.nvmlDeviceGetName(handle) for handle in handles]
        except library.NVMLError as error:
            raise NvmlError(str(error)) from error
        return [
            self._gpu(handle, handle, name) for handle, name in zip(handles, names, strict=True)
        ]

    @cached_property
    def slices(self) -> list[Gpu]:
        """The MIG devices of all GPUs."""
        return [each for gpu in self.gpus for each in self.slices_of(gpu)]

    def slices_of(self, gpu: Gpu) -> Iterator[Gpu]:
        """The MIG devices of a GPU."""
        for index in range(self.read("nvmlDeviceGetMaxMigDeviceCount", gpu.whole) or 0):
            handle = self.read("nvmlDeviceGetMigDeviceHandleByIndex", gpu.whole, index)
            if handle is not None:
                yield self._slice(handle, gpu.whole)

    def _slice(self, handle: Any, whole: Any) -> Gpu:
        name = self.read("nvmlDeviceGetName", handle) or self.read("nvmlDeviceGetName", whole)
        return self._gpu(handle, whole, name or "a slice of a GPU", is_slice=True)

    def _gpu(self, handle: Any, whole: Any, name: str, *, is_slice: bool = False) -> Gpu:
        capability = self.read("nvmlDeviceGetCudaComputeCapability", handle)
        capability = capability or self.read("nvmlDeviceGetCudaComputeCapability", whole)
        uuid = self.read("nvmlDeviceGetUUID", handle) or ""
        known = tuple(capability) if capability else None
        return Gpu(handle, whole, str(uuid), str(name), known, is_slice)

    @property
    def visible(self) -> list[Gpu]:
        """What CUDA_VISIBLE_DEVICES shows, in its order; else all GPUs."""
        listed = os.environ.get("CUDA_VISIBLE_DEVICES")
        slices = self._slices_for(listed or "")
        every = [*self.gpus, *slices]
        shown = visible(listed, [gpu.uuid for gpu in self.gpus], [each.uuid for each in slices])
        return [self._as_cuda_opens(every[position]) for position in shown]

    def _slices_for(self, listed: str) -> list[Gpu]:
        """The slices; one that only its whole name finds is among them."""
        if not listed.startswith("MIG-"):
            return []
        word = listed.partition(",")[0]
        if any(each.uuid.startswith(word) for each in self.slices):
            return self.slices
        handle = self.read("nvmlDeviceGetHandleByUUID", word)
        if handle is None:
            return self.slices
        whole = self.read("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
        found = self._slice(handle, handle if whole is None else whole)
        # A name of the old form (MIG-GPU-UUID/1/0) is not the UUID that NVML gives.
        return [*self.slices, Gpu(handle, found.whole, word, found.name, found.capability, True)]

    def _as_cuda_opens(self, gpu: Gpu) -> Gpu:
        """On a GPU in MIG mode CUDA opens the first slice."""
        if gpu.is_slice or not self.is_cut(gpu.whole):
            return gpu
        return next(self.slices_of(gpu), gpu)

    def is_cut(self, handle: Any) -> bool | None:
        """Whether the GPU is in MIG mode; None where it has none."""
        mode = self.read("nvmlDeviceGetMigMode", handle)
        return None if mode is None else bool(mode[0])

    def profile(self, gpu: Gpu) -> str | None:
        """The profile of a slice (`1g.10gb`); None for a whole GPU."""
        if gpu.is_slice:
            return gpu.name.rpartition("MIG ")[2]
        return "not known" if self.is_cut(gpu.whole) else None

    def find(self, uuid: str, index: int) -> Gpu | None:
        """The GPU or slice of that UUID; if it has none, the one that CUDA calls `index`."""
        shown = self.visible
        if not uuid:
            return shown[index] if index < len(shown) else None
        every = [*shown, *self.gpus, *self.slices]
        return next((gpu for gpu in every if gpu.uuid == uuid), None)


def watched(device: Device) -> tuple[Nvml, Gpu] | None:
    """NVML and what it calls the device; None where NVML is missing, fails or does not know it."""
    if device.kind == "cpu":
        return None
    try:
        nvml = Nvml()
        gpu = nvml.find(device.uuid, device.index)
    except (ImportError, NvmlError):
        return None
    return None if gpu is None else (nvml, gpu)
