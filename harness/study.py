"""The study from records: sections of words, tables and figures, the seed's figures beside ours.

Every number is computed from the records or stands in `seed`. A section without records says what
would make them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from pagebench.harness import figures, report, seed
from pagebench.harness.cell import Cell
from pagebench.harness.contrasts import CONTRASTS, Contrast
from pagebench.harness.figures import Figure
from pagebench.harness.recorded import Line, Recorded, Timed, device_name
from pagebench.harness.suites import FOOTPRINTS, PLACEMENTS, REGIMES, XQA_PAGES, find_suite
from pagebench.profiles.ceilings import Point, bandwidth_at
from pagebench.profiles.metrics import TOLERANCE, metric

QUESTION = "Did page size reach the kernel, and does the kernel care?"
BASE_PAGE = 64
SHAPES = {
    "absent": "○",
    "hidden": "◐",
    "exposed": "●",
    "unexplained": "▲",
    "confounded": "✕",
    "floor": "▁",
    "unclear": "?",
}
QUOTIENT = (
    "A ratio in brackets has the quotients of both intervals' ends: it is of separate calls, "
    "and wider than what interleaving gives."
)
UNSTABLE = "A * marks a counter that did not repeat within its rule."


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headings; `classes` are the rows' where they have any."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    classes: tuple[str, ...] = ()

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Whether a column holds numbers, which stand to the right."""
        columns = zip(*self.rows, strict=True)
        return tuple(all(_is_number(cell) for cell in column) for column in columns)


def _is_number(cell: str) -> bool:
    return not cell or cell.lstrip("+-−")[:1].isdigit()


@dataclass(frozen=True, slots=True)
class Section:
    """`missing` says what would make the records, where there are none; `commands` remake them."""

    anchor: str
    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    commands: tuple[str, ...] = ()
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Study:
    """The page's content; `device` is what all records are of."""

    device: str
    sections: tuple[Section, ...]


def study(recorded: Recorded) -> Study:
    """All sections, in the page's order."""
    device = device_name(recorded)
    sections = tuple(make(recorded) for make in MAKERS)
    drawn = tuple(_fill_device(section, device) for section in sections)
    return Study(device, (*drawn, reproduce(drawn)))


def _fill_device(section: Section, device: str) -> Section:
    """Tables that compare have the device's name in place of THIS."""
    tables = tuple(
        replace(table, headings=tuple(device if h == THIS else h for h in table.headings))
        for table in section.tables
    )
    return replace(section, tables=tables)


THIS = "this device"


def _beside(rows: Iterable[tuple[str, str, str]]) -> Table:
    """The seed's figures beside this device's."""
    return Table("The seed's figures beside these", ("", f"{seed.GPU} (the seed)", THIS),
                 tuple(rows))  # fmt: skip


# --- Numbers as text ------------------------------------------------------------------------------


def _time(found: Timed | None) -> str:
    return "" if found is None else f"{found.summary.median_us:.2f}"


def _interval(found: Timed | None) -> str:
    if found is None or not found.summary.has_interval:
        return ""
    return f"{found.summary.low_us:.2f} to {found.summary.high_us:.2f}"


def ratio(other: Timed, one: Timed) -> figures.Ratio:
    """Median of `other` over `one`, and the quotients of their intervals' far ends."""
    a, b = one.summary, other.summary
    return b.median_us / a.median_us, b.low_us / a.high_us, b.high_us / a.low_us


def _percent(value: float) -> str:
    return f"{100 * (value - 1):+.2f} %"


def _percent_interval(found: figures.Ratio) -> str:
    value, low, high = (_percent(part) for part in found)
    return f"{value} [{low}, {high}]"


def _note(found: Iterable[Timed | None]) -> str:
    lines = [line for one in found if one for line in report.notes(one.record, one.summary)]
    return "; ".join(dict.fromkeys(lines))


def _total(line: Line | None, name: str, scale: float = 1, digits: int = 0) -> str:
    entry = line and line["total"].get(name)
    if not entry:
        return ""
    return f"{entry['value'] / scale:,.{digits}f}{'' if entry['stable'] else ' *'}"


def _over_predicted(line: Line | None, name: str) -> str:
    wanted = line and line["predicted"].get(name)
    if not line or not wanted or name not in line["total"]:
        return ""
    return f"{line['total'][name]['value'] / wanted:.4f}"


def _ratio_of(line: Line | None, name: str, parts: Sequence[str] = ()) -> str:
    """A derived ratio; marked where a counter that it is made of did not repeat."""
    value = line and line["ratios"].get(name)
    if not line or not isinstance(value, float):
        return str(value or "")
    stable = all(line["total"][part]["stable"] for part in parts)
    return f"{value:.1f}{'' if stable else ' *'}"


def _hit(line: Line | None) -> str:
    return _ratio_of(line, "l2_hit_pct", ("l2_hits", "l2_sectors"))


def _sectors(line: Line | None) -> str:
    return _ratio_of(line, "l1_sectors_per_request", ("l1_sectors", "l1_requests"))


def _rate(line: Line | None, name: str) -> str:
    """A rate of the call's first kernel, the decode kernel."""
    kernel = line["kernels"][0] if line else {}
    values = [value for value in kernel.get("values", {}).get(name, ()) if value is not None]
    mark = " *" if name in kernel.get("unstable", ()) else ""
    return f"{median(values):.1f}{mark}" if values else ""


def _commands(timed: Iterable[Timed], counted: Iterable[str] = ()) -> tuple[str, ...]:
    cells = " ".join(counted)
    timings = tuple(report.command(found.record) for found in timed)
    return (*timings, *((f"pagebench profile {cells}",) if cells else ()))


# --- Verdicts -------------------------------------------------------------------------------------


def newest_verdicts(recorded: Recorded) -> dict[tuple[str, str], Line]:
    """The newest verdict of each two cells."""
    return {(line["cells"][0], line["cells"][1]): line for line in recorded.verdicts}


def _failed(line: Line) -> bool:
    return line["predicted"] not in (None, line["verdict"])


NO_VERDICTS = "No verdict in these files: `pagebench judge NAME` makes one; `pagebench judge` lists"


def headlines(recorded: Recorded) -> Section:
    """Verdicts as sentences, failed predictions first."""
    found = sorted(newest_verdicts(recorded).values(), key=lambda line: not _failed(line))
    text = tuple(f"{_contrast_of(line)}: **{line['headline']}**." for line in found)
    missing = "" if text else f"{NO_VERDICTS} the contrasts."
    return Section("verdicts", "What came out", text, missing=missing)


def _contrast_of(line: Line) -> str:
    known = _known(line)
    one, other = line["cells"]
    return f"{known.name} ({known.knob})" if known else f"`{one}` against `{other}`"


def _known(line: Line) -> Contrast | None:
    pairs = {(contrast.one, contrast.other): contrast for contrast in CONTRASTS}
    return pairs.get((line["cells"][0], line["cells"][1]))


MATRIX = ("contrast", "knob", "A", "B", "predicted", "what came", "time B over A",
          "would be found", "work that moved, B over A", "what binds")  # fmt: skip


def matrix(recorded: Recorded) -> Section:
    """One row a contrast: those shipped, judged or not, and then any other two cells."""
    verdicts = newest_verdicts(recorded)
    lines = {contrast: verdicts.pop((contrast.one, contrast.other), None) for contrast in CONTRASTS}
    rows = [_matrix_row(contrast, line) for contrast, line in lines.items()]
    others = [_matrix_row(_unnamed(line), line) for line in verdicts.values()]
    found = [*lines.values(), *verdicts.values()]
    judged = [line for line in found if line]
    table = Table(
        "Would be found: the smallest effect found with 80 % power. "
        + ", ".join(f"{shape} {word}" for word, shape in SHAPES.items()) + "; ≠ not as predicted.",
        MATRIX, (*rows, *others), tuple(_row_class(line) for line in found),
    )  # fmt: skip
    if not judged:
        return Section("matrix", "Verdict matrix", missing=f"{NO_VERDICTS} what is predicted.")
    commands = tuple(f"pagebench judge {' '.join(line['cells'])}" for line in judged)
    return Section("matrix", "Verdict matrix", tables=(table,), commands=commands)


def _unnamed(line: Line) -> Contrast:
    one, other = line["cells"]
    return Contrast("", "", one, other, line["predicted"] or "", "")


def _matrix_row(contrast: Contrast, line: Line | None) -> tuple[str, ...]:
    asked = (contrast.name, contrast.knob, contrast.one, contrast.other, contrast.predicts)
    if line is None:
        return (*asked, f"not judged: pagebench judge {contrast.name}", "", "", "", "")
    time = line["time"]
    return (
        *asked,
        f"{SHAPES[line['verdict']]} {line['verdict']}{' ≠' if _failed(line) else ''}",
        f"{time['ratio']:.4f} [{time['low']:.4f}, {time['high']:.4f}]",
        f"{time['detectable']:.2%}",
        _moved(line["work"]),
        _binding(line["because"]),
    )


def _row_class(line: Line | None) -> str:
    if line is None:
        return "not-judged"
    return f"{line['verdict']}{' failed' if _failed(line) else ''}"


def _moved(work: Mapping[str, Any] | None) -> str:
    if work is None:
        return "no counters"
    moved = (
        f"{name} {'from none' if value is None else f'× {value:.4g}'}"
        for name, value in work["changed"].items()
    )
    return ", ".join(moved) or "none"


def _binding(because: Sequence[str]) -> str:
    start = "what binds: "
    return next((text.removeprefix(start) for text in because if text.startswith(start)), "")


# --- Environment ----------------------------------------------------------------------------------

FACTS = (("gpu", "device"), ("uuid", "UUID"), ("driver", "driver"), ("cuda", "CUDA"),
         ("power_limit_w", "power limit W"), ("max_sm_mhz", "SM MHz at most"),
         ("max_memory_mhz", "memory MHz"), ("nominal_dram_gbps", "nominal DRAM GB/s"))  # fmt: skip


def environment(recorded: Recorded) -> Section:
    """One row a GPU and commit, with the clocks seen while timing."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for source, facts in recorded.environments():
        groups.setdefault(_facts(facts), []).append(source)
    rows = tuple((*row, ", ".join(dict.fromkeys(found))) for row, found in groups.items())
    headings = (*(heading for _, heading in FACTS), "versions", "commit", "records")
    clocks = _clocks_seen(recorded)
    missing = "" if rows else "No record in these files names its environment."
    table = Table("Where and with what the records were made", headings, rows)
    return Section("environment", "Environment", clocks, (table,) if rows else (), missing=missing)


def _facts(facts: Line) -> tuple[str, ...]:
    known = {"gpu": facts.get("cpu", ""), **facts}
    values = [known.get(name) for name, _ in FACTS]
    text = ("" if value is None else _plain(value) for value in values)
    versions = ", ".join(f"{name} {value}" for name, value in facts.get("versions", {}).items())
    dirty = " with changes" if facts.get("dirty") else ""
    return (*text, versions, f"{(facts.get('commit') or 'unknown')[:12]}{dirty}")


def _plain(value: Any) -> str:
    return f"{value:.0f}" if isinstance(value, float) else str(value)


def _clocks_seen(recorded: Recorded) -> tuple[str, ...]:
    seen = [
        clock
        for _, record in recorded.timings()
        for block in (record.samples.blocks if record.samples else ())
        if (clock := block.spin_mhz or block.sm_mhz)
    ]
    if not seen:
        return ()
    return (f"SM clock while timing: {min(seen)} to {max(seen)} MHz, median {median(seen):.0f}.",)


# --- Gather isolation -----------------------------------------------------------------------------


def placement_cell(placement: str, batch: int) -> str:
    """Name of a cell of the suite `placements`."""
    return Cell.parse(f"fidecode_distinct_{placement}_p1_b{batch}_l8192").name


GATHER = ("GB of KV", "contiguous us", "block128 us", "scatter us", "block128 over contiguous",
          "scatter over contiguous", "note")  # fmt: skip


def gather(recorded: Recorded) -> Section:
    """Does it matter to a token-flat kernel where tokens lie? Contiguous, block128, scatter."""
    cells = [placement_cell(placement, batch) for batch in FOOTPRINTS for placement in PLACEMENTS]
    timed = recorded.timed(cells)
    whole = {
        batch: {where: timed[placement_cell(where, batch)] for where in PLACEMENTS}
        for batch in FOOTPRINTS
        if all(placement_cell(where, batch) in timed for where in PLACEMENTS)
    }
    if not whole:
        return Section("gather", "Gather isolation",
                       missing="No placements: `pagebench run --suite placements`.")  # fmt: skip
    rows = tuple(_gather_row(found) for found in whole.values())
    table = Table("FlashInfer decode, page 1, 8,192 tokens a request. " + QUOTIENT, GATHER, rows)
    return Section(
        "gather", "Gather isolation: where tokens lie",
        tables=(_gather_beside(whole), table), figures=(_gather_figure(whole),),
        commands=_commands(found for each in whole.values() for found in each.values()),
    )  # fmt: skip


def _gb(found: Timed) -> float:
    return float(found.record.predicted["distinct_kv_bytes"] / 1e9)


def _gather_row(found: Mapping[str, Timed]) -> tuple[str, ...]:
    base = found["contiguous"]
    return (
        f"{_gb(base):.2f}",
        *(_time(found[where]) for where in PLACEMENTS),
        *(_percent_interval(ratio(found[where], base)) for where in PLACEMENTS[1:]),
        _note(found.values()),
    )


def _gather_beside(whole: Mapping[int, Mapping[str, Timed]]) -> Table:
    changes = [ratio(each["scatter"], each["contiguous"])[0] for each in whole.values()]
    sizes = [_gb(each["contiguous"]) for each in whole.values()]
    theirs = seed.GATHER_SCATTER_MS / seed.GATHER_CONTIGUOUS_MS
    million = whole.get(128)
    ours = (_million(million),) if million else ("not measured",)
    return _beside((
        ("scatter over contiguous, a million indices", f"{_percent(theirs)} "
         f"({seed.GATHER_CONTIGUOUS_MS} to {seed.GATHER_SCATTER_MS} ms)", *ours),
        ("scatter over contiguous, all footprints",
         f"{seed.GATHER_LEAST_PCT:+.1f} to {seed.GATHER_MOST_PCT:+.1f} %, 0.03 to 8.59 GB",
         f"{_percent(min(changes))} to {_percent(max(changes))}, "
         f"{min(sizes):.2f} to {max(sizes):.2f} GB"),
    ))  # fmt: skip


def _million(found: Mapping[str, Timed]) -> str:
    change, _, _ = ratio(found["scatter"], found["contiguous"])
    times = [found[where].summary.median_us / 1e3 for where in ("contiguous", "scatter")]
    return f"{_percent(change)} ({times[0]:.4f} to {times[1]:.4f} ms)"


def _gather_figure(whole: Mapping[int, Mapping[str, Timed]]) -> Figure:
    series = {
        where: {_gb(each["contiguous"]): ratio(each[where], each["contiguous"])
                for each in whole.values()}
        for where in PLACEMENTS[1:]
    }  # fmt: skip
    return figures.placements(
        "Time of shuffled and scattered tokens over contiguous ones, in per cent, over the "
        "footprint; the numbers are in the table.", series,
    )  # fmt: skip


# --- Nsight Compute -------------------------------------------------------------------------------

NSIGHT = ("cell", "DRAM busy %", "L2 hit %", "sectors a request", "LDG", "DRAM read MB",
          "of predicted")  # fmt: skip


def nsight(recorded: Recorded) -> Section:
    """Counters of the placements: does scattering change any work?"""
    names = [placement_cell(where, batch) for batch in FOOTPRINTS for where in PLACEMENTS]
    counted = recorded.counted(names)
    if not counted:
        return Section("nsight", "Gather isolation under Nsight Compute",
                       missing="No counters of placements: `pagebench profile --suite placements`."
                       )  # fmt: skip
    rows = tuple(
        (cell, _rate(line, "dram_busy_pct"), _hit(line), _sectors(line), _total(line, "ldg"),
         _total(line, "dram_read_bytes", 1e6, 1), _over_predicted(line, "dram_read_bytes"))
        for cell, line in counted.items()
    )  # fmt: skip
    table = Table(f"Counters of a call; rates of its decode kernel. {UNSTABLE}", NSIGHT, rows)
    beside = _nsight_beside(counted)
    return Section("nsight", "Gather isolation under Nsight Compute", tables=(*beside, table),
                   commands=_commands((), counted))  # fmt: skip


def _nsight_beside(counted: Mapping[str, Line]) -> tuple[Table, ...]:
    """Of the largest footprint counted both contiguous and scattered."""
    pairs = [(placement_cell("contiguous", b), placement_cell("scatter", b)) for b in FOOTPRINTS]
    whole = [(counted[a], counted[b]) for a, b in pairs if a in counted and b in counted]
    if not whole:
        return ()
    one, other = whole[-1]

    def both(show: Callable[[Line], str]) -> str:
        return f"{show(one)} and {show(other)}"

    table = _beside((
        ("DRAM busy %, contiguous and scatter", f"about {seed.GATHER_DRAM_PCT}, both",
         both(lambda line: _rate(line, "dram_busy_pct"))),
        ("L2 hit %", f"{seed.GATHER_L2_HIT_PCT}, both", both(_hit)),
        ("sectors a request", f"{seed.GATHER_SECTORS_PER_REQUEST}, both", both(_sectors)),
    ))  # fmt: skip
    return (replace(table, caption=f"{table.caption}: {one['cell']} and {other['cell']}"),)


# --- plan() ---------------------------------------------------------------------------------------


def plan(recorded: Recorded) -> Section:
    """Does host planning grow with the number of indices?"""
    timed = recorded.timed([cell.name for cell in find_suite("plan").cells], "plan")
    if not timed:
        return Section("plan", "Planning on the host",
                       missing="No plan times: `pagebench run --suite plan`.")  # fmt: skip
    rows = tuple(
        (f"{_indices(found):,}", _time(found), _interval(found), _note([found]))
        for found in timed.values()
    )
    table = Table("FlashInfer's plan(), host time", ("indices", "us", "95 % interval", "note"),
                  rows)  # fmt: skip
    return Section("plan", "Planning on the host", tables=(_plan_beside(timed), table),
                   commands=_commands(timed.values()))  # fmt: skip


def _indices(found: Timed) -> int:
    return int(found.record.predicted["index_entries"])


def _plan_beside(timed: Mapping[str, Timed]) -> Table:
    times = [found.summary.median_us / 1e3 for found in timed.values()]
    counts = [_indices(found) for found in timed.values()]
    return _beside([(
        "plan() ms over indices",
        f"about {seed.PLAN_MS}, {seed.PLAN_LEAST_INDICES} to {seed.PLAN_MOST_INDICES:,}",
        f"{min(times):.3f} to {max(times):.3f}, {min(counts):,} to {max(counts):,}",
    )])  # fmt: skip


# --- XQA over page size ---------------------------------------------------------------------------

PAGES = ("tokens a page", "time us", "95 % interval", f"time over page {BASE_PAGE}", "LDG",
         "of predicted", f"LDG over page {BASE_PAGE}", "local loads", "L2 hit %", "DRAM busy %",
         "GB/s", "of nominal", "note")  # fmt: skip
SHARED, DISTINCT, DISTINCT_LONG = REGIMES


@dataclass(frozen=True, slots=True)
class Pages:
    """One regime's times and counters by page size."""

    name: str
    timed: Mapping[int, Timed]
    counted: Mapping[int, Line]

    def ldg_ratio(self, page: int) -> str:
        ldg = {size: line["total"]["ldg"]["value"] for size, line in self.counted.items()}
        return f"{ldg[page] / ldg[BASE_PAGE]:.2f}" if {page, BASE_PAGE} <= set(ldg) else ""

    def time_ratio(self, page: int) -> str:
        if not {page, BASE_PAGE} <= set(self.timed):
            return ""
        return _percent_interval(ratio(self.timed[page], self.timed[BASE_PAGE]))


def pages_of(recorded: Recorded, regime: str) -> Pages:
    """What the records hold of a regime of the suite `pages`, contiguous."""
    names = {page: Cell.parse("xqa_" + regime.format("", page)).name for page in XQA_PAGES}
    timed = recorded.timed(list(names.values()))
    counted = recorded.counted(list(names.values()))
    return Pages(
        regime.format("", "").strip("_p").replace("_p_", "_"),
        {page: timed[name] for page, name in names.items() if name in timed},
        {page: counted[name] for page, name in names.items() if name in counted},
    )


def xqa_pages(recorded: Recorded) -> Section:
    """Shared KV: what page size does to loads and time."""
    found = pages_of(recorded, SHARED)
    if not found.timed and not found.counted:
        return Section("pages", "XQA's page size, shared KV", missing=MISSING_PAGES)
    caption = f"XQA, shared KV, 32 requests of 8,192 tokens. {QUOTIENT} {UNSTABLE}"
    return Section(
        "pages", "XQA's page size, shared KV",
        tables=(_shared_beside(found), _pages_table(found, caption)),
        figures=_pages_figures(found, "shared"), commands=_pages_commands(found),
    )  # fmt: skip


MISSING_PAGES = "No page sizes of XQA: `pagebench run --suite pages`, `pagebench profile xqa`."


def _shared_beside(found: Pages) -> Table:
    hits = [hit for page in XQA_PAGES if (hit := _hit(found.counted.get(page)))]
    low, high = seed.SHARED_L2_HIT_PCT
    return _beside((
        ("LDG, page 16 over 64", f"{seed.SHARED_LDG_RATIO}", found.ldg_ratio(16)),
        ("time, page 16 over 64", f"{seed.SHARED_TIME_PCT:+.1f} %", found.time_ratio(16)),
        ("L2 hit %", f"about {low} to {high}", " / ".join(hits)),
    ))  # fmt: skip


def distinct(recorded: Recorded) -> Section:
    """The control: the same loads behind a stream of distinct bytes."""
    short, long = (pages_of(recorded, regime) for regime in (DISTINCT, DISTINCT_LONG))
    whole = [found for found in (short, long) if found.timed or found.counted]
    title = "Distinct KV, the control"
    if not whole:
        return Section("distinct", title, missing=MISSING_PAGES)
    captions = ("8 requests of 4,096 tokens", "32 requests of 8,192 tokens")
    tables = tuple(
        _pages_table(found, f"XQA, distinct KV, {caption}. {UNSTABLE}")
        for found, caption in zip((short, long), captions, strict=True)
        if found in whole
    )
    drawn = (*_pages_figures(short, "distinct"), *_pages_figures(long, "distinct-long"))
    commands = (*_pages_commands(short), *_pages_commands(long))
    return Section("distinct", title, tables=(_distinct_beside(short), *tables), figures=drawn,
                   commands=commands)  # fmt: skip


def _distinct_beside(found: Pages) -> Table:
    def by_page(show: Callable[[int], str]) -> str:
        return " / ".join(show(page) or "none" for page in XQA_PAGES)

    sizes = "8 x 4,096, page " + " / ".join(map(str, XQA_PAGES))
    return _beside((
        (f"time us, {sizes}", f"about {seed.DISTINCT_TIME_US} at every page",
         by_page(lambda page: _time(found.timed.get(page)))),
        (f"DRAM busy %, {sizes}", f"about {seed.DISTINCT_DRAM_PCT}",
         by_page(lambda page: _rate(found.counted.get(page), "dram_busy_pct"))),
    ))  # fmt: skip


def _pages_table(found: Pages, caption: str) -> Table:
    present = [page for page in XQA_PAGES if page in found.timed or page in found.counted]
    return Table(caption, PAGES, tuple(_page_row(found, page) for page in present))


def _page_row(found: Pages, page: int) -> tuple[str, ...]:
    timed, line = found.timed.get(page), found.counted.get(page)
    shown = timed and report.row(timed.record)
    return (
        str(page), _time(timed), _interval(timed), found.time_ratio(page),
        _total(line, "ldg"), _over_predicted(line, "ldg"), found.ldg_ratio(page),
        _total(line, "local_loads"), _hit(line), _rate(line, "dram_busy_pct"),
        f"{timed.gbps:.0f}" if timed else "",
        f"{shown.of_nominal:.1%}" if shown and shown.of_nominal else "",
        _note([timed]),
    )  # fmt: skip


def _pages_figures(found: Pages, name: str) -> tuple[Figure, ...]:
    if not found.timed:
        return ()
    times = {page: timed.summary for page, timed in found.timed.items()}
    ldg = {page: line["total"]["ldg"]["value"] for page, line in found.counted.items()
           if page in times}  # fmt: skip
    alt = f"XQA, {found.name}: time and global loads over tokens a page; numbers are in the table."
    return (figures.pages(f"pages-{name}", alt, times, ldg),)


def _pages_commands(found: Pages) -> tuple[str, ...]:
    return _commands(found.timed.values(), (line["cell"] for line in found.counted.values()))


# --- Replay stability -----------------------------------------------------------------------------

REPLAY = ("counter", "kind", "may differ by", "L2, replay", "cells", "repeated", "largest spread",
          "in")  # fmt: skip


def replay(recorded: Recorded) -> Section:
    """Which counters repeat: all counters records, by counter and the way they were counted."""
    groups: dict[tuple[str, str], list[tuple[str, Line]]] = {}
    for line in recorded.counters:
        how = line["how"]
        state = f"{how.get('l2', 'unknown')}, {how.get('replay_mode', 'imported')}"
        for name, entry in line["total"].items():
            groups.setdefault((name, state), []).append((line["cell"], entry))
    if not groups:
        return Section("replay", "Which counters repeat",
                       missing="No counters: `pagebench profile NAME`.")  # fmt: skip
    rows = tuple(_replay_row(name, state, found) for (name, state), found in groups.items())
    table = Table("Every cell counted at least twice; the spread is between its calls", REPLAY,
                  rows)  # fmt: skip
    kinds = tuple(dict.fromkeys(_counters_command(line) for line in recorded.counters))
    return Section("replay", "Which counters repeat", tables=(_replay_beside(groups), table),
                   commands=kinds)  # fmt: skip


def _counters_command(line: Line) -> str:
    single = " --single-pass" if "single" in str(line["how"].get("replay_mode")) else ""
    l2 = "" if line["how"].get("l2", "cold") == "cold" else f" --l2 {line['how']['l2']}"
    launches = line["how"].get("launches", 2)
    return f"pagebench profile {line['cell']}{f' --launches {launches}' * (launches != 2)}" + (
        single + l2
    )


def _replay_row(name: str, state: str, found: Sequence[tuple[str, Line]]) -> tuple[str, ...]:
    kind = metric(name).kind
    repeated = sum(bool(entry["stable"]) for _, entry in found)
    worst, entry = max(found, key=lambda each: each[1]["spread"])
    return (name, kind, f"{TOLERANCE[kind]:.1%}", state, str(len(found)), str(repeated),
            f"{entry['spread']:.3%}", worst if entry["spread"] else "")  # fmt: skip


def _replay_beside(groups: Mapping[tuple[str, str], Sequence[tuple[str, Line]]]) -> Table:
    def spread(name: str, sharing: str) -> str:
        found = [entry["spread"] for (counter, state), lines in groups.items()
                 if counter == name and state.startswith("cold")
                 for cell, entry in lines if f"_{sharing}_" in cell]  # fmt: skip
        return f"at most {max(found):.3%}" if found else "not counted"

    return _beside((
        ("LDG, shared cells", f"{seed.REPLAY_LDG_PCT:.0f} % (exact)", spread("ldg", "shared")),
        ("DRAM bytes read, shared cells", f"within {seed.REPLAY_DRAM_PCT} %",
         spread("dram_read_bytes", "shared")),
        ("DRAM bytes read, distinct cells", "", spread("dram_read_bytes", "distinct")),
    ))  # fmt: skip


# --- Dose and response ----------------------------------------------------------------------------


def dose(recorded: Recorded) -> Section:
    """What the time follows when the page shrinks; the newest of each regime."""
    newest = {line["regime"]: line for line in recorded.doses}
    if not newest:
        return Section("dose", "Dose and response",
                       missing="No dose records: `make study` measures them.")  # fmt: skip
    text = tuple(
        f"{regime}: the time follows {', '.join(line['follows']) or 'no counter'}. "
        + " ".join(f"{reason.rstrip('.')}." for reason in line["because"])
        for regime, line in newest.items()
    )
    return Section("dose", "Dose and response", text, tuple(map(_dose_table, newest.values())),
                   commands=("make study",))  # fmt: skip


def _dose_table(line: Line) -> Table:
    counters = {name: values for name, values in line["counters"].items() if any(values)}
    rows = tuple(
        (str(page), f"{time[1]:.2f}", f"{time[0]:.2f} to {time[2]:.2f}",
         *("" if value is None else f"{value:,.0f}" for value in values))
        for page, time, *values in zip(line["pages"], line["time_us"], *counters.values(),
                                       strict=True)
    )  # fmt: skip
    return Table(line["regime"], ("tokens a page", "time us", "interval", *counters), rows)


# --- Ceilings -------------------------------------------------------------------------------------

REACHED = ("cell", "MB", "time us", "GB/s", "of nominal", "of the ceiling")


def ceilings(recorded: Recorded) -> Section:
    """Bandwidth measured and reached: contiguous distinct cells, which read every byte once."""
    line = recorded.ceilings[-1] if recorded.ceilings else None
    points = [Point(**point) for point in line["dram_read"]] if line else []
    cells = _streaming(recorded)
    if not points and not cells:
        return Section("ceilings", "Ceilings", missing=NO_CEILINGS)
    tables = (*(_curve_table(points),) * bool(points), *_scalars(line),
              *(_reached_table(cells, points),) * bool(cells))  # fmt: skip
    commands = (*(("pagebench ceilings",) if line else ()), *_commands(cells.values()))
    return Section("ceilings", "Ceilings", tables=tables, figures=(_curve(cells, points),),
                   commands=commands, missing="" if points else NO_CEILINGS)  # fmt: skip


NO_CEILINGS = "No measured ceilings in these files: `pagebench ceilings --out FILE`."


def _streaming(recorded: Recorded) -> dict[str, Timed]:
    """The newest timing of every contiguous distinct cell, by name."""
    names = {
        record.cell for _, record in recorded.timings()
        if record.boundary == "run"
        and (record.axes["sharing"], record.axes["placement"]) == ("distinct", "contiguous")
    }  # fmt: skip
    return {name: found for name in sorted(names) for found in recorded.timed([name]).values()}


def _curve_table(points: Sequence[Point]) -> Table:
    rows = tuple(
        (f"{point.bytes_read / 1e6:,.0f}", f"{point.gbps:,.0f}", "yes" if point.saturated else "no")
        for point in points
    )
    return Table("DRAM read bandwidth", ("MB read", "GB/s", "shown to saturate"), rows)


def _scalars(line: Line | None) -> tuple[Table, ...]:
    """Ceilings that are one number each, where the record has them (schema 2)."""
    names = ("l2_read_gbps", "issue_ginst", "fma_gflops", "matrix_gflops", "launch_us")
    found = {name: line[name] for name in names if line and name in line}
    rows = tuple((name, *_scalar(value)) for name, value in found.items())
    headings = ("ceiling", "value", "shown to saturate")
    return (Table("Other ceilings", headings, rows),) if rows else ()


def _scalar(value: Any) -> tuple[str, str]:
    if not isinstance(value, Mapping):
        return f"{value:,.4g}", ""
    shown = ", ".join(
        f"{name} {part:,.6g}" if isinstance(part, (int, float)) else f"{name} {part}"
        for name, part in value.items() if name != "saturated"
    )  # fmt: skip
    return shown, "yes" if value.get("saturated") else "no"


def _reached_table(cells: Mapping[str, Timed], points: Sequence[Point]) -> Table:
    rows = []
    for cell, found in cells.items():
        of_nominal = report.row(found.record).of_nominal
        ceiling = bandwidth_at(points, int(found.record.predicted["distinct_kv_bytes"]))
        rows.append((
            cell, f"{1e3 * _gb(found):,.1f}", _time(found), f"{found.gbps:,.0f}",
            "" if of_nominal is None else f"{of_nominal:.1%}",
            f"{found.gbps / ceiling:.1%}" if ceiling else "",
        ))  # fmt: skip
    return Table("Bandwidth reached, every distinct KV byte counted once", REACHED, tuple(rows))


def _curve(cells: Mapping[str, Timed], points: Sequence[Point]) -> Figure:
    series: dict[str, list[tuple[float, float]]] = {}
    for found in cells.values():
        kernel = str(found.record.axes["kernel"])
        series.setdefault(kernel, []).append((1e3 * _gb(found), found.gbps))
    nominal = [value for found in cells.values()
               if (value := found.record.environment.get("nominal_dram_gbps"))]  # fmt: skip
    return figures.bandwidth(
        "Bandwidth that cells reach over the bytes they must read, under the nominal bandwidth "
        "and, where it was measured, the ceiling; numbers are in the tables.",
        series, [(p.bytes_read / 1e6, p.gbps) for p in points], nominal[0] if nominal else None,
    )  # fmt: skip


# --- Two modes ------------------------------------------------------------------------------------

MODES = ("cell", "fast us", "slow us", "slow share", "samples", "file")


def modes(recorded: Recorded) -> Section:
    """Raw samples of the cells that lie in two modes: a difference between those is no effect."""
    found = list(_bimodal(recorded))
    if not found:
        return Section("modes", "Cells in two modes",
                       missing="No timing in these files has two modes.")  # fmt: skip
    rows = tuple(
        (timed.record.cell, f"{m.fast_us:.2f}", f"{m.slow_us:.2f}", f"{m.slow_share:.0%}",
         str(timed.summary.count), file)
        for file, timed in found if (m := timed.summary.modes)
    )  # fmt: skip
    drawn = tuple(_strip(number, timed) for number, (_, timed) in enumerate(found))
    return Section("modes", "Cells in two modes", tables=(Table("Modes by the dip test", MODES,
                   rows),), figures=drawn, commands=_commands(t for _, t in found))  # fmt: skip


def _bimodal(recorded: Recorded) -> Iterable[tuple[str, Timed]]:
    for run in recorded.runs:
        for boundary in ("run", "plan"):
            names = [cell for where, cell in run.records if where == boundary]
            for timed in run.timed(names, boundary).values():
                if timed.summary.modes:
                    yield run.file, timed


def _strip(number: int, timed: Timed) -> Figure:
    samples, found = timed.record.samples, timed.summary.modes
    assert samples
    assert found
    alt = f"{timed.record.cell}: samples in time order, two modes"
    return figures.strip(f"modes-{number}", alt, samples.time_us, found)


# --- Planted effects ------------------------------------------------------------------------------

PLANTED = ("cell", "planted", "found", "low", "high", "word")


def planted(recorded: Recorded) -> Section:
    """Effects put in on purpose, and whether the instruments found them."""
    rows = tuple(
        tuple(_planted(row.get(name)) for name in PLANTED)
        for line in recorded.planted for row in line["rows"]
    )  # fmt: skip
    if not rows:
        return Section("planted", "Planted effects",
                       missing="No planted effects: `make study` measures them.")  # fmt: skip
    table = Table("Known work put into our own kernels", PLANTED, rows)
    return Section("planted", "Planted effects", tables=(table,), commands=("make study",))


def _planted(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,.5g}" if isinstance(value, float) else str(value)


# --- Reproduce ------------------------------------------------------------------------------------


def reproduce(sections: Sequence[Section]) -> Section:
    """Every command that makes a record of this page, once, by the section that first uses it."""
    first: dict[str, str] = {}
    for section in sections:
        for command in section.commands:
            first.setdefault(command, section.title)
    rows = tuple((title, command) for command, title in first.items())
    table = Table("Each command appends to the file that `--out` names", ("for", "command"), rows)
    return Section("reproduce", "How to reproduce each row", tables=(table,))


MAKERS = (headlines, environment, matrix, gather, nsight, plan, xqa_pages, distinct, replay, dose,
          ceilings, modes, planted)  # fmt: skip
