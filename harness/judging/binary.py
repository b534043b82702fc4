"""Whether two cells ran the same binary: a difference other than the knob is another cause."""

from __future__ import annotations

from pagebench.harness.records.counters import Counters
from pagebench.harness.records.verdict import SameBinary

PER_PAGE = ("xqa", "triton")  # first part of the names of kernels compiled for each page size


def same_binary(one: Counters, other: Counters) -> SameBinary:
    """Whether two cells ran the same kernels with the same resources: page size may change both."""
    first, second = one.kernels, other.kernels
    told = [each.resolved.get("module") for each in (one, other)]
    return SameBinary(
        module=told[0] == told[1] if all(told) else _compiled(one) == _compiled(other),
        symbol=[k.symbol for k in first] == [k.symbol for k in second],
        launch=[(k.grid, k.block) for k in first] == [(k.grid, k.block) for k in second],
        resources=[k.launch for k in first] == [k.launch for k in second],
    )


def _compiled(counters: Counters) -> tuple[str, int | None]:
    """What a module is compiled for, for records that do not name it."""
    axes = counters.axes
    return axes.kernel, axes.page_size if axes.kernel.startswith(PER_PAGE) else None
