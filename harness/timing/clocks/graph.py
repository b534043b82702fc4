"""Events around a replayed CUDA graph, and how to capture a call into one."""

from __future__ import annotations

from pagebench.harness.timing.clocks.events import EventClock
from pagebench.harness.timing.clocks.sampling import Run, Sample


class GraphClock:
    """Events around one replay of a captured call. `run` is that replay."""

    name = "graph"

    def __init__(self) -> None:
        self._events = EventClock()

    def sample(self, run: Run, prepare: Run) -> Sample:
        return self._events.sample(run, prepare)

    def null(self) -> Run:
        return capture(self._events.null())


def capture(run: Run) -> Run:
    """Capture one `run` in a CUDA graph; returns the graph's replay."""
    import torch

    run()  # one-time initialisation must not be captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    replay: Run = graph.replay
    return replay
