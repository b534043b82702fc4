"""One cell from name to record: refuse, place, lower, plan, check, time, check again."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.progress import Progress
from pagebench.harness.records.timing import Asked, Check, Layout, Predicted, Samples, Timing
from pagebench.harness.timing import refuse
from pagebench.harness.timing.check import Checker
from pagebench.harness.timing.clocks import sampling
from pagebench.harness.timing.clocks.graph import capture
from pagebench.harness.timing.clocks.interval import interval
from pagebench.harness.timing.clocks.make import make_clock
from pagebench.harness.timing.code import code_of
from pagebench.harness.timing.findings import NOTHING, Failure, Findings, failure_of, recordable
from pagebench.harness.timing.guards import guarded_outputs
from pagebench.harness.timing.memory import device_bytes
from pagebench.harness.timing.options import HALF_WIDTH, Options
from pagebench.harness.timing.planned import check_call, lowering_of, workspace_of
from pagebench.harness.timing.session import Session
from pagebench.kernels.adapter import Adapter, Call, Refusal, tolerance_of
from pagebench.kernels.device import Device
from pagebench.kernels.foreign import contained
from pagebench.kernels.registry import find_kernel
from pagebench.layouts.placement import pool_pages
from pagebench.layouts.sharing import Streams
from pagebench.layouts.table import check, page_table
from pagebench.layouts.tensors import Batch, materialise
from pagebench.layouts.work import predict


@dataclass(frozen=True, slots=True)
class Prepared:
    """A planned and checked call, ready to be timed, and what was found before.

    There is no checker where only planning is timed and the KV pool does not fit.
    """

    call: Call
    batch: Batch
    checker: Checker | None
    findings: Findings


def measure_cell(cell: Cell, options: Options, session: Session, progress: Progress) -> Timing:
    """The record of one cell. Errors of the cell are recorded, not raised."""
    began, started, found = time.perf_counter(), _now(), NOTHING
    try:
        with contained():
            ready = prepare(cell, options, session, progress)
            run, found = _what_is_timed(ready, options, progress)
            samples = _timed(run, ready, options, session, progress)
            if ready.checker is not None:
                found = replace(found, check=_checked_after(ready.checker, run, options))
            refuse_disagreement(samples)
            middle = interval(samples.time_us).median_us
            refuse_implausible(middle, samples.floor_us, from_dram(found, options), session)
        outcome: dict[str, Any] = {"status": "measured", "samples": samples}
    except Exception as error:
        failure = failure_of(error, found)
        found, outcome = failure.findings, {"status": failure.status, "reason": failure.reason}
    return _record(
        *(cell, options, session.device, started, found),
        environment=session.environment_now(),
        elapsed_s=round(time.perf_counter() - began, 2),
        **outcome,
    )


def prepare(cell: Cell, options: Options, session: Session, progress: Progress) -> Prepared:
    """Refuse, predict, place, lower, plan and check. Failure where that ends early."""
    found, device = NOTHING, session.device
    try:
        with contained():
            _refuse(refuse.refusal(cell, device, options.boundary))
            adapter = find_kernel(cell.kernel)
            kind, streams = lowering_of(adapter, cell.shape), cell.streams
            needed = _device_bytes(cell, streams, adapter, device, options.boundary)
            work = asdict(predict(cell.shape, streams, kind))
            found = replace(found, predicted=Predicted(**work, device_bytes=needed))
            _refuse(refuse.refuse_memory(needed, device))
            progress("placing")
            table = page_table(cell.shape, streams, cell.placement, device.torch_name)
            found = replace(found, layout=Layout(**check(table), lowering=kind))
            batch = materialise(table, kind, with_kv=_fits_whole(cell, adapter, options, device))
            progress("planning")  # may compile a module, so the parent waits longer
            with guarded_outputs(batch.q):
                planned = adapter.plan(batch, graph=options.clock == "graph")
            call = check_call(adapter, planned, batch)
            found = replace(found, resolved=recordable(call.resolved))
            _call_first(call, session, progress)
            found = found.with_code(code_of(call))
            progress("checking")
            checker = None
            if batch.q is not None:
                tolerance = tolerance_of(adapter, cell.shape.dtype)
                checker = Checker(batch, call, session.synchronise, tolerance)
                found = replace(found, check=checker.before())
    except Exception as error:
        raise failure_of(error, found) from error
    return Prepared(call, batch, checker, found)


def _fits_whole(cell: Cell, adapter: Adapter, options: Options, device: Device) -> bool:
    """Whether the KV pool is made. Planning needs none, but a call by the plan proves it."""
    if options.boundary == "run":
        return True
    needed = _device_bytes(cell, cell.streams, adapter, device, "run")
    return refuse.refuse_memory(needed, device) is None


def _device_bytes(
    cell: Cell, streams: Streams, adapter: Adapter, device: Device, boundary: str
) -> int:
    pages = pool_pages(cell.placement, streams) + 1
    workspace = workspace_of(adapter, cell.shape)
    return device_bytes(cell.shape, pages, workspace, device.kind, boundary)


def _checked_after(checker: Checker, run: sampling.Run, options: Options) -> Check:
    """A graph is asked by its replay, everything else by plain calls."""
    if options.boundary == "plan":
        return checker.after_planning()
    return checker.after(run if options.clock == "graph" else None)


def _call_first(call: Call, session: Session, progress: Progress) -> None:
    """The first call may compile, and the second says how long a call takes: see `patience`."""
    for stage in ("first call", "second call") if call.out is not None else ():
        progress(stage)
        call.run()
        session.synchronise()


def _refuse(reason: Refusal | None) -> None:
    if reason:
        raise Failure("refused", str(reason))


def _what_is_timed(
    ready: Prepared, options: Options, progress: Progress
) -> tuple[sampling.Run, Findings]:
    """The call, its planning, or a graph's replay that was checked to follow a newer plan."""
    if options.boundary == "plan":
        return (lambda: ready.call.replan(ready.batch)), ready.findings
    if options.clock != "graph":
        return ready.call.run, ready.findings
    try:
        replay = capture(ready.call.run)
        progress("checking the graph's plan")
        assert ready.checker is not None
        return replay, replace(ready.findings, check=ready.checker.again(replay))
    except Exception as error:
        raise failure_of(error, ready.findings) from error


def _timed(
    run: sampling.Run, ready: Prepared, options: Options, session: Session, progress: Progress
) -> Samples:
    """Samples after a warm-up. At boundary run the output is that of the last sample."""
    kind, monitor = session.device.kind, session.monitor
    clock = make_clock(options.clock, kind, ready.call.symbols)
    progress("warming up")
    sampling.warm_up(run, monitor, session.synchronise)
    progress("timing")
    before, look = _around(run, ready, options, session)
    rule = sampling.Rule(HALF_WIDTH[kind], seconds=options.seconds)
    return sampling.measure(clock, run, before, monitor, rule, look)


def _around(
    run: sampling.Run, ready: Prepared, options: Options, session: Session
) -> tuple[sampling.Run, sampling.Run]:
    """What happens before and after each sample, where no clock looks: caches and checks."""
    checker = ready.checker
    if checker is None:
        return sampling.nothing, sampling.nothing
    if options.boundary == "plan":
        return checker.plan_otherwise, sampling.nothing
    prepare_cache = session.prepare(options.l2, run)
    if options.clock == "eager":  # it prepares nothing
        return sampling.nothing, checker.watch.look_and_forget
    return checker.watch.prepared(prepare_cache, options.l2), checker.watch.look


def from_dram(found: Findings, options: Options) -> int | None:
    """Distinct bytes that the call must read from DRAM; None where the cache may hold them."""
    if options.l2 != "cold" or options.boundary != "run" or found.predicted is None:
        return None
    return found.predicted.distinct_kv_bytes


def refuse_disagreement(samples: Samples) -> None:
    """Failure where the span and the events of the same calls disagree: work on another stream, or
    activity that was lost."""
    if samples.gap_us is None or samples.events_floor_us is None:
        return
    allowed = samples.allowed_us(samples.events_floor_us)
    if abs(samples.gap_us) > allowed:
        span, events = (interval(us).median_us for us in (samples.time_us, samples.events_us))
        raise Failure(
            "rejected",
            f"cupti saw {span:.2f} us where events saw {events:.2f} us of the same calls; "
            f"{allowed:.2f} us are allowed: the call works on a stream that events do not enclose, "
            "or activity was lost",
        )


def refuse_implausible(
    time_us: float, floor_us: float, distinct_bytes: int | None, session: Session
) -> None:
    """Failure for an impossible time: not above the floor, or faster than DRAM can deliver.

    `distinct_bytes` must come from DRAM; None where the cache may hold them.
    """
    if time_us <= floor_us:
        raise Failure(
            "rejected",
            f"{time_us:.2f} us is not above the clock's floor of {floor_us:.2f} us: "
            "the interval is empty",
        )
    nominal = session.environment.nominal_dram_gbps
    gbps = (distinct_bytes or 0) / time_us / 1e3
    if nominal and gbps > nominal:
        raise Failure(
            "rejected",
            f"{gbps:.0f} GB/s of distinct KV from a cold cache is more than the DRAM's nominal "
            f"{nominal:.0f} GB/s: the cache was warm, or the call did not read it all",
        )


def unmeasured(cell: Cell, options: Options, device: Device, status: str, reason: str) -> Timing:
    """The record of a cell that was not measured: refused before, or lost with its worker."""
    return _record(cell, options, device, _now(), NOTHING, status=status, reason=str(reason))


def _record(
    cell: Cell, options: Options, device: Device, started: str, found: Findings, **outcome: Any
) -> Timing:
    return Timing(
        cell=cell.name,
        boundary=options.boundary,
        clock=options.clock,
        l2=options.l2,
        process=options.process,
        axes=cell.axes(),
        device=device.kind,
        asked=Asked(
            seconds=options.seconds,
            device=device.torch_name,
            kernel=options.kernel_file,
            kernel_sha=options.kernel_sha,
        ),
        started=started,
        predicted=found.predicted,
        layout=found.layout,
        resolved=found.resolved,
        check=found.check,
        binary=found.code.binary,
        no_binary=found.code.why,
        **outcome,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
