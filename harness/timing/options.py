"""How a cell is measured: boundary, clock, state of the L2, time limit."""

from __future__ import annotations

from dataclasses import dataclass

from pagebench.kernels.device import Device

BOUNDARIES = ("run", "plan")
USUAL_SECONDS = 2.0
HALF_WIDTH = {"cuda": 0.002, "cpu": 0.005}  # of the interval over the median, to stop at


@dataclass(frozen=True, slots=True)
class Options:
    """How to measure a cell. Defaults are those of the command line."""

    boundary: str = "run"
    clock: str = "events"
    l2: str = "cold"
    seconds: float = USUAL_SECONDS
    process: int = 0
    kernel_file: str | None = None  # of --kernel
    kernel_sha: str | None = None  # of its content and what it imports


def default_options(device: Device, boundary: str = "run") -> Options:
    """Clock `wall` for planning, which is host work, and for a CPU; otherwise `events`."""
    if boundary == "plan":
        return Options("plan", "wall", "warm")
    return Options(clock="wall" if device.kind == "cpu" else "events")
