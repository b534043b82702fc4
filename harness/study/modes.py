"""Raw samples of bimodal cells: a difference between their medians is not an effect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pagebench.harness.study import figures
from pagebench.harness.study.figures import Figure
from pagebench.harness.study.numbers import commands_of
from pagebench.harness.study.read import Recorded, Timed, gpus_of
from pagebench.harness.study.section import Section, table_of
from pagebench.harness.timing.stats import Modes

TITLE = "Bimodal cells"
HEADINGS = ("cell", "fast us", "slow us", "slow share", "samples", "file")


def modes(recorded: Recorded) -> Section:
    """A row and a strip of samples for every bimodal timing."""
    found = list(_bimodal(recorded))
    if not found:
        return Section("modes", TITLE, missing="No timing in these files is bimodal.")
    table = table_of(
        "Modes by the dip test",
        HEADINGS,
        [_row(timed, both) for timed, both in found],
        gpus=[gpus_of(timed) for timed, _ in found],
    )
    return Section(
        "modes",
        TITLE,
        tables=(table,),
        figures=tuple(_strip(number, *each) for number, each in enumerate(found)),
        commands=commands_of(timed for timed, _ in found),
    )


def _bimodal(recorded: Recorded) -> Iterator[tuple[Timed, Modes]]:
    for run in recorded.runs:
        for boundary in ("run", "plan"):
            names = [cell for where, cell in run.timings if where == boundary]
            for timed in run.timed(names, boundary).values():
                if timed.summary.modes:
                    yield timed, timed.summary.modes


def _row(timed: Timed, both: Modes) -> tuple[str, ...]:
    return (
        timed.timing.cell,
        f"{both.fast_us:.2f}",
        f"{both.slow_us:.2f}",
        f"{both.slow_share:.0%}",
        str(timed.summary.count),
        timed.file,
    )


def _strip(number: int, timed: Timed, both: Modes) -> Figure:
    alt = f"{timed.timing.cell}, {timed.file}: samples in time order, bimodal"
    drawn = figures.strip(f"modes-{number}", alt, timed.samples.time_us, both)
    return replace(drawn, gpus=(gpus_of(timed),))
