"""Load-count baselines: counts compared exactly, for they carry none of timing's noise."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pagebench.harness.records.store import check_writable, make_folder_of
from pagebench.profiles.metrics import METRICS

BASELINE_SCHEMA = 1
COUNTS = tuple(metric.name for metric in METRICS if metric.kind == "count")
REMEDY = "pagebench profile --save-baseline makes one"
Counts = dict[str, dict[str, float]]


def counts_of(records: Iterable[dict[str, Any]]) -> Counts:
    """Stable counts by `chip cell kernel-symbol`: what a baseline holds.

    A kernel of a name that the call ran before bears its number, ` #2`.
    """
    found: Counts = {}
    for record in records:
        seen = Counter[str]()
        for kernel in record["kernels"]:
            seen[kernel["symbol"]] += 1
            number = seen[kernel["symbol"]]
            key = f"{_place(record)}{kernel['symbol']}{f' #{number}' if number > 1 else ''}"
            found[key] = {
                name: values[0]
                for name, values in kernel["values"].items()
                if name in COUNTS
                and len(values) > 1
                and len(set(values)) == 1
                and values[0] is not None
            }
    return found


def _place(record: dict[str, Any]) -> str:
    return f"{record['how']['chip']} {record['cell']} "


def save(path: Path, records: Iterable[dict[str, Any]]) -> int:
    """Write the baseline; returns how many kernels it holds. ValueError where no count repeats."""
    counts = counts_of(records)
    if not any(counts.values()):
        raise ValueError(f"{path}: not written, for no count was counted twice and repeats")
    text = json.dumps({"schema": BASELINE_SCHEMA, "counts": counts}, indent=1) + "\n"
    _write_whole(path, text)
    return len(counts)


def _write_whole(path: Path, text: str) -> None:
    """All of it or nothing: a full disk must not cost the baseline that was there."""
    make_folder_of(path)
    part = _part(path)
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path.resolve())
    finally:
        part.unlink(missing_ok=True)


def _part(path: Path) -> Path:
    """Where a baseline is written before it takes its place; a link stays one."""
    path = path.resolve()
    return path.with_name(f"{path.name}.part")


def prepare(saved: Path | None, checked: Path | None) -> Counts | None:
    """What is checked against, before anything is counted.

    OSError or ValueError where a file cannot serve, or what is checked would be overwritten: the
    next check would find no change.
    """
    if saved and checked and saved.resolve() == checked.resolve():
        raise ValueError(
            f"--save-baseline would overwrite what --check-baseline checks against: save to "
            f"another file than {checked}"
        )
    for path in (saved, _part(saved)) if saved else ():
        check_writable(path)
    return load(checked) if checked else None


def load(path: Path) -> Counts:
    """Counts by kernel of a baseline file; ValueError if it is none."""
    try:
        baseline = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; {REMEDY}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no baseline; {REMEDY}") from error
    schema = baseline.get("schema") if isinstance(baseline, dict) else None
    counts = baseline.get("counts") if schema == BASELINE_SCHEMA else None
    if not _is_counts(counts):
        raise ValueError(f"{path} is no baseline of schema {BASELINE_SCHEMA}; {REMEDY}")
    assert isinstance(counts, dict)
    return counts


def _is_counts(counts: object) -> bool:
    kernels = counts.values() if isinstance(counts, dict) else [None]
    return all(
        isinstance(kernel, dict) and all(type(value) in (int, float) for value in kernel.values())
        for kernel in kernels
    )


def changes(kept: Counts, records: Iterable[dict[str, Any]]) -> list[str]:
    """What differs from the baseline, a line each; ValueError where there is nothing to compare.

    Of a cell that was counted every kernel and every count of the baseline must be there again: one
    that is missing, or no longer repeats, is a change.
    """
    records = list(records)
    now = counts_of(records)
    places = tuple(map(_place, records))
    held = {key: counts for key, counts in kept.items() if key.startswith(places)}
    if not any(held.values()) and not now.keys() - held.keys():
        raise ValueError("the baseline holds no count of what was counted")
    changed = [
        f"{key}: {change}"
        for key in held.keys() & now.keys()
        for change in _changed(held[key], now[key])
    ]
    gone = [f"{key}: no longer runs" for key in held.keys() - now.keys()]
    new = [f"{key}: not in the baseline" for key in now.keys() - held.keys()]
    return sorted(changed) + sorted(gone) + sorted(new)


def _changed(kept: dict[str, float], now: dict[str, float]) -> list[str]:
    return [
        f"{name} was {count:,.0f} and "
        + (f"is {now[name]:,.0f}" if name in now else "is not counted, or does not repeat")
        for name, count in kept.items()
        if now.get(name) != count
    ]
