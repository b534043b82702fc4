"""Events round a replayed CUDA graph, and how a call gets into one."""

from __future__ import annotations

from pagebench.harness.timing.clocks.events import EventClock
from pagebench.harness.timing.clocks.sampling import Run, Sample


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
