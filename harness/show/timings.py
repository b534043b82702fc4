"""Timings as rows: for a terminal and in Markdown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pagebench.harness.environment import Environment
from pagebench.harness.escape import shell, visible
from pagebench.harness.records import identity
from pagebench.harness.records.caveats import clock_moved
from pagebench.harness.records.select import usual_state
from pagebench.harness.records.timing import USUAL_SECONDS, Block, Samples, Timing
from pagebench.harness.show.caveats import caveat, ceiling_note
from pagebench.harness.show.identities import own
from pagebench.harness.show.neighbours import neighbours_of
from pagebench.harness.show.text import bandwidth, fold, number, plural, share
from pagebench.harness.timing.stats import Modes, Summary, summarise
from pagebench.kernels.adapter import DEFAULT
from pagebench.kernels.registry import is_shipped

IN_COLUMNS = ("resolved kernel", "resolved splits")  # a row shows them
SHORT_FLOORS = 10  # a shorter time is mostly clock overhead
WIDE = 0.2  # of the median: a wider interval says too little of the time to call it measured
NO_MEASUREMENT = "no measurement: the interval is wider than a fifth of the time"


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


def rows(timings: Sequence[Timing]) -> list[Row]:
    """Records as rows; those of one cell that were not measured alike say in what they differ."""
    told = told_apart(timings)
    return [
        replace(shown, note="; ".join(filter(None, (apart, shown.note))))
        for shown, apart in zip(map(row, timings), told, strict=True)
    ]


def told_apart(timings: Sequence[Timing]) -> list[str]:
    """For each record that has a time, in what it differs from others of its cell; else empty."""
    cells: dict[str, list[int]] = defaultdict(list)
    for at, timing in enumerate(timings):
        if timing.samples:
            cells[timing.cell].append(at)
    found = [""] * len(timings)
    for places in cells.values():
        alike = identity.distinct([identity.of_timing(timings[at]) for at in places])
        for at, values in zip(places, alike, strict=True):
            found[at] = own([each for each in values if each.field not in IN_COLUMNS])
    return found


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
    told = sample_notes(timing.samples, timing.environment, summary)
    return [*told, *filter(None, [ceiling_note(timing), *_of_check(timing)])]


def _of_check(timing: Timing) -> list[str]:
    """How many requests were compared where not all were; how exact a kernel of one's own is."""
    check = timing.check
    if check is None:
        return []
    part, whole = check.requests, check.of_requests
    is_ours = is_shipped(timing.cell.partition("_")[0])
    claims = not is_ours and check.tolerance != DEFAULT.random
    return [
        *([f"checked {part} of {whole} requests"] if part < whole else []),
        *([f"claims an error of at most {check.tolerance:.2g}"] if claims else []),
    ]


def sample_notes(samples: Samples, facts: Environment, summary: Summary) -> list[str]:
    """What a reader must know of samples that were taken there."""
    return [*_of_samples(samples, summary), *_of_blocks(samples), *neighbours_of(facts)]


def _of_samples(samples: Samples, summary: Summary) -> list[str]:
    few, floor_us = plural(summary.count, "sample"), samples.floor_us
    return [
        *([] if summary.has_interval else [f"no interval from {few}: raise --seconds"]),
        *([NO_MEASUREMENT] if _is_wide(summary) else []),
        *([bimodal(summary.modes)] if summary.modes else []),
        *([f"under {SHORT_FLOORS} floors"] if summary.median_us < SHORT_FLOORS * floor_us else []),
    ]


def _is_wide(summary: Summary) -> bool:
    return summary.high_us - summary.low_us > WIDE * summary.median_us


def bimodal(modes: Modes) -> str:
    fast, slow = modes.fast_us, modes.slow_us
    return f"bimodal: {fast:.1f} and {slow:.1f} us ({modes.slow_share:.0%} slow)"


def _of_blocks(samples: Samples) -> list[str]:
    """Throttling and clock changes of the GPU while it was timed."""
    throttled = [f"throttled ({', '.join(samples.throttle)})"] if samples.throttle else []
    moved = clock_moved(clocks_of(samples.blocks))
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
