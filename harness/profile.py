"""Cells under Nsight Compute: one profiled process, a counters record a cell."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from pagebench.harness.cell import Cell, CellNameError
from pagebench.harness.environment import commit, gpu_facts, versions
from pagebench.kernels.device import Device
from pagebench.kernels.loads import decode_kernel_ldg, merge_read_bytes, predicted_ldg
from pagebench.kernels.registry import find_kernel, kernel_names
from pagebench.layouts.work import predict
from pagebench.profiles import ncu
from pagebench.profiles.counters import (
    CountError,
    KernelRow,
    by_call,
    expect,
    ratios,
    stability,
    summary,
    totals,
)
from pagebench.profiles.metrics import METRICS, SINGLE_PASS, chip_of, names_on
from pagebench.profiles.ncu import NcuError, Setting

COUNTERS_SCHEMA = 1
LAUNCHES = 2  # every cell is counted twice: what does not repeat is not used
# Measured over predicted may be off by this much before the card flags it.
LDG_MARGIN, DRAM_MARGIN = 0.01, 0.02
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
    `progress` is told why.
    """
    if device.kind != "cuda" or device.capability is None:
        raise NcuError("counters need an NVIDIA GPU; --import reads what was made elsewhere")
    tool, chip = ncu.find_ncu(), chip_of(device.capability)
    names = names_on(chip, setting.metrics)
    child = _child(cells, device, launches, l2, kernel_file)
    began = perf_counter()
    rows, told = profiled_rows(child, setting, names, keep, progress)
    elapsed_s = round(perf_counter() - began, 2)
    facts = {"versions": versions(), **commit(), **gpu_facts(device)}
    how = {
        "ncu": ".".join(map(str, ncu.ncu_version(tool))),
        "chip": chip,
        "replay_mode": "kernel",
        "cache_control": setting.cache_control,
        "clock_control": "none",
        "l2": l2,
        "launches": launches,
        "elapsed_s": elapsed_s,  # of the one process that profiled all the cells
        "cells": len(cells),
    }
    return list(_records(cells, rows, told, how, facts, progress))


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
            progress(f"{said['status']}: {cell.name}: {said['reason']}")
            continue
        try:
            yield counters_record(cell, rows, told, how, facts, how["launches"])
        except CountError as error:
            progress(f"wrong: {cell.name}: {error}")


def profiled_rows(
    child: Sequence[str],
    setting: Setting,
    names: dict[str, str],
    keep: Path | None,
    progress: Callable[[str], None],
) -> tuple[list[KernelRow], dict[str, dict[str, Any]]]:
    """Kernels that `child` ran between profiler start and stop, and what it said of each cell."""
    tool = ncu.find_ncu()
    with tempfile.TemporaryDirectory() as scratch:
        report = keep or Path(scratch) / "cells.ncu-rep"
        told = _run(ncu.command(tool, setting, names.values(), report, child), progress)
        if told and all("reason" in said for said in told.values()):
            return [], told
        return ncu.parse(ncu.export_csv(tool, report), names), told


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
            parts[record["cell"]].append(record)
    return [_merged(records) for records in parts.values() if len(records) == len(groups)]


def _merged(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first = dict(records[0])
    first["total"] = {name: entry for record in records for name, entry in record["total"].items()}
    plain = {name: float(entry["value"]) for name, entry in first["total"].items()}
    first["ratios"] = ratios(plain)
    first["off"] = sorted({name for record in records for name in record["off"]})
    first["how"] = first["how"] | {"replay_mode": "single pass"}
    kernels = [dict(kernel) for kernel in first["kernels"]]
    for record in records[1:]:
        for kernel, other in zip(kernels, record["kernels"], strict=True):
            kernel["values"] = kernel["values"] | other["values"]
    return first | {"kernels": kernels}


def audit_flush(cell: Cell, device: Device, **options: Any) -> list[dict[str, Any]]:
    """DRAM bytes read over the cell's distinct bytes, after the flush and without it.

    One pass and no cache control of ncu's, so the cache is in the state that timing sees. No
    record of a cell that failed.
    """
    read = {}
    for l2 in ("cold", "warm"):
        for record in profile_single_pass([cell], device, ("dram",), l2=l2, **options):
            read[l2] = record["total"]["dram_read_bytes"]["value"]
    if len(read) < 2:
        return []
    distinct = record["predicted"]["distinct_kv_bytes"]
    audit = {
        "kind": "audit",
        "schema": COUNTERS_SCHEMA,
        "cell": cell.name,
        "distinct_kv_bytes": distinct,
        "dram_read_bytes": read,
        "cold_over_distinct": round(read["cold"] / distinct, 4),
        "warm_over_distinct": round(read["warm"] / distinct, 4),
        "how": record["how"],
        "environment": record["environment"],
    }
    return [audit]


def _child(
    cells: Sequence[Cell], device: Device, launches: int, l2: str, kernel_file: Path | None
) -> list[str]:
    code = "from pagebench.harness.cli import main; main()"
    words = [sys.executable, "-c", code, "once", *(cell.name for cell in cells)]
    words += [
        "--keep-going",
        "--launches",
        str(launches),
        "--l2",
        l2,
        "--device",
        device.torch_name,
    ]
    return words + (["--kernel", str(kernel_file)] if kernel_file else [])


def _run(words: list[str], progress: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """Run ncu, pass on what it is profiling, and keep what the child says of each cell."""
    told, lines = dict[str, dict[str, Any]](), list[str]()
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        match = PROFILING.search(line)
        if match:
            progress(f"profiled {match[1]} in {match[2]} passes")
        elif line.startswith('{"cell"'):
            value = json.loads(line)
            told[value["cell"]] = value
    if process.wait():
        text = "".join(lines)
        raise NcuError(ncu.explain(text) or f"the profiled process failed: {_last(lines)}")
    return told


def _last(lines: list[str]) -> str:
    """What the process said last, or else ncu: the latter only repeats that there was an error."""
    said = [line.strip() for line in lines if line.strip() and not line.startswith("==PROF==")]
    own = [line for line in said if not line.startswith("==")]
    return (own or said or ["it said nothing"])[-1][:300]


def counters_record(
    cell: Cell,
    rows: Sequence[KernelRow],
    told: dict[str, dict[str, Any]],
    how: dict[str, Any],
    facts: dict[str, Any],
    launches: int,
) -> dict[str, Any]:
    """One JSON line of a cell: kernels, totals with stability, ratios, prediction, what is off."""
    said = told.get(cell.name, {})
    mine = ncu.rows_of(rows, cell.name)
    expect(mine, said.get("symbols", ()))
    kernels = by_call(mine, launches)
    found = {
        name: {"value": median(values), **asdict(stability(_kind(name), values))}
        for name, values in totals(kernels).items()
    }
    plain = {name: float(entry["value"]) for name, entry in found.items()}
    cache_control = how.get("cache_control", "all")  # ncu's own default
    predicted = predict_counters(cell, said.get("resolved", {}), facts, cache_control)
    return {
        "kind": "counters",
        "schema": COUNTERS_SCHEMA,
        "cell": cell.name,
        "axes": cell.axes(),
        "resolved": said.get("resolved", {}),
        "predicted": predicted,
        "total": found,
        "ratios": ratios(plain),
        "off": off(cell, plain, predicted),
        "kernels": summary(kernels),
        "how": how,
        "environment": facts,
    }


def _kind(name: str) -> str:
    return next(metric.kind for metric in METRICS if metric.name == name)


def predict_counters(
    cell: Cell,
    resolved: dict[str, Any],
    environment: Mapping[str, Any],
    cache_control: str = "all",
) -> dict[str, Any]:
    """What the counters should show, from the layout and, for a known GPU, kernel source.

    With ncu's `cache_control` a merge kernel too begins with cold caches.
    """
    capability = tuple(environment.get("capability") or ())
    shape, kind = cell.shape, find_kernel(cell.kernel).lowering(cell.shape)
    work = predict(shape, cell.sharing, kind)
    found: dict[str, Any] = asdict(work)
    if resolved and len(capability) == 2:
        found["ldg"] = predicted_ldg(cell.kernel, shape, resolved, (capability[0], capability[1]))
    found["decode_ldg"] = decode_kernel_ldg(cell.kernel, shape, resolved)
    flushed = cache_control == "all"
    merged = merge_read_bytes(cell.kernel, shape, resolved) if flushed else 0
    found["dram_read_bytes"] = work.read_bytes + merged if cell.sharing.kind == "distinct" else None
    return found


def predicted_anew(record: dict[str, Any]) -> dict[str, Any]:
    """A counters record under today's formulas: they may be better than those it was stored with.

    A kernel that is not registered here keeps what was stored.
    """
    if record["axes"]["kernel"] not in kernel_names():
        return record
    cell = Cell.parse(record["cell"])
    predicted = predict_counters(
        cell, record["resolved"], record["environment"], record["how"].get("cache_control", "all")
    )
    counted = {name: float(entry["value"]) for name, entry in record["total"].items()}
    return record | {"predicted": predicted, "off": off(cell, counted, predicted)}


def off(cell: Cell, measured: dict[str, float], predicted: dict[str, Any]) -> list[str]:
    """Counters whose measurement over prediction is further from 1 than its margin."""
    margins = {"ldg": LDG_MARGIN, "dram_read_bytes": DRAM_MARGIN}
    return [
        name
        for name, margin in margins.items()
        if predicted.get(name)
        and name in measured
        and abs(measured[name] / predicted[name] - 1) > margin
    ]


def imported(text: str) -> list[dict[str, Any]]:
    """Counters records of a raw CSV page made elsewhere; its NVTX ranges name the cells."""
    capability = _capability(text)
    chip = chip_of(capability)
    rows = ncu.parse(text, names_on(chip))
    cells = dict.fromkeys(name for row in rows for name in _cells_in(row.range_name))
    if not cells:
        raise NcuError("no NVTX range in this report bears a cell's name")
    facts = {"capability": list(capability)}
    records = []
    for name in cells:
        mine = ncu.rows_of(rows, name)
        launches = sum(row.symbol == mine[0].symbol for row in mine)
        how = {"chip": chip, "launches": launches, "imported": True}
        records.append(counters_record(Cell.parse(name), rows, {}, how, facts, launches))
    return records


def _capability(text: str) -> tuple[int, int]:
    """The compute capability in a raw page's CC column."""
    import csv

    lines = [line for line in text.splitlines() if line.startswith('"') or line.startswith("ID,")]
    table = list(csv.reader(lines))
    if len(table) < 3 or "CC" not in table[0]:
        raise NcuError(ncu.explain(text) or "this is no raw CSV page of ncu (--page raw --csv)")
    major, minor = table[2][table[0].index("CC")].split(".")
    return int(major), int(minor)


def _cells_in(range_name: str) -> Iterable[str]:
    for word in re.findall(r"[a-z0-9]+(?:_[a-z0-9]+)+", range_name):
        try:
            yield Cell.parse(word).name
        except CellNameError:
            continue
