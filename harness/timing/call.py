"""Time a call that is not a cell: a developer's own kernel, on torch's current device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from pagebench.harness.environment import Environment
from pagebench.harness.errors import UserError, as_user_error
from pagebench.harness.records.timing import Samples
from pagebench.harness.timing.clocks import sampling
from pagebench.harness.timing.clocks.graph import capture
from pagebench.harness.timing.clocks.interval import Interval, interval
from pagebench.harness.timing.clocks.make import make_clock
from pagebench.harness.timing.findings import Failure
from pagebench.harness.timing.measure import refuse_implausible
from pagebench.harness.timing.options import HALF_WIDTH, default_options
from pagebench.harness.timing.refuse import refuse_torch
from pagebench.harness.timing.session import Session
from pagebench.kernels.device import Device, DeviceError, find_device

NEAR_FLOOR = 100  # below so many floors a call is compared with an empty one in the same cache

HOST_NOISE = 2  # two empty calls differ by less under the host's clock, in a cold cache too


class Rejected(UserError):
    """The call was timed, but the time is impossible."""


@dataclass(frozen=True, slots=True)
class TimedCall:
    """Samples of a call, and how they were taken: clock, state of the L2, name of the device."""

    samples: Samples
    clock: str
    l2: str
    device: str
    environment: Environment


def time_call(
    run: Callable[[], object],
    *,
    l2: str = "cold",
    clock: str | None = None,
    seconds: float = 1.0,
    reads_bytes: int | None = None,
) -> TimedCall:
    """Samples of `run` on torch's current device, which stays current.

    `reads_bytes` is what the call must read from DRAM when the L2 is cold. UserError for an unknown
    L2 state, or a clock that the device lacks; Rejected for a time that cannot be one of `run`.
    """
    if l2 not in sampling.L2_STATES:
        raise UserError(f"l2 {l2}: use {' or '.join(sampling.L2_STATES)}")
    device = current_device()
    with _left_current(device):
        session = Session(device)
        _refuse_other_gpu(session)
        name = clock or default_options(device).clock
        l2 = sampling.l2_under(name, l2)
        samples = _samples(run, session, name, l2, seconds)
        try:
            middle = interval(samples.time_us).median_us
            from_dram = reads_bytes if l2 == "cold" else None
            refuse_implausible(middle, samples.floor_us, from_dram, session)
        except Failure as failure:
            raise Rejected(failure.reason) from failure
        return TimedCall(samples, name, l2, device.name, session.environment_now())


def _samples(run: sampling.Run, session: Session, name: str, l2: str, seconds: float) -> Samples:
    """Samples of the call under that clock. Rejected where an empty call takes as long."""
    kind, monitor = session.device.kind, session.monitor
    clock = make_clock(name, kind)
    call = capture(run) if name == "graph" else run
    sampling.warm_up(call, monitor, session.synchronise)
    _refuse_other_current(session.device)
    prepare = session.prepare(l2, call)
    rule = sampling.Rule(HALF_WIDTH[kind], seconds=seconds)
    samples = sampling.measure(clock, call, prepare, monitor, rule)
    _refuse_other_current(session.device)
    found, few = interval(samples.time_us), sampling.FLOOR_SAMPLES
    if found.median_us <= NEAR_FLOOR * samples.floor_us:
        once = replace(rule, least=few, most=few)
        empty = sampling.measure(clock, clock.null(), prepare, monitor, once)
        _refuse_empty(found, interval(empty.time_us), HOST_NOISE if name == "wall" else 1)
    return samples


def _refuse_empty(found: Interval, empty: Interval, noise: float) -> None:
    """Rejected where the call cannot be told from an empty one, sampled by the same loop.

    The floor is read in a warm cache. Cold, an empty call takes longer than that.
    """
    if found.low_us <= noise * empty.high_us:
        raise Rejected(
            f"{found.median_us:.2f} us is not above an empty call's {empty.median_us:.2f} us: "
            "the interval is empty"
        )


# --- The device -----------------------------------------------------------------------------------


def current_device() -> Device:
    """The device that is current in torch; the CPU where there is no GPU.

    UserError where there is a GPU that torch cannot use, or a driver that fails.
    """
    with as_user_error(DeviceError):
        found = find_device()
    if found.kind != "cuda":
        return found
    refuse_torch(found)
    import torch

    if not torch.cuda.is_available():
        raise UserError(f"{found.name} is here, but this torch ({torch.__version__}) cannot use it")
    index = torch.cuda.current_device()
    return found if index == found.index else find_device(f"cuda:{index}")


@contextmanager
def _left_current(device: Device) -> Iterator[None]:
    """The device is current again afterwards, also after an error."""
    try:
        yield
    finally:
        if device.kind == "cuda":
            import torch

            with suppress(RuntimeError):  # after a fault on the device only its error matters
                torch.cuda.set_device(device.index)


def _refuse_other_current(device: Device) -> None:
    """Rejected where the call made another device current: its clock would time nothing of it."""
    if device.kind != "cuda":
        return
    import torch

    index = torch.cuda.current_device()
    if index != device.index:
        raise Rejected(
            f"the call makes cuda:{index} current and was timed on cuda:{device.index}: "
            "make that device current before device_benchmark"
        )


def _refuse_other_gpu(session: Session) -> None:
    """UserError where NVML tells of another GPU than the one that torch has at that index."""
    if session.device.kind != "cuda" or session.environment.uuid is None:
        return
    import torch

    seen = getattr(torch.cuda.get_device_properties(session.device.index), "uuid", None)
    told = session.environment.uuid
    if seen is None or told.startswith("MIG") or str(seen) in told:
        return
    raise UserError(
        f"{session.device.torch_name} is GPU-{seen} for torch and {told} for NVML: "
        "set CUDA_DEVICE_ORDER=PCI_BUS_ID before CUDA starts"
    )
