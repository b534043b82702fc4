"""What an adapter returned, checked when it is planned: a bad value is named and costs its cell."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from pagebench.kernels.adapter import Adapter, Call
from pagebench.layouts.shape import Shape

if TYPE_CHECKING:
    from torch import Tensor

    from pagebench.layouts.tensors import Batch


def type_name(value: object) -> str:
    """`numpy.int64`, `list`: the type as its module's users call it."""
    kind = type(value)
    where = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{where}{kind.__qualname__}"


def check_call(adapter: Adapter, call: object, batch: Batch) -> Call:
    """The call. TypeError or ValueError names what cannot be run, compared or recorded."""
    if not isinstance(call, Call):
        raise TypeError(f"{adapter.name}.plan() must return a Call, not {type_name(call)}")
    for name in ("run", "replan"):
        if not callable(getattr(call, name)):
            raise TypeError(f"{name} is {type_name(getattr(call, name))}; give a function")
    _check_resolved(call.resolved)
    if not isinstance(call.symbols, tuple | list):
        raise TypeError(f"symbols is {type_name(call.symbols)}; give a tuple of str")
    for at, symbol in enumerate(call.symbols):
        if not isinstance(symbol, str):
            raise TypeError(f"symbols[{at}] is {type_name(symbol)}; give str")
    if batch.q is not None:
        _check_out(call.out, batch.q)
    return call


def _check_resolved(resolved: object) -> None:
    from collections.abc import Mapping

    if not isinstance(resolved, Mapping):
        raise TypeError(f"resolved is {type_name(resolved)}; give a dict")
    for name, value in resolved.items():
        if type(name) is not str:
            raise TypeError(f"resolved has the key {name!r:.40}, {type_name(name)}; give str")
        if type(value) not in (str, int, float, bool):
            raise TypeError(f"resolved[{name!r}] is {type_name(value)}; give str or int")
        if isinstance(value, float) and not isfinite(value):
            raise ValueError(f"resolved[{name!r}] is {value}; give a finite number or str")
        if type(value) is int and abs(value) >= 2**63:
            raise ValueError(f"resolved[{name!r}] is beyond 64 bits; give str")


def _check_out(out: Tensor | None, q: Tensor) -> None:
    """The output has the type, shape and device of the query."""
    import torch

    if not isinstance(out, torch.Tensor):
        raise TypeError(f"out is {type_name(out)}; give a tensor like the query")
    for name in ("dtype", "shape", "device"):
        found, right = getattr(out, name), getattr(q, name)
        if found != right:
            raise ValueError(f"out has {name} {_text(found)}; the query's is {_text(right)}")


def _text(value: object) -> str:
    return str(tuple(value)) if isinstance(value, tuple) else str(value)


def lowering_of(adapter: Adapter, shape: Shape) -> str:
    """Which of KINDS the adapter takes. ValueError for what is no such."""
    from pagebench.layouts.lowering import KINDS

    found: object = adapter.lowering(shape)
    if type(found) is str and found in KINDS:
        return found
    said = found if type(found) is str else type_name(found)
    raise ValueError(f"{adapter.name}.lowering() must return {' or '.join(KINDS)}, not {said:.40}")


def workspace_of(adapter: Adapter, shape: Shape) -> int:
    """The bytes that the adapter says it needs. TypeError or ValueError for what is no such."""
    needed: object = adapter.workspace_bytes(shape)
    if type(needed) is not int:
        raise TypeError(f"{adapter.name}.workspace_bytes() is {type_name(needed)}; give int")
    if not 0 <= needed < 2**63:
        raise ValueError(f"{adapter.name}.workspace_bytes() is {needed:.4g}; give 0 or more")
    return needed
