"""What each counter sees on this GPU and this ncu: kernels of known loads, counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pagebench.harness.counting.profile import profiled_rows
from pagebench.harness.environment import PYTHON, commit, gpu_facts, versions
from pagebench.harness.records import store
from pagebench.kernels.device import Device
from pagebench.kernels.probes.calibration import (
    COUNTED,
    EXPECTED,
    READ_LOADS,
    SECTOR_BYTES,
    SECTORS,
    kernels_on,
)
from pagebench.profiles import ncu
from pagebench.profiles.counters import KernelRow
from pagebench.profiles.metrics import TOLERANCE, chip_of, metric, names_on
from pagebench.profiles.ncu import NcuError, Setting

CALIBRATION_SCHEMA = 1
CALIBRATIONS = Path("runs/calibration.jsonl")
# Counters of requests: whether they see cp.async too is what calibration is to find out.
SEEN_OR_NOT = ("l1_requests",)


def calibrate(device: Device, progress: Callable[[str], None]) -> dict[str, Any]:
    """A calibration record: seen and expected for every kernel and counter, and what disagrees."""
    if device.kind != "cuda" or device.capability is None:
        raise NcuError("calibration needs an NVIDIA GPU")
    chip = chip_of(device.capability)
    wanted = (*COUNTED, "l1_requests", "l1_sectors", "l2_sectors", "dram_read_bytes")
    names = names_on(chip, wanted)
    code = f"from pagebench.kernels.probes.calibration import main; main({device.index})"
    child = [*PYTHON, code]
    rows, _ = profiled_rows(child, Setting(metrics=wanted), names, None, progress)
    table = {kernel: _seen(kernel, rows, names) for kernel in kernels_on(device.capability)}
    uncounted = {name for seen in table.values() for name in names.keys() - seen.keys()}
    if uncounted:
        progress(f"ncu cannot count here: {', '.join(sorted(uncounted))}")
    record = {
        "kind": "calibration",
        "schema": CALIBRATION_SCHEMA,
        "gpu": device.name,
        "chip": chip,
        "ncu": ".".join(map(str, ncu.ncu_version(ncu.find_ncu()))),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "seen": table,
        "expected": {kernel: expected(kernel, seen) for kernel, seen in table.items()},
        "sees_async": sees_async(table),
        "environment": {"versions": versions(), **commit(), **gpu_facts(device)},
    }
    return record | {"disagree": disagreements(record)}


def _seen(kernel: str, rows: list[KernelRow], names: dict[str, str]) -> dict[str, list[float]]:
    mine = [row for row in rows if row.symbol.startswith(kernel)]
    if len(mine) != 2:
        raise NcuError(f"calibration saw {len(mine)} launches of {kernel} and wanted 2")
    values = {name: [row.values.get(name) for row in mine] for name in names}
    return {name: [float(v) for v in vs if v is not None] for name, vs in values.items()
            if None not in vs}  # fmt: skip


def expected(kernel: str, names: Iterable[str]) -> dict[str, int]:
    """What the kernel executes and reads, by counter: zero where it has no such instruction."""
    names = set(names)
    found = {name: EXPECTED[kernel].get(name, 0) for name in COUNTED}
    if kernel in READ_LOADS:
        sectors = READ_LOADS[kernel] * SECTORS
        found |= {
            "l1_sectors": 0 if kernel == "cal_bulk" else sectors,  # TMA passes L1's tags by
            "l2_sectors": sectors,
            "dram_read_bytes": sectors * SECTOR_BYTES,
        }
    return {name: count for name, count in found.items() if name in names}


def _disagreeing(calibration: dict[str, Any]) -> list[tuple[str, str]]:
    """Counters that did not show what a kernel executes and reads, each with that kernel.

    Counts must be exact; traffic may be off by as much as it may differ when it repeats.
    """
    return [
        (name, kernel)
        for kernel, wanted in calibration["expected"].items()
        for name, count in wanted.items()
        if any(
            abs(value - count) > TOLERANCE[metric(name).kind] * count
            for value in calibration["seen"][kernel][name]
        )
    ]


def disagreements(calibration: dict[str, Any]) -> list[str]:
    """The same as sentences, with both numbers."""
    return [
        f"{name}: {calibration['seen'][kernel][name]} in {kernel}, which executes "
        f"{calibration['expected'][kernel][name]}"
        for name, kernel in _disagreeing(calibration)
    ]


def sees_async(table: dict[str, dict[str, list[float]]]) -> dict[str, bool]:
    """Whether a request counter includes cp.async, by flavour."""
    return {
        f"{name} of {kernel}": table[kernel][name][0] > 0
        for name in SEEN_OR_NOT
        for kernel in ("cal_async_ca", "cal_async_cg", "cal_bulk")
        if kernel in table and name in table[kernel]
    }


def newest(
    gpu: str, version: str, files: tuple[Path, ...] = (CALIBRATIONS,)
) -> dict[str, Any] | None:
    """The newest calibration of that GPU model and ncu version, if there is one."""
    found = None
    for path in files:
        if path.exists():
            for line in store.read_kind([path], "calibration"):
                if _is_whole(line) and (line.get("gpu"), line.get("ncu")) == (gpu, version):
                    found = line
    return found


def _is_whole(line: dict[str, Any]) -> bool:
    """Whether a calibration can be judged: numbers seen for all that was expected."""
    try:
        _disagreeing(line)
    except (KeyError, TypeError, AttributeError):
        return False
    return line.get("schema") == CALIBRATION_SCHEMA


def distrusted(calibration: dict[str, Any] | None) -> tuple[str, ...]:
    """Counters that a calibration found to disagree: nothing may be built on them."""
    found = _disagreeing(calibration) if calibration else []
    return tuple(dict.fromkeys(name for name, _ in found))
