"""Where and with what the records were made."""

from __future__ import annotations

from statistics import median

from pagebench.harness.environment import Environment
from pagebench.harness.show.text import commit, number
from pagebench.harness.show.timings import clocks_of
from pagebench.harness.study.read import Recorded
from pagebench.harness.study.section import Section, table_of

HEADINGS = (
    "device",
    "UUID",
    "driver",
    "CUDA",
    "power limit W",
    "SM MHz",
    "memory MHz",
    "nominal DRAM GB/s",
    "versions",
    "commit",
    "records",
)


def environment(recorded: Recorded) -> Section:
    """One row per GPU and commit, with the clocks seen while timing."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for source, facts in recorded.environments():
        groups.setdefault(_facts(facts), []).append(source)
    rows = [(*row, ", ".join(dict.fromkeys(found))) for row, found in groups.items()]
    table = table_of("Where and with what the records were made", HEADINGS, rows)
    return Section(
        "environment",
        "Environment",
        text=(*_clocks_seen(recorded), *_left_out(recorded)),
        tables=(table,) if rows else (),
        missing="" if rows else "No record in these files names its environment.",
    )


def _facts(facts: Environment) -> tuple[str, ...]:
    return (
        facts.gpu or facts.cpu or "",
        facts.uuid or "",
        facts.driver or "",
        facts.cuda or "",
        number(facts.power_limit_w, 0),
        number(facts.max_sm_mhz, 0),
        number(facts.max_memory_mhz, 0),
        number(facts.nominal_dram_gbps, 0),
        ", ".join(f"{name} {value}" for name, value in facts.versions.items()),
        commit(facts),
    )


def _left_out(recorded: Recorded) -> tuple[str, ...]:
    counts = ", ".join(f"{count} {reason}" for reason, count in recorded.left_out.items())
    return (f"Timings in these files that are not drawn: {counts}.",) if counts else ()


def _clocks_seen(recorded: Recorded) -> tuple[str, ...]:
    seen = [
        clock
        for _, timing in recorded.timings()
        if timing.samples
        for clock in clocks_of(timing.samples.blocks)
    ]
    if not seen:
        return ()
    return (f"SM clock while timing: {min(seen)} to {max(seen)} MHz, median {median(seen):.0f}.",)
