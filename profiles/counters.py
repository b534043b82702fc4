"""Counters of one cell: a row a kernel, a value a launch, and whether each can be trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pagebench.profiles.metrics import METRICS, TOLERANCE


class CountError(ValueError):
    """Counters that do not belong to what was called."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel execution as ncu counted it; `values` by our names, None where n/a."""

    symbol: str
    grid: str
    block: str
    launch: Mapping[str, float | None]
    values: Mapping[str, float | None]
    passes: int | None
    range_name: str


@dataclass(frozen=True, slots=True)
class Stability:
    """Whether a counter repeated over the launches, and by how much it did not."""

    stable: bool
    spread: float  # (largest - least) / median; 0 where all are equal


def by_call(rows: Sequence[KernelRow], launches: int) -> list[list[KernelRow]]:
    """Rows of one cell, kernel by kernel: `launches` rows of each kernel of the call.

    CountError where the rows are no whole number of equal calls; it lists what was seen.
    """
    seen = ", ".join(row.symbol for row in rows) or "none"
    if not rows or len(rows) % launches:
        raise CountError(f"{len(rows)} kernels in {launches} calls: {seen}")
    per_call = len(rows) // launches
    kernels = [list(rows[first::per_call]) for first in range(per_call)]
    for same in kernels:
        if len({(row.symbol, row.grid, row.block) for row in same}) != 1:
            raise CountError(f"calls of one cell ran different kernels: {seen}")
    return kernels


def expect(kernels: Sequence[Sequence[KernelRow]], symbols: Sequence[str]) -> None:
    """CountError if a call's kernels are not those that the adapter promised, in their order."""
    seen = [launches[0].symbol for launches in kernels]
    promised = len(seen) == len(symbols) and all(map(str.__contains__, seen, symbols))
    if symbols and not promised:
        raise CountError(f"expected {', '.join(symbols)}; saw {', '.join(seen)}")


def stability(kind: str, values: Sequence[float]) -> Stability:
    """Judge repeated values of a counter of that kind; one that was counted once is not stable."""
    if len(values) < 2:
        return Stability(False, 0.0)
    middle = median(values)
    spread = (max(values) - min(values)) / middle if middle else float(max(values) != min(values))
    return Stability(spread <= TOLERANCE[kind], round(spread, 6))


def totals(kernels: Sequence[Sequence[KernelRow]]) -> dict[str, list[float]]:
    """Counts and traffic of the whole call, one value a launch. Percentages do not add."""
    found: dict[str, list[float]] = {}
    for metric in METRICS:
        if metric.kind == "rate" and metric.unit == "%":
            continue
        columns = [[row.values.get(metric.name) for row in launches] for launches in kernels]
        if all(value is not None for column in columns for value in column):
            found[metric.name] = [float(sum(values)) for values in zip(*columns, strict=True)]
    return found


# What a ratio is made of: it repeats where both do.
RATIO_OF = {
    "l1_sectors_per_request": ("l1_requests", "l1_sectors"),
    "l2_sectors_per_request": ("l2_requests", "l2_sectors"),
    "l2_hit_pct": ("l2_hits", "l2_misses"),
}


def ratio_repeats(total: Mapping[str, Mapping[str, Any]], name: str) -> bool:
    """Whether both counters of a ratio are there and repeated."""
    return all(part in total and total[part]["stable"] for part in RATIO_OF[name])


def median_of(kernel: Mapping[str, Any], name: str) -> float | None:
    """A counter's or rate's median over a recorded kernel's launches; None where one lacks it."""
    values = kernel["values"].get(name) or [None]
    return None if None in values else median(values)


def ratios(values: Mapping[str, float]) -> dict[str, float | str]:
    """What follows from counts: hit rate and sectors a request, where they are defined."""
    found: dict[str, float | str] = {}
    if values.get("l1_requests") and "l1_sectors" in values:
        found["l1_sectors_per_request"] = values["l1_sectors"] / values["l1_requests"]
    if values.get("tma", 0) > values.get("ldgsts", 0) + values.get("ldg", 0):
        found["l1_sectors_per_request"] = "n/a (TMA)"
    if values.get("l2_requests") and "l2_sectors" in values:
        found["l2_sectors_per_request"] = values["l2_sectors"] / values["l2_requests"]
    hits, misses = values.get("l2_hits"), values.get("l2_misses")
    if hits is not None and misses is not None and hits + misses:
        found["l2_hit_pct"] = 100 * hits / (hits + misses)
    return found


def unstable(values: Mapping[str, Sequence[float | None]]) -> list[str]:
    """Counters of one kernel, a value a launch, that did not repeat."""
    return [
        metric.name
        for metric in METRICS
        if metric.name in values
        and not stability(metric.kind, [float(value or 0) for value in values[metric.name]]).stable
    ]


def summary(kernels: Sequence[Sequence[KernelRow]]) -> list[dict[str, Any]]:
    """Each kernel of a call for a record: identity, launch facts, values a launch, stability."""
    return list(map(_entry, kernels))


def _entry(launches: Sequence[KernelRow]) -> dict[str, Any]:
    first = launches[0]
    values = {
        metric.name: [row.values.get(metric.name) for row in launches]
        for metric in METRICS
        if metric.name in first.values
    }
    return {
        "symbol": first.symbol,
        "grid": first.grid,
        "block": first.block,
        "launch": dict(first.launch),
        "passes": first.passes,
        "values": values,
        "unstable": unstable(values),
    }
