"""The host's clock."""

from __future__ import annotations

import time

from pagebench.harness.timing.clocks.sampling import Run, Sample, nothing


class WallClock:
    """The host's clock around a synchronous call, or with `synchronise` around work on a GPU."""

    name = "wall"

    def __init__(self, synchronise: Run = nothing) -> None:
        self._synchronise = synchronise

    def sample(self, run: Run, prepare: Run) -> Sample:
        prepare()
        self._synchronise()
        begin = time.perf_counter_ns()
        run()
        self._synchronise()
        return Sample((time.perf_counter_ns() - begin) / 1e3)

    def null(self) -> Run:
        return nothing
