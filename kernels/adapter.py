"""The interface of an adapter, the only place that knows how to call a device kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pagebench.kernels.device import NO_GPU, Device
from pagebench.layouts.shape import Shape

if TYPE_CHECKING:
    from torch import Tensor

    from pagebench.layouts.tensors import Batch


class Refusal(str):
    """Why a kernel cannot run a cell: a sentence, and the `kind` of reason.

    `shape`: other sizes or types would work. `device`, `package`: this machine lacks something.
    `kernel`: it cannot be found or loaded. `boundary`: there is nothing to time at that boundary.
    `memory`: the cell does not fit. `crashed`: the adapter failed when it was asked. `adapter`: an
    adapter gave a sentence without a kind.
    """

    kind: str

    def __new__(cls, text: str, kind: str = "adapter") -> Refusal:
        refusal = super().__new__(cls, text)
        refusal.kind = kind
        return refusal


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A planned call. `run` launches it and leaves the result in `out`, without allocating memory.

    It reads the batch's query anew each time: what `batch.q` holds then is what it answers.

    `replan` plans the same call for a batch of other lengths. After it, `run` and any graph
    captured before compute the result for those lengths. `resolved` holds what was chosen: kernel,
    splits, page size. `symbols` holds a part of the name of each device kernel that the call
    launches, in order; it is empty where the adapter does not promise them.

    `code`, after a run, gives the machine code that ran: the bytes of each cubin, or paths of
    libraries that hold it. It may launch the call again. None where the adapter does not know.
    """

    run: Callable[[], object]
    out: Tensor | None  # q_dtype [batch, q_heads, head_dim]; None where only planning is measured
    replan: Callable[[Batch], object]
    resolved: Mapping[str, str | int]
    symbols: tuple[str, ...] = ()
    code: Callable[[], Iterable[bytes | Path]] | None = None


@dataclass(frozen=True, slots=True)
class Loads:
    """What a call loads, by its kernels' source; None where it is not known.

    `ldg` is the LDG of all its kernels and `decode_ldg` that of the first, in warp instructions.
    `merge_bytes` is the bytes of split partials that a merge reads. `grids` are the launches that
    all this assumes, in thread blocks, one for each kernel in order: numbers hold for these alone.
    Empty where none is assumed.
    """

    ldg: int | None = None
    decode_ldg: int | None = None
    merge_bytes: int | None = 0
    grids: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest error of a head's output that a kernel's rounding explains.

    |out - reference| / |reference|, with the reference rounded to the output's type. `random` is
    for random queries, `zero` for zero queries, whose output is the mean of V. `typical` is for
    the median of many heads with random queries; None where `random` says enough. The defaults
    hold for a plain kernel in bf16 arithmetic, whose softmax is rounded too: its worst head is off
    by up to 1.9 %, and its median by 0.6 % (docs/log.md).
    """

    random: float = 0.02
    zero: float = 0.007
    typical: float | None = None


DEFAULT = Tolerance(typical=0.01)
SHARES = ("random", "zero")


class Adapter(Protocol):
    """One device kernel. Importing its adapter needs neither a GPU nor the kernel's library.

    Four members are optional. `tolerance` maps a KV type to the `Tolerance` that was measured. A
    kernel that does a shape's planted work has an attribute `plants = True`. A kernel whose loads
    are known from its source has a method `loads(shape, resolved, capability) -> Loads`, where
    `resolved` is a call's and `capability` is the GPU's compute capability (None: not known).
    `source` maps a library to the version whose source that was.
    """

    name: str
    has_plan: bool  # whether planning on the host is worth timing

    def lowering(self, shape: Shape) -> str:
        """Which of `layouts.lowering.KINDS` the kernel takes."""

    def refuses(self, shape: Shape, device: Device) -> str | None:
        """Why the kernel cannot run the shape there, and what it would accept; None if it can.

        A `Refusal` names the kind of reason; a plain sentence is of kind `adapter`.
        """

    def workspace_bytes(self, shape: Shape) -> int:
        """Device bytes that a planned call needs beyond the batch."""

    def plan(self, batch: Batch, *, graph: bool) -> Call:
        """Plan a call; with `graph`, one that a CUDA graph can capture and replay."""


def tolerance_of(adapter: Adapter, dtype: str) -> Tolerance:
    """The adapter's tolerance for a KV type, or DEFAULT.

    What a kernel outside this repository claims counts where it is stricter.
    """
    claimed: Mapping[str, Tolerance] = getattr(adapter, "tolerance", {})
    found = claimed.get(dtype, DEFAULT)
    if type(adapter).__module__.startswith("pagebench.kernels."):
        return found
    random, zero = (min(_share(found, name), getattr(DEFAULT, name)) for name in SHARES)
    return Tolerance(random, zero, DEFAULT.typical)


def _share(claimed: Tolerance, name: str) -> float:
    """A tolerance that a plug-in claims. ValueError for what is no share of an output."""
    found: object = getattr(claimed, name)
    if isinstance(found, float | int) and 0 < found < inf:
        return float(found)
    raise ValueError(f"tolerance has {name} {found!r:.40}; give a number above 0")


def needs_gpu(kernel: str, device: Device, least: tuple[int, int] = (8, 0)) -> Refusal | None:
    """The refusal of a kernel that needs a GPU of compute capability `least` or newer."""
    if device.kind == "cpu":
        why = f" ({device.why})" if device.why not in ("", NO_GPU) else ""
        return Refusal(
            f"{kernel} needs an NVIDIA GPU{why}; on the CPU use reference or gather", "device"
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
    """The refusal of a value that is not among the accepted ones."""
    if value in accepted:
        return None
    known = ", ".join(map(str, accepted))
    return Refusal(f"{kernel} takes {axis} {known}, not {value}", "shape")


def of_kind(kind: str, reason: str | None) -> Refusal | None:
    """The sentence as a refusal of that kind; a `Refusal` keeps its own kind."""
    if not reason or isinstance(reason, Refusal):
        return reason or None
    return Refusal(reason, kind)


def first(*reasons: str | None) -> str | None:
    """The first reason that is not None or empty, unchanged."""
    return next((reason for reason in reasons if reason), None)
