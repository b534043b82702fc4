"""Gather isolation under Nsight Compute: does scattering change any work?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pagebench.harness.records.counters import Counters
from pagebench.harness.study import original
from pagebench.harness.study.numbers import (
    UNSTABLE,
    commands_of,
    l2_hit,
    of_predicted,
    rate,
    sectors,
    total,
)
from pagebench.harness.study.read import Recorded, gpus_of
from pagebench.harness.study.section import ANEW, Section, Table, beside, table_of
from pagebench.harness.suites import FOOTPRINTS, PLACEMENTS, placement_cell

TITLE = "Gather isolation under Nsight Compute"
HEADINGS = (
    "cell",
    "DRAM busy %",
    "L2 hit %",
    "sectors per request",
    "LDG",
    "DRAM read MB",
    f"of predicted {ANEW}",
)


def nsight(recorded: Recorded) -> Section:
    """Counters of contiguous, block128 and scatter, one row per cell."""
    names = [placement_cell(where, batch) for batch in FOOTPRINTS for where in PLACEMENTS]
    counted = recorded.counted(names)
    if not counted:
        missing = "No counters of placements: `pagebench profile --suite placements`."
        return Section("nsight", TITLE, missing=missing)
    table = table_of(
        "Counters of a call; rates of its decode kernel",
        HEADINGS,
        list(map(_row, counted.values())),
        gpus=[gpus_of(counters) for counters in counted.values()],
    )
    return Section(
        "nsight",
        TITLE,
        text=(UNSTABLE,),
        tables=(*_beside(counted), table),
        commands=commands_of((), counted.values()),
    )


def _row(counters: Counters) -> tuple[str, ...]:
    return (
        counters.cell,
        rate(counters, "dram_busy_pct"),
        l2_hit(counters),
        sectors(counters),
        total(counters, "ldg"),
        total(counters, "dram_read_bytes", 1e6, 1),
        of_predicted(counters, "dram_read_bytes"),
    )


def _beside(counted: Mapping[str, Counters]) -> tuple[Table, ...]:
    """The largest footprint that was counted both contiguous and scattered."""
    pairs = [(placement_cell("contiguous", b), placement_cell("scatter", b)) for b in FOOTPRINTS]
    whole = [(counted[a], counted[b]) for a, b in pairs if a in counted and b in counted]
    if not whole:
        return ()
    one, other = whole[-1]

    def both(show: Callable[[Counters], str]) -> str:
        return f"{show(one)} and {show(other)}"

    rows = (
        (
            "DRAM busy %, contiguous and scatter",
            f"about {original.GATHER_DRAM_PCT}, both",
            both(lambda counters: rate(counters, "dram_busy_pct")),
        ),
        ("L2 hit %", f"{original.GATHER_L2_HIT_PCT}, both", both(l2_hit)),
        ("sectors per request", f"{original.GATHER_SECTORS_PER_REQUEST}, both", both(sectors)),
    )
    table = beside(rows, gpus_of(one, other))
    return (replace(table, caption=f"{table.caption}: {one.cell} and {other.cell}"),)
