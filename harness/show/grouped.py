"""Timings of one identity put together: by process and by clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pagebench.harness.records import identity
from pagebench.harness.records.caveats import hidden_processes
from pagebench.harness.records.timing import Samples, Timing
from pagebench.harness.show.caveats import caveat
from pagebench.harness.show.identities import own
from pagebench.harness.show.timings import WIDE, bimodal
from pagebench.harness.timing.stats import summarise

# --- By process -----------------------------------------------------------------------------------

REPEAT_HEADINGS = ("cell", "clock, L2", "processes", "median us", "spread of medians", "modes")
NOTE = "note"  # a last column, where there is something to say


def with_notes(
    headings: Sequence[str], rows: Iterable[tuple[str, ...]], notes: Sequence[str]
) -> tuple[list[str], list[tuple[str, ...]]]:
    """The table with a note at each row; as it is where there are none."""
    if not any(notes):
        return list(headings), list(rows)
    noted = [(*row, note) for row, note in zip(rows, notes, strict=True)]
    return [*headings, NOTE], noted


def unseen(timings: Iterable[Timing]) -> str:
    """That who else was on the GPU could not be seen, in one of the records."""
    hidden = hidden_processes(timing.environment for timing in timings)
    return caveat(hidden) if hidden else ""


def repeats(timings: Iterable[Timing]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings and rows of cells measured in several processes: their medians' spread, and modes
    over all samples."""
    found: dict[tuple[str, ...], list[Timing]] = defaultdict(list)
    for timing in timings:
        if timing.samples:
            found[timing.cell, timing.boundary, timing.clock, timing.l2].append(timing)
    groups = [
        ((f"{key[0]}{_in_brackets(name)}", *key[1:]), alike)
        for key, group in found.items()
        for name, alike in _alike(group)
        if len(alike) > 1
    ]
    rows = [_repeat(key, _samples_of(alike)) for key, alike in groups]
    return with_notes(REPEAT_HEADINGS, rows, [unseen(alike) for _, alike in groups])


def _samples_of(timings: Iterable[Timing]) -> list[Samples]:
    return [timing.samples for timing in timings if timing.samples]


def _alike(timings: Sequence[Timing]) -> list[tuple[str, list[Timing]]]:
    """Records of one identity, and what tells it from the others; nothing else may be pooled."""
    found = identity.groups((timing, identity.of_timing(timing)) for timing in timings)
    firsts = identity.distinct([identity.of_timing(group[0]) for group in found])
    return [(own(values), group) for values, group in zip(firsts, found, strict=True)]


def _in_brackets(name: str) -> str:
    return f" [{name}]" if name else ""


def _repeat(key: tuple[str, ...], group: Sequence[Samples]) -> tuple[str, ...]:
    """`key` is cell, boundary, clock and state of the L2."""
    cell, _, clock, l2 = key
    times = [samples.time_us for samples in group]
    medians = np.array([np.median(values) for values in times])
    modes = summarise(np.concatenate(times).tolist()).modes
    spread = float((medians.max() - medians.min()) / np.median(medians))
    return (
        cell,
        f"{clock}, {l2}",
        str(len(group)),
        f"{np.median(medians):.2f}",
        f"{spread:.2%}{', no measurement' if spread > WIDE else ''}",
        bimodal(modes) if modes else "unimodal",
    )


# --- By clock -------------------------------------------------------------------------------------

GAP_HEADINGS = ("compared on", "events floor us", "events - cupti us", "allowed us", "within")


def pivot(timings: Iterable[Timing]) -> tuple[list[str], list[tuple[str, ...]]]:
    """One row per cell, boundary, L2 state and identity, one column per clock; events beside cupti
    spans."""
    rows: dict[tuple[str, ...], dict[str, Samples]] = {}
    notes: dict[tuple[str, ...], str] = {}
    for apart, alike in _alike_by_cell(timings):
        for state, found in _by_state(alike).items():
            key = (f"{state[0]}{_in_brackets(apart)}", *state[1:])
            rows[key], notes[key] = found, unseen(alike)
    clocks = sorted({clock for found in rows.values() for clock in found})
    compares = "cupti" in clocks
    headings = ["cell", *(f"{clock} us" for clock in clocks), *(GAP_HEADINGS if compares else ())]
    table = [
        (
            ", ".join(state),
            *(_median(found.get(clock)) for clock in clocks),
            *(_gap(found) if compares else ()),
        )
        for state, found in rows.items()
    ]
    return with_notes(headings, table, list(notes.values()))


def _alike_by_cell(timings: Iterable[Timing]) -> list[tuple[str, list[Timing]]]:
    cells: dict[str, list[Timing]] = defaultdict(list)
    for timing in timings:
        if timing.samples:
            cells[timing.cell].append(timing)
    return [group for found in cells.values() for group in _alike(found)]


def _by_state(timings: Iterable[Timing]) -> dict[tuple[str, ...], dict[str, Samples]]:
    """Samples by state and clock; the eager clock cannot choose a state: it is in all of them."""
    measured = [(timing, timing.samples) for timing in timings if timing.samples]
    rows: dict[tuple[str, ...], dict[str, Samples]] = {}
    for timing, samples in measured:
        if timing.clock != "eager":
            rows.setdefault(_state(timing), {})[timing.clock] = samples
    for timing, samples in measured:
        if timing.clock == "eager":
            beside = [found for state, found in rows.items() if state[0] == timing.cell]
            for found in beside or [rows.setdefault(_state(timing), {})]:
                found["eager"] = samples
    return rows


def _state(timing: Timing) -> tuple[str, ...]:
    """The cell, with its boundary and L2 state if they are not the default."""
    unusual = (word for word in (timing.boundary, timing.l2) if word not in ("run", "cold"))
    return (timing.cell, *unusual)


def _median(samples: Samples | None) -> str:
    return "" if samples is None else f"{np.median(samples.time_us):.2f}"


def _gap(found: Mapping[str, Samples]) -> tuple[str, ...]:
    """Events minus the span, against a limit of the floor plus one per cent of the span."""
    events, cupti = found.get("events"), found.get("cupti")
    if cupti and cupti.gap_us is not None and cupti.events_floor_us is not None:
        return _gap_cells(cupti.events_floor_us, cupti.gap_us, cupti, "the same calls")
    if not (events and cupti):
        return ("",) * len(GAP_HEADINGS)
    gap = float(np.median(events.time_us) - np.median(cupti.time_us))
    return _gap_cells(events.floor_us, gap, cupti, "two processes")


def _gap_cells(floor_us: float, gap: float, span: Samples, on: str) -> tuple[str, ...]:
    allowed = span.allowed_us(floor_us)
    inside = "yes" if abs(gap) <= allowed else "no"
    return (on, f"{floor_us:.2f}", f"{gap:.2f}", f"{allowed:.2f}", inside)
