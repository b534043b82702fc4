"""Time a call that is not a cell: a developer's own kernel, on the device that torch sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pagebench.harness.errors import UserError
from pagebench.harness.records.timing import Samples
from pagebench.harness.timing.clocks import sampling
from pagebench.harness.timing.clocks.graph import capture
from pagebench.harness.timing.clocks.make import make_clock
from pagebench.harness.timing.options import HALF_WIDTH, default_options
from pagebench.harness.timing.session import Session
from pagebench.kernels.device import find_device


@dataclass(frozen=True, slots=True)
class TimedCall:
    """Samples of a call, and how they were taken: clock, state of the L2, name of the device."""

    samples: Samples
    clock: str
    l2: str
    device: str


def time_call(
    run: Callable[[], object], *, l2: str = "cold", clock: str | None = None, seconds: float = 1.0
) -> TimedCall:
    """Samples of `run`. UserError for an unknown L2 state, or a clock that the device lacks."""
    if l2 not in sampling.L2_STATES:
        raise UserError(f"l2 {l2}: use {' or '.join(sampling.L2_STATES)}")
    session = Session(find_device())
    kind, monitor = session.device.kind, session.monitor
    name = clock or default_options(session.device).clock
    l2 = sampling.l2_under(name, l2)
    made = make_clock(name, kind)
    call = capture(run) if name == "graph" else run
    sampling.warm_up(call, monitor, session.synchronise)
    rule = sampling.Rule(HALF_WIDTH[kind], seconds=seconds)
    samples = sampling.measure(made, call, session.prepare(l2, call), monitor, rule)
    return TimedCall(samples, name, l2, session.device.name)
