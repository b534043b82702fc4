"""CUDA events around a call, behind a spin that hides its launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

from pagebench.harness.timing.clocks.sampling import ClockError, Run, Sample

FIRST_SPIN_CYCLES = 200_000  # 0.1 ms at 2 GHz: more than queueing one call costs
LEAD_IN_CYCLES = 40_000  # 20 us; else the first event would fire before the spin is queued
MOST_SPIN_CYCLES = 2_000_000_000


def torch_cuda() -> Any:
    """`torch.cuda`, loaded when a clock is made."""
    import torch

    return torch.cuda


class EventClock:
    """CUDA events behind a spin that hides the launch: prepare, drain, spin, event, call, event.

    A sample counts only if its first event had not fired when the second was queued. Otherwise the
    host was timed: the spin is doubled and the sample is taken again.
    """

    name = "events"

    def __init__(self, cuda: Any = None) -> None:
        self._cuda = cuda or torch_cuda()
        self._spin = self._cuda.Event(enable_timing=True)
        self._begin = self._cuda.Event(enable_timing=True)
        self._end = self._cuda.Event(enable_timing=True)
        self._cycles = FIRST_SPIN_CYCLES

    def sample(self, run: Run, prepare: Run) -> Sample:
        return self.until_hidden(prepare, lambda: self.bracket(run))

    def until_hidden(self, prepare: Run, attempt: Callable[[], Sample | None]) -> Sample:
        """Prepare, drain and attempt until the spin outlasts the queueing; else ClockError."""
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
        ended = perf_counter()
        self._cuda.synchronize()
        late_us = (perf_counter() - ended) * 1e6
        if not spin_outlasted_queueing:
            return None
        return Sample(
            self._begin.elapsed_time(self._end) * 1e3,
            spin_cycles=self._cycles,
            spin_us=self._spin.elapsed_time(self._begin) * 1e3,
            late_us=late_us,
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
