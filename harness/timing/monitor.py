"""What the device does while it is timed: clocks, and what holds them down."""

from __future__ import annotations

from typing import Any

from pagebench.harness.environment import nvml_reader
from pagebench.harness.records.timing import Block
from pagebench.kernels.device import Device, visible_handles

# Reasons, from nvml.h, for which the SM clock is below what was asked for.
THROTTLE_BITS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


class Monitor:
    """Reads clocks and throttle reasons of one device; on a CPU there is nothing to read."""

    def __init__(self, device: Device) -> None:
        self._nvml: Any = None
        if device.kind == "cuda":
            import pynvml

            pynvml.nvmlInit()
            self._nvml, self._handle = pynvml, visible_handles()[device.index]

    @property
    def reads(self) -> bool:
        """Whether blocks hold anything."""
        return self._nvml is not None

    def block(self, start: int) -> Block:
        """The device's state as the block of samples from `start` on begins."""
        if self._nvml is None:
            return Block(start)
        nvml, read = self._nvml, nvml_reader(self._nvml)
        reasons = read(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, self._handle) or 0
        return Block(
            start,
            read(nvml.nvmlDeviceGetClockInfo, self._handle, nvml.NVML_CLOCK_SM),
            read(nvml.nvmlDeviceGetClockInfo, self._handle, nvml.NVML_CLOCK_MEM),
            tuple(word for bit, word in THROTTLE_BITS.items() if reasons & bit),
        )
