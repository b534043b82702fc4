"""One profiled call of a cell: what ncu replays. It makes no timing record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.run import Checker, Session, build, default_options
from pagebench.kernels.device import Device
from pagebench.kernels.registry import find_kernel

WARM_UP_CALLS = 3


def call_once(cell: Cell, device: Device) -> dict[str, Any]:
    """Build, check and warm up, then call once between profiler start and stop.

    Returns what was called: cell, resolved kernel, layout and check.
    """
    session, options = Session(device), default_options(device)
    found: dict[str, Any] = {}
    adapter = find_kernel(cell.kernel)
    batch = build(cell, adapter, options, device, found)
    call = adapter.plan(batch, graph=False)
    Checker(batch, call, session, found).check("before")
    for _ in range(WARM_UP_CALLS):
        call.run()
    session.synchronise()
    with _profiled(device):
        call.run()
        session.synchronise()
    return {"cell": cell.name, "resolved": dict(call.resolved), **found}


@contextmanager
def _profiled(device: Device) -> Iterator[None]:
    """cudaProfilerStart and Stop; a CPU has no such range."""
    if device.kind == "cpu":
        yield
        return
    import torch.cuda.profiler as profiler

    profiler.start()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        profiler.stop()  # type: ignore[no-untyped-call]
