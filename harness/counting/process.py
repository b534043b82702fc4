"""One profiled process: run it under ncu, and turn what both print into rows or a reason."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec

from pagebench.harness.progress import Progress
from pagebench.harness.timing.once import NONCE, Called
from pagebench.profiles import ncu, ncu_page
from pagebench.profiles.counters import KernelRow
from pagebench.profiles.ncu import NcuError, Setting

GRACE_S = 5  # how long ncu may take to end after a signal
PROFILING = re.compile(r'==PROF== Profiling "([^"]+)".*?(\d+) pass')
MOST_SAID = 300  # characters of a complaint


class ProcessDied(NcuError):
    """The profiled process failed; `told` is what it reported before, by cell.

    It is `silent` if the process printed nothing and only ncu reports the failure.
    """

    def __init__(self, reason: str, told: Mapping[str, Called], *, silent: bool = False) -> None:
        super().__init__(reason)
        self.told = told
        self.silent = silent


@dataclass(frozen=True, slots=True)
class Profiled:
    """Kernels that ran between profiler start and stop, and what the process reported, by cell."""

    rows: Sequence[KernelRow]
    told: Mapping[str, Called]


def profiled(
    child: Sequence[str],
    setting: Setting,
    names: Mapping[str, str],
    progress: Progress,
    *,
    cells: Sequence[str] = (),
    keep: Path | None = None,
) -> Profiled:
    """Run the command `child` under ncu. `names` maps our names of the counters to ncu's.

    There are no rows where all `cells` failed. `keep` is the file to copy the report to. NcuError
    where there are no counters: ProcessDied if the child is the cause.
    """
    tool, nonce = ncu.find_ncu(), token_hex(8)
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "cells.ncu-rep"
        words = ncu.command(tool, setting, names.values(), report, child)
        code, lines = _run(words, nonce, progress)
        told = {each.cell: each for each in _told(lines, nonce)}
        if cells and all(cell in told and told[cell].reason for cell in cells):
            return Profiled((), told)
        if code or not report.exists():
            raise _trouble([line for line in lines if nonce not in line], told)
        rows = ncu_page.parse(ncu.export_csv(tool, report), names)
        if keep:
            _keep(report, keep, progress)
        return Profiled(rows, told)


def _keep(report: Path, keep: Path, progress: Progress) -> None:
    """Copy the report; if that fails, say so and keep the counters."""
    try:
        shutil.copyfile(report, keep)
    except OSError as error:
        progress(f"--keep {keep}: {error.strerror}")


# --- running ncu --------------------------------------------------------------------------------


def _run(words: Sequence[str], nonce: str, progress: Progress) -> tuple[int, list[str]]:
    """Run ncu and report its progress; returns its exit status and all lines printed.

    The child begins the lines that report a cell with `nonce`, which a kernel does not know.
    """
    lines = []
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
        env={**os.environ, NONCE: nonce},
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.append(line)
            if match := PROFILING.search(line):
                progress(f"profiled {match[1]} in {match[2]} passes")
        return process.wait(), lines
    except BaseException:
        _end(process)
        raise


def _end(process: subprocess.Popen[str]) -> None:
    """End ncu and the process that it profiles, which form one process group."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(GRACE_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


# --- what was said ------------------------------------------------------------------------------


def _told(lines: Sequence[str], nonce: str) -> Iterator[Called]:
    """What the child reported of each cell; what its kernels print is none of it."""
    ours = (line.partition(nonce)[2] for line in lines if nonce in line)
    for value in map(_json, ours):
        if value and "cell" in value:
            yield msgspec.convert(value, Called)


def _json(line: str) -> dict[str, Any] | None:
    """The JSON object in a line of the child; None for other lines and lines cut off by its end."""
    try:
        value = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _trouble(lines: Sequence[str], told: Mapping[str, Called]) -> NcuError:
    """Why there are no counters, in one line: ncu's complaint, or how the child ended.

    ncu's complaint that it saw no kernel follows from both, so it is used only without them.
    """
    said = [line.strip() for line in lines if line.strip() and not line.startswith("==PROF==")]
    text, own = "\n".join(said), [line for line in said if not line.startswith("==")]
    if known := ncu.explain("\n".join(line for line in said if ncu.NO_KERNELS not in line)):
        return NcuError(known)
    if errors := ncu.errors(text):
        return ProcessDied(f"ncu: {errors[:MOST_SAID]}", told)
    ended = [line.removeprefix("==ERROR== ") for line in said if ncu.ENDED in line]
    if ended:
        last = (own or ended)[-1][:MOST_SAID]
        return ProcessDied(f"the profiled process failed: {last}", told, silent=not own)
    if known := ncu.explain(text):
        return NcuError(known)
    return ProcessDied((said or ["ncu said nothing"])[-1][:MOST_SAID], told)
