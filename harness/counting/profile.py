"""Cells under Nsight Compute: one profiled process, a counters record a cell."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from pagebench.harness.cell import Cell, CellNameError
from pagebench.harness.counting.predict import COUNTERS_SCHEMA, counters_record, ratios_of
from pagebench.harness.environment import PAGEBENCH, commit, gpu_facts, versions
from pagebench.kernels.device import Device
from pagebench.profiles import ncu
from pagebench.profiles.counters import CountError, KernelRow, unstable
from pagebench.profiles.metrics import SINGLE_PASS, chip_of, names_on
from pagebench.profiles.ncu import NcuError, Setting

LAUNCHES = 2  # every cell is counted twice: what does not repeat is not used
LEAST_COLD = 0.98  # of the distinct bytes, which a flushed cache must leave to DRAM
GRACE_S = 5  # in which ncu must end after it was asked to
PROFILING = re.compile(r'==PROF== Profiling "([^"]+)".*?(\d+) pass')


def profile(
    cells: Sequence[Cell],
    device: Device,
    setting: Setting,
    *,
    launches: int = LAUNCHES,
    l2: str = "cold",
    keep: Path | None = None,
    kernel_file: Path | None = None,
    progress: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Counters records of the cells, one profiled process for all. NcuError says what to do.

    A cell that failed, or whose kernels are not those it promised, costs its own record alone:
    `progress` is told why. What a cell that broke the device or killed the process took with it is
    counted in another process; `keep` is the report of the first that counted.
    """
    if device.kind != "cuda" or device.capability is None:
        raise NcuError("counters need an NVIDIA GPU; --import reads what was made elsewhere")
    how = _how(chip_of(device.capability), setting, l2, launches)
    names = names_on(how["chip"], setting.metrics)
    facts = {"versions": versions(), **commit(), **gpu_facts(device)}
    records, left, before = list[dict[str, Any]](), list(cells), None
    while left:
        child = _child(left, device, launches, l2, kernel_file)
        began = perf_counter()
        try:
            rows, told = profiled_rows(child, setting, names, keep, progress, left)
        except NcuError as error:
            culprit, before = _culprit(left, error, before), error
            if not records and (culprit is None or len(left) == 1):
                raise
            progress(_blamed(culprit, left, error))
            left = [cell for cell in left if culprit and cell is not culprit]
            continue
        seconds = round(perf_counter() - began, 2)
        here = how | {"elapsed_s": seconds, "cells": len(left)}  # of this process
        records += _records(left, rows, told, here, facts, progress)
        # The first cell of a process is never lost, so fewer are left each time.
        left = [cell for cell in left[1:] if _is_lost(told.get(cell.name))]
        keep = None if rows else keep
    return records


def _how(chip: str, setting: Setting, l2: str, launches: int) -> dict[str, Any]:
    """How it is counted, for a record."""
    return {
        "ncu": ".".join(map(str, ncu.ncu_version(ncu.find_ncu()))),
        "chip": chip,
        "replay_mode": "kernel",
        "cache_control": setting.cache_control,
        "clock_control": "none",
        "l2": l2,
        "launches": launches,
    }


def _culprit(cells: Sequence[Cell], error: NcuError, before: NcuError | None) -> Cell | None:
    """What ended the process: the first cell it said nothing of, or else one that crashed, for
    what that left behind.

    None where no cell is to blame: ncu's own trouble, or twice the same words before any cell's,
    for a cell that kills its process dies without words.
    """
    if not isinstance(error, ProcessDied):
        return None
    if not error.told and str(error) == str(before) and ncu.ENDED not in str(error):
        return None
    silent = [cell for cell in cells if cell.name not in error.told]
    crashed = [c for c in cells if error.told.get(c.name, {}).get("status") == "crashed"]
    return next(iter(silent + crashed), None)


def _blamed(culprit: Cell | None, cells: Sequence[Cell], error: NcuError) -> str:
    """A line of what was lost, and why: in the cell's own words where it had any."""
    if culprit is None:
        return f"not counted: {', '.join(cell.name for cell in cells)}: {error}"
    said = error.told.get(culprit.name, {}) if isinstance(error, ProcessDied) else {}
    return f"crashed: {culprit.name}: {said.get('reason', error)}"


def _is_lost(said: dict[str, Any] | None) -> bool:
    return said is not None and said.get("status") == "lost"


def _records(
    cells: Sequence[Cell],
    rows: Sequence[KernelRow],
    told: dict[str, dict[str, Any]],
    how: dict[str, Any],
    facts: dict[str, Any],
    progress: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    for cell in cells:
        said = told.get(cell.name, {"status": "lost", "reason": "the process said nothing of it"})
        if "reason" in said:
            again = "; counting it again" if _is_lost(told.get(cell.name)) else ""
            progress(f"{said['status']}: {cell.name}: {said['reason']}{again}")
            continue
        try:
            record = counters_record(cell, rows, said, how, facts)
        except CountError as error:
            progress(f"wrong: {cell.name}: {error}")
            continue
        if failed := record["predicted"].get("failed"):
            progress(f"{cell.name}: loads are not predicted: {failed}")
        yield record


def profiled_rows(
    child: Sequence[str],
    setting: Setting,
    names: dict[str, str],
    keep: Path | None,
    progress: Callable[[str], None],
    cells: Sequence[Cell] = (),
) -> tuple[list[KernelRow], dict[str, dict[str, Any]]]:
    """Kernels that `child` ran between profiler start and stop, and what it said of each cell.

    There are none where all the cells failed. `keep` is where the report is copied to.
    """
    tool = ncu.find_ncu()
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "cells.ncu-rep"
        code, lines = _run(ncu.command(tool, setting, names.values(), report, child), progress)
        told = _told(lines)
        if cells and all("reason" in told.get(cell.name, ()) for cell in cells):
            return [], told
        if code or not report.exists():
            raise _trouble(lines, told)
        rows = ncu.parse(ncu.export_csv(tool, report), names)
        if keep:
            _keep(report, keep, progress)
        return rows, told


def _keep(report: Path, keep: Path, progress: Callable[[str], None]) -> None:
    """Copy the report; what was counted stands where that fails."""
    try:
        shutil.copyfile(report, keep)
    except OSError as error:
        progress(f"--keep {keep}: {error.strerror}")


def profile_single_pass(
    cells: Sequence[Cell], device: Device, groups: Sequence[str], **options: Any
) -> list[dict[str, Any]]:
    """Counters in groups that need one pass, a process each: nothing is saved, restored, replayed.

    Caches are as the cell's own preparation leaves them. The records of the groups become one; a
    cell that failed in any of them has none.
    """
    parts = defaultdict[str, list[dict[str, Any]]](list)
    for group in groups:
        setting = Setting(cold=False, metrics=SINGLE_PASS[group])
        for record in profile(cells, device, setting, **options):
            _refuse_replay(record, group)
            parts[record["cell"]].append(record)
    return [_merged(records) for records in parts.values() if len(records) == len(groups)]


def _refuse_replay(record: dict[str, Any], group: str) -> None:
    """With more than one pass the later ones would find the caches of those before."""
    passes = {kernel["passes"] for kernel in record["kernels"]}
    if passes != {1}:
        taken = ", ".join(map(str, sorted(passes, key=str)))
        raise NcuError(f"the counters of {group} took {taken} passes here and not one")


def _merged(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The groups of one cell as one record; `elapsed_s` is of all their processes."""
    total = {name: entry for record in records for name, entry in record["total"].items()}
    seconds = round(sum(record["how"]["elapsed_s"] for record in records), 2)
    return records[0] | {
        "total": total,
        "ratios": ratios_of(total),
        "off": sorted({name for record in records for name in record["off"]}),
        "how": records[0]["how"] | {"replay_mode": "single pass", "elapsed_s": seconds},
        "kernels": list(map(_merged_kernel, zip(*(r["kernels"] for r in records), strict=True))),
    }


def _merged_kernel(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    values = {name: counts for part in parts for name, counts in part["values"].items()}
    return parts[0] | {"values": values, "unstable": unstable(values)}


def audit_flush(cells: Sequence[Cell], device: Device, **options: Any) -> list[dict[str, Any]]:
    """DRAM bytes read over the cells' distinct bytes, after the flush and without it.

    One pass and no cache control of ncu's, so the cache is in the state that timing sees. No
    record of a cell that failed.
    """
    cold, warm = (
        profile_single_pass(cells, device, ("dram",), l2=l2, **options) for l2 in ("cold", "warm")
    )
    again = {record["cell"]: record for record in warm}
    return [_audit(record, again[record["cell"]]) for record in cold if record["cell"] in again]


def _audit(cold: dict[str, Any], warm: dict[str, Any]) -> dict[str, Any]:
    distinct = cold["predicted"]["distinct_kv_bytes"]
    read = {"cold": _dram_read(cold), "warm": _dram_read(warm)}
    return {
        "kind": "audit",
        "schema": COUNTERS_SCHEMA,
        "cell": cold["cell"],
        "distinct_kv_bytes": distinct,
        "dram_read_bytes": read,
        "cold_over_distinct": round(read["cold"] / distinct, 4),
        "warm_over_distinct": round(read["warm"] / distinct, 4),
        "flushed": read["cold"] >= LEAST_COLD * distinct,
        "how": warm["how"],
        "environment": warm["environment"],
    }


def _dram_read(record: dict[str, Any]) -> float:
    """What an audit rests on; NcuError where ncu could not count it."""
    if "dram_read_bytes" not in record["total"]:
        raise NcuError("--audit needs dram_read_bytes, which ncu cannot count on this GPU")
    return float(record["total"]["dram_read_bytes"]["value"])


def _child(
    cells: Sequence[Cell], device: Device, launches: int, l2: str, kernel_file: Path | None
) -> list[str]:
    options = {"--launches": str(launches), "--l2": l2, "--device": device.torch_name}
    if kernel_file:
        options["--kernel"] = str(kernel_file)
    words = [word for option in options.items() for word in option]
    return [*PAGEBENCH, "once", *(cell.name for cell in cells), "--keep-going", *words]


def _run(words: list[str], progress: Callable[[str], None]) -> tuple[int, list[str]]:
    """Run ncu and pass on what it is profiling: its exit status, and what it and the child said."""
    lines = []
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", process_group=0,
    )  # fmt: skip
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
    """End ncu and what it profiles, which are a process group of their own."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(GRACE_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _told(lines: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What the child said of each cell."""
    values = filter(None, map(_json, lines))
    return {value["cell"]: value for value in values if "cell" in value}


def _json(line: str) -> dict[str, Any] | None:
    """A line of the child's; None for other words, and for a line that its death cut off."""
    try:
        value = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class ProcessDied(NcuError):
    """The profiled process ended with an error of its own; `told` is what it said before."""

    def __init__(self, reason: str, told: dict[str, dict[str, Any]]) -> None:
        super().__init__(reason)
        self.told = told


def _trouble(lines: Sequence[str], told: dict[str, dict[str, Any]]) -> NcuError:
    """Why there are no counters, in one line: what ncu complains of, or the child's end.

    That ncu saw no kernel follows from either, and is said where there is neither.
    """
    silent = ("==PROF==", '{"cell"')
    said = [line.strip() for line in lines if line.strip() and not line.startswith(silent)]
    text, own = "\n".join(said), [line for line in said if not line.startswith("==")]
    if known := ncu.explain("\n".join(line for line in said if ncu.NO_KERNELS not in line)):
        return NcuError(known)
    if errors := ncu.errors(text):
        return ProcessDied(f"ncu: {errors[:300]}", told)
    ended = [line.removeprefix("==ERROR== ") for line in said if ncu.ENDED in line]
    if ended:
        return ProcessDied(f"the profiled process failed: {(own or ended)[-1][:300]}", told)
    if known := ncu.explain(text):
        return NcuError(known)
    return ProcessDied((said or ["ncu said nothing"])[-1][:300], told)


def imported(text: str) -> list[dict[str, Any]]:
    """Counters records of a raw CSV page made elsewhere; its NVTX ranges name the cells.

    What a page cannot say is not there: the resolved kernel, so no LDG is predicted, and which
    kernels the adapter would have promised.
    """
    capability = _capability(text)
    try:
        chip = chip_of(capability)
    except ValueError as error:
        raise NcuError(str(error)) from error
    rows = ncu.parse(text, names_on(chip))
    cells = dict.fromkeys(name for row in rows for name in _cells_in(row.range_name))
    if not cells:
        raise NcuError("no NVTX range here bears a cell's name: profile with `pagebench profile`")
    facts = {"capability": list(capability)}
    records = []
    for name in cells:
        mine = ncu.rows_of(rows, name)
        launches = sum(row.symbol == mine[0].symbol for row in mine)
        how = {"chip": chip, "launches": launches, "imported": True}
        try:
            records.append(counters_record(Cell.parse(name), rows, {}, how, facts))
        except CountError as error:
            raise NcuError(f"{name}: {error}") from error
    return records


def _capability(text: str) -> tuple[int, int]:
    """The compute capability in a raw page's CC column."""
    _, _, rows = ncu.read_page(text)
    match = re.fullmatch(r"(\d+)\.(\d+)", rows[0].get("CC", ""))
    if not match:
        raise NcuError("this page has no compute capability (column CC): " + ncu.EXPORT)
    return int(match[1]), int(match[2])


def _cells_in(range_name: str) -> Iterable[str]:
    for word in re.findall(r"[a-z0-9]+(?:_[a-z0-9]+)+", range_name):
        try:
            if Cell.parse(word).name == word:
                yield word
        except CellNameError:
            continue
