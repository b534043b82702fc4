"""Run Nsight Compute by its command line, and turn its complaints into remedies.

Sources: the Profiling Guide and CLI guide of ncu 2024.1 to 2025.3.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagebench.profiles.metrics import LAUNCH, PASSES

LEAST_VERSION = (2022, 1)  # the first whose raw CSV page has the format read here
UNCONFIGURED = ("--config-file", "off")  # a config.ncu-cfg could set any option
NO_KERNELS = "No kernels were profiled"
ENDED = "The application returned an error code"
# Lines that ncu adds to every failure, after those that name the cause.
AFTERMATH = (ENDED, "Failed to profile", "An error occurred while trying to profile")
# What ncu prints, and what to do about it.
TROUBLE = (
    (
        "ERR_NVGPUCTRPERM",
        "this user may not read GPU counters: run as root (with `sudo env PATH=$PATH`; a "
        "container with --cap-add SYS_ADMIN) or load the driver with "
        "NVreg_RestrictProfilingToAdminUsers=0; under WSL allow all users in NVIDIA's Control "
        "Panel on Windows",
    ),
    (
        "driver resource was unavailable",
        "another profiler holds the counters: pause DCGM with "
        "`dcgmi profile --pause`, end other ncu, nsys or CUPTI processes",
    ),
    (
        "LibraryNotLoaded",
        "the profiler cannot reach the driver here (a sandbox such as gVisor?): "
        "run on a machine with direct driver access",
    ),
    ("lock file", "another user's lock file blocks ncu: set TMPDIR to a folder of your own"),
    (
        "not compatible with Nsight Compute",
        "the driver is too old for this ncu: update the driver, or use an older ncu",
    ),
    (
        "failed to connect to the CUDA driver",
        "there is no CUDA driver, or a stub libcuda.so comes first on the library path",
    ),
    ("Failed to find metric", "this ncu lacks a counter of this chip: use a newer ncu"),
    (NO_KERNELS, "no kernel ran between profiler start and stop"),
)


class NcuError(RuntimeError):
    """Nsight Compute is missing, too old, not permitted, or saw no kernel: one line, a remedy."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How ncu counts: with `cold` it flushes the caches before every pass, else leaves them."""

    cold: bool = True
    metrics: tuple[str, ...] | None = None  # our names; None for all counters

    @property
    def cache_control(self) -> str:
        return "all" if self.cold else "none"


def find_ncu() -> Path:
    """The ncu on the PATH; NcuError where there is none or it is too old."""
    found = shutil.which("ncu")
    if not found:
        raise NcuError(
            "ncu is not on the PATH: install Nsight Compute, or `pagebench import` a report"
        )
    version = ncu_version(Path(found))
    if version < LEAST_VERSION:
        raise NcuError(f"ncu {version[0]}.{version[1]} is too old: use {LEAST_VERSION[0]} or later")
    return Path(found)


def ncu_version(ncu: Path) -> tuple[int, ...]:
    """Major, minor and patch number of that ncu; NcuError where it reports none."""
    text = subprocess.run([str(ncu), "--version"], capture_output=True, text=True).stdout
    match = re.search(r"Version (\d+)\.(\d+)\.(\d+)", text)
    if not match:
        raise NcuError(f"{ncu} --version reports no version: install Nsight Compute again")
    return tuple(map(int, match.groups()))


def command(
    ncu: Path, setting: Setting, names: Iterable[str], report: Path, child: Sequence[str]
) -> list[str]:
    """The command line that counts `names` between profiler start and stop, at unlocked clocks."""
    metrics = ",".join([*names, *LAUNCH.values(), PASSES])
    file = str(report).replace("%", "%%")  # ncu expands macros that begin with a single %
    return [
        *(str(ncu), *UNCONFIGURED, "--profile-from-start", "off", "--nvtx"),
        *("--target-processes", "all"),
        *("--replay-mode", "kernel", "--cache-control", setting.cache_control),
        *("--clock-control", "none", "--metrics", metrics, "--check-exit-code", "1"),
        *("--force-overwrite", "--export", file, *child),
    ]


def explain(output: str) -> str | None:
    """The remedy for a known complaint in ncu's own lines of `output`, else None."""
    said = "\n".join(line for line in output.splitlines() if line.startswith("=="))
    return next((remedy for sign, remedy in TROUBLE if sign in said), None)


def errors(output: str) -> str:
    """The text of ncu's own error lines, without those that it adds to every failure."""
    marked = (line for line in output.splitlines() if line.startswith("==ERROR=="))
    said = (line.removeprefix("==ERROR==").strip() for line in marked)
    return " ".join(text for text in said if not text.startswith(AFTERMATH))


def export_csv(ncu: Path, report: Path) -> str:
    """The raw page of a report as CSV, in base units and the C locale.

    NcuError where ncu cannot read the report.
    """
    words = ("--csv", "--page", "raw", "--print-units", "base")
    done = subprocess.run(
        [str(ncu), *UNCONFIGURED, "--import", str(report), *words],
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise NcuError(explain(said) or f"{report}: {said.partition(chr(10))[0]}")
    return done.stdout
