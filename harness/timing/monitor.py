"""The device's state while it is timed: clocks, and reasons for throttling."""

from __future__ import annotations

from pagebench.harness.records.timing import Block
from pagebench.kernels.device import Device
from pagebench.kernels.nvml import NVML_CLOCK_MEM, NVML_CLOCK_SM, watched

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
        self._seen = watched(device)

    @property
    def reads(self) -> bool:
        """Whether blocks hold more than their start."""
        return self._seen is not None

    def block(self, start: int) -> Block:
        """The device's state now, for the block of samples from `start` on."""
        if self._seen is None:
            return Block(start)
        nvml, gpu = self._seen
        reasons = nvml.read("nvmlDeviceGetCurrentClocksThrottleReasons", gpu.whole) or 0
        return Block(
            start,
            nvml.read("nvmlDeviceGetClockInfo", gpu.whole, NVML_CLOCK_SM),
            nvml.read("nvmlDeviceGetClockInfo", gpu.whole, NVML_CLOCK_MEM),
            tuple(word for bit, word in THROTTLE_BITS.items() if reasons & bit),
        )
