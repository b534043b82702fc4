"""The audit record: whether the flush makes the cache cold."""

from __future__ import annotations

from pagebench.harness.records.base import (
    IDENTITY,
    CellName,
    Json,
    Part,
    Record,
    Upgrade,
    as_it_was,
)
from pagebench.harness.records.counters import How

LEAST_COLD = 0.98  # share of the distinct bytes that must come from DRAM after a flush


class DramRead(Part, frozen=True, kw_only=True):
    """Bytes that a call reads from DRAM after the flush, and without it."""

    cold: float
    warm: float


class Audit(Record, frozen=True, kw_only=True, tag="audit"):
    """DRAM bytes of one cell beside its distinct bytes."""

    cell: CellName
    distinct_kv_bytes: int
    dram_read_bytes: DramRead
    how: How
    calibrated: bool = False

    @property
    def cold_over_distinct(self) -> float:
        return self.dram_read_bytes.cold / self.distinct_kv_bytes

    @property
    def warm_over_distinct(self) -> float:
        return self.dram_read_bytes.warm / self.distinct_kv_bytes

    @property
    def is_flushed(self) -> bool:
        return self.dram_read_bytes.cold >= LEAST_COLD * self.distinct_kv_bytes


DERIVED = ("cold_over_distinct", "warm_over_distinct", "flushed")


def _underived(line: Json) -> Json:
    return {name: value for name, value in line.items() if name not in DERIVED}


UPGRADES = (
    Upgrade("values that follow from the bytes are computed when read", _underived),
    Upgrade(IDENTITY, as_it_was),
)
