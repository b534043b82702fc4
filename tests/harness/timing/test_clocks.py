"""Clocks without a GPU: when sampling stops, what is warmed up, what makes a sample count."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fakes import FakeClock, FakeMonitor
from pagebench.harness.errors import UserError
from pagebench.harness.records.timing import Block
from pagebench.harness.timing import call as calls
from pagebench.harness.timing.clocks import sampling as clocks
from pagebench.harness.timing.clocks.activity import Kernel, Traced, TraceError
from pagebench.harness.timing.clocks.cupti import CuptiClock
from pagebench.harness.timing.clocks.eager import EagerClock
from pagebench.harness.timing.clocks.events import FIRST_SPIN_CYCLES, EventClock
from pagebench.harness.timing.clocks.make import make_clock
from pagebench.harness.timing.clocks.sampling import ClockError, Rule
from pagebench.kernels.device import CPU


def nothing() -> None:
    pass


def noisy(center: float, spread: float) -> Iterator[float]:
    draw = random.Random(1)
    while True:
        yield center + draw.uniform(-spread, spread)


def measured(times: Iterator[float], rule: Rule) -> Any:
    return clocks.measure(FakeClock(times), nothing, nothing, FakeMonitor(1980), rule)  # type: ignore[arg-type]


def test_sampling_stops_when_the_interval_is_narrow() -> None:
    samples = measured(noisy(100, 0.1), Rule(half_width=0.002, least=50))
    assert samples.stopped == "interval"
    assert 50 <= len(samples.time_us) < 200


def test_sampling_stops_at_the_most_samples_when_noise_stays() -> None:
    samples = measured(noisy(100, 30), Rule(half_width=0.002))
    assert (samples.stopped, len(samples.time_us)) == ("samples", 200)


def test_sampling_stops_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def tick() -> float:
        now[0] += 0.02
        return now[0]

    monkeypatch.setattr(clocks.time, "perf_counter", tick)
    samples = measured(noisy(100, 30), Rule(seconds=1.0))
    assert samples.stopped == "time"
    assert 0 < len(samples.time_us) < 60


def test_samples_keep_time_order_and_the_floor() -> None:
    times = [5.0, 3.0, 9.0, 4.0]
    samples = measured(iter(times), Rule(least=4, most=4))
    assert samples.time_us == (5.0, 3.0, 9.0, 4.0)
    assert samples.floor_us == 1.0


def test_every_block_holds_the_device_state_at_its_first_sample() -> None:
    clock, monitor = FakeClock(noisy(100, 30)), FakeMonitor(1980, 1500, 1500)
    samples = clocks.measure(clock, nothing, nothing, monitor, Rule(seconds=1))  # type: ignore[arg-type]
    assert samples.blocks[0].start == 0
    assert samples.blocks[0].sm_mhz == 1980
    assert len(samples.blocks) == monitor.readings


def test_the_cache_is_prepared_before_every_call() -> None:
    log: list[str] = []
    clock = FakeClock(iter([1.0, 2.0]))
    clocks.measure(
        clock, lambda: log.append("run"), lambda: log.append("flush"),
        FakeMonitor(1980), Rule(least=2, most=2),  # type: ignore[arg-type]
    )  # fmt: skip
    assert log == ["flush", "run", "flush", "run"]


def test_warm_up_goes_on_until_the_sm_clock_is_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    ramp = FakeMonitor(345, 345, 800, 1500, 1980, 1980, 1980)
    clocks.warm_up(nothing, ramp, nothing, seconds=0.003)  # type: ignore[arg-type]
    assert ramp.readings == 7


def test_warm_up_gives_up_on_a_clock_that_never_settles() -> None:
    class Restless(FakeMonitor):
        def block(self, start: int) -> Any:
            self._sm_mhz = [1000 + 500 * (self.readings % 2)]
            return super().block(start)

    restless = Restless(1000)
    clocks.warm_up(nothing, restless, nothing, seconds=0.002)  # type: ignore[arg-type]
    assert restless.readings > 3


class FakeCuda:
    """Stands for torch.cuda; a spin of more than `host_cycles` outlasts the queueing."""

    def __init__(self, host_cycles: int) -> None:
        self.host_cycles, self.spin, self.log = host_cycles, 0, list[str]()

    def Event(self, enable_timing: bool) -> Any:
        cuda = self

        class Event:
            def record(self) -> None:
                cuda.log.append("event")

            def query(self) -> bool:
                return cuda.spin <= cuda.host_cycles

            def synchronize(self) -> None:
                cuda.log.append("wait")

            def elapsed_time(self, other: object) -> float:
                return 0.25

        return Event()

    def _sleep(self, cycles: int) -> None:
        self.spin = cycles or self.spin  # the null call is a spin of none
        self.log.append("spin")

    def synchronize(self) -> None:
        self.log.append("drain")


def test_an_event_sample_is_prepared_drained_spun_and_bracketed_in_that_order() -> None:
    cuda, timed = FakeCuda(host_cycles=1), ["event", "call", "event", "wait", "drain"]
    clock = EventClock(cuda)
    sample = clock.sample(lambda: cuda.log.append("call"), lambda: cuda.log.append("flush"))
    assert cuda.log == ["flush", "drain", "spin", "event", "spin", *timed]
    assert (sample.time_us, sample.discarded) == (250.0, 0)
    assert (sample.spin_cycles, sample.spin_us) == (FIRST_SPIN_CYCLES, 250.0)


def test_a_block_holds_the_median_clock_of_its_spins() -> None:
    spins = (1980, 1990, 1970, 1500, 1510, 1520)  # cycles in 1 us beyond a floor of 3 us
    taken = [clocks.Sample(1.0, spin_cycles=cycles, spin_us=4.0) for cycles in spins]
    blocks = clocks._with_spin_clocks([Block(0, 1980), Block(3, 1980)], taken, 3.0)
    assert [block.spin_mhz for block in blocks] == [1980, 1510]


def test_a_sample_whose_spin_ended_early_is_discarded_and_the_spin_lengthened() -> None:
    cuda = FakeCuda(host_cycles=3 * FIRST_SPIN_CYCLES)
    sample = EventClock(cuda).sample(nothing, lambda: cuda.log.append("flush"))
    assert sample.discarded == 2
    assert cuda.spin == 4 * FIRST_SPIN_CYCLES
    assert cuda.log.count("flush") == 3  # each attempt starts from a cold cache


def test_a_call_that_the_host_cannot_queue_behind_any_spin_is_an_error() -> None:
    with pytest.raises(ClockError, match="wall clock"):
        EventClock(FakeCuda(host_cycles=10**12)).sample(nothing, nothing)


def test_the_eager_clock_hides_nothing() -> None:
    cuda = FakeCuda(host_cycles=0)
    EagerClock(cuda).sample(lambda: cuda.log.append("call"), lambda: cuda.log.append("flush"))
    assert cuda.log == ["event", "call", "event", "wait"]


class FakeTracer:
    """Sees the given kernels in every bracket; `log` says what ran inside the call's mark."""

    def __init__(self, *kernels: Kernel) -> None:
        self._kernels, self.brackets = list(kernels), 0

    @contextmanager
    def traced(self) -> Iterator[Any]:
        self.brackets += 1
        owners = {kernel.correlation: 1 for kernel in self._kernels}
        yield Traced(1, 2, owners, list(self._kernels))

    def call(self, run: Any) -> None:
        run()


def test_cupti_gives_the_span_the_sum_the_symbols_and_the_events_of_the_same_call() -> None:
    tracer = FakeTracer(Kernel("decode<1>", 1000, 9000, 1), Kernel("merge", 9500, 11000, 2))
    cuda = FakeCuda(0)
    clock = CuptiClock(("decode", "merge"), cuda, tracer)
    sample = clock.sample(lambda: cuda.log.append("call"), lambda: cuda.log.append("flush"))
    assert (sample.time_us, sample.sum_us, sample.events_us) == (10.0, 9.5, 250.0)
    assert sample.kernels == ("decode<1>", "merge")
    timed = ["event", "call", "event", "wait", "drain"]
    assert cuda.log == ["flush", "drain", "spin", "event", "spin", *timed]


def test_a_watched_call_whose_spin_ended_early_is_traced_anew() -> None:
    tracer = FakeTracer(Kernel("decode", 0, 1000, 1))
    cuda = FakeCuda(host_cycles=FIRST_SPIN_CYCLES)
    sample = CuptiClock((), cuda, tracer).sample(nothing, nothing)
    assert (sample.discarded, tracer.brackets, sample.time_us) == (1, 2, 1.0)


def test_watched_samples_keep_both_clocks_and_both_floors() -> None:
    clock = CuptiClock((), FakeCuda(0), FakeTracer(Kernel("decode", 0, 1000, 1)))
    samples = clocks.measure(clock, nothing, nothing, FakeMonitor(1980), Rule(least=3, most=3))  # type: ignore[arg-type]
    assert (samples.time_us, samples.events_us) == ((1.0,) * 3, (250.0,) * 3)
    assert (samples.floor_us, samples.events_floor_us) == (1.0, 250.0)


def test_cupti_fails_on_a_kernel_that_the_adapter_did_not_promise() -> None:
    tracer = FakeTracer(Kernel("other_backend", 0, 1, 1))
    with pytest.raises(ClockError, match="saw other_backend"):
        CuptiClock(("decode",), FakeCuda(0), tracer).sample(nothing, nothing)


def test_cupti_fails_when_a_later_call_shows_fewer_kernels() -> None:
    tracer = FakeTracer(Kernel("decode", 0, 1, 1), Kernel("merge", 1, 2, 2))
    clock = CuptiClock((), FakeCuda(0), tracer)
    clock.sample(nothing, nothing)
    tracer._kernels.pop()
    with pytest.raises(ClockError, match="ran decode, merge; this one ran decode"):
        clock.sample(nothing, nothing)


def test_cupti_fails_when_it_saw_no_kernel() -> None:
    with pytest.raises(ClockError, match="no kernel"):
        CuptiClock((), FakeCuda(0), FakeTracer()).sample(nothing, nothing)


def test_kernels_without_a_correlation_id_are_an_error_and_those_round_the_call_are_not() -> None:
    spin, mine = Kernel("spin", 1, 4, 8), Kernel("mine", 5, 6, 1)
    assert Traced(1, 2, {1: 1, 8: 2}, [mine, spin]).kernels() == [mine]
    with pytest.raises(TraceError, match="1 of 3"):
        Traced(1, 2, {1: 1, 8: 2}, [mine, spin, Kernel("stranger", 1, 2, 9)]).kernels()


def test_a_cpu_has_only_the_wall_clock() -> None:
    with pytest.raises(UserError, match="needs a GPU"):
        make_clock("events", "cpu")
    with pytest.raises(UserError, match="use wall, events"):
        make_clock("sundial", "cpu")
    assert make_clock("wall", "cpu").name == "wall"


@pytest.mark.parametrize(("clock", "state"), [("wall", "cold"), ("eager", "warm")])
def test_a_call_that_is_no_cell_says_which_cache_it_found(
    clock: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "make_clock", lambda *of: FakeClock(noisy(100, 0.1)))
    monkeypatch.setattr(calls, "find_device", lambda: CPU)
    timed = calls.time_call(nothing, clock=clock, l2="cold", seconds=0.05)
    assert (timed.clock, timed.l2) == (clock, state)
