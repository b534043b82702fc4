"""Records to tables: for a terminal, in Markdown, as JSON. Everything shown is in a record."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from shutil import get_terminal_size
from textwrap import TextWrapper
from typing import Any

import numpy as np

from pagebench.harness.records.timing import Record, Samples
from pagebench.harness.timing.measure import USUAL_SECONDS
from pagebench.harness.timing.stats import Summary, summarise
from pagebench.profiles.metrics import CHIPS

SHORT_FLOORS = 10  # a time under this many floors is mostly clock
BUSY = 1.5  # load a core beyond which something else took part
CLOCK_DRIFT = 0.02  # an SM clock that moved by more than this between blocks is said


@dataclass(frozen=True, slots=True)
class Row:
    """What a table shows of one record; times in microseconds, None where there is none."""

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
    *(
        "cell",
        "boundary",
        "clock, L2",
        "time us",
        "95 % interval",
        "floor us",
        "GB/s",
        "of nominal",
    ),
    *("resolved kernel", "splits", "note", "reproduce with"),
)


def row(record: Record) -> Row:
    """One record as a row. GB/s counts each distinct KV byte once."""
    samples = record.samples
    summary = summarise(samples.time_us) if samples else None
    gbps = _gbps(record, summary)
    nominal = record.environment.get("nominal_dram_gbps")
    resolved = record.resolved
    bounded = summary if summary and summary.has_interval else None
    return Row(
        cell=record.cell,
        boundary=record.boundary,
        clock=record.clock,
        l2=record.l2,
        status=record.status,
        time_us=summary.median_us if summary else None,
        low_us=bounded.low_us if bounded else None,
        high_us=bounded.high_us if bounded else None,
        floor_us=samples.floor_us if samples else None,
        gbps=gbps,
        of_nominal=gbps / nominal if gbps and nominal else None,
        kernel=str(resolved.get("kernel", "")),
        splits=str(resolved.get("splits", "")),
        note="; ".join(notes(record, summary)),
        command=command(record),
    )


def _gbps(record: Record, summary: Summary | None) -> float | None:
    distinct = record.predicted.get("distinct_kv_bytes")
    if summary is None or distinct is None or record.boundary != "run":
        return None
    return float(distinct / summary.median_us / 1e3)


def command(record: Record) -> str:
    """The command that measures this again; options that are the default are left out."""
    usual_clock, usual_l2 = usual_state(record)
    device = record.options.get("device", record.device)
    kernel, seconds = record.options.get("kernel"), record.options.get("seconds", USUAL_SECONDS)
    options = (
        (f" --kernel {kernel}", not kernel),
        (f" --device {device}", device in ("cuda", "cuda:0")),
        (f" --seconds {seconds:g}", seconds == USUAL_SECONDS),
        (f" --boundary {record.boundary}", record.boundary == "run"),
        (f" --clock {record.clock}", record.clock == usual_clock),
        (f" --l2 {record.l2}", record.l2 == usual_l2),
    )
    words = "".join(word for word, is_default in options if not is_default)
    return f"pagebench run {record.cell}{words}"


def usual_state(record: Record) -> tuple[str, str]:
    """The clock that is used, and the L2 state with the record's clock, where none is asked for."""
    clock = "wall" if record.device == "cpu" or record.boundary == "plan" else "events"
    return clock, "warm" if record.boundary == "plan" or record.clock == "eager" else "cold"


def notes(record: Record, summary: Summary | None) -> list[str]:
    """What a reader must know before using the number."""
    if record.samples is None or summary is None:
        return [f"{record.status}: {record.reason}"]
    found = []
    if not summary.has_interval:
        found.append(f"no interval from {counted(summary.count, 'sample')}: more --seconds")
    if summary.modes:
        modes = summary.modes
        found.append(
            f"bimodal: {modes.fast_us:.1f} and {modes.slow_us:.1f} us ({modes.slow_share:.0%} slow)"
        )
    if summary.median_us < SHORT_FLOORS * record.samples.floor_us:
        found.append(f"under {SHORT_FLOORS} floors")
    reasons = {reason for block in record.samples.blocks for reason in block.throttle}
    if reasons:
        found.append(f"throttled ({', '.join(sorted(reasons))})")
    blocks = record.samples.blocks
    clocks = [clock for block in blocks if (clock := block.spin_mhz or block.sm_mhz)]
    if moved := moved_clock(clocks):
        found.append(moved)
    load, cores = record.environment.get("load"), record.environment.get("cores")
    if load and cores and load > BUSY * cores:
        found.append(f"the machine was busy (load {load:.1f} on {cores} cores)")
    if record.environment.get("other_processes"):
        found.append(others_on_the_gpu(record.environment["other_processes"]))
    return found


def moved_clock(mhz: Sequence[int]) -> str | None:
    """A note if the SM clock moved by more than CLOCK_DRIFT."""
    if not mhz or max(mhz) - min(mhz) <= CLOCK_DRIFT * max(mhz):
        return None
    return f"SM clock moved {min(mhz)} to {max(mhz)} MHz"


def others_on_the_gpu(count: int) -> str:
    return f"{counted(count, 'other process', 'es')} on the GPU"


def counted(count: int | str, noun: str, ending: str = "s") -> str:
    """`1 record`, `2 records`."""
    return f"{count} {noun}{'' if str(count) == '1' else ending}"


def bandwidth(gbps: float | None) -> str:
    """GB/s, with two decimals where there are not three digits before them."""
    return _number(gbps, 0 if (gbps or 0) >= 100 else 2)


def cells_of(shown: Row) -> tuple[str, ...]:
    """A row as text, in the order of HEADINGS."""
    interval = "" if shown.low_us is None else f"{shown.low_us:.2f} to {shown.high_us:.2f}"
    share = "" if shown.of_nominal is None else f"{shown.of_nominal:.1%}"
    return (
        shown.cell,
        shown.boundary,
        f"{shown.clock}, {shown.l2}",
        _number(shown.time_us, 2),
        interval,
        _number(shown.floor_us, 2),
        bandwidth(shown.gbps),
        share,
        shown.kernel,
        shown.splits,
        shown.note,
        shown.command,
    )


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A GitHub table; pipes in cells are escaped."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def plain(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned columns, uncut: what a pipe or a log wants. Columns that say nothing are left out.

    On a terminal too narrow for them every row stands upright, a line a column.
    """
    table = [tuple(headings), *map(tuple, rows)]
    columns = [column for column in zip(*table, strict=True) if any(column[1:]) or len(table) == 1]
    widths = [max(map(len, column)) for column in columns]
    if len(columns) > 1 and sum(widths) + 2 * (len(widths) - 1) > terminal_columns():
        return "\n".join(_upright(*zip(*columns, strict=True)))
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in zip(*columns, strict=True)
    )


UNBOUNDED = 10**6  # columns of what is no terminal


def terminal_columns() -> int:
    """Width of the terminal that is written to; a pipe has no end."""
    return get_terminal_size().columns if sys.stdout.isatty() else UNBOUNDED


def _upright(headings: Sequence[str], *rows: Sequence[str]) -> Iterable[str]:
    """A row's first cell, and under it each other one that is not empty, with its heading."""
    for first, *others in rows:
        yield fold(first, 4)
        for heading, cell in zip(headings[1:], others, strict=True):
            if cell:
                yield fold(f"    {heading}: {cell}" if heading else f"    {cell}", 6)


def fold(text: str, hang: int) -> str:
    """Lines no wider than the terminal, those after the first indented; words stay whole."""
    return TextWrapper(
        terminal_columns(), subsequent_indent=" " * hang, break_long_words=False,
        break_on_hyphens=False,
    ).fill(text)  # fmt: skip


def under_environments(
    found: Iterable[Mapping[str, Any]], headings: Sequence[str], rows: Iterable[Sequence[str]]
) -> str:
    """A Markdown table under the environments, a line each, that its numbers come from."""
    lines = dict.fromkeys(f"- {_environment(facts)}" for facts in found)
    return "\n".join([*lines, "", markdown(headings, rows)])


def _environment(facts: Mapping[str, Any]) -> str:
    words = [_device(facts)]
    for name, unit in (("uuid", ""), ("driver", ""), ("cuda", ""), ("power_limit_w", " W")):
        if facts.get(name):
            words.append(f"{name.removesuffix('_w').replace('_', ' ')} {facts[name]}{unit}")
    if facts.get("max_sm_mhz"):
        words.append(f"SM up to {facts['max_sm_mhz']} MHz, memory {facts['max_memory_mhz']} MHz")
    if facts.get("nominal_dram_gbps"):
        words.append(f"nominal DRAM {facts['nominal_dram_gbps']:.0f} GB/s")
    words += [f"{name} {text}" for name, text in facts.get("versions", {}).items()]
    dirty = " with changes" if facts.get("dirty") else ""
    return ", ".join(words) + f"; commit {(facts.get('commit') or 'unknown')[:12]}{dirty}"


def _device(facts: Mapping[str, Any]) -> str:
    """The GPU or CPU; of an imported report, whose GPU has no name, its compute capability."""
    if facts.get("gpu") or facts.get("cpu"):
        return str(facts.get("gpu") or f"{facts['cpu']}, {facts.get('cores')} cores")
    capability = facts.get("capability")
    if not capability:
        return "an unknown device"
    chip = CHIPS.get(tuple(capability), "unknown chip")
    return f"imported, GPU not named: {chip}, capability {'.'.join(map(str, capability))}"


def tall(rows: Iterable[Row]) -> str:
    """For a terminal of any width: the command that reproduces a row, and under it what it gave."""
    lines = []
    for shown in rows:
        text = dict(zip(HEADINGS, cells_of(shown), strict=True))
        lines.append(shown.command)
        if shown.time_us is None:
            lines.append(fold(f"    {shown.note}", 6))
            continue
        share = f" ({text['of nominal']} of nominal)" if text["of nominal"] else ""
        rate = f", {text['GB/s']} GB/s{share}" if text["GB/s"] else ""
        lines.append(
            f"    {text['time us']} us [{text['95 % interval']}], floor {text['floor us']}, "
            f"{text['clock, L2']}{rate}"
        )
        splits = f", {counted(shown.splits, 'split')}" if shown.splits else ""
        lines.append(f"    {shown.kernel}{splits}")
        if shown.note:
            lines.append(fold(f"    note: {shown.note}", 6))
    return "\n".join(lines)


REPEAT_HEADINGS = ("cell", "clock, L2", "processes", "median us", "spread of medians", "modes")


def repeats(records: Iterable[Record]) -> list[tuple[str, ...]]:
    """Cells measured in several processes: their medians' spread, and modes over all samples."""
    groups: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in records:
        if record.samples:
            groups[record.key[:4]].append(record)
    return [_repeat(group) for group in groups.values() if len(group) > 1]


def _repeat(group: list[Record]) -> tuple[str, ...]:
    times = [record.samples.time_us for record in group if record.samples]
    medians = np.array([np.median(values) for values in times])
    pooled = summarise(np.concatenate(times).tolist())
    modes = pooled.modes
    shape = (
        f"bimodal: {modes.fast_us:.1f} and {modes.slow_us:.1f} us ({modes.slow_share:.0%} slow)"
        if modes
        else "unimodal"
    )
    first = group[0]
    return (
        first.cell,
        f"{first.clock}, {first.l2}",
        str(len(group)),
        f"{np.median(medians):.2f}",
        f"{(medians.max() - medians.min()) / np.median(medians):.2%}",
        shape,
    )


GAP_HEADINGS = ("compared on", "events floor us", "events - cupti us", "allowed us", "within")


def pivot(records: Iterable[Record]) -> tuple[list[str], list[tuple[str, ...]]]:
    """One row a cell, boundary and L2 state, one column a clock; events beside the cupti span.

    The eager clock has no L2 state of its own choosing, so it stands beside every one.
    """
    measured = [record for record in records if record.samples]
    rows: dict[tuple[str, ...], dict[str, Record]] = {}
    for record in measured:
        if record.clock != "eager":
            rows.setdefault(_state(record), {})[record.clock] = record
    for record in measured:
        if record.clock == "eager":
            beside = [found for state, found in rows.items() if state[0] == record.cell]
            for found in beside or [rows.setdefault(_state(record), {})]:
                found["eager"] = record
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


def _state(record: Record) -> tuple[str, ...]:
    """The cell, and what of its boundary and L2 state is not the default."""
    words = (
        record.boundary if record.boundary != "run" else "",
        record.l2 if record.l2 != "cold" else "",
    )
    return (record.cell, *filter(None, words))


def _median(record: Record | None) -> str:
    if record is None or record.samples is None:
        return ""
    return f"{np.median(record.samples.time_us):.2f}"


def _gap(found: dict[str, Record]) -> tuple[str, ...]:
    """How far events are above the span, against the floor plus one per cent of the span."""
    events, cupti = found.get("events"), found.get("cupti")
    if cupti and cupti.samples and cupti.samples.events_us:
        same = cupti.samples
        assert same.events_floor_us is not None
        gaps = np.subtract(same.events_us, same.time_us)
        return _gap_cells(same.events_floor_us, float(np.median(gaps)), same, "the same calls")
    if not (events and cupti and events.samples and cupti.samples):
        return ("", "", "", "", "")
    gap = float(np.median(events.samples.time_us) - np.median(cupti.samples.time_us))
    return _gap_cells(events.samples.floor_us, gap, cupti.samples, "two processes")


def _gap_cells(floor_us: float, gap: float, span: Samples, on: str) -> tuple[str, ...]:
    allowed = floor_us + 0.01 * float(np.median(span.time_us))
    inside = "yes" if abs(gap) <= allowed else "no"
    return (on, f"{floor_us:.2f}", f"{gap:.2f}", f"{allowed:.2f}", inside)


def as_json(record: Record) -> dict[str, Any]:
    """A row for machines, with what identifies the measurement."""
    shown = row(record)
    return {name: getattr(shown, name) for name in Row.__slots__} | {
        "process": record.process,
        "started": record.started,
        "environment": dict(record.environment),
        "axes": dict(record.axes),
        "predicted": dict(record.predicted),
    }
