"""Drive Nsight Compute by its command line and read what it prints.

Facts: the Profiling Guide and CLI guide of ncu 2024.1 to 2025.3. Columns are read by name, the
second row holds units, numbers carry thousands separators.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagebench.profiles.counters import KernelRow
from pagebench.profiles.metrics import LAUNCH, PASSES, metric

LEAST_VERSION = (2022, 1)  # the first whose raw CSV page has the form read here
NVTX_COLUMN = "Push/Pop_Range"
COLUMNS = ("Kernel Name", "Grid Size", "Block Size")
EXPORT = "export with LC_ALL=C ncu --import FILE --csv --page raw --print-units base"
UNCONFIGURED = ("--config-file", "off")  # config.ncu-cfg, here or at home, may set any option
NUMBER = re.compile(r"-?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?([eE][+-]?\d+)?")
THREE_DECIMALS = re.compile(r"\.\d{3}$")  # ncu prints two: these are another locale's thousands
MOST_PER_CENT = 200  # a rate whose parts come from different passes may exceed 100, but not so far
NO_KERNELS = "No kernels were profiled"
ENDED = "The application returned an error code"
# What ncu adds to every failure: the cause stands above it.
AFTERMATH = (ENDED, "Failed to profile", "An error occurred while trying to profile")
# What ncu says, and what to do about it.
TROUBLE = (
    ("ERR_NVGPUCTRPERM", "this user may not read GPU counters: run as root (with `sudo env "
     "PATH=$PATH`; a container with --cap-add SYS_ADMIN) or load the driver with "
     "NVreg_RestrictProfilingToAdminUsers=0; under WSL allow all users in NVIDIA's Control Panel "
     "on Windows"),
    ("driver resource was unavailable", "another profiler holds the counters: pause DCGM with "
     "`dcgmi profile --pause`, end other ncu, nsys or CUPTI processes"),
    ("LibraryNotLoaded", "the profiler cannot reach the driver here (a sandbox such as gVisor?): "
     "run on a machine with direct driver access"),
    ("lock file", "another user's lock is in the way: set TMPDIR to a folder of your own"),
    ("not compatible with Nsight Compute", "the driver is older than this ncu wants: update it, or "
     "use an older ncu"),
    ("failed to connect to the CUDA driver", "no driver, or a stub libcuda.so first on the path"),
    ("Failed to find metric", "this ncu does not know a counter of this chip: use a newer ncu"),
    (NO_KERNELS, "no kernel matched between profiler start and stop"),
)  # fmt: skip


class NcuError(RuntimeError):
    """Nsight Compute is missing, too old, not permitted, or matched nothing. One line, a remedy."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How ncu counts: `cold` flushes caches before every pass, else they are as they were."""

    cold: bool = True
    metrics: tuple[str, ...] | None = None  # our names; None is the whole card

    @property
    def cache_control(self) -> str:
        return "all" if self.cold else "none"


def find_ncu() -> Path:
    """The ncu on the PATH, new enough; NcuError otherwise."""
    found = shutil.which("ncu")
    if not found:
        raise NcuError("ncu is not on the PATH: install Nsight Compute, or --import what it made")
    version = ncu_version(Path(found))
    if version < LEAST_VERSION:
        raise NcuError(f"ncu {version[0]}.{version[1]} is too old: use {LEAST_VERSION[0]} or later")
    return Path(found)


def ncu_version(ncu: Path) -> tuple[int, ...]:
    text = subprocess.run([str(ncu), "--version"], capture_output=True, text=True).stdout
    match = re.search(r"Version (\d+)\.(\d+)\.(\d+)", text)
    if not match:
        raise NcuError(f"{ncu} does not tell its version")
    return tuple(map(int, match.groups()))


def command(
    ncu: Path, setting: Setting, names: Iterable[str], report: Path, child: Sequence[str]
) -> list[str]:
    """The command line: counters between profiler start and stop, clocks left alone."""
    metrics = ",".join([*names, *LAUNCH.values(), PASSES])
    file = str(report).replace("%", "%%")  # a single one begins a macro of ncu's
    return [
        *(str(ncu), *UNCONFIGURED, "--profile-from-start", "off", "--nvtx"),
        *("--target-processes", "all"),
        *("--replay-mode", "kernel", "--cache-control", setting.cache_control),
        *("--clock-control", "none", "--metrics", metrics, "--check-exit-code", "1"),
        *("--force-overwrite", "--export", file, *child),
    ]


def explain(output: str) -> str | None:
    """The remedy for what ncu itself printed, or None if it is nothing known."""
    said = "\n".join(line for line in output.splitlines() if line.startswith("=="))
    return next((remedy for sign, remedy in TROUBLE if sign in said), None)


def errors(output: str) -> str:
    """What ncu itself calls errors, less what follows from every failure."""
    marked = (line for line in output.splitlines() if line.startswith("==ERROR=="))
    said = (line.removeprefix("==ERROR==").strip() for line in marked)
    return " ".join(text for text in said if not text.startswith(AFTERMATH))


def export_csv(ncu: Path, report: Path) -> str:
    """The raw page of a report as CSV, in base units and the C locale."""
    done = subprocess.run(
        [str(ncu), *UNCONFIGURED, "--import", str(report), "--csv", "--page", "raw",
         "--print-units", "base"],
        capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise NcuError(explain(said) or f"{report}: {said.partition(chr(10))[0]}")
    return done.stdout


def parse(text: str, names: Mapping[str, str]) -> list[KernelRow]:
    """Rows of a raw CSV page. `names` maps ours to ncu's.

    NcuError where there are no kernels or none of our counters, or the page is not in base units
    and the C locale.
    """
    header, units, rows = read_page(text)
    if not set(header) & set(names.values()):
        raise NcuError("this page holds none of our counters: profile with `pagebench profile`")
    _check_units(dict(zip(header, units, strict=True)), names)
    nvtx = next((column for column in header if NVTX_COLUMN in column), None)
    return [_row(row, names, nvtx) for row in rows]


def read_page(text: str) -> tuple[list[str], list[str], list[dict[str, str]]]:
    """Header, units and rows of a raw CSV page; NcuError where it is none or has no kernels."""
    lines = [line for line in text.splitlines() if line.startswith(('"', "ID,"))]
    try:
        table = list(csv.reader(lines, strict=True))
    except csv.Error as error:
        raise NcuError("a row of this page is cut off: " + EXPORT) from error
    header = table[0] if table else []
    missing = [column for column in COLUMNS if column not in header]
    if len(table) < 3 or missing:
        raise NcuError(explain(text) or "this is no raw CSV page of ncu with kernels: " + EXPORT)
    if any(line[0] == header[0] for line in table[1:]):
        raise NcuError("several pages in one file: import each by itself")
    if any(len(line) != len(header) for line in table[1:]):
        raise NcuError("a row of this page is cut off: " + EXPORT)
    return header, table[1], [dict(zip(header, line, strict=True)) for line in table[2:]]


def _check_units(units: Mapping[str, str], names: Mapping[str, str]) -> None:
    for ours, column in names.items():
        wanted = metric(ours).unit
        if units.get(column, wanted) not in (wanted, ""):
            raise NcuError(f"{column} is in {units[column]}, not {wanted}: {EXPORT}")


def _row(row: Mapping[str, str], names: Mapping[str, str], nvtx: str | None) -> KernelRow:
    passes = number(row.get(PASSES, ""))
    return KernelRow(
        symbol=row["Kernel Name"],
        grid=row["Grid Size"],
        block=row["Block Size"],
        launch={ours: number(row.get(column, "")) for ours, column in LAUNCH.items()},
        values={ours: _value(ours, row[column]) for ours, column in names.items() if column in row},
        passes=None if passes is None else int(passes),
        range_name=row.get(nvtx, "") if nvtx else "",
    )


def _value(ours: str, text: str) -> float | None:
    """A counter's number. One that cannot be is another locale's: 407.552 loads, 9,138 %.

    None where there is no digit: what ncu could not count is `n/a`, `(!) n/a`, `nan` and the like.
    """
    value, kind = number(text), metric(ours)
    if value is None:
        possible = not re.search(r"\d", text)
    elif kind.unit == "%":
        possible = 0 <= value <= MOST_PER_CENT
    else:
        possible = value >= 0 and value.is_integer() and not THREE_DECIMALS.search(text)
    if not possible:
        raise NcuError(f"{ours} of {text} {kind.unit}: numbers are not of the C locale; {EXPORT}")
    return value


def number(text: str) -> float | None:
    """A number of ncu's in the C locale; None for `n/a`, nothing and what is no number."""
    text = text.strip()
    return float(text.replace(",", "")) if NUMBER.fullmatch(text) else None


def rows_of(rows: Sequence[KernelRow], cell: str) -> list[KernelRow]:
    """Rows inside the NVTX range that bears the cell's name."""
    pattern = re.compile(rf"(?<![a-z0-9_]){re.escape(cell)}(?![a-z0-9_])")
    return [row for row in rows if pattern.search(row.range_name)]
