"""Clocks: the only loops round a kernel.

A clock takes one sample at a time: `prepare` puts the cache into its state, then the call runs and
is timed. docs/measuring.md says what each clock brackets and leaves out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pagebench.harness.records.timing import MOST_SAMPLES, Block, Samples
from pagebench.harness.timing.clocks.activity import Tracer
from pagebench.harness.timing.stats import summarise

if TYPE_CHECKING:
    from pagebench.harness.environment import Monitor

Run = Callable[[], object]

CLOCKS = ("wall", "events", "graph", "cupti", "eager")
L2_STATES = ("cold", "warm")
BLOCK_S = 0.05  # the device's state is read at least this often
FLOOR_SAMPLES = 21
FIRST_SPIN_CYCLES = 200_000  # 0.1 ms at 2 GHz: more than queueing one call costs
LEAD_IN_CYCLES = 40_000  # 20 us; else the first event would fire before the spin is queued
MOST_SPIN_CYCLES = 2_000_000_000
FLUSH_OVER_CACHE = 4  # a partitioned L2 holds lines twice, and replacement is not exact
LEAST_CPU_FLUSH, MOST_CPU_FLUSH = 64 << 20, 512 << 20
FLAT_CLOCK = 0.01  # the SM clock is flat when three readings agree this well


class ClockError(RuntimeError):
    """A clock that cannot give a number it could vouch for."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed call: its span; busy time, symbols and events where a profiler watched."""

    time_us: float
    sum_us: float | None = None
    kernels: tuple[str, ...] = ()
    events_us: float | None = None
    discarded: int = 0
    spin_cycles: int | None = None
    spin_us: float | None = None  # from an event before the spin to the one after it


class Clock(Protocol):
    """Takes samples of a call. `name` is one of CLOCKS."""

    name: str

    def sample(self, run: Run, prepare: Run) -> Sample: ...

    def null(self) -> Run:
        """An empty call of the kind that the clock times, to find the clock's floor with."""


@dataclass(frozen=True, slots=True)
class Rule:
    """When to stop: the median's interval is narrow, or there are enough samples, or time is up."""

    half_width: float = 0.002
    least: int = 50
    most: int = MOST_SAMPLES
    seconds: float = 2.0


def measure(clock: Clock, run: Run, prepare: Run, monitor: Monitor, rule: Rule) -> Samples:
    """Samples of `run` in time order, with the device's state in blocks, until `rule` ends it."""
    null = null_samples(clock)
    floor, events_floor = _median_us(null) or 0.0, _median_us(null, "events_us")
    taken: list[Sample] = []
    blocks: list[Block] = []
    started = block_ends = time.perf_counter()
    while not (stopped := _stopped(taken, rule, time.perf_counter() - started)):
        if not blocks or (monitor.reads and time.perf_counter() >= block_ends):
            blocks.append(monitor.block(len(taken)))
            block_ends = time.perf_counter() + BLOCK_S
        taken.append(clock.sample(run, prepare))
    return Samples(
        time_us=tuple(round(sample.time_us, 3) for sample in taken),
        floor_us=round(floor, 3),
        blocks=_with_spin_clocks(blocks, taken, events_floor or floor),
        stopped=stopped,
        discarded=sum(sample.discarded for sample in taken),
        sum_us=tuple(round(sample.sum_us, 3) for sample in taken if sample.sum_us is not None),
        kernels=taken[-1].kernels,
        events_us=tuple(round(s.events_us, 3) for s in taken if s.events_us is not None),
        events_floor_us=events_floor and round(events_floor, 3),
    )


def _with_spin_clocks(blocks: list[Block], taken: list[Sample], floor: float) -> tuple[Block, ...]:
    """Blocks with the median clock that their samples' spins ran at.

    NVML is asked between samples, when the GPU idles and its clock is back up; the spin runs right
    before the call, at the clock that the calls before have left it.
    """
    ends = [block.start for block in blocks[1:]] + [len(taken)]
    return tuple(
        replace(block, spin_mhz=median_clock(taken[block.start : end], floor))
        for block, end in zip(blocks, ends, strict=True)
    )


def median_clock(taken: list[Sample], floor: float) -> int | None:
    """Cycles over the spin's time, less what the clock reads round an empty kernel."""
    clocks = sorted(
        sample.spin_cycles / (sample.spin_us - floor)
        for sample in taken
        if sample.spin_cycles and sample.spin_us and sample.spin_us > floor
    )
    return round(clocks[len(clocks) // 2]) if clocks else None


def _stopped(taken: list[Sample], rule: Rule, elapsed_s: float) -> str | None:
    if len(taken) >= rule.most:
        return "samples"
    if len(taken) >= rule.least:
        times = [sample.time_us for sample in taken]
        if summarise(times, find_modes=False).half_width <= rule.half_width:
            return "interval"
    return "time" if taken and elapsed_s >= rule.seconds else None


def floor_us(clock: Clock) -> float:
    """Median time of a null call: what the clock reads when there is nothing to time."""
    return _median_us(null_samples(clock)) or 0.0


def null_samples(clock: Clock) -> list[Sample]:
    run = clock.null()
    for _ in range(3):
        clock.sample(run, _nothing)
    return [clock.sample(run, _nothing) for _ in range(FLOOR_SAMPLES)]


def _median_us(taken: list[Sample], field: str = "time_us") -> float | None:
    """The median of that field; None where the samples have none."""
    times = [time for sample in taken if (time := getattr(sample, field)) is not None]
    return summarise(times, find_modes=False).median_us if times else None


def _nothing() -> None:
    pass


def warm_up(run: Run, monitor: Monitor, synchronise: Run, seconds: float = 0.1) -> None:
    """Run until `seconds` have passed and the SM clock is flat (at most 20 times as long)."""
    started, readings = time.perf_counter(), [monitor.block(0).sm_mhz]
    while True:
        lap_ends = time.perf_counter() + seconds / 3
        while time.perf_counter() < lap_ends:
            run()
            synchronise()
        readings.append(monitor.block(0).sm_mhz)
        elapsed = time.perf_counter() - started
        if (elapsed >= seconds and _flat(readings)) or elapsed >= 20 * seconds:
            return


def _flat(readings: list[int | None]) -> bool:
    last = [reading for reading in readings[-3:] if reading is not None]
    if not last:
        return True  # nothing to read: a CPU
    return len(last) == 3 and max(last) - min(last) <= FLAT_CLOCK * max(last)


class WallClock:
    """The host's clock round a synchronous call, or with `synchronise` round work on a GPU."""

    name = "wall"

    def __init__(self, synchronise: Run = _nothing) -> None:
        self._synchronise = synchronise

    def sample(self, run: Run, prepare: Run) -> Sample:
        prepare()
        self._synchronise()
        begin = time.perf_counter_ns()
        run()
        self._synchronise()
        return Sample((time.perf_counter_ns() - begin) / 1e3)

    def null(self) -> Run:
        return _nothing


def _torch_cuda() -> Any:
    import torch

    return torch.cuda


class EventClock:
    """CUDA events behind a spin that hides the launch: prepare, drain, spin, event, call, event.

    A sample counts only if its first event had not fired when the second was queued; otherwise the
    host was timed, the spin is doubled and the sample taken again.
    """

    name = "events"

    def __init__(self, cuda: Any = None) -> None:
        self._cuda = cuda or _torch_cuda()
        self._spin = self._cuda.Event(enable_timing=True)
        self._begin = self._cuda.Event(enable_timing=True)
        self._end = self._cuda.Event(enable_timing=True)
        self._cycles = FIRST_SPIN_CYCLES

    def sample(self, run: Run, prepare: Run) -> Sample:
        return self.until_hidden(prepare, lambda: self.bracket(run))

    def until_hidden(self, prepare: Run, attempt: Callable[[], Sample | None]) -> Sample:
        """Prepare, drain and attempt until the spin outlasts the queueing."""
        discarded = 0
        while True:
            prepare()
            self._cuda.synchronize()
            taken = attempt()
            if taken:
                return replace(taken, discarded=discarded)
            discarded += 1
            self._lengthen()

    def bracket(self, run: Run) -> Sample | None:
        """Spin, event, call, event; None if the first event fired while the host still queued."""
        self._cuda._sleep(LEAD_IN_CYCLES)
        self._spin.record()
        self._cuda._sleep(self._cycles)
        self._begin.record()
        run()
        self._end.record()
        spin_outlasted_queueing = not self._begin.query()
        self._end.synchronize()
        if not spin_outlasted_queueing:
            return None
        return Sample(
            self._begin.elapsed_time(self._end) * 1e3,
            spin_cycles=self._cycles,
            spin_us=self._spin.elapsed_time(self._begin) * 1e3,
        )

    def _lengthen(self) -> None:
        self._cycles *= 2
        if self._cycles > MOST_SPIN_CYCLES:
            raise ClockError(
                "the call takes the host longer to queue than a spin of one second; "
                "it synchronises, so use the wall clock"
            )

    def null(self) -> Run:
        return lambda: self._cuda._sleep(0)


class GraphClock:
    """Events round one replay of a captured call. `run` is that replay."""

    name = "graph"

    def __init__(self) -> None:
        self._events = EventClock()

    def sample(self, run: Run, prepare: Run) -> Sample:
        return self._events.sample(run, prepare)

    def null(self) -> Run:
        return capture(self._events.null())


def capture(run: Run) -> Run:
    """The replay of a CUDA graph that holds one `run`."""
    import torch

    run()  # one-time initialisation must not be captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    replay: Run = graph.replay
    return replay


def l2_under(clock: str, asked: str) -> str:
    """The L2 that a call finds: the eager clock prepares nothing, so its cache is warm."""
    return "warm" if clock == "eager" else asked


class EagerClock:
    """An event pair round an eager call, nothing hidden: what a naive benchmark would report.

    Kept to show by how much it is wrong, never to decide anything.
    """

    name = "eager"

    def __init__(self, cuda: Any = None) -> None:
        self._cuda = cuda or _torch_cuda()
        self._begin = self._cuda.Event(enable_timing=True)
        self._end = self._cuda.Event(enable_timing=True)

    def sample(self, run: Run, prepare: Run) -> Sample:
        self._begin.record()
        run()
        self._end.record()
        self._end.synchronize()
        return Sample(self._begin.elapsed_time(self._end) * 1e3)

    def null(self) -> Run:
        return lambda: self._cuda._sleep(0)


class CuptiClock:
    """Kernel activity of one call, found by correlation id: span, sum and symbols.

    The call runs in the bracket of `EventClock`, so two clocks time the same calls.
    """

    name = "cupti"

    def __init__(self, symbols: tuple[str, ...], cuda: Any = None, tracer: Any = None) -> None:
        self._cuda = cuda or _torch_cuda()
        self._events = EventClock(self._cuda)
        self._tracer, self._symbols = tracer or Tracer(), symbols
        self._usual: tuple[str, ...] = ()

    def sample(self, run: Run, prepare: Run) -> Sample:
        return self._events.until_hidden(prepare, lambda: self._traced(run))

    def _traced(self, run: Run) -> Sample | None:
        with self._tracer.traced() as traced:
            bracket = self._events.bracket(lambda: self._tracer.call(run))
        if bracket is None:
            return None
        kernels = traced.kernels()
        if not kernels:
            raise ClockError("the profiler saw no kernel of the call")
        names = tuple(kernel.name for kernel in kernels)
        if run != self._null:
            self._check(names)
            self._usual = names
        span = max(kernel.end_ns for kernel in kernels) - min(k.start_ns for k in kernels)
        busy = sum(kernel.end_ns - kernel.start_ns for kernel in kernels)
        return replace(bracket, time_us=span / 1e3, sum_us=busy / 1e3, kernels=names,
                       events_us=bracket.time_us)  # fmt: skip

    def _check(self, names: tuple[str, ...]) -> None:
        strangers = [name for name in names if not any(s in name for s in self._symbols)]
        if self._symbols and strangers:
            raise ClockError(
                f"expected kernels named {', '.join(self._symbols)}; saw {', '.join(names)}"
            )
        if self._usual and names != self._usual:
            raise ClockError(
                f"calls before ran {', '.join(self._usual)}; this one {', '.join(names)}: "
                "activity was lost, or the call changed"
            )

    def null(self) -> Run:
        return self._null

    def _null(self) -> None:
        self._cuda._sleep(0)


def make_clock(name: str, device_kind: str, symbols: tuple[str, ...] = ()) -> Clock:
    """The clock of that name; ValueError where the device has none such."""
    if name not in CLOCKS:
        raise ValueError(f"clock {name}: use {', '.join(CLOCKS)}")
    if device_kind == "cpu":
        if name != "wall":
            raise ValueError(f"clock {name} needs a GPU; a CPU has the wall clock")
        return WallClock()
    if name == "wall":
        import torch

        return WallClock(torch.cuda.synchronize)
    if name == "cupti":
        return CuptiClock(symbols)
    kinds: dict[str, Any] = {"events": EventClock, "graph": GraphClock, "eager": EagerClock}
    clock: Clock = kinds[name]()
    return clock


def make_flush(device_kind: str) -> tuple[Run, int]:
    """A call that empties the last-level cache, and the bytes it reads.

    It only reads, so it leaves no dirty lines whose write-back would be charged to the next call.
    """
    import torch

    if device_kind == "cuda":
        size = FLUSH_OVER_CACHE * torch.cuda.get_device_properties().L2_cache_size
    else:
        size = min(max(2 * _cpu_cache_bytes(), LEAST_CPU_FLUSH), MOST_CPU_FLUSH)
    buffer = torch.zeros(size // 4, dtype=torch.float32, device=device_kind)
    total = torch.zeros((), dtype=torch.float32, device=device_kind)
    return lambda: torch.sum(buffer, dim=0, out=total), size


def _cpu_cache_bytes() -> int:
    """The largest cache of the first core, from sysfs; 0 where it does not say."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text.rstrip("KM")) << (20 if text.endswith("M") else 10))
    return max(sizes)
