"""Load-count baselines: counts are compared exactly, because they have no noise as timings do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pagebench.harness.cell import Cell
from pagebench.harness.errors import UserError
from pagebench.harness.records import store
from pagebench.harness.records.counters import Counters, Kernel
from pagebench.harness.records.store import StoreError, check_writable, part_of, write_whole
from pagebench.profiles.metrics import METRICS

BASELINE_SCHEMA = 1
COUNTS = tuple(metric.name for metric in METRICS if metric.kind == "count")
REMEDY = "pagebench baseline save makes one"
Counts = Mapping[str, Mapping[str, float]]  # by `chip cell kernel-symbol`, then by counter name


def counts_of(records: Iterable[Counters]) -> dict[str, dict[str, float]]:
    """Stable counts by `chip cell kernel-symbol`, as a baseline holds them.

    Where a call runs several kernels of one name, the second has ` #2` after its name, and so on.
    """
    found = {}
    for record in records:
        seen = Counter[str]()
        for kernel in record.kernels:
            seen[kernel.symbol] += 1
            number = seen[kernel.symbol]
            again = f" #{number}" if number > 1 else ""
            found[f"{record.how.chip} {record.cell} {kernel.symbol}{again}"] = _repeated(kernel)
    return found


def _repeated(kernel: Kernel) -> dict[str, float]:
    """Counts that had the same value in two launches or more."""
    return {
        name: values[0]
        for name, values in kernel.values.items()
        if name in COUNTS and len(values) > 1 and len(set(values)) == 1 and values[0] is not None
    }


def counted_before(
    files: Sequence[Path], cells: Sequence[Cell] | None = None, *, all_of: Sequence[Cell] = ()
) -> list[Counters]:
    """The newest counters of each chip and cell in results files, only of `cells` if given.

    UserError where there are none, or none of one of the cells in `all_of`.
    """
    newest = {(each.how.chip, each.cell): each for each in store.read(files, Counters).of(Counters)}
    wanted = None if cells is None else {cell.name for cell in cells}
    found = [each for each in newest.values() if wanted is None or each.cell in wanted]
    missing = {cell.name for cell in all_of} - {each.cell for each in found}
    if missing or not found:
        of = f" of {', '.join(sorted(missing))}" if missing else ""
        raise UserError(f"no counters{of} in {', '.join(map(str, files))}")
    return found


# --- the file -------------------------------------------------------------------------------------


def save(path: Path, records: Iterable[Counters]) -> int:
    """Write the baseline and return how many kernels it holds.

    UserError where no count repeats or the file cannot be written.
    """
    counts = counts_of(records)
    if not any(counts.values()):
        raise UserError(f"{path}: not written: no counter had the same value in two launches")
    text = json.dumps({"schema": BASELINE_SCHEMA, "counts": counts}, indent=1) + "\n"
    write_whole(path, text)
    return len(counts)


def check_place(path: Path) -> None:
    """UserError where a baseline cannot be written there; called before anything is counted."""
    for each in (path, part_of(path)):
        check_writable(each)


def load(path: Path) -> Counts:
    """The counts of a baseline file, by kernel; StoreError if it cannot be read."""
    try:
        baseline = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; {REMEDY}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not a baseline; {REMEDY}") from error
    schema = baseline.get("schema") if isinstance(baseline, dict) else None
    counts = baseline.get("counts") if schema == BASELINE_SCHEMA else None
    if not _is_counts(counts):
        raise StoreError(f"{path} is not a baseline of schema {BASELINE_SCHEMA}; {REMEDY}")
    assert isinstance(counts, dict)
    return counts


def _is_counts(counts: object) -> bool:
    kernels = counts.values() if isinstance(counts, dict) else [None]
    return all(
        isinstance(kernel, dict) and all(type(value) in (int, float) for value in kernel.values())
        for kernel in kernels
    )


# --- what changed ---------------------------------------------------------------------------------


def changes(kept: Counts, records: Sequence[Counters]) -> list[str]:
    """One line for each change from the baseline; UserError where there is nothing to compare.

    A counted cell must have every kernel and every count that the baseline has of it: one that is
    missing, or no longer repeats, is a change.
    """
    now = counts_of(records)
    places = {(record.how.chip, record.cell) for record in records}
    held = {key: counts for key, counts in kept.items() if _place(key) in places}
    if not any(held.values()) and not now.keys() - held.keys():
        raise UserError("the baseline holds no count of these cells: save a baseline of them")
    changed = [
        f"{key}: {change}"
        for key in held.keys() & now.keys()
        for change in _changed(held[key], now[key])
    ]
    gone = [f"{key}: no longer runs" for key in held.keys() - now.keys()]
    new = [f"{key}: not in the baseline" for key in now.keys() - held.keys()]
    return sorted(changed) + sorted(gone) + sorted(new)


def _place(key: str) -> tuple[str, ...]:
    """Chip and cell of a key; neither contains a space."""
    return tuple(key.split(" ", 2)[:2])


def _changed(kept: Mapping[str, float], now: Mapping[str, float]) -> list[str]:
    return [
        f"{name} was {count:,.0f} and "
        + (f"is {now[name]:,.0f}" if name in now else "is not counted, or does not repeat")
        for name, count in kept.items()
        if now.get(name) != count
    ]
