"""The ceilings record: what one GPU reaches, measured by probes that are shown to saturate."""

from __future__ import annotations

from collections.abc import Mapping

from pagebench.harness.records.base import IDENTITY, Json, Part, Record, Upgrade, as_it_was
from pagebench.profiles.ceilings import RATES, Ceilings, Point, Rate


class Launches(Part, frozen=True, kw_only=True):
    """Microseconds of calls of 1, 2, 4 ... empty kernels; `saturated` where a further launch costs
    the same by the last two doublings (`profiles.ceilings`)."""

    by_launches: Mapping[int, float]
    saturated: bool

    def __post_init__(self) -> None:
        if len(self.by_launches) < 2:
            raise ValueError("launches need the times of two counts or more")

    @property
    def first(self) -> float:
        return self.by_launches[min(self.by_launches)]

    @property
    def further(self) -> float:
        """Cost of one further launch in microseconds, from the last doubling."""
        *_, low, high = sorted(self.by_launches)
        us = self.by_launches
        return round((us[high] - us[low]) / (high - low), 3)


class ByWarps(Part, frozen=True, kw_only=True):
    """A rate in 10^9 a second, by warps an SM. The L2 probe also records its window in bytes."""

    by_warps: Mapping[int, float]
    saturated: bool  # whether the last doubling gains nothing, before values were rounded
    window_bytes: int | None = None

    def __post_init__(self) -> None:
        if not self.by_warps or min(self.by_warps.values()) <= 0:
            raise ValueError("every ceiling must be above zero")

    @property
    def value(self) -> float:
        return max(self.by_warps.values())


class MeasuredCeilings(Record, frozen=True, kw_only=True, tag="ceilings"):
    """DRAM as a curve over bytes, the others as rates. Records of schema 1 have only the curve."""

    gpu: str
    dram_read: tuple[Point, ...]
    launch_us: Launches | None = None
    l2_read_gbps: ByWarps | None = None
    issue_ginst: ByWarps | None = None
    fma_gflops: ByWarps | None = None
    matrix_gflops: ByWarps | None = None

    def __post_init__(self) -> None:
        if not all(point.gbps > 0 and point.bytes_read > 0 for point in self.dram_read):
            raise ValueError("every ceiling must be above zero")

    @property
    def rates(self) -> dict[str, ByWarps]:
        """Those rates that were measured, by the names of `profiles.ceilings.RATES`."""
        found = {name: getattr(self, name) for name in RATES}
        return {name: rate for name, rate in found.items() if rate is not None}

    def ceilings(self) -> Ceilings:
        rates = {name: Rate(rate.value, rate.saturated) for name, rate in self.rates.items()}
        launch = self.launch_us
        us = None if launch is None else (launch.first, launch.further)
        return Ceilings(self.dram_read, rates, us)


DERIVED = ("value", "first", "further")


def _underived(line: Json) -> Json:
    """Schema 2 stored the best of each rate, and the cost of launches, beside the values."""
    parts = ("launch_us", *RATES)
    return line | {
        name: {key: value for key, value in line[name].items() if key not in DERIVED}
        for name in parts
        if isinstance(line.get(name), dict)
    }


UPGRADES = (
    Upgrade("launch, L2, issue, FMA and matrix ceilings beside DRAM's curve", lambda line: line),
    Upgrade("values that follow from the measurements are computed when read", _underived),
    Upgrade(IDENTITY, as_it_was),
)
