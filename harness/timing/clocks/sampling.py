"""Samples of a call: the only loops around a kernel.

A clock takes one sample at a time: `prepare` puts the cache into its state, then the call runs and
is timed. docs/measuring.md says what each clock brackets and leaves out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from pagebench.harness.records.timing import MOST_SAMPLES, Block, Samples
from pagebench.harness.timing.clocks.interval import interval

Run = Callable[[], object]

CLOCKS = ("wall", "events", "graph", "cupti", "eager")
L2_STATES = ("cold", "warm")
BLOCK_S = 0.05  # the device's state is read at least this often
FLOOR_SAMPLES = 21
# Waiting for an idle device takes the host some microseconds, which vary by fewer than these: up to
# 30 us was seen on an H200 after calls of one stream that last 2 ms (docs/log.md).
LATE_US, LATE_SHARE = 60.0, 0.01
FLAT_CLOCK = 0.01  # the SM clock is flat when three readings agree this well


class ClockError(RuntimeError):
    """The clock cannot give a time that it can vouch for."""


class NotEnclosed(ClockError):
    """The call works outside what the clock brackets: its time is impossible."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed call: its span, and under the cupti clock busy time, symbols and events' time."""

    time_us: float
    sum_us: float | None = None
    kernels: tuple[str, ...] = ()
    events_us: float | None = None
    discarded: int = 0
    spin_cycles: int | None = None
    spin_us: float | None = None  # from the event before the spin to the one after it
    late_us: float | None = None  # how long the device was busy after the end of the bracket


class Monitor(Protocol):
    """Reads the state of a device between samples; `reads` is false on a device without state."""

    @property
    def reads(self) -> bool: ...

    def block(self, start: int) -> Block: ...


class Clock(Protocol):
    """Takes samples of a call. `name` is one of CLOCKS."""

    name: str

    def sample(self, run: Run, prepare: Run) -> Sample: ...

    def null(self) -> Run:
        """An empty call of the kind that the clock times: its time is the clock's floor."""


@dataclass(frozen=True, slots=True)
class Rule:
    """When to stop: the median's interval is narrow, there are enough samples, or time is up.

    `half_width` is relative to the median; `least` and `most` count samples.
    """

    half_width: float = 0.002
    least: int = 50
    most: int = MOST_SAMPLES
    seconds: float = 2.0


def measure(
    clock: Clock, run: Run, prepare: Run, monitor: Monitor, rule: Rule, look: Run | None = None
) -> Samples:
    """Take samples of `run` until `rule` ends it: in time order, the device's state in blocks.

    `look` is called after each sample, outside what is timed. ClockError where the clock
    cannot time the call.
    """
    null = null_samples(clock)
    floor, events_floor = floor_us(null), _median_us(null, "events_us")
    taken: list[Sample] = []
    blocks: list[Block] = []
    started = block_ends = time.perf_counter()
    while not (stopped := _stopped(taken, rule, time.perf_counter() - started)):
        if not blocks or (monitor.reads and time.perf_counter() >= block_ends):
            blocks.append(monitor.block(len(taken)))
            block_ends = time.perf_counter() + BLOCK_S
        taken.append(clock.sample(run, prepare))
        (look or nothing)()
    refuse_late(taken, null)
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

    NVML is read between samples, when the GPU idles and its clock has recovered. The spin runs
    right before the call, at the clock that the earlier calls left.
    """
    ends = [block.start for block in blocks[1:]] + [len(taken)]
    return tuple(
        replace(block, spin_mhz=median_clock(taken[block.start : end], floor))
        for block, end in zip(blocks, ends, strict=True)
    )


def median_clock(taken: list[Sample], floor: float) -> int | None:
    """The median of spin cycles over spin time less the floor, in MHz; None without spins."""
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
        if interval(times).half_width <= rule.half_width:
            return "interval"
    return "time" if taken and elapsed_s >= rule.seconds else None


def refuse_late(taken: list[Sample], null: list[Sample]) -> None:
    """NotEnclosed where the device stays busy after the bracket, and after a null call does not."""
    if taken[-1].events_us is not None:
        return  # the span of the same calls says more
    late, usual = _median_us(taken, "late_us"), _median_us(null, "late_us")
    time_us = _median_us(taken)
    if late is None or usual is None or time_us is None:
        return
    if late - usual > max(LATE_US, LATE_SHARE * time_us):
        raise NotEnclosed(
            f"the device worked for {late - usual:.0f} us after the end of a bracket of "
            f"{time_us:.2f} us: the call works on a stream that the clock does not enclose"
        )


def floor_us(null: list[Sample]) -> float:
    """Median time of null calls in microseconds: what the clock reads with nothing to time."""
    return _median_us(null) or 0.0


def null_samples(clock: Clock) -> list[Sample]:
    run = clock.null()
    for _ in range(3):
        clock.sample(run, nothing)
    return [clock.sample(run, nothing) for _ in range(FLOOR_SAMPLES)]


def _median_us(taken: list[Sample], field: str = "time_us") -> float | None:
    """The median of that field; None where no sample has it."""
    times = [time for sample in taken if (time := getattr(sample, field)) is not None]
    return interval(times).median_us if times else None


def nothing() -> None:
    """Do nothing: prepare no cache, or time an empty call."""


def warm_up(run: Run, monitor: Monitor, synchronise: Run, seconds: float = 0.1) -> None:
    """Run for `seconds`, and on until the SM clock is flat (at most 20 times as long)."""
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


def l2_under(clock: str, asked: str) -> str:
    """The state of the L2 that a call finds: the eager clock prepares nothing, so it is warm."""
    return "warm" if clock == "eager" else asked
