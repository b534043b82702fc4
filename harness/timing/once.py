"""Profiled calls of cells: what ncu replays. They make no timing record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.timing.measure import (
    Checker,
    Failure,
    Session,
    build,
    default_options,
    device_bytes,
    one_line,
    refuse_memory,
)
from pagebench.kernels.device import Device
from pagebench.kernels.registry import find_kernel

WARM_UP_CALLS = 3


def call_once(
    cells: Sequence[Cell], device: Device, launches: int = 1, l2: str = "cold"
) -> Iterator[dict[str, Any]]:
    """For each cell: build, check, warm up, then `launches` calls between profiler start and stop.

    The cache is prepared before each call, outside the profiled range, and an NVTX range bears the
    cell's name. Yields what was called: cell, resolved kernel, symbols, prediction, check; of a
    cell that failed, its status and the reason.
    """
    session = Session(device)
    broken_by = None
    for cell in cells:
        if broken_by:
            yield _failed(cell, "lost", f"the device failed in {broken_by}, which ran before")
            continue
        try:
            yield _call(cell, session, launches, l2)
        except Failure as failure:
            yield _failed(cell, failure.status, failure.reason)
        except Exception as error:
            yield _failed(cell, "crashed", one_line(error))
            broken_by = None if _answers(session) else cell.name


def _failed(cell: Cell, status: str, reason: str) -> dict[str, Any]:
    return {"cell": cell.name, "status": status, "reason": reason}


def _answers(session: Session) -> bool:
    """Whether the device still works: a fault on it spoils the whole process."""
    try:
        session.synchronise()
    except RuntimeError:
        return False
    return True


def _call(cell: Cell, session: Session, launches: int, l2: str) -> dict[str, Any]:
    options, found = default_options(session.device), dict[str, Any]()
    adapter = find_kernel(cell.kernel)
    refuse_memory(device_bytes(cell, adapter, options, session), session.device)
    batch = build(cell, adapter, options, session.device, found)
    call = adapter.plan(batch, graph=False)
    Checker(batch, call, session, found).check("before")
    for _ in range(WARM_UP_CALLS):
        call.run()
    prepare = session.prepare(l2, call.run)
    for _ in range(launches):
        prepare()
        session.synchronise()
        with _profiled(session.device, cell.name):
            call.run()
            session.synchronise()
    return {
        "cell": cell.name,
        "resolved": dict(call.resolved),
        "symbols": list(call.symbols),
        **found,
    }


@contextmanager
def _profiled(device: Device, name: str) -> Iterator[None]:
    """cudaProfilerStart and Stop round an NVTX range; a CPU has neither."""
    if device.kind == "cpu":
        yield
        return
    import torch.cuda.nvtx as nvtx
    import torch.cuda.profiler as profiler

    profiler.start()  # type: ignore[no-untyped-call]
    nvtx.range_push(name)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        nvtx.range_pop()  # type: ignore[no-untyped-call]
        profiler.stop()  # type: ignore[no-untyped-call]
