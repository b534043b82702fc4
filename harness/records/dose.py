"""The dose record: the time of a ladder of cells, step by step, and the counters that change."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
from pagebench.harness.records.old_sentences import timing_caveats


class Step(Part, frozen=True):
    """The change of time from one value of the knob to the next, microseconds."""

    low_us: float
    middle_us: float
    high_us: float

    def holds(self, us: float) -> bool:
        return self.low_us <= us <= self.high_us


class Spread(Part, frozen=True):
    """Least, median and largest of the processes' medians, microseconds."""

    least_us: float
    middle_us: float
    most_us: float

    def __post_init__(self) -> None:
        if not self.least_us <= self.middle_us <= self.most_us:
            raise ValueError("the least, the median and the largest time are not in that order")


class Dose(Record, frozen=True, kw_only=True, tag="dose"):
    """A ladder: one of `values` and `times` for each cell, one of `steps` between two cells.

    `counters` holds the stable counters of work that change, with a value for each cell; empty
    where a cell has no counters. `judging.dose` finds what the time follows.
    """

    regime: str
    knob: str
    cells: tuple[CellName, ...]
    values: tuple[str, ...]
    processes: int
    times: tuple[Spread, ...]
    steps: tuple[Step, ...]
    counters: Mapping[str, tuple[float, ...]] = {}
    caveats: tuple[TimingCaveat, ...] = ()
    kernel_sha: str | None = None  # of the content of --kernel's file

    def __post_init__(self) -> None:
        count = len(self.cells)
        columns = [self.values, self.times, *self.counters.values()]
        if any(len(column) != count for column in columns) or len(self.steps) != count - 1:
            raise ValueError(
                "a dose needs a value, a time and counters for each cell, and a step between"
            )


# Sentences of schema 1 that said what followed; its other sentences were notes.
CONCLUDED = re.compile(r"^from step to step|^time moves by|^no |a count gives")


def _as_data(line: Json) -> Json:
    """Schema 1 had sentences; before its doses had `values` they were page sizes, of one knob."""
    gone = ("pages", "time_us", "steps_us", "follows", "untested", "because", "notes")
    kept = {name: value for name, value in line.items() if name not in gone}
    notes = [text for text in line["because"] if not CONCLUDED.search(text)]
    return kept | {
        "values": line.get("values") or list(map(str, line["pages"])),
        "processes": line.get("processes", 0),
        "times": [dict(zip(Spread.__struct_fields__, us, strict=True)) for us in line["time_us"]],
        "steps": [dict(zip(Step.__struct_fields__, us, strict=True)) for us in line["steps_us"]],
        "caveats": timing_caveats(line.get("notes", notes)),
    }


UPGRADES = (
    Upgrade("times and steps have names, notes are caveats, no sentences", _as_data),
    Upgrade(IDENTITY + "; what was not made alike; a kernel file's content", as_it_was),
)
