"""The device that cells run on, found without importing torch where NVML can tell."""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import dataclass, field, replace
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any

from pagebench.kernels.nvml import Gpu, Nvml, NvmlError
from pagebench.kernels.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence


class DeviceError(ValueError):
    """A device that does not exist, or an invalid name; the message says what to use."""


@dataclass(frozen=True, slots=True)
class Device:
    """`kind` is cpu or cuda, `capability` the CUDA compute capability (major, minor).

    `uuid` is that of the GPU or slice, empty where it is not known; `memory_bytes` what it has in
    all. Of a CPU that stands in for a GPU, `why` says why there is none, and `is_broken` whether a
    driver is here that fails.
    """

    kind: str
    name: str
    index: int = 0
    capability: tuple[int, int] | None = None
    uuid: str = field(default="", compare=False)
    memory_bytes: int | None = field(default=None, compare=False)
    why: str = field(default="", compare=False)
    is_broken: bool = field(default=False, compare=False)

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
# A container sees the first of them from its host; it has a GPU only with one of these.
DEVICE_FILES = DRIVERS[1:]
MOST_GPUS = 64  # of a machine that cannot be asked how many it has


@dataclass(frozen=True, slots=True)
class Found:
    """The GPUs in CUDA's order, or why there are none; `is_broken` if a driver failed."""

    gpus: Sequence[Device] = ()
    why: str = ""
    is_broken: bool = False


def find_device(wanted: str = "auto") -> Device:
    """The device of that name: `cpu`, `cuda` (the first GPU), `cuda:N`, or `auto`.

    `auto` is the first GPU, or the CPU where there is none. DeviceError for another name, where
    the device does not exist, or where a driver is here that fails.
    """
    device = look_for_device(wanted)
    if device.is_broken:
        raise DeviceError(f"{device.why}; --device cpu measures the CPU")
    return device


def look_for_device(wanted: str = "auto") -> Device:
    """The same for what measures nothing: a CPU, also where `auto` finds a driver that fails."""
    kind, _, number = wanted.partition(":")
    numbered = kind == "cuda" and number.isdecimal() and number.isascii()
    if kind not in ("auto", "cpu", "cuda") or (":" in wanted and not numbered):
        raise DeviceError(f"device {wanted}: use auto, cpu, cuda or cuda:N")
    if kind == "cpu":
        return CPU
    found = _look()
    index = int(number or 0)
    if index < len(found.gpus):
        return found.gpus[index]
    if kind == "auto":
        return replace(CPU, why=found.why, is_broken=found.is_broken)
    last = f"the last is cuda:{len(found.gpus) - 1}"
    raise DeviceError(f"device {wanted}: {last if found.gpus else found.why}")


def _look() -> Found:
    """The GPUs from NVML where it answers, else from torch."""
    if not any(map(os.path.exists, DRIVERS)):
        return Found(why=NO_GPU)
    if has_context():
        # CUDA has numbered its devices, and no variable changes that any more.
        return _found_by_torch("")
    own_order = os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID") != "PCI_BUS_ID"
    try:
        nvml = Nvml()
        if own_order and len(nvml.gpus) > 1:
            # The fastest first: only CUDA knows which that is.
            found = _found_by_torch("")
            return found if found.gpus else _found_by_nvml(nvml)
        return _found_by_nvml(nvml)
    except ImportError:
        return _found_by_torch("NVML cannot be asked: pip install nvidia-ml-py")
    except NvmlError as error:
        return _found_by_torch(f"NVML says: {str(error).rstrip('.')}")


def torch_without_cuda() -> str:
    """The version of a torch that was built without CUDA, by its own word and without importing it;
    empty where it has CUDA, cannot be read or is not installed."""
    told: Any = sys.modules.get("torch") and getattr(sys.modules["torch"], "version", None)
    try:
        told = told or _version_module()
        return "" if told is None or told.cuda is not None else str(told.__version__)
    except Exception:  # of another make than any torch that is known
        return ""


def _version_module() -> Any:
    """torch/version.py alone: importing torch takes a second."""
    found = find_spec("torch")
    for folder in (found and found.submodule_search_locations) or ():
        spec = spec_from_file_location("pagebench_torch_version", f"{folder}/version.py")
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    return None


def has_context() -> bool:
    """Whether torch has started CUDA in this process."""
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return cuda is not None and bool(cuda.is_initialized())


def _found_by_nvml(nvml: Nvml) -> Found:
    shown = nvml.visible
    if shown:
        return Found([_device(nvml, gpu, index) for index, gpu in enumerate(shown)])
    return Found(why=_hidden(len(nvml.gpus)) if nvml.gpus else NO_GPU)


def _hidden(count: int) -> str:
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = {0: "every GPU", 1: "the NVIDIA GPU"}.get(count, f"all {count} NVIDIA GPUs")
    return f"CUDA_VISIBLE_DEVICES={listed!r} hides {gpus} of this machine"


def _hides_all(listed: str | None) -> bool:
    """Whether it would show nothing, however many GPUs there were and whatever their UUIDs."""
    names = (listed or "").startswith(("GPU-", "MIG-"))
    return not names and not visible(listed, [""] * MOST_GPUS)


def _device(nvml: Nvml, gpu: Gpu, index: int) -> Device:
    memory = nvml.read("nvmlDeviceGetMemoryInfo", gpu.handle)
    has = None if memory is None else int(memory.total)
    return Device("cuda", gpu.name, index, gpu.capability, gpu.uuid, has)


def _found_by_torch(nvml_said: str) -> Found:
    """The GPUs that torch sees. Without any, what NVML said and why torch sees none."""
    gpus, trouble = _gpus_of_torch()
    if gpus:
        return Found(gpus)
    if not any(map(os.path.exists, DEVICE_FILES)):
        return Found(why=f"{NO_GPU}, or none was given to this container")
    if _hides_all(os.environ.get("CUDA_VISIBLE_DEVICES")):
        return Found(why=_hidden(0))
    said = f"{nvml_said}; " if nvml_said else ""
    return Found((), f"an NVIDIA driver is here, but no GPU can be used: {said}{trouble}", True)


def _gpus_of_torch() -> tuple[list[Device], str]:
    """The GPUs, or why torch sees none."""
    import torch

    if torch.version.cuda is None:
        return [], f"torch {torch.__version__} was built without CUDA"
    try:
        with warnings.catch_warnings(record=True) as told:
            count = torch.cuda.device_count()
            gpus = [_seen_by_torch(index) for index in range(count)]
    except RuntimeError as error:
        return [], f"torch says: {' '.join(str(error).split())}"
    words = "; ".join(" ".join(str(each.message).split()) for each in told)
    return gpus, f"torch sees no GPU either{f' ({words})' if words else ''}"


def _seen_by_torch(index: int) -> Device:
    import torch

    properties = torch.cuda.get_device_properties(index)
    capability = (int(properties.major), int(properties.minor))
    uuid, has = uuid_of_torch(properties), getattr(properties, "total_memory", None)
    return Device("cuda", str(properties.name), index, capability, uuid, has)


def uuid_of_torch(properties: Any) -> str:
    """NVML's spelling of the UUID in torch's properties of a device; empty where torch has none.

    CUDA gives a slice's UUID without saying that it is one.
    """
    bare = str(getattr(properties, "uuid", "")).removeprefix("GPU-").removeprefix("MIG-")
    if not bare:
        return ""
    try:
        slices = [each.uuid for each in Nvml().slices]
    except (ImportError, NvmlError):
        slices = []
    return f"MIG-{bare}" if f"MIG-{bare}" in slices else f"GPU-{bare}"


def multiprocessors(device: object) -> int:
    """Streaming multiprocessors of a torch device; 0 for the CPU."""
    import torch

    if torch.device(str(device)).type != "cuda":
        return 0
    return torch.cuda.get_device_properties(str(device)).multi_processor_count


def is_integrated(device: Device) -> bool:
    """Whether the GPU uses the machine's memory."""
    import torch

    if device.kind != "cuda":
        return False
    properties = torch.cuda.get_device_properties(device.index)
    return bool(getattr(properties, "is_integrated", 0) or getattr(properties, "integrated", 0))


def memory_bytes(device: Device) -> int | None:
    """All memory of the device, used or not; None where not known."""
    if device.kind == "cuda":
        return device.memory_bytes
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
