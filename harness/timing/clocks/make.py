"""A clock by its name."""

from __future__ import annotations

from collections.abc import Callable

from pagebench.harness.errors import UserError
from pagebench.harness.timing.clocks.cupti import CuptiClock
from pagebench.harness.timing.clocks.eager import EagerClock
from pagebench.harness.timing.clocks.events import EventClock
from pagebench.harness.timing.clocks.graph import GraphClock
from pagebench.harness.timing.clocks.sampling import CLOCKS, Clock
from pagebench.harness.timing.clocks.wall import WallClock

ON_GPU: dict[str, Callable[[], Clock]] = {
    "events": EventClock,
    "graph": GraphClock,
    "eager": EagerClock,
}


def make_clock(name: str, device_kind: str, symbols: tuple[str, ...] = ()) -> Clock:
    """The clock of that name. UserError for an unknown one, or one that the device lacks.

    `symbols` are parts of the call's kernel names, which the cupti clock checks.
    """
    if name not in CLOCKS:
        raise UserError(f"clock {name}: use {', '.join(CLOCKS)}")
    if device_kind == "cpu":
        if name != "wall":
            raise UserError(f"clock {name} needs a GPU; a CPU has the wall clock")
        return WallClock()
    if name == "wall":
        import torch

        return WallClock(torch.cuda.synchronize)
    return CuptiClock(symbols) if name == "cupti" else ON_GPU[name]()
