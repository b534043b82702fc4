"""Whether two cells ran the same binary: a difference other than the knob is another cause."""

from __future__ import annotations

from pagebench.harness.records.counters import Counters
from pagebench.harness.records.verdict import SameBinary

PER_PAGE = ("xqa", "triton")  # first part of the names of kernels compiled for each page size
WHAT_RAN = "cubin"  # a hash of this kind holds what ran and nothing beside it


def same_binary(one: Counters, other: Counters) -> SameBinary:
    """Whether two cells ran the same kernels with the same resources: page size may change both.

    Where the hashes of both are known they decide about the module, whatever it is called.
    """
    first, second = one.kernels, other.kernels
    is_same, of = same_code(one.binary, other.binary), (one.binary or "").partition(":")[0]
    return SameBinary(
        module=_same_module(one, other) if is_same is None else is_same,
        symbol=(bool(is_same) and of == WHAT_RAN)
        or [k.symbol for k in first] == [k.symbol for k in second],
        launch=[(k.grid, k.block) for k in first] == [(k.grid, k.block) for k in second],
        resources=[k.launch for k in first] == [k.launch for k in second],
    )


def same_code(one: str | None, other: str | None) -> bool | None:
    """Whether two hashes are of the same code; None where one is unknown, or they were made in two
    ways."""
    if one is None or other is None or one.partition(":")[0] != other.partition(":")[0]:
        return None
    return one == other


def _same_module(one: Counters, other: Counters) -> bool:
    """By the module's name, where no hash tells."""
    told = [each.resolved.get("module") for each in (one, other)]
    return told[0] == told[1] if all(told) else _compiled(one) == _compiled(other)


def _compiled(counters: Counters) -> tuple[str, int | None]:
    """What a module is compiled for, for records that do not name it."""
    axes = counters.axes
    return axes.kernel, axes.page_size if axes.kernel.startswith(PER_PAGE) else None
