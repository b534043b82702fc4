"""Which counters repeat: all counters records, by counter and way of counting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagebench.harness.records.counters import Counters
from pagebench.harness.show.counters import counted_as
from pagebench.harness.study import original
from pagebench.harness.study.numbers import commands_of
from pagebench.harness.study.read import Recorded
from pagebench.harness.study.section import Section, Table, beside, table_of
from pagebench.profiles.metrics import TOLERANCE, metric

TITLE = "Which counters repeat"
HEADINGS = (
    "counter",
    "kind",
    "tolerance",
    "L2, replay",
    "cells",
    "repeated",
    "largest spread",
    "in cell",
)


@dataclass(frozen=True, slots=True)
class Way:
    """A counter, the way in which it was counted, and the GPU."""

    counter: str
    counted_as: str
    gpu: str


Groups = Mapping[Way, Sequence[Counters]]


def replay(recorded: Recorded) -> Section:
    """A row per counter and way of counting; spreads beside those of the original study."""
    groups = _groups(recorded.counters)
    if not groups:
        return Section("replay", TITLE, missing="No counters: `pagebench profile NAME`.")
    table = table_of(
        "Every cell was counted at least twice; the spread is between its calls",
        HEADINGS,
        [_row(way, found) for way, found in groups.items()],
        gpus=[way.gpu for way in groups],
    )
    return Section(
        "replay",
        TITLE,
        tables=(_beside(recorded.counters), table),
        commands=commands_of((), recorded.counters),
    )


def _groups(records: Sequence[Counters]) -> Groups:
    groups: dict[Way, list[Counters]] = {}
    for counters in records:
        for name in counters.total:
            way = Way(name, counted_as(counters.how), counters.environment.gpu_name)
            groups.setdefault(way, []).append(counters)
    return groups


def _row(way: Way, found: Sequence[Counters]) -> tuple[str, ...]:
    name, kind = way.counter, metric(way.counter).kind
    worst = max(found, key=lambda each: each.total[name].spread)
    spread = worst.total[name].spread
    return (
        name,
        kind,
        f"{TOLERANCE[kind]:.1%}",
        way.counted_as,
        str(len(found)),
        str(sum(each.total[name].stable for each in found)),
        f"{spread:.3%}",
        worst.cell if spread else "",
    )


def _beside(records: Sequence[Counters]) -> Table:
    rows = (
        (
            "LDG, shared cells",
            f"{original.REPLAY_LDG_PCT:.0f}% (exact)",
            _most(records, "ldg", "shared"),
        ),
        (
            "DRAM bytes read, shared cells",
            f"within {original.REPLAY_DRAM_PCT}%",
            _most(records, "dram_read_bytes", "shared"),
        ),
        ("DRAM bytes read, distinct cells", "", _most(records, "dram_read_bytes", "distinct")),
    )
    gpus = dict.fromkeys(each.environment.gpu_name for each in records if each.total)
    return beside(rows, ", ".join(filter(None, gpus)))


def _most(records: Sequence[Counters], name: str, sharing: str) -> str:
    """The largest spread of a counter from a cold L2."""
    spreads = [
        each.total[name].spread
        for each in records
        if name in each.total and each.how.l2 == "cold" and each.axes.sharing == sharing
    ]
    return f"at most {max(spreads):.3%}" if spreads else "not counted"
