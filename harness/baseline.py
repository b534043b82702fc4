"""Load-count baselines: counts compared exactly, for they carry none of timing's noise."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pagebench.profiles.metrics import METRICS

BASELINE_SCHEMA = 1
COUNTS = tuple(metric.name for metric in METRICS if metric.kind == "count")


def counts_of(records: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Stable counts by `chip cell kernel-symbol`: what a baseline holds."""
    found: dict[str, dict[str, float]] = {}
    for record in records:
        for kernel in record["kernels"]:
            key = f"{record['how']['chip']} {record['cell']} {kernel['symbol']}"
            found[key] = {
                name: values[0]
                for name, values in kernel["values"].items()
                if name in COUNTS and values[0] is not None and len(set(values)) == 1
            }
    return found


def save(path: Path, records: Iterable[dict[str, Any]]) -> int:
    """Write the baseline; returns how many kernels it holds."""
    counts = counts_of(records)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema": BASELINE_SCHEMA, "counts": counts}, indent=1) + "\n")
    return len(counts)


def check(path: Path, records: Iterable[dict[str, Any]]) -> list[str]:
    """What differs from the baseline, a line each; ValueError where there is nothing to compare."""
    try:
        kept = json.loads(path.read_text())["counts"]
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} is no baseline: {error}") from error
    now = counts_of(records)
    shared = [key for key in now if key in kept]
    changed = [
        f"{key}: {name} was {kept[key].get(name):,.0f} and is {now[key][name]:,.0f}"
        for key in shared
        for name in now[key]
        if name in kept[key] and kept[key][name] != now[key][name]
    ]
    missing = [f"{key}: not in the baseline" for key in now if key not in kept]
    if not shared and not missing:
        raise ValueError(f"{path} and what was counted have no cell in common")
    return changed + missing
