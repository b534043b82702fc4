"""The device that cells run on, found without importing torch."""

from __future__ import annotations

import os
from dataclasses import dataclass


class DeviceError(ValueError):
    """A device that is not there, or no name of one; the message says what would be right."""


@dataclass(frozen=True, slots=True)
class Device:
    """`kind` is cpu or cuda, `capability` the CUDA compute capability (major, minor)."""

    kind: str
    name: str
    index: int = 0
    capability: tuple[int, int] | None = None

    @property
    def torch_name(self) -> str:
        return "cpu" if self.kind == "cpu" else f"cuda:{self.index}"

    def __str__(self) -> str:
        if self.capability is None:
            return self.name
        return f"{self.name} (compute capability {self.capability[0]}.{self.capability[1]})"


CPU = Device("cpu", "CPU")
NO_GPU = "there is no NVIDIA GPU on this machine"
# Where one of these is, a driver may be: of Linux, of a container, of WSL.
DRIVERS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")


def find_device(wanted: str = "auto") -> Device:
    """`auto` is the first GPU or else the CPU; `cpu`, `cuda` and `cuda:N` are themselves.

    Raises DeviceError when the wanted device is not there.
    """
    kind, _, number = wanted.partition(":")
    numbered = kind == "cuda" and number.isdecimal()
    if kind not in ("auto", "cpu", "cuda") or (":" in wanted and not numbered):
        raise DeviceError(f"device {wanted}: use auto, cpu, cuda or cuda:N")
    if kind == "cpu":
        return CPU
    gpus = _gpus()
    index = int(number or 0)
    if index < len(gpus):
        return gpus[index]
    if kind == "auto":
        return CPU
    raise DeviceError(
        f"device {wanted}: {NO_GPU if not gpus else f'the last is cuda:{len(gpus) - 1}'}"
    )


def _gpus() -> list[Device]:
    """The GPUs in CUDA's order, from NVML where its binding is installed, else from torch."""
    if not any(map(os.path.exists, DRIVERS)):
        return []
    try:
        import pynvml
    except ImportError:
        return _gpus_of_torch()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    # NVML's order. CUDA's own puts the fastest first, so cuda:0 could be another GPU than its name.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    handles = visible_handles()
    return [
        Device(
            "cuda",
            str(pynvml.nvmlDeviceGetName(handle)),
            index,
            tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
        )
        for index, handle in enumerate(handles)
    ]


def visible_handles() -> list[object]:
    """NVML handles of the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; NVML is on."""
    import pynvml

    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
    words = [word.strip() for word in listed.split(",") if word.strip()]
    return [
        pynvml.nvmlDeviceGetHandleByIndex(int(word))
        if word.isdecimal()
        else pynvml.nvmlDeviceGetHandleByUUID(word)
        for word in words
        if word != "-1"
    ]


def _gpus_of_torch() -> list[Device]:
    import torch

    return [
        Device(
            "cuda",
            torch.cuda.get_device_name(index),
            index,
            torch.cuda.get_device_capability(index),
        )
        for index in range(torch.cuda.device_count())
    ]


def multiprocessors(device: object) -> int:
    """Streaming multiprocessors of a torch device; 0 for the CPU."""
    import torch

    if torch.device(str(device)).type != "cuda":
        return 0
    return torch.cuda.get_device_properties(str(device)).multi_processor_count
