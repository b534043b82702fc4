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


def check_writable(path: Path) -> None:
    """OSError now, and not after everything was counted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    existed = path.exists()
    path.open("a").close()
    if not existed:
        path.unlink()


def load(path: Path) -> dict[str, dict[str, float]]:
    """Counts by kernel of a baseline file; ValueError if it is none."""
    remedy = "pagebench profile --save-baseline makes one"
    try:
        counts: dict[str, dict[str, float]] = json.loads(path.read_text())["counts"]
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; {remedy}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no baseline; {remedy}") from error
    return counts


def changes(kept: dict[str, dict[str, float]], records: Iterable[dict[str, Any]]) -> list[str]:
    """What differs from the baseline, a line each; ValueError where there is nothing to compare."""
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
        raise ValueError("the baseline and what was counted have no cell in common")
    return changed + missing
