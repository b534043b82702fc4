"""Planning on the host: does it grow with the number of indices?"""

from __future__ import annotations

from collections.abc import Mapping

from pagebench.harness.study import original
from pagebench.harness.study.numbers import (
    commands_of,
    files_of,
    interval_text,
    note,
    time_text,
)
from pagebench.harness.study.read import Recorded, Timed, gpus_of
from pagebench.harness.study.section import Section, Table, beside, table_of
from pagebench.harness.suites import find_suite

TITLE = "Planning on the host"


def plan(recorded: Recorded) -> Section:
    """Host time of FlashInfer's plan() over the number of indices."""
    timed = recorded.timed([cell.name for cell in find_suite("plan").cells], "plan")
    if not timed:
        return Section("plan", TITLE, missing="No plan times: `pagebench run --suite plan`.")
    table = table_of(
        f"FlashInfer's plan(), host time.{files_of(timed.values())}",
        ("indices", "us", "95 % interval", "note"),
        list(map(_row, timed.values())),
        gpus=[gpus_of(found) for found in timed.values()],
    )
    return Section(
        "plan", TITLE, tables=(_beside(timed), table), commands=commands_of(timed.values())
    )


def _row(found: Timed) -> tuple[str, ...]:
    indices = f"{found.work.index_entries:,}"
    return indices, time_text(found), interval_text(found), note(found)


def _beside(timed: Mapping[str, Timed]) -> Table:
    times = [found.summary.median_us / 1e3 for found in timed.values()]
    counts = [found.work.index_entries for found in timed.values()]
    least, most = original.PLAN_LEAST_INDICES, original.PLAN_MOST_INDICES
    row = (
        "plan() ms over indices",
        f"about {original.PLAN_MS}, {least} to {most:,}",
        f"{min(times):.3f} to {max(times):.3f}, {min(counts):,} to {max(counts):,}",
    )
    return beside([row], gpus_of(*timed.values()))
