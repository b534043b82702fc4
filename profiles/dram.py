"""Nominal DRAM bandwidth, which no cold cell can exceed."""

from __future__ import annotations

DATA_RATE = 2  # transfers a memory clock, as NVML reports the clock for GDDR and HBM


def nominal_dram_gbps(bus_width_bits: int, memory_clock_mhz: int) -> float:
    """Peak DRAM bandwidth in GB/s (10^9 bytes): bus width x clock x transfers per clock.

    The formula is that of CUDA's bandwidth samples. An H200 (6016 bits, 3201 MHz) has 4814 GB/s.
    """
    return bus_width_bits / 8 * memory_clock_mhz * 1e6 * DATA_RATE / 1e9
