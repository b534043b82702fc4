"""What a naive benchmark would report."""

from __future__ import annotations

from typing import Any

from pagebench.harness.timing.clocks.events import torch_cuda
from pagebench.harness.timing.clocks.sampling import Run, Sample


class EagerClock:
    """An event pair around an eager call, launch included: what a naive benchmark would report.

    It shows how wrong that is; nothing is decided by it.
    """

    name = "eager"

    def __init__(self, cuda: Any = None) -> None:
        self._cuda = cuda or torch_cuda()
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
