"""One cell from name to record: refuse, place, check, plan, check, time, check again."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pagebench.harness.cell import Cell
from pagebench.harness.environment import Monitor, environment, other_processes
from pagebench.harness.records.timing import Record, Samples
from pagebench.harness.timing.clocks import sampling as clocks
from pagebench.harness.timing.stats import summarise
from pagebench.kernels.adapter import Adapter, Call
from pagebench.kernels.device import Device
from pagebench.kernels.reference import expected_output
from pagebench.kernels.registry import KernelError, find_kernel, planting_kernels, plants
from pagebench.layouts.counter_hash import hash_numpy
from pagebench.layouts.lowering import KINDS
from pagebench.layouts.placement import pool_pages
from pagebench.layouts.sharing import share
from pagebench.layouts.table import check, page_table
from pagebench.layouts.tensors import Batch, materialise, pool_bytes
from pagebench.layouts.work import Work, predict

if TYPE_CHECKING:
    from torch import Tensor

BOUNDARIES = ("run", "plan")
# Largest relative error, |out - ref| / |ref| over one request's output, that rounding explains.
# A 16-bit output is off by 0.2 to 0.4 %; XQA and fa2 also round probabilities to the KV type.
TOLERANCE = {"bf16": 0.01, "fp16": 0.005, "e4m3": 0.05}
CHECKED_TOKENS = {"cuda": 2**20, "cpu": 2**16}  # tokens whose requests the oracle recomputes
USUAL_SECONDS = 2.0
HALF_WIDTH = {"cuda": 0.002, "cpu": 0.005}  # of the median's interval, at which sampling may stop
FRESHNESS_STREAM = 7
FRESHNESS_REQUESTS = 4
ORACLE_BYTES = 24  # scratch bytes a KV element: a hash, its temporaries, fp32 keys and values
FILL_BYTES = {"cuda": 2 << 30, "cpu": 160 << 20}  # scratch while a pool is filled in chunks


@dataclass(frozen=True, slots=True)
class Options:
    """How to measure, apart from what. Defaults are those of the command line."""

    boundary: str = "run"
    clock: str = "events"
    l2: str = "cold"
    seconds: float = USUAL_SECONDS
    process: int = 0
    kernel_file: str | None = None  # of --kernel


class Failure(Exception):
    """A cell that ends without a time: its status and the reason."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def default_options(device: Device, boundary: str = "run") -> Options:
    """Planning is host work and a CPU has only the host's clock: `wall`. Otherwise `events`."""
    if boundary == "plan":
        return Options("plan", "wall", "warm")
    return Options(clock="wall" if device.kind == "cpu" else "events")


def refusal(cell: Cell, device: Device, boundary: str = "run") -> str | None:
    """Why the cell cannot run on the device, before anything is allocated; None if it can.

    An adapter that fails while it is asked refuses, with the error as its reason.
    """
    try:
        adapter = find_kernel(cell.kernel)
    except KernelError as error:
        return str(error)
    if boundary == "plan" and not adapter.has_plan:
        return f"{cell.kernel} plans nothing on the host: only boundary run can be measured"
    if (cell.shape.planted_loads or cell.shape.planted_ns) and not plants(adapter):
        those = ", ".join(planting_kernels())
        return f"{cell.kernel} carries no planted work: x and y are for {those}"
    try:
        return adapter.refuses(cell.shape, device)
    except Exception as error:
        return f"{cell.kernel}.refuses() crashed: {one_line(error)}"


@dataclass(slots=True)
class Session:
    """What a worker keeps between cells: the device, its monitor, the flush, the environment."""

    device: Device
    monitor: Monitor = field(init=False)
    facts: dict[str, Any] = field(init=False)
    flush: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        if self.device.kind == "cuda":
            import torch

            torch.cuda.set_device(self.device.index)
            torch.cuda.synchronize()  # the context must exist before processes are counted
        self.monitor = Monitor(self.device)
        self.facts = environment(self.device)

    def prepare(self, l2: str, run: Callable[[], object]) -> Callable[[], object]:
        """What puts the cache into its state before a sample."""
        if l2 == "warm":
            return run
        if self.flush is None:
            self.flush, size = clocks.make_flush(self.device.kind)
            self.facts["flush_bytes"] = size
        return self.flush

    def facts_now(self) -> dict[str, Any]:
        """The environment, with who else uses the GPU at this moment."""
        if self.device.kind == "cpu":
            return self.facts | {"load": round(os.getloadavg()[0], 2)}
        return self.facts | {"other_processes": other_processes(self.device)}

    def synchronise(self) -> None:
        if self.device.kind == "cuda":
            import torch

            torch.cuda.synchronize()


Progress = Callable[[str], None]


def measure_cell(cell: Cell, options: Options, session: Session, progress: Progress) -> Record:
    """The record of one cell. Whatever goes wrong with the cell is in it, not raised."""
    began, started = time.perf_counter(), _now()
    found: dict[str, Any] = {}
    try:
        samples = _measure(cell, options, session, progress, found)
        outcome: dict[str, Any] = {"status": "measured", "samples": samples}
    except Failure as failure:
        outcome = {"status": failure.status, "reason": failure.reason}
    except Exception as error:
        outcome = {"status": "crashed", "reason": one_line(error)}
    return Record(
        **_identity(cell, options, session.device),
        started=started,
        environment=session.facts_now(),
        elapsed_s=round(time.perf_counter() - began, 2),
        **found,
        **outcome,
    )


def unmeasured(cell: Cell, options: Options, device: Device, status: str, reason: str) -> Record:
    """The record of a cell that no worker measured: refused before, or lost with its worker."""
    identity = _identity(cell, options, device)
    return Record(**identity, status=status, reason=reason, started=_now())


def _identity(cell: Cell, options: Options, device: Device) -> dict[str, Any]:
    return {
        "cell": cell.name,
        "boundary": options.boundary,
        "clock": options.clock,
        "l2": options.l2,
        "process": options.process,
        "options": {
            "seconds": options.seconds,
            "device": device.torch_name,
            "kernel": options.kernel_file,
        },
        "axes": cell.axes(),
        "device": device.kind,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def one_line(error: Exception) -> str:
    """The error's first line: what follows in CUDA's are hints at how to debug torch."""
    lines = str(error).strip().splitlines() or ["no message"]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {lines[0][:400]}{where}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A planned, checked call, ready to be timed."""

    call: Call
    checker: Checker
    work: Work


def prepare(
    cell: Cell, options: Options, session: Session, progress: Progress, found: dict[str, Any]
) -> Prepared:
    """Refuse, predict, place, check, plan and check again; what is learnt goes into `found`."""
    adapter, work = _predicted(cell, options, session, found)
    progress("placing")
    batch = build(cell, adapter, options, session.device, found)
    progress("planning")  # may compile a module, and is waited for accordingly
    call = adapter.plan(batch, graph=options.clock == "graph")
    if not isinstance(call, Call):
        raise TypeError(f"{cell.kernel}.plan() must return a Call, not {type(call).__name__}")
    progress("checking")
    found["resolved"] = call.resolved
    checker = Checker(batch, call, session, found)
    if options.boundary == "run":
        checker.check("before")
    return Prepared(call, checker, work)


def _predicted(
    cell: Cell, options: Options, session: Session, found: dict[str, Any]
) -> tuple[Adapter, Work]:
    reason = refusal(cell, session.device, options.boundary)
    if reason:
        raise Failure("refused", reason)
    adapter = find_kernel(cell.kernel)
    work = predict(cell.shape, cell.sharing, adapter.lowering(cell.shape))
    needed = device_bytes(cell, adapter, options, session)
    found["predicted"] = asdict(work) | {"device_bytes": needed}
    refuse_memory(needed, session.device)
    return adapter, work


def _measure(
    cell: Cell, options: Options, session: Session, progress: Progress, found: dict[str, Any]
) -> Samples:
    """The samples of a cell; what was learnt on the way goes into `found`, also when it fails."""
    ready = prepare(cell, options, session, progress, found)
    call, checker = ready.call, ready.checker
    clock = clocks.make_clock(options.clock, session.device.kind, call.symbols)
    rule = clocks.Rule(HALF_WIDTH[session.device.kind], seconds=options.seconds)
    if options.boundary == "plan":
        del found["check"]
        progress("timing")
        plan = checker.planner()
        clocks.warm_up(plan, session.monitor, session.synchronise)
        samples = clocks.measure(clock, plan, _nothing, session.monitor, rule)
        return _plausible(samples, None, session)
    run = call.run
    if options.clock == "graph":
        run = clocks.capture(call.run)
        progress("checking the graph's plan")
        checker.check_fresh(run)
    progress("warming up")
    clocks.warm_up(run, session.monitor, session.synchronise)
    progress("timing")
    checker.forget_output()
    prepare_cache = session.prepare(options.l2, run)
    samples = clocks.measure(clock, run, prepare_cache, session.monitor, rule)
    checker.check("after", run_first=False)
    return _plausible(samples, ready.work if options.l2 == "cold" else None, session)


def _nothing() -> None:
    pass


def build(
    cell: Cell,
    adapter: Adapter,
    options: Options,
    device: Device,
    found: dict[str, Any],
) -> Batch:
    """Table, checks and tensors of a cell. Planning alone takes no KV pool."""
    table = page_table(cell.shape, cell.sharing, cell.placement, device.torch_name)
    kind = adapter.lowering(cell.shape)
    if kind not in KINDS:
        raise ValueError(f"{cell.kernel}.lowering() must return {' or '.join(KINDS)}, not {kind}")
    found["layout"] = check(table) | {"lowering": kind}
    return materialise(table, kind, with_kv=options.boundary == "run")


def device_bytes(cell: Cell, adapter: Adapter, options: Options, session: Session) -> int:
    """Device bytes that the cell will take at most, predicted before any is taken."""
    shape, kind = cell.shape, session.device.kind
    streams = share(cell.sharing, shape)
    pages = pool_pages(cell.placement, streams) + 1
    entries = shape.batch * shape.table_width
    tables = 40 * (entries + pages)  # int64 temporaries while the table is built and checked
    if options.boundary == "plan":
        return tables + adapter.workspace_bytes(shape)
    oracle = ORACLE_BYTES * shape.kv_len * shape.kv_heads * shape.head_dim
    scratch = max(FILL_BYTES[kind], oracle, adapter.workspace_bytes(shape))
    return pool_bytes(shape, pages) + tables + scratch


def refuse_memory(needed: int, device: Device) -> None:
    free = free_bytes(device)
    if free is not None and needed > free:
        raise Failure(
            "refused", f"it needs {needed / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free"
        )


def free_bytes(device: Device) -> int | None:
    """Free memory of the device, torch's cached blocks counted as free; None where unreadable."""
    import torch

    if device.kind == "cuda":
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(device.index)[0])
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            kib = {line.split(":")[0]: int(line.split()[1]) for line in file}
    except OSError:
        return None
    return kib["MemAvailable"] * 1024


class Checker:
    """Holds a call's output to the oracle's, before and after timing, on requests drawn once."""

    def __init__(self, batch: Batch, call: Call, session: Session, found: dict[str, Any]) -> None:
        self._batch, self._call, self._session = batch, call, session
        self._requests = _draw_requests(batch)
        self._expected: Tensor | None = None
        self._result: dict[str, Any] = {
            "tolerance": TOLERANCE[batch.shape.dtype],
            "requests": len(self._requests),
            "of_requests": batch.shape.batch,
        }
        found["check"] = self._result

    def planner(self) -> Callable[[], object]:
        """Planning the call once more for the same lengths."""
        return lambda: self._call.replan(self._batch)

    def forget_output(self) -> None:
        """An output that the call does not write stays infinite."""
        assert self._call.out is not None
        self._call.out.fill_(float("inf"))

    def check(self, when: str, *, run_first: bool = True) -> None:
        """Compare, running the call first or taking what the last timed call left."""
        if run_first:
            self.forget_output()
            self._call.run()
        self._session.synchronise()
        self._refuse_unreal(when)
        if self._expected is None:
            self._expected = expected_output(self._batch, self._requests)
        error, request = self._error(self._requests, self._expected)
        self._result[f"error_{when}"] = round(error, 6)
        if error > self._result["tolerance"]:
            raise Failure(
                "wrong",
                f"{when} timing request {request}'s output is off by {error:.3g} of the reference "
                f"(at most {self._result['tolerance']:g})",
            )

    def _refuse_unreal(self, when: str) -> None:
        out = self._call.out
        assert out is not None
        if bool(out.isinf().any()):
            raise Failure("wrong", f"{when} timing some of the output was not written")
        if bool(out.isnan().any()):
            raise Failure(
                "poisoned",
                f"{when} timing the output holds NaN: memory that no request owns was read",
            )

    def _error(self, requests: list[int], expected: Tensor) -> tuple[float, int]:
        """The worst request's relative error, and which it is: requests are drawn at random."""
        assert self._call.out is not None
        difference = self._call.out[requests].float() - expected
        worst, at = (difference.norm(dim=(1, 2)) / expected.norm(dim=(1, 2))).max(0)
        return float(worst), requests[int(at)]

    def check_fresh(self, replay: Callable[[], object]) -> None:
        """A captured graph must answer for the newest plan: new lengths, plan, replay, compare."""
        batch = self._batch
        shorter = batch.with_lengths(_shorter(batch))
        requests = self._requests[:FRESHNESS_REQUESTS]
        self._call.replan(shorter)
        self.forget_output()
        replay()
        self._session.synchronise()
        error, _ = self._error(requests, expected_output(shorter, requests))
        self._call.replan(batch)
        self._result["error_replanned"] = round(error, 6)
        if not error <= self._result["tolerance"]:
            raise Failure("wrong", "the captured graph does not follow a newer plan")


def _draw_requests(batch: Batch) -> list[int]:
    """Whole requests in random order until the oracle's budget of tokens is spent; at least one."""
    budget = CHECKED_TOKENS[batch.device.type]
    order = np.random.default_rng().permutation(batch.shape.batch)
    spent = np.cumsum(batch.table.lengths[order])
    return [int(request) for request in order[: max(1, int((spent <= budget).sum()))]]


def _shorter(batch: Batch) -> np.ndarray:
    """Lengths between half of each request's and its own, a token less at least."""
    lengths = batch.table.lengths
    draws = hash_numpy(batch.shape.seed, FRESHNESS_STREAM, np.arange(len(lengths)))
    less = 1 + (draws % np.maximum(lengths // 2, 1).astype(np.uint64)).astype(np.int64)
    shorter: np.ndarray = np.maximum(lengths - less, 1)
    return shorter


def _plausible(samples: Samples, work: Work | None, session: Session) -> Samples:
    median = summarise(samples.time_us, find_modes=False).median_us
    refuse_implausible(median, samples.floor_us, work, session)
    return samples


def refuse_implausible(
    time_us: float, floor_us: float, work: Work | None, session: Session
) -> None:
    """Reject what cannot be: an empty interval, or more distinct bytes a second than DRAM gives.

    `work` is None where the cache was warm.
    """
    if time_us <= floor_us:
        raise Failure(
            "rejected",
            f"{time_us:.2f} us is no more than the clock's floor of {floor_us:.2f} us: "
            "the interval is empty",
        )
    nominal = session.facts.get("nominal_dram_gbps")
    if work is not None and nominal:
        gbps = work.distinct_kv_bytes / time_us / 1e3
        if gbps > nominal:
            raise Failure(
                "rejected",
                f"{gbps:.0f} GB/s of distinct KV from a cold cache is more than the DRAM's nominal "
                f"{nominal:.0f} GB/s: the cache was warm, or the call did not read it all",
            )
