"""Tables of contrasts and ladders, doses and planted effects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pagebench.harness.records.dose import Dose
from pagebench.harness.records.planted import Planted, PlantedWait
from pagebench.harness.show.caveats import caveats
from pagebench.harness.show.sentences import follows, instrument
from pagebench.harness.show.text import fold, plain

if TYPE_CHECKING:  # what is shipped is parsed when it is imported
    from pagebench.harness.contrasts import Contrast, Ladder


def contrast_table(contrasts: Iterable[Contrast]) -> str:
    rows = [
        (each.name, each.knob, each.one.name, each.other.name, each.predicts or "", each.why or "")
        for each in contrasts
    ]
    return plain(("contrast", "knob", "A", "B", "predicted", "because"), rows)


def ladder_table(ladders: Iterable[Ladder]) -> str:
    rows = [(each.name, each.knob, " ".join(cell.name for cell in each.cells)) for each in ladders]
    return plain(("ladder", "knob", "cells"), rows)


def dose_table(dose: Dose) -> str:
    """What the time follows, then the ladder's times and counters."""
    rows = [("time us", *(f"{us.middle_us:.2f}" for us in dose.times))]
    rows += [
        (name, *(f"{value:,.0f}" for value in values)) for name, values in dose.counters.items()
    ]
    head = fold(f"{dose.regime}: the time follows: {follows(dose)}", 2)
    return f"{head}\n{plain((dose.knob, *dose.values), rows)}"


def planted_table(planted: Planted) -> str:
    """What was planted and found, and the detectable effect."""
    rows = [
        (
            row.cell,
            instrument(row),
            str(row.planted),
            str(row.found),
            f"{row.low} to {row.high}" if isinstance(row, PlantedWait) else "",
            "yes" if row.is_right else "NO",
        )
        for row in planted.rows
    ]
    table = plain(("cell", "instrument", "planted", "found", "interval", "correct"), rows)
    least = planted.detectable
    effect = [f"detectable effect: {least:.2%}"] if least else []
    return "\n".join([table, *effect, *caveats(planted.caveats)])
