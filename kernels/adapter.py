"""What an adapter is: the one place that knows how a device kernel is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from pagebench.kernels.device import Device
from pagebench.layouts.shape import Shape

if TYPE_CHECKING:
    from torch import Tensor

    from pagebench.layouts.tensors import Batch


class Refusal(str):
    """Why a kernel cannot run a cell, in a sentence, and what kind of reason that is.

    `shape`: other sizes or types would do. `device`, `package`: this machine lacks something.
    `kernel`: it cannot be found or loaded. `boundary`: there is nothing to time there. `memory`:
    it does not fit. `crashed`: the adapter failed while it was asked. `adapter`: a sentence of an
    adapter that names no kind.
    """

    kind: str

    def __new__(cls, text: str, kind: str = "adapter") -> Refusal:
        refusal = super().__new__(cls, text)
        refusal.kind = kind
        return refusal


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A planned call. `run` launches it and leaves the result in `out`; it allocates nothing new.

    `replan` plans the same call for a batch of other lengths; `run` then, and a graph captured
    before, answer for those. `resolved` says what was really chosen: kernel, splits, page size.
    `symbols`: what the names of the call's device kernels contain, in order (empty: not promised).
    """

    run: Callable[[], object]
    out: Tensor | None  # q_dtype [batch, q_heads, head_dim]; None where only planning is measured
    replan: Callable[[Batch], object]
    resolved: Mapping[str, str | int]
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Loads:
    """What a call loads by its kernels' source: LDG of all of them and of the first alone, warp
    instructions; and bytes of split partials that a merge reads. None where it is not known."""

    ldg: int | None = None
    decode_ldg: int | None = None
    merge_bytes: int | None = 0


class Adapter(Protocol):
    """One device kernel. Importing it needs no GPU and no library of the kernel's.

    One that carries a shape's planted work says so with an attribute `plants = True`. One whose
    source has been counted has a method `loads(shape, resolved, capability) -> Loads`, of a call's
    `resolved` and the GPU's compute capability (None: not known).
    """

    name: str
    has_plan: bool  # whether there is host planning worth timing

    def lowering(self, shape: Shape) -> str:
        """Which of `layouts.lowering.KINDS` the kernel takes."""

    def refuses(self, shape: Shape, device: Device) -> str | None:
        """Why the kernel cannot run the shape there, and what it would accept; None if it can.

        A `Refusal` says of which kind the reason is; a plain sentence is of kind `adapter`.
        """

    def workspace_bytes(self, shape: Shape) -> int:
        """Device bytes that planning takes beyond the batch."""

    def plan(self, batch: Batch, *, graph: bool) -> Call:
        """Plan a call; with `graph`, one that a captured CUDA graph may replay."""


def needs_gpu(kernel: str, device: Device, least: tuple[int, int] = (8, 0)) -> Refusal | None:
    """The refusal of a kernel that needs a GPU of compute capability `least` or newer."""
    if device.kind == "cpu":
        return Refusal(
            f"{kernel} needs an NVIDIA GPU; on the CPU use reference or gather", "device"
        )
    if device.capability is not None and device.capability < least:
        needed = f"compute capability {least[0]}.{least[1]} or newer"
        return Refusal(f"{kernel} needs {needed}; this is {device}", "device")
    return None


def needs_package(kernel: str, module: str, package: str) -> Refusal | None:
    """The refusal of a kernel whose library is not installed."""
    if find_spec(module) is not None:
        return None
    remedy = "which is not installed: pip install 'pagebench[gpu]'"
    return Refusal(f"{kernel} needs {package}, {remedy}", "package")


def takes(kernel: str, axis: str, value: object, accepted: tuple[object, ...]) -> Refusal | None:
    """The refusal of a value outside a short list of accepted ones."""
    if value in accepted:
        return None
    known = ", ".join(map(str, accepted))
    return Refusal(f"{kernel} takes {axis} {known}, not {value}", "shape")


def of_kind(kind: str, reason: str | None) -> Refusal | None:
    """A sentence as a refusal of that kind; one that has a kind keeps it."""
    if not reason or isinstance(reason, Refusal):
        return reason or None
    return Refusal(reason, kind)


def first(*reasons: str | None) -> str | None:
    """The first reason that there is, of its own kind where it is a `Refusal`."""
    return next((reason for reason in reasons if reason), None)
