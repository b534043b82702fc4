"""What a measuring process keeps from cell to cell."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from msgspec.structs import replace

from pagebench.harness.environment import Environment, environment, neighbours, usage, versions
from pagebench.harness.errors import UserError
from pagebench.harness.timing.clocks.flush import make_flush
from pagebench.harness.timing.clocks.sampling import Run
from pagebench.harness.timing.monitor import Monitor
from pagebench.kernels.device import Device, has_context, is_integrated, multiprocessors


@dataclass(slots=True)
class Session:
    """The device, its monitor, the flush (made when first needed) and the environment.

    `environment` holds what stays constant while the process lives, so no neighbours.
    """

    device: Device
    monitor: Monitor = field(init=False)
    environment: Environment = field(init=False)
    flush: Run | None = field(init=False, default=None)
    _before: dict[str, int | None] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.environment = environment(self.device)
        if self.device.kind == "cuda":
            import torch

            if not has_context():
                self._before = usage(self.device)
            try:
                torch.cuda.set_device(self.device.index)
                torch.cuda.synchronize()  # the context must exist before processes are counted
            except (RuntimeError, AssertionError) as error:
                raise UserError(_cannot_use(self.device, error)) from error
            count = multiprocessors(self.device.torch_name)
            shared = is_integrated(self.device)
            self.environment = replace(self.environment, sm_count=count, integrated=shared)
        self.monitor = Monitor(self.device)

    def prepare(self, l2: str, run: Run) -> Run:
        """A function that puts the cache into state `l2` before a sample of `run`."""
        if l2 == "warm":
            return run
        if self.flush is None:
            self.flush, size = make_flush(self.device.kind)
            self.environment = replace(self.environment, flush_bytes=size)
        return self.flush

    def environment_now(self) -> Environment:
        """The environment, with the load or the other processes at this moment."""
        if self.device.kind == "cpu":
            return replace(self.environment, load=round(os.getloadavg()[0], 2))
        found = neighbours(self.device)
        before = self._before if found.get("processes_hidden") else {}
        return replace(self.environment, **found, **before)

    def synchronise(self) -> None:
        """Wait for the device. RuntimeError after a device fault, which ruins the process."""
        if self.device.kind == "cuda":
            import torch

            torch.cuda.synchronize()

    @property
    def is_usable(self) -> bool:
        """Whether the device still works: after a fault on it, the process is lost."""
        try:
            self.synchronise()
        except RuntimeError:
            return False
        return True


def _cannot_use(device: Device, error: Exception) -> str:
    """What torch says of a GPU that is here and that it cannot use: too old a driver, a fault."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return (
        f"{device.name} is here, but torch {versions().get('torch', '')} cannot use it: "
        f"{lines[0].rstrip('.')}; pagebench doctor says what is installed"
    )
