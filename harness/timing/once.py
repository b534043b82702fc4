"""Calls of cells for ncu to replay. They make no timing record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import field

from pagebench.harness.cell import Cell
from pagebench.harness.progress import silent
from pagebench.harness.records.base import Part, Resolved
from pagebench.harness.records.timing import Check, Layout, Predicted
from pagebench.harness.timing.findings import Failure, Findings, failure_of
from pagebench.harness.timing.measure import Prepared, prepare
from pagebench.harness.timing.options import default_options
from pagebench.harness.timing.session import Session
from pagebench.kernels.device import Device
from pagebench.kernels.foreign import contained

WARM_UP_CALLS = 3
NONCE = "PAGEBENCH_NONCE"  # the variable with what begins each report of a cell under a profiler


class Called(Part, frozen=True, kw_only=True):
    """The call that was made of a cell, or the status and reason why there was none.

    `symbols` are parts of the kernel names that the adapter promises. The status is `lost` where
    the device failed in an earlier cell, else that of a timing.
    """

    cell: str
    status: str | None = None
    reason: str | None = None
    resolved: Resolved = field(default_factory=dict)
    symbols: tuple[str, ...] = ()
    predicted: Predicted | None = None
    layout: Layout | None = None
    check: Check | None = None
    binary: str | None = None
    no_binary: str | None = None


def call_once(
    cells: Sequence[Cell], device: Device, launches: int = 1, l2: str = "cold"
) -> Iterator[Called]:
    """For each cell: prepare and check it, warm up, then `launches` calls under the profiler.

    The cache is put into state `l2` before each call, outside the profiled range, and an NVTX
    range has the cell's name. A failed cell does not affect the others, unless the device failed
    in it.
    """
    session = Session(device)
    broken_by = None
    for cell in cells:
        if broken_by:
            reason = f"the device failed in an earlier cell, {broken_by}"
            yield Called(cell=cell.name, status="lost", reason=reason)
            continue
        try:
            yield _called(cell, session, launches, l2)
        except Failure as failure:
            yield _told(cell, failure.findings, status=failure.status, reason=failure.reason)
            if failure.status == "crashed" and not session.is_usable:
                broken_by = cell.name


def _called(cell: Cell, session: Session, launches: int, l2: str) -> Called:
    """The call that was made. Failure where it ended before."""
    ready = prepare(cell, default_options(session.device), session, silent)
    try:
        with contained():
            _call(cell, ready, session, launches, l2)
    except Exception as error:
        raise failure_of(error, ready.findings) from error
    return _told(cell, ready.findings, symbols=tuple(ready.call.symbols))


def _call(cell: Cell, ready: Prepared, session: Session, launches: int, l2: str) -> None:
    run = ready.call.run
    for _ in range(WARM_UP_CALLS):
        run()
    prepare_cache = session.prepare(l2, run)
    for _ in range(launches):
        prepare_cache()
        session.synchronise()
        with _profiled(session.device, cell.name):
            run()
            session.synchronise()


def _told(
    cell: Cell,
    found: Findings,
    symbols: tuple[str, ...] = (),
    status: str | None = None,
    reason: str | None = None,
) -> Called:
    return Called(
        cell=cell.name,
        status=status,
        reason=reason,
        resolved=found.resolved,
        symbols=symbols,
        predicted=found.predicted,
        layout=found.layout,
        check=found.check,
        binary=found.code.binary,
        no_binary=found.code.why,
    )


@contextmanager
def _profiled(device: Device, name: str) -> Iterator[None]:
    """cudaProfilerStart and Stop around an NVTX range; a CPU has neither."""
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
