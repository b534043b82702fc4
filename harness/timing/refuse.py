"""Why a cell cannot run here, decided before anything is built."""

from __future__ import annotations

from pagebench.harness.cell import Cell
from pagebench.harness.errors import UserError, one_line
from pagebench.harness.timing.memory import refuse_size, refuse_unaddressable
from pagebench.harness.timing.planned import type_name
from pagebench.kernels.adapter import Refusal
from pagebench.kernels.device import Device, is_integrated, torch_without_cuda
from pagebench.kernels.foreign import MOST_SAID, foreign
from pagebench.kernels.registry import KernelError, find_kernel, planting_kernels, plants

# GPUs of the last generations, asked about where none is.
ELSEWHERE = tuple(
    Device("cuda", "a GPU", 0, capability) for capability in ((9, 0), (10, 0), (12, 0), (8, 0))
)


def refusal(cell: Cell, device: Device, boundary: str = "run") -> Refusal | None:
    """Why the cell cannot run on the device, before anything is allocated; None if it can.

    If the adapter fails when asked, the error is the reason.
    """
    try:
        adapter = find_kernel(cell.kernel)
    except KernelError as error:
        return Refusal(str(error), "kernel")
    asked = "has_plan"
    try:
        with foreign():
            if boundary == "plan" and not adapter.has_plan:
                nothing = "plans nothing on the host: only boundary run can be measured"
                return Refusal(f"{cell.kernel} {nothing}", "boundary")
            asked = "plants"
            if (cell.shape.planted_loads or cell.shape.planted_ns) and not plants(adapter):
                those = ", ".join(planting_kernels())
                carries = "carries no planted work: x and y are for"
                return Refusal(f"{cell.kernel} {carries} {those}", "shape")
            asked = "refuses()"
            reason = refuse_unaddressable(cell, boundary)
            reason = reason or _told(cell, adapter.refuses(cell.shape, device))
            asked = "workspace_bytes()"
            return reason or refuse_size(cell, adapter, device, boundary)
    except Exception as error:
        return Refusal(f"{cell.kernel}.{asked} crashed: {one_line(error)}", "crashed")


def _told(cell: Cell, reason: object) -> Refusal | None:
    """The adapter's own refusal, on one line."""
    if reason is not None and not isinstance(reason, str):
        wrong = f"{cell.kernel}.refuses() returned {type_name(reason)}; give a sentence or None"
        return Refusal(wrong, "crashed")
    kind = str(reason.kind) if isinstance(reason, Refusal) else "adapter"
    text = " ".join((reason or "")[: 4 * MOST_SAID].split())[:MOST_SAID]
    return Refusal(text, kind) if text else None


def refuse_torch(device: Device) -> None:
    """UserError where there is a GPU and torch was built without CUDA: nothing could use it."""
    if device.kind == "cuda" and (found := torch_without_cuda()):
        raise UserError(
            f"{device.name} is here, but torch {found} was built without CUDA: install a build "
            "from download.pytorch.org/whl, or measure the CPU with --device cpu"
        )


def lacks_gpu(cell: Cell, device: Device, reason: Refusal | None) -> bool:
    """Whether the cell was refused for that reason because the device is no GPU.

    An adapter that gives no kind of reason is asked about GPUs that are not here.
    """
    if device.kind != "cpu" or reason is None:
        return False
    if reason.kind != "adapter":
        return reason.kind == "device"
    return any(refusal(cell, gpu) is None for gpu in ELSEWHERE)


def refuse_memory(needed: int, device: Device) -> Refusal | None:
    """The refusal of a cell that needs more bytes than are free on the device; None if it fits."""
    free = free_bytes(device)
    if free is None or needed <= free:
        return None
    has = f"{free / 1e9:.1f} GB are free"
    return Refusal(f"it needs {needed / 1e9:.1f} GB of memory and {has}", "memory")


def free_bytes(device: Device) -> int | None:
    """Free bytes on the device, torch's cached blocks included; None where unreadable."""
    if device.kind == "cuda":
        import torch

        torch.cuda.empty_cache()
        free = int(torch.cuda.mem_get_info(device.index)[0])
        # CUDA calls the page cache used there, though it gives way.
        return _available_bytes() or free if is_integrated(device) else free
    return _available_bytes()


def _available_bytes() -> int | None:
    """What the machine can give without swapping; None where unreadable."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            kib = {line.split(":")[0]: int(line.split()[1]) for line in file}
    except (OSError, ValueError, IndexError):
        return None
    return kib["MemAvailable"] * 1024 if "MemAvailable" in kib else None
