"""Nominal DRAM bandwidth: the wall that no cold cell can pass."""

from __future__ import annotations

DATA_RATE = 2  # transfers a memory clock, as NVML reports the clock for GDDR and HBM


def nominal_dram_gbps(bus_width_bits: int, memory_clock_mhz: int) -> float:
    """Peak DRAM bandwidth in GB/s (10^9 bytes): bus width times clock times transfers a clock.

    The formula of CUDA's bandwidth samples; an H200 (6016 bits, 3201 MHz) gives 4814.
    """
    return bus_width_bits / 8 * memory_clock_mhz * 1e6 * DATA_RATE / 1e9
