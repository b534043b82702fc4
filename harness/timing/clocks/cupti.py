"""Kernel activity of one call, with CUDA events around it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pagebench.harness.timing.clocks.activity import Tracer
from pagebench.harness.timing.clocks.events import EventClock, torch_cuda
from pagebench.harness.timing.clocks.sampling import ClockError, Run, Sample


class CuptiClock:
    """Kernel activity of one call, found by correlation id: span, sum and symbols.

    The call runs in the bracket of `EventClock`, so both clocks time the same calls. ClockError
    where no kernel, or an unexpected one, was seen.
    """

    name = "cupti"

    def __init__(self, symbols: tuple[str, ...], cuda: Any = None, tracer: Any = None) -> None:
        self._cuda = cuda or torch_cuda()
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
        events_us = bracket.time_us
        return replace(
            bracket, time_us=span / 1e3, sum_us=busy / 1e3, kernels=names, events_us=events_us
        )

    def _check(self, names: tuple[str, ...]) -> None:
        strangers = [name for name in names if not any(s in name for s in self._symbols)]
        if self._symbols and strangers:
            raise ClockError(
                f"expected kernels named {', '.join(self._symbols)}; saw {', '.join(names)}"
            )
        if self._usual and names != self._usual:
            raise ClockError(
                f"earlier calls ran {', '.join(self._usual)}; this one ran {', '.join(names)}: "
                "activity was lost, or the call changed"
            )

    def null(self) -> Run:
        return self._null

    def _null(self) -> None:
        self._cuda._sleep(0)
