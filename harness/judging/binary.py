"""Whether two cells ran one binary alike: a difference besides the knob is another cause."""

from __future__ import annotations

from pagebench.harness.records.counters import Counters
from pagebench.harness.records.verdict import SameBinary

PER_PAGE = ("xqa", "triton")  # how kernels begin that compile a module a page size


def same_binary(one: Counters, other: Counters) -> SameBinary:
    """Whether two cells ran the same kernels with the same resources: page sizes may not."""
    first, second = one.kernels, other.kernels
    told = [each.resolved.get("module") for each in (one, other)]
    return SameBinary(
        module=told[0] == told[1] if all(told) else _compiled(one) == _compiled(other),
        symbol=[k.symbol for k in first] == [k.symbol for k in second],
        launch=[(k.grid, k.block) for k in first] == [(k.grid, k.block) for k in second],
        resources=[k.launch for k in first] == [k.launch for k in second],
    )


def _compiled(counters: Counters) -> tuple[str, int | None]:
    """What a module is compiled for, where a record is older than its name."""
    axes = counters.axes
    return axes.kernel, axes.page_size if axes.kernel.startswith(PER_PAGE) else None
