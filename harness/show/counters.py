"""Counters and ceilings as tables: a card for one cell, a row for each of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pagebench.harness.records.ceilings import MeasuredCeilings
from pagebench.harness.records.counters import Counters, How, Kernel
from pagebench.harness.records.select import by_events
from pagebench.harness.records.timing import Timing
from pagebench.harness.show.text import fold, number, plain, plural
from pagebench.harness.timing.stats import summarise
from pagebench.profiles.counters import Count
from pagebench.profiles.metrics import METRICS, metric

SHOWN_RATES = tuple(m.name for m in METRICS if m.kind == "rate" and m.unit == "%")
PREDICTED = ("ldg", "dram_read_bytes")
OTHER_GRID = "of another grid"
MOST_SYMBOL = 90  # so that it fits a line of 100 after its indent

# --- The card of a cell ---------------------------------------------------------------------------


def counters_card(counters: Counters) -> str:
    """A counters record as text."""
    above = [*kernel_lines(counters), f"  predicted {_predicted(counters)}"]
    several = len(counters.kernels)
    columns = [f"kernel {n + 1}" for n in range(several)] if several > 1 else []
    total = "call" if several > 1 else "value"
    table = plain(
        ("  counter", *columns, total, "unit", "of predicted", "repeats"),
        [(f"  {name}", *others) for name, *others in counters_table(counters)],
    )
    below = fold(f"  {_how(counters)}", 4)
    return "\n".join([counters.cell, *(fold(line, 6) for line in above), table, below])


def counters_table(counters: Counters) -> list[tuple[str, ...]]:
    """Rows: counter, value of each kernel if there are several, value of the call, unit, measured
    over predicted, and whether it repeated."""
    rows = [_counter_row(counters, name, count) for name, count in counters.total.items()]
    blank = [""] * len(_of_kernels(counters, ""))
    for name, value in counters.ratios.items():
        shown = value if isinstance(value, str) else f"{value:.2f}"
        repeats = "stable" if counters.ratio_repeats(name) else "unstable"
        rows.append((name, *blank, shown, "", "", repeats))
    return rows


def _counter_row(counters: Counters, name: str, count: Count) -> tuple[str, ...]:
    off = " off" if name in counters.off else ""
    return (
        name,
        *_of_kernels(counters, name),
        f"{count.value:,.0f}",
        metric(name).unit,
        f"{of_predicted(counters, name)}{off}",
        _repeats(counters, count),
    )


def _of_kernels(counters: Counters, name: str) -> list[str]:
    """A counter's median in each kernel of a call of several."""
    if len(counters.kernels) == 1:
        return []
    columns = [kernel.median(name) for kernel in counters.kernels]
    return ["" if value is None else f"{value:,.0f}" for value in columns]


def _repeats(counters: Counters, count: Count) -> str:
    if counters.how.launches < 2:
        return "counted once"
    return "stable" if count.stable else f"unstable ({_spread(count.spread)})"


def _spread(share: float) -> str:
    return f"{share:.2%}" if share >= 1e-4 else "under 0.01%"


def of_predicted(counters: Counters, name: str) -> str:
    """Measured over predicted; empty if either is unknown. Predictions of another launch are named
    and not compared."""
    if counters.predicted.other_grids and name in PREDICTED:
        return OTHER_GRID
    return number(counters.over_predicted(name), 4)


def kernel_lines(counters: Counters) -> list[str]:
    """Lines for each kernel: symbol, launch, occupancy, rates; the decode kernel's LDG."""
    lines = [line for kernel in counters.kernels for line in _kernel(kernel)]
    share, decode = counters.decode_over_predicted, counters.kernels[0].values.get("ldg", ())
    if share is not None and decode:
        lines.append(f"  decode ldg {decode[0]:,.0f}, {number(share, 4)} of predicted")
    return lines


def _kernel(kernel: Kernel) -> list[str]:
    facts = [f"grid {kernel.grid}", f"block {kernel.block}", *_resources(kernel.launch)]
    shaky = kernel.unstable
    rates = [
        f"{name.removesuffix('_pct')} {rate:.1f} %{' (unstable)' if name in shaky else ''}"
        for name in SHOWN_RATES
        if (rate := kernel.median(name)) is not None
    ]
    return [
        f"  {short_symbol(kernel.symbol)}",
        f"    {', '.join(facts)}",
        f"    {', '.join(rates)}",
    ]


def short_symbol(symbol: str) -> str:
    """A symbol cut to MOST_SYMBOL characters, at the end of a parameter."""
    if len(symbol) <= MOST_SYMBOL:
        return symbol
    kept = symbol[:MOST_SYMBOL]
    end = max(kept.rfind(mark) + len(mark) for mark in ("<", "(", ", "))
    return f"{kept[:end].rstrip()}…" if end > 1 else f"{kept}…"


def _resources(launch: Mapping[str, float | None]) -> list[str]:
    """Registers, shared memory and resident blocks, if known."""
    names = ("blocks_by_registers", "blocks_by_shared", "blocks_by_warps")
    limits = [limit for name in names if (limit := launch.get(name))]
    registers, shared = launch.get("registers"), launch.get("shared_bytes")
    found = (
        None if registers is None else f"{registers:.0f} registers",
        None if shared is None else f"{shared / 1024:.0f} KiB shared",
        f"{plural(int(min(limits)), 'block')} per SM" if limits else None,
    )
    return [words for words in found if words]


def _predicted(counters: Counters) -> str:
    """The work computed from the layout, for which there is no counter."""
    work = counters.predicted
    sectors = work.sectors_per_request
    words = [
        f"{work.index_entries:,} index entries",
        f"{work.distinct_kv_bytes / 1e6:,.1f} MB of distinct KV",
        f"{work.flop / 1e9:,.2f} GFLOP",
        *([] if sectors is None else [f"{sectors:g} sectors per KV request"]),
    ]
    failed = "" if work.failed is None else f"; no loads: {work.failed}"
    sources = (
        f"; loads by the source of {name} {read}, and {ran} ran"
        for name, (read, ran) in work.other_source.items()
    )
    return f"{', '.join(words)}{failed}{''.join(sources)}{other_grids(counters)}"


def other_grids(counters: Counters) -> str:
    """That the formulas assume another launch than was counted; empty where they do not."""
    grids = counters.predicted.other_grids
    return f"; loads of grid {grids[0]}, and {grids[1]} was counted: not compared" if grids else ""


def _how(counters: Counters) -> str:
    how = counters.how
    passes = sorted({kernel.passes for kernel in counters.kernels if kernel.passes})
    words = [
        how.ncu and f"ncu {how.ncu}",
        f"chip {how.chip}",
        how.l2 and f"L2 {how.l2}",
        f"counted {how.launches} times",
        f"passes {', '.join(map(str, passes))}",
        how.replay_mode and f"replay {how.replay_mode}",
        f"cache control {how.cache_control or 'unknown'}",
        how.clock_control and f"clock control {how.clock_control}",
        _trust(counters),
    ]
    return ", ".join(filter(None, words))


def _trust(counters: Counters) -> str:
    if counters.how.imported:
        return "imported: not calibrated, kernels not checked"
    trust = "calibrated" if counters.calibrated else "not calibrated"
    gone = ", ".join(counters.distrusted)
    return f"{trust}: {gone} left out (found wrong)" if gone else trust


# --- One row per cell -----------------------------------------------------------------------------

COUNTER_HEADINGS = (
    "cell",
    "L2, replay",
    "LDG",
    "LDG of predicted",
    "LDGSTS",
    "local loads",
    "DRAM read MB",
    "DRAM of predicted",
    "DRAM busy %",
    "DRAM GB/s",
    "L2 hit %",
    "does not repeat",
)


def counters_row(counters: Counters, timings: Sequence[Timing] = ()) -> tuple[str, ...]:
    """One row per cell, in the order of COUNTER_HEADINGS.

    GB/s is DRAM bytes over the cell's time, if `timings` has one of the same GPU and L2 state.
    """
    decode = number(counters.decode_over_predicted, 4)
    apart = f"{decode} of the decode kernel's" if decode else ""
    hit = counters.ratios.get("l2_hit_pct")
    return (
        counters.cell,
        counted_as(counters.how),
        _value(counters, "ldg"),
        of_predicted(counters, "ldg") or apart,
        _value(counters, "ldgsts"),
        _value(counters, "local_loads"),
        _value(counters, "dram_read_bytes", 1e6, 1),
        of_predicted(counters, "dram_read_bytes"),
        # Of the call's first kernel, which is nearly the whole call.
        number(counters.kernels[0].median("dram_busy_pct"), 1),
        _over_time(counters, timings),
        f"{hit:.1f}" if isinstance(hit, float) else hit or "",
        ", ".join(name for name, count in counters.total.items() if not count.stable),
    )


def counted_as(how: How) -> str:
    """L2 state and replay mode: counters compare only if both are equal."""
    return f"{how.l2 or 'unknown'}, {how.replay_mode or 'imported'}"


def _value(counters: Counters, name: str, scale: float = 1, digits: int = 0) -> str:
    value = counters.value(name)
    return "" if value is None else f"{value / scale:,.{digits}f}"


def _over_time(counters: Counters, timings: Sequence[Timing]) -> str:
    read, gpu = counters.value("dram_read_bytes"), counters.environment.uuid
    same = [t for t in timings if t.cell == counters.cell and t.environment.uuid == gpu]
    timing = by_events(same, counters) if gpu else None
    if read is None or timing is None or timing.samples is None:
        return ""
    time_us = summarise(timing.samples.time_us, find_modes=False).median_us
    return f"{read / time_us / 1e3:,.0f}"


# --- Ceilings -------------------------------------------------------------------------------------

CEILING_HEADINGS = ("ceiling", "value", "by parallelism", "saturated")


def ceiling_rows(ceilings: MeasuredCeilings) -> list[tuple[str, ...]]:
    """A ceilings record for CEILING_HEADINGS: launch, rates by warps per SM, DRAM by MB read."""
    rows: list[tuple[str, ...]] = []
    if launch := ceilings.launch_us:
        by_launches = ", ".join(f"{count} {us}" for count, us in launch.by_launches.items())
        rows += [
            ("launch_us, first", f"{launch.first:.2f}", f"launches: {by_launches}", ""),
            ("launch_us, further", f"{launch.further:.2f}", "", str(launch.saturated)),
        ]
    for name, rate in ceilings.rates.items():
        by_warps = ", ".join(f"{warps} {value:,.0f}" for warps, value in rate.by_warps.items())
        shown = f"warps per SM: {by_warps}"
        rows.append((name, f"{rate.value:,.0f}", shown, str(rate.saturated)))
    for point in ceilings.dram_read:
        name = f"dram_read_gbps of {point.bytes_read / 1e6:,.0f} MB"
        rows.append((name, f"{point.gbps:,.0f}", "", str(point.saturated)))
    return rows
