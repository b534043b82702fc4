"""Time a call that is no cell: a developer's own kernel, on the device that torch sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pagebench.harness.records.timing import Samples
from pagebench.harness.timing.clocks import sampling as clocks
from pagebench.harness.timing.measure import HALF_WIDTH, Session, default_options
from pagebench.kernels.device import find_device


def time_call(
    run: Callable[[], object], *, l2: str = "cold", clock: str | None = None, seconds: float = 1.0
) -> tuple[Samples, dict[str, Any]]:
    """Samples of `run`, and how they were taken. ValueError on a clock or L2 state there is not."""
    if l2 not in clocks.L2_STATES:
        raise ValueError(f"l2 {l2}: use {' or '.join(clocks.L2_STATES)}")
    session = Session(find_device())
    name = clock or default_options(session.device).clock
    l2 = clocks.l2_under(name, l2)
    made = clocks.make_clock(name, session.device.kind)
    call = clocks.capture(run) if name == "graph" else run
    clocks.warm_up(call, session.monitor, session.synchronise)
    rule = clocks.Rule(HALF_WIDTH[session.device.kind], seconds=seconds)
    samples = clocks.measure(made, call, session.prepare(l2, call), session.monitor, rule)
    taken = {"clock": name, "l2": l2, "floor_us": samples.floor_us, "device": session.device.name}
    return samples, taken
