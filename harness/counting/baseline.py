"""Load-count baselines: counts are compared exactly, because they have no noise as timings do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pagebench.harness.cell import Cell
from pagebench.harness.errors import UserError
from pagebench.harness.records import identity, store
from pagebench.harness.records.counters import Counters, Kernel
from pagebench.harness.records.identity import Difference, Identity
from pagebench.harness.records.store import StoreError, check_writable, part_of, write_whole
from pagebench.profiles.metrics import METRICS

BASELINE_SCHEMA = 2
WITHOUT_IDENTITY = 1  # the schema of baselines that do not say what they are of
# Counts are the same on every GPU of a model, however fast it runs and whoever asks.
NO_MATTER = ("uuid", "cpu", "torch_threads", "power_limit_w", "ecc")
MOST = 2**63  # a count above it is damage
COUNTS = tuple(metric.name for metric in METRICS if metric.kind == "count")
REMEDY = "pagebench baseline save makes one"
Counts = Mapping[str, Mapping[str, float]]  # by `chip cell kernel-symbol`, then by counter name


@dataclass(frozen=True, slots=True)
class Baseline:
    """Counts, and by `chip cell` what they are of; empty in a file of schema 1."""

    counts: Counts
    of: Mapping[str, Identity] = field(default_factory=dict)


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
    _refuse_two_gpus(found, newest_of_gpus(files))
    missing = {cell.name for cell in all_of} - {each.cell for each in found}
    if missing or not found:
        of = f" of {', '.join(sorted(missing))}" if missing else ""
        raise UserError(f"no counters{of} in {', '.join(map(str, files))}")
    return found


def newest_of_gpus(files: Sequence[Path]) -> list[Counters]:
    """The newest counters of each cell and GPU model."""
    every = store.read(files, Counters).of(Counters)
    return list({(each.environment.gpu, each.cell): each for each in every}.values())


def _refuse_two_gpus(found: Sequence[Counters], every: Sequence[Counters]) -> None:
    """UserError where one chip's counters of a cell are of two models: which are meant?"""
    for one in found:
        for other in every:
            alike = (one.cell, one.how.chip) == (other.cell, other.how.chip)
            if alike and (found_apart := identity.apart(one.environment, other.environment)):
                values = f"{found_apart[0].one} and {found_apart[0].other}"
                raise UserError(f"{one.cell} was counted on two GPUs ({values}): give files of one")


# --- the file -------------------------------------------------------------------------------------


def save(path: Path, records: Iterable[Counters]) -> int:
    """Write the baseline and return how many kernels it holds.

    UserError where no count repeats or the file cannot be written.
    """
    records = list(records)
    counts = counts_of(records)
    if not any(counts.values()):
        raise UserError(f"{path}: not written: no counter had the same value in two launches")
    of = {_place_of(each): identity_of(each) for each in records}
    text = json.dumps({"schema": BASELINE_SCHEMA, "of": of, "counts": counts}, indent=1) + "\n"
    write_whole(path, text)
    return len(counts)


def check_place(path: Path) -> None:
    """UserError where a baseline cannot be written there; called before anything is counted."""
    for each in (path, part_of(path)):
        check_writable(each)


def load(path: Path) -> Baseline:
    """A baseline file; StoreError if it cannot be read."""
    try:
        baseline = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; {REMEDY}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not a baseline; {REMEDY}") from error
    schema = baseline.get("schema") if isinstance(baseline, dict) else None
    is_known = schema in (WITHOUT_IDENTITY, BASELINE_SCHEMA)
    counts = baseline.get("counts") if is_known else None
    of = baseline.get("of") if schema == BASELINE_SCHEMA else {}
    if not _is_counts(counts) or not _is_identities(of):
        raise StoreError(f"{path} is not a baseline of schema {BASELINE_SCHEMA}; {REMEDY}")
    assert isinstance(counts, dict)
    assert isinstance(of, dict)
    return Baseline(counts, of)


def _is_identities(of: object) -> bool:
    identities = of.values() if isinstance(of, dict) else [None]
    return all(
        isinstance(each, dict) and all(type(value) is str for value in each.values())
        for each in identities
    )


def _is_counts(counts: object) -> bool:
    kernels = counts.values() if isinstance(counts, dict) else [None]
    return all(
        isinstance(kernel, dict) and all(map(_is_count, kernel.values())) for kernel in kernels
    )


def _is_count(value: object) -> bool:
    """Whether a counter can have shown it: no bool, no NaN, nothing beyond 64 bits."""
    return type(value) in (int, float) and -MOST < value < MOST  # type: ignore[operator]


# --- what it is of --------------------------------------------------------------------------------


def identity_of(record: Counters) -> dict[str, str]:
    """What counts depend on: the GPU's model and slice, the software, the call and its code."""
    every = identity.of_counters(record)
    return {name: value for name, value in every.items() if name not in NO_MATTER}


def apart(kept: Baseline, records: Iterable[Counters]) -> dict[str, tuple[Difference, ...]]:
    """By cell, in what the baseline's counts and these are not of one thing.

    Where the baseline has the cell on another chip alone, that is the difference.
    """
    found = {}
    places = {_place(key) for key in kept.counts}
    for each in records:
        known = kept.of.get(_place_of(each))
        differing = identity.differences(known, identity_of(each)) if known else ()
        chips = sorted(chip for chip, cell in places if cell == each.cell)
        if chips and each.how.chip not in chips:
            differing = (Difference("gpu", _named(kept, chips[0]), _model(each)), *differing)
        if differing:
            found[each.cell] = differing
    return found


def of_other_gpu(found: Iterable[Difference]) -> tuple[Difference, ...]:
    """The differences of the GPU as a model."""
    return tuple(each for each in found if each.field in identity.MODEL)


def _named(kept: Baseline, chip: str) -> str:
    """The GPU of a baseline's chip; the chip where it does not say."""
    names = (of.get("gpu") for place, of in kept.of.items() if place.startswith(f"{chip} "))
    return next(filter(None, names), chip)


def _model(record: Counters) -> str:
    return record.environment.gpu or record.how.chip


def _place_of(record: Counters) -> str:
    return f"{record.how.chip} {record.cell}"


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
