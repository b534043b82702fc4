"""How a cell is measured, apart from which cell it is."""

from __future__ import annotations

from dataclasses import dataclass

from pagebench.kernels.device import Device

BOUNDARIES = ("run", "plan")
USUAL_SECONDS = 2.0
HALF_WIDTH = {"cuda": 0.002, "cpu": 0.005}  # of the median's interval, at which sampling may stop


@dataclass(frozen=True, slots=True)
class Options:
    """How to measure, apart from what. Defaults are those of the command line."""

    boundary: str = "run"
    clock: str = "events"
    l2: str = "cold"
    seconds: float = USUAL_SECONDS
    process: int = 0
    kernel_file: str | None = None  # of --kernel


def default_options(device: Device, boundary: str = "run") -> Options:
    """Planning is host work and a CPU has only the host's clock: `wall`. Otherwise `events`."""
    if boundary == "plan":
        return Options("plan", "wall", "warm")
    return Options(clock="wall" if device.kind == "cpu" else "events")
