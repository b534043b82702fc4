"""Gather isolation: does the placement of tokens matter to a token-flat kernel?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pagebench.harness.study import figures, original
from pagebench.harness.study.figures import Figure
from pagebench.harness.study.numbers import (
    QUOTIENT,
    commands_of,
    files_of,
    gb_of,
    notes_of,
    percent,
    ratio,
    ratio_text,
    time_text,
)
from pagebench.harness.study.read import Recorded, Timed, gpus_of
from pagebench.harness.study.section import Section, Table, beside, table_of
from pagebench.harness.suites import FOOTPRINTS, PLACEMENTS, placement_cell

TITLE = "Gather isolation: where tokens lie"
HEADINGS = (
    "GB of KV",
    "contiguous us",
    "block128 us",
    "scatter us",
    "block128 over contiguous",
    "scatter over contiguous",
    "note",
)
A_MILLION = 128  # requests of 8,192 tokens
Placed = Mapping[str, Timed]  # one footprint, by placement


def gather(recorded: Recorded) -> Section:
    """Contiguous, block128 and scatter at every footprint that was timed with all three."""
    cells = [placement_cell(placement, batch) for batch in FOOTPRINTS for placement in PLACEMENTS]
    timed = recorded.timed(cells)
    whole = {
        batch: {where: timed[placement_cell(where, batch)] for where in PLACEMENTS}
        for batch in FOOTPRINTS
        if all(placement_cell(where, batch) in timed for where in PLACEMENTS)
    }
    if not whole:
        missing = "No timings of placements: `pagebench run --suite placements`."
        return Section("gather", TITLE, missing=missing)
    caption = f"FlashInfer decode, page 1, 8,192 tokens per request.{files_of(timed.values())}"
    rows = list(map(_row, whole.values()))
    gpus = [gpus_of(*found.values()) for found in whole.values()]
    return Section(
        "gather",
        TITLE,
        text=(QUOTIENT,),
        tables=(_beside(whole), table_of(caption, HEADINGS, rows, gpus=gpus)),
        figures=(_figure(list(whole.values())),),
        commands=commands_of(found for each in whole.values() for found in each.values()),
    )


def _row(found: Placed) -> tuple[str, ...]:
    base = found["contiguous"]
    return (
        f"{gb_of(base):.2f}",
        *(time_text(found[where]) for where in PLACEMENTS),
        *(ratio_text(ratio(found[where], base)) for where in PLACEMENTS[1:]),
        notes_of(found),
    )


def _in_two_modes(found: Placed) -> bool:
    return any(found[where].summary.modes for where in ("contiguous", "scatter"))


# --- Beside the original --------------------------------------------------------------------------


def _beside(whole: Mapping[int, Placed]) -> Table:
    """Scatter over contiguous; a difference means nothing if a cell is bimodal."""
    gpu = gpus_of(*(found for each in whole.values() for found in each.values()))
    contiguous_ms, scatter_ms = original.GATHER_CONTIGUOUS_MS, original.GATHER_SCATTER_MS
    least_gb, most_gb = original.GATHER_GB
    million = whole.get(A_MILLION)
    rows = (
        (
            "scatter over contiguous, a million indices",
            f"{percent(scatter_ms / contiguous_ms)} ({contiguous_ms} to {scatter_ms} ms)",
            _million(million) if million else "not measured",
        ),
        (
            "scatter over contiguous, minimum and maximum over all footprints",
            f"{original.GATHER_LEAST_PCT:+.1f}% to {original.GATHER_MOST_PCT:+.1f}%, "
            f"{least_gb} to {most_gb} GB",
            _least_and_most(list(whole.values())),
        ),
    )
    return beside(rows, gpu)


def _million(found: Placed) -> str:
    change, _, _ = ratio(found["scatter"], found["contiguous"])
    times = [found[where].summary.median_us / 1e3 for where in ("contiguous", "scatter")]
    modes = ", one cell bimodal" if _in_two_modes(found) else ""
    return f"{percent(change)} ({times[0]:.4f} to {times[1]:.4f} ms{modes})"


def _least_and_most(whole: Sequence[Placed]) -> str:
    known = [each for each in whole if not _in_two_modes(each)]
    left_out = [f"{gb_of(each['contiguous']):.2f}" for each in whole if _in_two_modes(each)]
    without = f"without {' and '.join(left_out)} GB, where a cell is bimodal" if left_out else ""
    if not known:
        return without
    changes = [ratio(each["scatter"], each["contiguous"])[0] for each in known]
    sizes = [gb_of(each["contiguous"]) for each in known]
    found = f"{percent(min(changes))} to {percent(max(changes))}"
    return ", ".join(filter(None, (found, f"{min(sizes):.2f} to {max(sizes):.2f} GB", without)))


# --- The figure -----------------------------------------------------------------------------------


def _figure(whole: Sequence[Placed]) -> Figure:
    series = {
        where: {gb_of(each["contiguous"]): ratio(each[where], each["contiguous"]) for each in whole}
        for where in PLACEMENTS[1:]
    }
    alt = (
        "Time of shuffled and scattered tokens relative to contiguous ones, in per cent, by "
        "footprint. Hollow: one of the two cells is bimodal."
    )
    drawn = figures.placements(alt, series, _unsure(whole))
    return replace(drawn, gpus=tuple(gpus_of(*each.values()) for each in whole))


def _unsure(whole: Sequence[Placed]) -> set[tuple[str, float]]:
    """Placement and footprint of ratios with a bimodal cell."""
    return {
        (where, gb_of(each["contiguous"]))
        for each in whole
        for where in PLACEMENTS
        if each[where].summary.modes or each["contiguous"].summary.modes
    }
