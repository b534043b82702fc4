"""One card a cell: what was asked, what reached the kernel, how long it took, what it did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.counting.predict import (
    State,
    decode_over_predicted,
    newest_counters,
    over_predicted,
    predicted_anew,
    same_binary,
)
from pagebench.harness.instruments.ceilings import diagnose, newest_ceilings
from pagebench.harness.records import store
from pagebench.harness.records.timing import Record
from pagebench.harness.show import timings as report
from pagebench.profiles.ceilings import RATES, bandwidth_at
from pagebench.profiles.counters import median_of, ratio_repeats
from pagebench.profiles.metrics import METRICS, metric

SHOWN_RATES = tuple(m.name for m in METRICS if m.kind == "rate" and m.unit == "%")

MOST_SYMBOL = 90  # so that it fits a line of 100 after its indent


def counters_table(record: dict[str, Any]) -> list[tuple[str, ...]]:
    """Counter, value of each kernel where there are several, value of the call, unit, measured over
    predicted, and whether it repeated."""
    rows = []
    for name, entry in record["total"].items():
        ratio = _share(over_predicted(record, name))
        if name in record.get("off", ()):
            ratio += " off"
        rows.append((name, *_of_kernels(record, name), f"{entry['value']:,.0f}", metric(name).unit,
                     ratio, _repeats(record, entry)))  # fmt: skip
    blank = [""] * len(_of_kernels(record, ""))
    rows += [
        (name, *blank, value if isinstance(value, str) else f"{value:.2f}", "", "",
         "stable" if ratio_repeats(record["total"], name) else "unstable")
        for name, value in record["ratios"].items()
    ]  # fmt: skip
    return rows


def _of_kernels(record: dict[str, Any], name: str) -> list[str]:
    """A counter's median in each kernel of a call of several."""
    if len(record["kernels"]) == 1:
        return []
    columns = [median_of(kernel, name) for kernel in record["kernels"]]
    return ["" if value is None else f"{value:,.0f}" for value in columns]


def _repeats(record: dict[str, Any], entry: dict[str, Any]) -> str:
    if record["how"]["launches"] < 2:
        return "counted once"
    return "stable" if entry["stable"] else f"unstable ({_spread(entry['spread'])})"


def _share(of_predicted: float | None) -> str:
    return "" if of_predicted is None else f"{of_predicted:.4f}"


def _spread(share: float) -> str:
    return f"{share:.2%}" if share >= 1e-4 else "under 0.01%"


def kernel_lines(record: dict[str, Any]) -> list[str]:
    """Lines for each kernel: symbol, launch, occupancy, rates; LDG where it was predicted apart."""
    lines = [line for kernel in record["kernels"] for line in _kernel(kernel)]
    share = decode_over_predicted(record)
    if share is not None:
        counted = record["kernels"][0]["values"]["ldg"][0]
        lines.append(f"  decode ldg {counted:,.0f}, {_share(share)} of predicted")
    return lines


def _kernel(kernel: dict[str, Any]) -> list[str]:
    facts = [f"grid {kernel['grid']}", f"block {kernel['block']}", *_resources(kernel["launch"])]
    shaky = kernel["unstable"]
    rates = [
        f"{name.removesuffix('_pct')} {rate:.1f} %{' (unstable)' if name in shaky else ''}"
        for name in SHOWN_RATES
        if (rate := median_of(kernel, name)) is not None
    ]
    return [
        f"  {short_symbol(kernel['symbol'])}",
        f"    {', '.join(facts)}",
        f"    {', '.join(rates)}",
    ]


def short_symbol(symbol: str) -> str:
    """A symbol without what is beyond MOST_SYMBOL characters, cut where a parameter ends."""
    if len(symbol) <= MOST_SYMBOL:
        return symbol
    kept = symbol[:MOST_SYMBOL]
    end = max(kept.rfind(mark) + len(mark) for mark in ("<", "(", ", "))
    return f"{kept[:end].rstrip()}…" if end > 1 else f"{kept}…"


def _resources(launch: dict[str, float | None]) -> list[str]:
    """Registers, shared memory and resident blocks, as far as they are known."""
    limits = [
        limit
        for name in ("blocks_by_registers", "blocks_by_shared", "blocks_by_warps")
        if (limit := launch.get(name))
    ]
    registers, shared = launch.get("registers"), launch.get("shared_bytes")
    return [
        *([f"{registers:.0f} registers"] if registers is not None else []),
        *([f"{shared / 1024:.0f} KiB shared"] if shared is not None else []),
        *([f"{report.counted(int(min(limits)), 'block')} an SM"] if limits else []),
    ]


def counters_card(record: dict[str, Any]) -> str:
    """A counters record as text."""
    above = [*kernel_lines(record), f"  predicted {_predicted(record)}"]
    lines = [record["cell"], *(report.fold(line, 6) for line in above)]
    several = len(record["kernels"])
    columns = [f"kernel {n + 1}" for n in range(several)] if several > 1 else []
    total = "call" if several > 1 else "value"
    lines.append(
        report.plain(
            ("  counter", *columns, total, "unit", "of predicted", "repeats"),
            [(f"  {row[0]}", *row[1:]) for row in counters_table(record)],
        )
    )
    return "\n".join([*lines, report.fold(f"  {_how(record)}", 4)])


def _predicted(record: dict[str, Any]) -> str:
    """The work that the layout gives, which has no counter of its own."""
    work = record["predicted"]
    return (
        f"{work['index_entries']:,} index entries, {work['distinct_kv_bytes'] / 1e6:,.1f} MB of "
        f"distinct KV, {work['flop'] / 1e9:,.2f} GFLOP, {work['sectors_per_request']:g} sectors a "
        f"KV request{'; no loads: ' + work['failed'] if 'failed' in work else ''}"
    )


def _how(record: dict[str, Any]) -> str:
    how = record["how"]
    passes = sorted({kernel["passes"] for kernel in record["kernels"] if kernel["passes"]})
    if how.get("imported"):
        trust = "imported: neither calibrated nor its kernels checked"
    else:
        trust = "calibrated" if record.get("calibrated") else "not calibrated"
        gone = record.get("distrusted")
        trust += f": {', '.join(gone)} left out, found wrong" if gone else ""
    words = [
        f"ncu {how['ncu']}" if "ncu" in how else "",
        f"chip {how['chip']}",
        f"L2 {how['l2']}" if "l2" in how else "",
        f"counted {how['launches']} times",
        f"passes {', '.join(map(str, passes))}",
        f"replay {how['replay_mode']}" if "replay_mode" in how else "",
        f"cache control {how.get('cache_control', 'unknown')}",
        f"clock control {how['clock_control']}" if "clock_control" in how else "",
        trust,
    ]
    return ", ".join(filter(None, words))


COUNTER_HEADINGS = (
    "cell", "L2, replay", "LDG", "LDG of predicted", "LDGSTS", "local loads", "DRAM read MB",
    "DRAM of predicted", "DRAM busy %", "DRAM GB/s", "L2 hit %", "does not repeat",
)  # fmt: skip


def counters_row(record: dict[str, Any], timings: Sequence[Record] = ()) -> tuple[str, ...]:
    """One line a cell, in the order of COUNTER_HEADINGS.

    GB/s is DRAM bytes over the cell's time, where `timings` has one of that GPU and state.
    """
    total = record["total"]

    def value(name: str, scale: float = 1, digits: int = 0) -> str:
        return f"{total[name]['value'] / scale:,.{digits}f}" if name in total else ""

    decode = _share(decode_over_predicted(record))
    apart = f"{decode} of the decode kernel's" if decode else ""
    hit = record["ratios"].get("l2_hit_pct")
    how = record["how"]
    return (
        record["cell"], f"{how.get('l2', 'unknown')}, {how.get('replay_mode', 'imported')}",
        value("ldg"), _share(over_predicted(record, "ldg")) or apart, value("ldgsts"),
        value("local_loads"), value("dram_read_bytes", 1e6, 1),
        _share(over_predicted(record, "dram_read_bytes")), _busy(record),
        _over_time(record, timings),
        f"{hit:.1f}" if isinstance(hit, float) else str(hit or ""),
        ", ".join(name for name, entry in total.items() if not entry["stable"]),
    )  # fmt: skip


def _busy(record: dict[str, Any]) -> str:
    """DRAM busy in the call's first kernel, which nearly is the call."""
    busy = median_of(record["kernels"][0], "dram_busy_pct")
    return "" if busy is None else f"{busy:.1f}"


def _over_time(record: dict[str, Any], timings: Sequence[Record]) -> str:
    read, gpu = record["total"].get("dram_read_bytes"), record["environment"].get("uuid")
    of_cell = (r for r in timings if r.cell == record["cell"] and r.environment.get("uuid") == gpu)
    timing = _by_events(of_cell, record) if gpu else None
    if not read or timing is None:
        return ""
    return f"{read['value'] / report.as_json(timing)['time_us'] / 1e3:,.0f}"


CEILING_HEADINGS = ("ceiling", "value", "by parallelism", "saturated")


def ceiling_rows(record: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """A ceilings record for CEILING_HEADINGS: launch, rates by warps an SM, DRAM by MB read."""
    launch = record["launch_us"]
    by_launches = _words(launch["by_launches"])
    rows = [
        ("launch_us, first", f"{launch['first']:.2f}", f"launches: {by_launches}", ""),
        ("launch_us, further", f"{launch['further']:.2f}", "", str(launch["saturated"])),
    ]
    for name in RATES:
        by_warps = ", ".join(f"{w} {value:,.0f}" for w, value in record[name]["by_warps"].items())
        rows.append((name, f"{record[name]['value']:,.0f}", f"warps an SM: {by_warps}",
                     str(record[name]["saturated"])))  # fmt: skip
    for point in record["dram_read"]:
        name = f"dram_read_gbps of {point['bytes_read'] / 1e6:,.0f} MB"
        rows.append((name, f"{point['gbps']:,.0f}", "", str(point["saturated"])))
    return rows


def contrast(card: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Whether both cells ran the same binary alike, and stable counters over the other's.

    A counter that is zero in the other has no ratio: None. ValueError where one has no counters.
    """
    for one in (card, other):
        if one["counters"] is None:
            raise ValueError(f"{one['cell']}: no counters; make ncu CELL={one['cell']}")
    mine, theirs = card["counters"]["total"], other["counters"]["total"]
    return {
        "cell": other["cell"],
        "of": card["cell"],
        "same": same_binary(card["counters"], other["counters"]),
        "ratio": {
            name: round(mine[name]["value"] / of, 4) if (of := theirs[name]["value"]) else None
            for name in mine
            if name in theirs
            and mine[name]["stable"] and theirs[name]["stable"]
            and mine[name]["value"] != theirs[name]["value"]
        },
    }  # fmt: skip


def _contrast_lines(found: dict[str, Any]) -> list[str]:
    same = ", ".join(f"{what} {'same' if is_same else 'another'}"
                     for what, is_same in found["same"].items())  # fmt: skip
    ratios = ", ".join(f"{name} {'from none' if ratio is None else f'x {ratio:.4f}'}"
                       for name, ratio in found["ratio"].items())  # fmt: skip
    return [
        f"  against   {found['cell']}: {same}",
        f"            {found['of']} over it: {ratios or 'no stable change'}",
    ]


def joined(cell: str, files: Sequence[Path]) -> dict[str, Any]:
    """The newest timing and counters of a cell in those files; ValueError where there are none.

    Counters of the timing's own GPU and state of the cache come first, then those of its model.
    """
    timings = [record for record in store.read(files) if record.cell == cell]
    timing = _newest(timings)
    state = State(timing.environment, timing.l2) if timing else None
    cells = [Cell.parse(cell)]
    counted = newest_counters(cells, files, state) or newest_counters(cells, files)
    counters = counted[0] if counted else None
    if timing is None and counters is None:
        more = f" and {len(files) - 2} more files" if len(files) > 3 else ""
        where = ", ".join(map(str, files[: 2 if more else 3])) or "runs/"
        raise ValueError(
            f"{cell}: no record of it in {where}{more}; `pagebench run {cell}` makes one, or name "
            "the files that have it"
        )
    return {
        "cell": cell,
        "ceiling_gbps": _ceiling(timing, files),
        "timing": None if timing is None else report.as_json(timing),
        "resolved": dict(timing.resolved) if timing else (counters or {}).get("resolved", {}),
        "counters": counters and predicted_anew(counters),
        "binds": _binds(timings, counters, files),
    }


def _binds(
    timings: Sequence[Record], counters: dict[str, Any] | None, files: Sequence[Path]
) -> dict[str, Any] | None:
    """The critical path of the newest time that counters and ceilings can explain: by events."""
    if counters is None:
        return None
    by_events = _by_events(timings, counters)
    if by_events is None:
        return None
    time_us = report.as_json(by_events)["time_us"]
    state = State(by_events.environment, by_events.l2)
    path = diagnose(counters, state, time_us, store.read_kind(files, "ceilings"))
    return path.entry() if path else None


def _by_events(timings: Iterable[Record], counters: dict[str, Any]) -> Record | None:
    """The newest time of the run by events in the counters' state of the L2."""
    wanted = ("run", "events", counters["how"].get("l2"))
    return _newest(r for r in timings if (r.boundary, r.clock, r.l2) == wanted)


def _ceiling(timing: Record | None, files: Sequence[Path]) -> float | None:
    """What this GPU reaches when it reads as many bytes, from a ceilings record if there is one."""
    if timing is None or "gpu" not in timing.environment:
        return None
    found = newest_ceilings(timing.environment, store.read_kind(files, "ceilings"))
    distinct = int(timing.predicted.get("distinct_kv_bytes", 0))
    return bandwidth_at(found.dram_read, distinct) if found else None


def _newest(records: Iterable[Record]) -> Record | None:
    """The newest time: of the run by the usual clock and state of the L2 if there is one."""
    measured = [record for record in records if record.status == "measured"]
    return max(measured, key=lambda record: (_is_usual(record), record.started), default=None)


def _is_usual(record: Record) -> bool:
    usual = report.usual_state(record)
    return record.boundary == "run" and (record.clock, record.l2) == usual


def joined_card(card: dict[str, Any]) -> str:
    """Timing, counters and prediction of a cell as text."""
    counters = card["counters"]
    lines = [card["cell"], *_folded(_timing_lines(card))]
    if counters:
        lines += _folded([_counted_where(card)])
        lines.append(counters_card(counters).partition("\n")[2])
    else:
        lines.append(f"  no counters: make ncu CELL={card['cell']}")
    if "against" in card:
        lines += _folded(_contrast_lines(card["against"]))
    return "\n".join(lines)


def _folded(lines: Iterable[str]) -> list[str]:
    return [report.fold(line, 12) for line in lines]


def _counted_where(card: dict[str, Any]) -> str:
    counters = card["counters"]
    return f"  counters  {_whence(counters, counters.get('written', ''), card['timing'])}"


def _timing_lines(card: dict[str, Any]) -> list[str]:
    timing = card["timing"]
    if not timing:
        return [f"  no timing: pagebench run {card['cell']}"]
    low, high = timing["low_us"], timing["high_us"]
    interval = "" if low is None else f" [{low:.2f}, {high:.2f}]"
    return [
        f"  asked     {_words(timing['axes'])}",
        f"  resolved  {_words(_short(card['resolved']))}",
        f"  time      {timing['time_us']:.2f} us{interval}, floor {timing['floor_us']:.2f} "
        f"({timing['clock']}, {timing['l2']})",
        f"            {_whence(timing, timing['started'])}",
        _bandwidth(timing, card["counters"], card["ceiling_gbps"]),
        *([f"  binds     {card['binds']['sentence']}"] if card["binds"] else []),
        *([f"  note      {timing['note']}"] if timing["note"] else []),
    ]


def _whence(record: dict[str, Any], date: str, other: dict[str, Any] | None = None) -> str:
    """GPU, date and commit of a record, and whether `other` is of another GPU."""
    facts = record["environment"]
    uuid, commit = facts.get("uuid"), facts.get("commit")
    unnamed = "a GPU that the page does not name" if "capability" in facts else "unknown device"
    gpu = facts.get("gpu") or facts.get("cpu") or unnamed
    words = [
        f"{gpu}{f' {uuid[:12]}' if uuid else ''}",
        date[:16].replace("T", " "),
        f"commit {commit[:7]}" if commit else "",
        "another GPU than the time's" if other and other["environment"].get("uuid") != uuid else "",
    ]
    return "on " + ", ".join(filter(None, words))


def _short(resolved: dict[str, Any]) -> dict[str, Any]:
    """Without the module, whose name is as long as all that it was compiled for: JSON has it."""
    return {name: value for name, value in resolved.items() if name != "module"}


def _words(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _bandwidth(
    timing: dict[str, Any], counters: dict[str, Any] | None, ceiling: float | None
) -> str:
    """Distinct bytes over time against the ceiling, and DRAM bytes where they were counted."""
    distinct = timing["predicted"].get("distinct_kv_bytes", 0)
    share = "" if timing["of_nominal"] is None else f" ({timing['of_nominal']:.1%} of nominal)"
    gbps = report.bandwidth(timing["gbps"])
    text = f"  bytes     {distinct / 1e6:.1f} MB distinct, {gbps} GB/s{share}"
    if ceiling:
        text += f", {(timing['gbps'] or 0) / ceiling:.1%} of the {ceiling:.0f} this GPU reads"
    read = (counters or {}).get("total", {}).get("dram_read_bytes")
    state = State(timing["environment"], timing["l2"])
    if counters and read and state.holds(counters):
        trust = "" if read["stable"] else ", unstable"
        text += f"; DRAM read {read['value'] / 1e6:.1f} MB, "
        text += f"{read['value'] / timing['time_us'] / 1e3:.0f} GB/s{trust}"
    return text
