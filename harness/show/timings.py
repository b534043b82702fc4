"""Timings as rows: for a terminal, in Markdown, by process and by clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pagebench.harness.escape import shell, visible
from pagebench.harness.records.caveats import clock_moved
from pagebench.harness.records.select import usual_state
from pagebench.harness.records.timing import USUAL_SECONDS, Block, Samples, Timing
from pagebench.harness.show.caveats import caveat
from pagebench.harness.show.neighbours import neighbours_of
from pagebench.harness.show.text import bandwidth, fold, number, plural, share
from pagebench.harness.timing.stats import Modes, Summary, summarise

SHORT_FLOORS = 10  # a shorter time is mostly clock overhead


@dataclass(frozen=True, slots=True)
class Row:
    """One record as a table shows it; times in microseconds, None if unknown."""

    cell: str
    boundary: str
    clock: str
    l2: str
    status: str
    time_us: float | None
    low_us: float | None
    high_us: float | None
    floor_us: float | None
    gbps: float | None
    of_nominal: float | None
    kernel: str
    splits: str
    note: str
    command: str


HEADINGS = (
    "cell",
    "boundary",
    "clock, L2",
    "time us",
    "95 % interval",
    "floor us",
    "GB/s",
    "of nominal",
    "resolved kernel",
    "splits",
    "note",
    "reproduce with",
)


def row(timing: Timing) -> Row:
    """One record as a row. GB/s counts each distinct KV byte once."""
    samples = timing.samples
    summary = summarise(samples.time_us) if samples else None
    rate = gbps(timing, summary)
    bounded = summary if summary and summary.has_interval else None
    return Row(
        cell=timing.cell,
        boundary=timing.boundary,
        clock=timing.clock,
        l2=timing.l2,
        status=timing.status,
        time_us=summary.median_us if summary else None,
        low_us=bounded.low_us if bounded else None,
        high_us=bounded.high_us if bounded else None,
        floor_us=samples.floor_us if samples else None,
        gbps=rate,
        of_nominal=of_nominal(timing, rate),
        kernel=str(timing.resolved.get("kernel", "")),
        splits=str(timing.resolved.get("splits", "")),
        note="; ".join(notes(timing, summary)),
        command=command(timing),
    )


def gbps(timing: Timing, summary: Summary | None) -> float | None:
    """Distinct KV bytes over the median; None for planning, and if they are unknown."""
    if summary is None or timing.predicted is None or timing.boundary != "run":
        return None
    return timing.predicted.distinct_kv_bytes / summary.median_us / 1e3


def of_nominal(timing: Timing, rate: float | None) -> float | None:
    """GB/s over the nominal DRAM bandwidth; None if either is unknown."""
    nominal = timing.environment.nominal_dram_gbps
    return rate / nominal if rate and nominal else None


def command(timing: Timing) -> str:
    """The command that measures this again; defaults are left out."""
    usual_clock, usual_l2 = usual_state(timing)
    asked = timing.asked
    options = (
        ("--kernel", asked.kernel, not asked.kernel),
        ("--device", asked.device, asked.device in ("cuda", "cuda:0")),
        ("--seconds", f"{asked.seconds:g}", asked.seconds == USUAL_SECONDS),
        ("--boundary", timing.boundary, timing.boundary == "run"),
        ("--clock", timing.clock, timing.clock == usual_clock),
        ("--l2", timing.l2, timing.l2 == usual_l2),
    )
    given = [(name, value) for name, value, is_default in options if not is_default]
    return shell("pagebench", "run", timing.cell, *(word for pair in given for word in pair))


# --- Notes ----------------------------------------------------------------------------------------


def notes(timing: Timing, summary: Summary | None) -> list[str]:
    """What a reader must know before using the number."""
    if timing.samples is None or summary is None:
        return [f"{timing.status}: {timing.reason}"]
    return [
        *_of_samples(timing.samples, summary),
        *_of_blocks(timing.samples.blocks),
        *neighbours_of(timing.environment),
    ]


def _of_samples(samples: Samples, summary: Summary) -> list[str]:
    few, floor_us = plural(summary.count, "sample"), samples.floor_us
    return [
        *([] if summary.has_interval else [f"no interval from {few}: raise --seconds"]),
        *([_bimodal(summary.modes)] if summary.modes else []),
        *([f"under {SHORT_FLOORS} floors"] if summary.median_us < SHORT_FLOORS * floor_us else []),
    ]


def _bimodal(modes: Modes) -> str:
    fast, slow = modes.fast_us, modes.slow_us
    return f"bimodal: {fast:.1f} and {slow:.1f} us ({modes.slow_share:.0%} slow)"


def _of_blocks(blocks: Sequence[Block]) -> list[str]:
    """Throttling and clock changes of the GPU while it was timed."""
    reasons = {reason for block in blocks for reason in block.throttle}
    throttled = [f"throttled ({', '.join(sorted(reasons))})"] if reasons else []
    moved = clock_moved(clocks_of(blocks))
    return [*throttled, *([caveat(moved)] if moved else [])]


def clocks_of(blocks: Sequence[Block]) -> list[int]:
    """SM clocks of the blocks in MHz: of the spin before a sample if there was one."""
    return [clock for block in blocks if (clock := block.spin_mhz or block.sm_mhz)]


# --- Rows as text ---------------------------------------------------------------------------------


def cells_of(shown: Row) -> tuple[str, ...]:
    """A row as text, in the order of HEADINGS."""
    interval = "" if shown.low_us is None else f"{shown.low_us:.2f} to {shown.high_us:.2f}"
    return (
        shown.cell,
        shown.boundary,
        f"{shown.clock}, {shown.l2}",
        number(shown.time_us, 2),
        interval,
        number(shown.floor_us, 2),
        bandwidth(shown.gbps),
        share(shown.of_nominal),
        shown.kernel,
        shown.splits,
        shown.note,
        shown.command,
    )


def tall(rows: Iterable[Row]) -> str:
    """For a terminal of any width: the command that reproduces a row, and its result below."""
    return "\n".join(line for shown in rows for line in (shown.command, *_under_command(shown)))


def _under_command(shown: Row) -> list[str]:
    if shown.time_us is None:
        return [fold(f"    {shown.note}", 6)]
    text = dict(zip(HEADINGS, cells_of(shown), strict=True))
    of_it = f" ({text['of nominal']} of nominal)" if text["of nominal"] else ""
    rate = f", {text['GB/s']} GB/s{of_it}" if text["GB/s"] else ""
    splits = f", {plural(shown.splits, 'split')}" if shown.splits else ""
    return [
        f"    {text['time us']} us [{text['95 % interval']}], floor {text['floor us']}, "
        f"{text['clock, L2']}{rate}",
        visible(f"    {shown.kernel}{splits}"),
        *([fold(f"    note: {shown.note}", 6)] if shown.note else []),
    ]


# --- By process -----------------------------------------------------------------------------------

REPEAT_HEADINGS = ("cell", "clock, L2", "processes", "median us", "spread of medians", "modes")


def repeats(timings: Iterable[Timing]) -> list[tuple[str, ...]]:
    """Cells measured in several processes: their medians' spread, and modes over all samples."""
    groups: dict[tuple[str, ...], list[Samples]] = defaultdict(list)
    for timing in timings:
        if timing.samples:
            groups[timing.cell, timing.boundary, timing.clock, timing.l2].append(timing.samples)
    return [_repeat(key, group) for key, group in groups.items() if len(group) > 1]


def _repeat(key: tuple[str, ...], group: Sequence[Samples]) -> tuple[str, ...]:
    """`key` is cell, boundary, clock and state of the L2."""
    cell, _, clock, l2 = key
    times = [samples.time_us for samples in group]
    medians = np.array([np.median(values) for values in times])
    modes = summarise(np.concatenate(times).tolist()).modes
    return (
        cell,
        f"{clock}, {l2}",
        str(len(group)),
        f"{np.median(medians):.2f}",
        f"{(medians.max() - medians.min()) / np.median(medians):.2%}",
        _bimodal(modes) if modes else "unimodal",
    )


# --- By clock -------------------------------------------------------------------------------------

GAP_HEADINGS = ("compared on", "events floor us", "events - cupti us", "allowed us", "within")


def pivot(timings: Iterable[Timing]) -> tuple[list[str], list[tuple[str, ...]]]:
    """One row per cell, boundary and L2 state, one column per clock; events beside cupti spans."""
    rows = _by_state(timings)
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
    return headings, table


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
