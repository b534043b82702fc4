"""The device's state while it is timed: clocks, and reasons for throttling."""

from __future__ import annotations

from typing import Any

from pagebench.harness.environment import nvml_reader
from pagebench.harness.records.timing import Block
from pagebench.kernels.device import Device, visible_handles

# Reasons, from nvml.h, why the SM clock is below the requested one.
THROTTLE_BITS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


class Monitor:
    """Reads clocks (MHz) and throttle reasons of one device; a CPU has neither."""

    def __init__(self, device: Device) -> None:
        self._nvml: Any = None
        if device.kind == "cuda":
            import pynvml

            pynvml.nvmlInit()
            self._nvml, self._handle = pynvml, visible_handles()[device.index]

    @property
    def reads(self) -> bool:
        """Whether blocks hold more than their start."""
        return self._nvml is not None

    def block(self, start: int) -> Block:
        """The device's state now, for the block of samples from `start` on."""
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
