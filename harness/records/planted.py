"""The planted record: known work put into our own kernels, and what the instruments found."""

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
from pagebench.harness.records.caveats import TimingCaveat


class PlantedWord(Part, frozen=True, tag_field="instrument", tag="verdict"):
    """The word that a verdict must have, and the one it had."""

    cell: CellName
    planted: str
    found: str

    @property
    def is_right(self) -> bool:
        return self.planted == self.found


class PlantedLoads(Part, frozen=True, tag_field="instrument", tag="ldg"):
    """LDG that were planted, and how many more the counter shows; None where unknown."""

    cell: CellName
    planted: int | None = None
    found: int | None = None

    @property
    def is_right(self) -> bool:
        return self.found is not None and self.planted == self.found


class PlantedWait(Part, frozen=True, tag_field="instrument", tag="time_us"):
    """Microseconds that were planted, and how many more the clock shows, with the interval."""

    cell: CellName
    planted: float
    found: float
    low: float
    high: float

    @property
    def is_right(self) -> bool:
        return self.low <= self.planted <= self.high


class Planted(Record, frozen=True, kw_only=True, tag="planted"):
    """`detectable` is the smallest relative effect that can be detected; absent without a time."""

    rows: tuple[PlantedWord | PlantedLoads | PlantedWait, ...]
    detectable: float | None = None
    caveats: tuple[TimingCaveat, ...] = ()  # of the verdicts' times

    @property
    def found_all(self) -> bool:
        return all(row.is_right for row in self.rows)


INSTRUMENTS = {"verdict": "verdict", "counter (LDG)": "ldg", "clock (us)": "time_us"}


def _tagged(line: Json) -> Json:
    """Schema 1 named instruments for display and stored what was right."""
    kept = {name: value for name, value in line.items() if name != "found_all"}
    return kept | {"rows": list(map(_row, line["rows"]))}


def _row(row: Json) -> Json:
    kept = {name: value for name, value in row.items() if name != "right" and value is not None}
    instrument = INSTRUMENTS.get(row["instrument"])
    if instrument is None:
        raise ValueError(f"instrument {row['instrument']}; there are {', '.join(INSTRUMENTS)}")
    if instrument == "ldg":  # counts, that stood as floats at first
        kept |= {name: int(kept[name]) for name in ("planted", "found") if name in kept}
    return kept | {"instrument": instrument}


UPGRADES = (
    Upgrade("instruments have names; what is right is computed when read", _tagged),
    Upgrade(IDENTITY + "; caveats", as_it_was),
)
