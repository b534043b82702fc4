"""Arguments that are passed together wherever cells are timed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pagebench.harness.progress import Progress
from pagebench.harness.timing.options import Options
from pagebench.kernels.device import Device


@dataclass(frozen=True, slots=True)
class Bench:
    """Where and how to time, the results file, and who hears about progress."""

    device: Device
    options: Options
    out: Path
    progress: Progress
