"""Counters of one cell: a row per kernel, a value per launch, and whether each value repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from pagebench.profiles.metrics import METRICS, TOLERANCE, metric


class CountError(ValueError):
    """Counters of other kernels than those of the call."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One execution of a kernel as ncu counted it. `values` are by our names, None where n/a."""

    symbol: str
    grid: str
    block: str
    launch: Mapping[str, float | None]
    values: Mapping[str, float | None]
    passes: int | None
    range_name: str


@dataclass(frozen=True, slots=True)
class Count:
    """A counter of a whole call: its median over the launches, and whether it repeated.

    `spread` is (largest - least) / median: 0 where all launches are equal.
    """

    value: float
    stable: bool
    spread: float


@dataclass(frozen=True, slots=True)
class Stability:
    """Whether a counter repeated over the launches, and how far apart its values are."""

    stable: bool
    spread: float  # (largest - least) / median; 0 where all are equal


def by_call(rows: Sequence[KernelRow], launches: int) -> list[list[KernelRow]]:
    """Rows of one cell, kernel by kernel: `launches` rows of each kernel of the call.

    CountError, which lists the kernels seen, where the rows are not `launches` equal calls.
    """
    seen = ", ".join(row.symbol for row in rows) or "none"
    if not rows or len(rows) % launches:
        raise CountError(
            f"{len(rows)} kernels in {launches} calls, which should run the same kernels: {seen}"
        )
    per_call = len(rows) // launches
    kernels = [list(rows[first::per_call]) for first in range(per_call)]
    for same in kernels:
        if len({(row.symbol, row.grid, row.block) for row in same}) != 1:
            raise CountError(f"calls of one cell ran different kernels: {seen}")
    return kernels


def expect(kernels: Sequence[Sequence[KernelRow]], symbols: Sequence[str]) -> None:
    """CountError if a call's kernels are not those that the adapter promised, in that order."""
    seen = [launches[0].symbol for launches in kernels]
    promised = len(seen) == len(symbols) and all(map(str.__contains__, seen, symbols))
    if symbols and not promised:
        raise CountError(f"expected {', '.join(symbols)}; saw {', '.join(seen)}")


def stability(kind: str, values: Sequence[float]) -> Stability:
    """Judge repeated values of a counter of that kind; a value counted only once is not stable."""
    if len(values) < 2:
        return Stability(False, 0.0)
    middle = median(values)
    spread = (max(values) - min(values)) / middle if middle else float(max(values) != min(values))
    return Stability(spread <= TOLERANCE[kind], round(spread, 6))


Values = Mapping[str, Sequence[float | None]]  # of one kernel, one per launch; None where n/a


def totals(kernels: Sequence[Values]) -> dict[str, list[float]]:
    """Counts and traffic of the whole call, one value per launch. Percentages do not add up."""
    found: dict[str, list[float]] = {}
    for each in METRICS:
        if each.kind == "rate" and each.unit == "%":
            continue
        columns = [_whole(values.get(each.name, ())) for values in kernels]
        if all(columns):
            found[each.name] = [float(sum(values)) for values in zip(*columns, strict=True)]
    return found


def _whole(column: Sequence[float | None]) -> list[float]:
    """The column, or an empty list where a launch has no value."""
    values = [value for value in column if value is not None]
    return values if len(values) == len(column) else []


def counts(total: Mapping[str, Sequence[float]]) -> dict[str, Count]:
    """The median of each counter over the launches, and whether it repeats by its kind's rule."""
    found = {}
    for name, values in total.items():
        repeated = stability(metric(name).kind, values)
        found[name] = Count(median(values), repeated.stable, repeated.spread)
    return found


# The counters that a ratio is made of: it repeats where both do.
RATIO_OF = {
    "l1_sectors_per_request": ("l1_requests", "l1_sectors"),
    "l2_sectors_per_request": ("l2_requests", "l2_sectors"),
    "l2_hit_pct": ("l2_hits", "l2_misses"),
}


def ratio_repeats(total: Mapping[str, Count], name: str) -> bool:
    """Whether both counters of a ratio were counted and repeated."""
    return all(part in total and total[part].stable for part in RATIO_OF[name])


def ratios(values: Mapping[str, float]) -> dict[str, float | str]:
    """Ratios of counts, where they are defined: sectors per request, L2 hit rate in per cent."""
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


def unstable(values: Values) -> list[str]:
    """Names of one kernel's counters that did not repeat over the launches."""
    return [
        each.name
        for each in METRICS
        if each.name in values
        and not stability(each.kind, [float(value or 0) for value in values[each.name]]).stable
    ]
