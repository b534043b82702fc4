"""A pretended torch.cuda with several GPUs, for what times a call on the current one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from fakes import FakeMonitor
from pagebench.harness.environment import Environment
from pagebench.harness.timing import call
from pagebench.harness.timing.clocks.sampling import Sample
from pagebench.kernels.device import Device

NAMES = ("NVIDIA H200", "NVIDIA L40S")
UUIDS = ("00000000-aaaa", "11111111-bbbb")
NOMINAL_GBPS = 4800.0


@dataclass
class Gpus:
    """Two GPUs: which one is current, and which one each sample was taken on."""

    current: int = 0
    time_us: float = 100.0
    sampled_on: list[int] = field(default_factory=list)
    nvml_uuids: tuple[str, ...] = tuple(f"GPU-{each}" for each in UUIDS)

    def set_device(self, index: int) -> None:
        self.current = index

    def find_device(self, wanted: str = "auto") -> Device:
        index = int(wanted.partition(":")[2] or 0)
        return Device("cuda", NAMES[index], index, (9, 0))

    def session(self, device: Device) -> Any:
        assert device.index is not None
        self.set_device(device.index)
        here = Environment(
            gpu=device.name, nominal_dram_gbps=NOMINAL_GBPS, uuid=self.nvml_uuids[device.index]
        )
        return SimpleNamespace(
            device=device,
            environment=here,
            environment_now=lambda: here,
            monitor=FakeMonitor(1980),
            synchronise=lambda: None,
            prepare=lambda l2, run: lambda: None,
        )

    def clock(self, name: str, kind: str) -> Any:
        return SimpleNamespace(name=name, sample=self._sample, null=lambda: _null)

    def _sample(self, run: Callable[[], object], prepare: Callable[[], object]) -> Sample:
        prepare()
        run()
        if run is _null:
            return Sample(1.0)
        self.sampled_on.append(self.current)
        return Sample(self.time_us)


def _null() -> None:
    """An empty call."""


@contextmanager
def pretended(gpus: Gpus) -> Iterator[Gpus]:
    """torch.cuda, NVML and the clock are those of the pretended GPUs."""
    with (
        patch.object(torch.version, "cuda", "13.0"),
        patch.object(torch.cuda, "is_available", lambda: True),
        patch.object(torch.cuda, "current_device", lambda: gpus.current),
        patch.object(torch.cuda, "set_device", gpus.set_device),
        patch.object(
            torch.cuda, "get_device_properties", lambda at: SimpleNamespace(uuid=UUIDS[at])
        ),
        patch.object(call, "find_device", gpus.find_device),
        patch.object(call, "Session", gpus.session),
        patch.object(call, "make_clock", gpus.clock),
        patch.object(call.sampling, "warm_up", lambda run, *_: run()),
    ):
        yield gpus
