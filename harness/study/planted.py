"""Effects planted on purpose, and whether the instruments found them."""

from __future__ import annotations

from pagebench.harness.records.planted import Planted, PlantedLoads, PlantedWait, PlantedWord
from pagebench.harness.show.sentences import instrument
from pagebench.harness.study.read import Recorded, gpus_of
from pagebench.harness.study.section import Section, table_of

HEADINGS = ("cell", "instrument", "planted", "found", "low", "high", "correct")


def planted(recorded: Recorded) -> Section:
    """The newest planted record."""
    if not recorded.planted:
        missing = "No planted effects: `make study` measures them."
        return Section("planted", "Planted effects", missing=missing)
    newest = recorded.planted[-1]
    rows = list(map(_row, newest.rows))
    table = table_of(
        "Known work planted in our own kernels", HEADINGS, rows, gpus=[gpus_of(newest)] * len(rows)
    )
    return Section(
        "planted",
        "Planted effects",
        _detectable(newest),
        (table,),
        commands=("pagebench selftest",),
    )


def _detectable(found: Planted) -> tuple[str, ...]:
    if not found.detectable:
        return ()
    return (f"Detectable effect in this call: {found.detectable:.2%}.",)


def _row(found: PlantedWord | PlantedLoads | PlantedWait) -> tuple[str, ...]:
    ends = (found.low, found.high) if isinstance(found, PlantedWait) else (None, None)
    amounts = (_amount(value) for value in (found.planted, found.found, *ends))
    return (found.cell, instrument(found), *amounts, "yes" if found.is_right else "NO")


def _amount(value: str | float | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,}"
