"""The device that cells run on, found without importing torch."""

from __future__ import annotations

import os
from dataclasses import dataclass


class DeviceError(ValueError):
    """A device that does not exist, or an invalid name; the message says what to use."""


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
# A machine with a driver has one of these: on Linux, in a container, under WSL.
DRIVERS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")


def find_device(wanted: str = "auto") -> Device:
    """The device of that name: `cpu`, `cuda` (the first GPU), `cuda:N`, or `auto`.

    `auto` is the first GPU, or the CPU where there is none. DeviceError for another name, or where
    the device does not exist.
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
    # Use NVML's order: CUDA's default puts the fastest first, so cuda:0 could be another GPU.
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
    """NVML handles of the GPUs in CUDA_VISIBLE_DEVICES, in its order; else of all GPUs.

    NVML must be initialised.
    """
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
