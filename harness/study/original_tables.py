"""The tables that the seed's study had, from a device's own records and beside its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pagebench.harness.cell import Cell
from pagebench.harness.show import timings as report
from pagebench.harness.study import figures
from pagebench.harness.study import original as seed
from pagebench.harness.study.figures import Figure
from pagebench.harness.study.read import Line, Recorded, Timed, gpu_name, gpus_of
from pagebench.harness.study.section import (
    ANEW,
    QUOTIENT,
    UNSTABLE,
    Section,
    Table,
    beside,
    commands_of,
    files_of,
    gb_of,
    interval_text,
    l2_hit,
    note,
    notes_of,
    of_predicted,
    percent,
    rate,
    ratio,
    ratio_text,
    sectors,
    table_of,
    time_text,
    total,
)
from pagebench.harness.suites import FOOTPRINTS, PLACEMENTS, REGIMES, XQA_PAGES, find_suite
from pagebench.profiles.metrics import TOLERANCE, metric

BASE_PAGE = 64


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
        return Section("gather", "Gather isolation: where tokens lie",
                       missing="No placements: `pagebench run --suite placements`.")  # fmt: skip
    rows = tuple(_gather_row(found) for found in whole.values())
    caption = f"FlashInfer decode, page 1, 8,192 tokens a request.{files_of(timed.values())}"
    gpus = [gpus_of(*found.values()) for found in whole.values()]
    table = table_of(caption, GATHER, rows, gpus=gpus)
    return Section(
        "gather", "Gather isolation: where tokens lie", (QUOTIENT,),
        tables=(_gather_beside(whole), table), figures=(_gather_figure(whole),),
        commands=commands_of(found for each in whole.values() for found in each.values()),
    )  # fmt: skip


def _gather_row(found: Mapping[str, Timed]) -> tuple[str, ...]:
    base = found["contiguous"]
    return (
        f"{gb_of(base):.2f}",
        *(time_text(found[where]) for where in PLACEMENTS),
        *(ratio_text(ratio(found[where], base)) for where in PLACEMENTS[1:]),
        notes_of(found),
    )


def _gather_beside(whole: Mapping[int, Mapping[str, Timed]]) -> Table:
    """Scatter over contiguous: where a cell lies in two modes no difference means anything."""
    gpu = gpus_of(*(found for each in whole.values() for found in each.values()))
    theirs = seed.GATHER_SCATTER_MS / seed.GATHER_CONTIGUOUS_MS
    return beside((
        ("scatter over contiguous, a million indices", f"{percent(theirs)} "
         f"({seed.GATHER_CONTIGUOUS_MS} to {seed.GATHER_SCATTER_MS} ms)",
         _million(whole[128]) if 128 in whole else "not measured"),
        ("scatter over contiguous, least and most over all footprints",
         f"{seed.GATHER_LEAST_PCT:+.1f}% to {seed.GATHER_MOST_PCT:+.1f}%, "
         f"{seed.GATHER_GB[0]} to {seed.GATHER_GB[1]} GB", _least_and_most(list(whole.values()))),
    ), gpu)  # fmt: skip


def _least_and_most(whole: Sequence[Mapping[str, Timed]]) -> str:
    known = [each for each in whole if not _in_two_modes(each)]
    left_out = [f"{gb_of(each['contiguous']):.2f}" for each in whole if _in_two_modes(each)]
    without = f"without {' and '.join(left_out)} GB, where a cell has two modes" * bool(left_out)
    if not known:
        return without
    changes = [ratio(each["scatter"], each["contiguous"])[0] for each in known]
    sizes = [gb_of(each["contiguous"]) for each in known]
    found = f"{percent(min(changes))} to {percent(max(changes))}"
    return ", ".join(filter(None, (found, f"{min(sizes):.2f} to {max(sizes):.2f} GB", without)))


def _in_two_modes(found: Mapping[str, Timed]) -> bool:
    return any(found[where].summary.modes for where in ("contiguous", "scatter"))


def _million(found: Mapping[str, Timed]) -> str:
    change, _, _ = ratio(found["scatter"], found["contiguous"])
    times = [found[where].summary.median_us / 1e3 for where in ("contiguous", "scatter")]
    modes = ", a cell in two modes" if _in_two_modes(found) else ""
    return f"{percent(change)} ({times[0]:.4f} to {times[1]:.4f} ms{modes})"


def _gather_figure(whole: Mapping[int, Mapping[str, Timed]]) -> Figure:
    series = {
        where: {gb_of(each["contiguous"]): ratio(each[where], each["contiguous"])
                for each in whole.values()}
        for where in PLACEMENTS[1:]
    }  # fmt: skip
    drawn = figures.placements(
        "Time of shuffled and scattered tokens over contiguous ones, in per cent, over the "
        "footprint. Hollow: one of the two cells lies in two modes.", series, _unsure(whole),
    )  # fmt: skip
    return replace(drawn, gpus=tuple(gpus_of(*each.values()) for each in whole.values()))


def _unsure(whole: Mapping[int, Mapping[str, Timed]]) -> set[tuple[str, float]]:
    """Placement and footprint of ratios that two modes may have made."""
    return {
        (where, gb_of(each["contiguous"]))
        for each in whole.values()
        for where in PLACEMENTS
        if each[where].summary.modes or each["contiguous"].summary.modes
    }


# --- Nsight Compute -------------------------------------------------------------------------------

NSIGHT = ("cell", "DRAM busy %", "L2 hit %", "sectors a request", "LDG", "DRAM read MB",
          f"of predicted {ANEW}")  # fmt: skip


def nsight(recorded: Recorded) -> Section:
    """Counters of the placements: does scattering change any work?"""
    names = [placement_cell(where, batch) for batch in FOOTPRINTS for where in PLACEMENTS]
    counted = recorded.counted(names)
    if not counted:
        return Section("nsight", "Gather isolation under Nsight Compute",
                       missing="No counters of placements: `pagebench profile --suite placements`."
                       )  # fmt: skip
    rows = tuple(
        (cell, rate(line, "dram_busy_pct"), l2_hit(line), sectors(line), total(line, "ldg"),
         total(line, "dram_read_bytes", 1e6, 1), of_predicted(line, "dram_read_bytes"))
        for cell, line in counted.items()
    )  # fmt: skip
    table = table_of("Counters of a call; rates of its decode kernel", NSIGHT, rows,
                     gpus=[gpus_of(line) for line in counted.values()])  # fmt: skip
    return Section("nsight", "Gather isolation under Nsight Compute", (UNSTABLE,),
                   (*_nsight_beside(counted), table), commands=commands_of((), counted.values())
                   )  # fmt: skip


def _nsight_beside(counted: Mapping[str, Line]) -> tuple[Table, ...]:
    """Of the largest footprint counted both contiguous and scattered."""
    pairs = [(placement_cell("contiguous", b), placement_cell("scatter", b)) for b in FOOTPRINTS]
    whole = [(counted[a], counted[b]) for a, b in pairs if a in counted and b in counted]
    if not whole:
        return ()
    one, other = whole[-1]

    def both(show: Callable[[Line], str]) -> str:
        return f"{show(one)} and {show(other)}"

    table = beside((
        ("DRAM busy %, contiguous and scatter", f"about {seed.GATHER_DRAM_PCT}, both",
         both(lambda line: rate(line, "dram_busy_pct"))),
        ("L2 hit %", f"{seed.GATHER_L2_HIT_PCT}, both", both(l2_hit)),
        ("sectors a request", f"{seed.GATHER_SECTORS_PER_REQUEST}, both", both(sectors)),
    ), gpus_of(one, other))  # fmt: skip
    return (replace(table, caption=f"{table.caption}: {one['cell']} and {other['cell']}"),)


# --- plan() ---------------------------------------------------------------------------------------


def plan(recorded: Recorded) -> Section:
    """Does host planning grow with the number of indices?"""
    timed = recorded.timed([cell.name for cell in find_suite("plan").cells], "plan")
    if not timed:
        return Section("plan", "Planning on the host",
                       missing="No plan times: `pagebench run --suite plan`.")  # fmt: skip
    rows = tuple(
        (f"{_indices(found):,}", time_text(found), interval_text(found), note(found))
        for found in timed.values()
    )
    caption = f"FlashInfer's plan(), host time.{files_of(timed.values())}"
    table = table_of(caption, ("indices", "us", "95 % interval", "note"), rows,
                     gpus=[found.gpu for found in timed.values()])  # fmt: skip
    return Section("plan", "Planning on the host", tables=(_plan_beside(timed), table),
                   commands=commands_of(timed.values()))  # fmt: skip


def _indices(found: Timed) -> int:
    return int(found.record.predicted["index_entries"])


def _plan_beside(timed: Mapping[str, Timed]) -> Table:
    times = [found.summary.median_us / 1e3 for found in timed.values()]
    counts = [_indices(found) for found in timed.values()]
    return beside([(
        "plan() ms over indices",
        f"about {seed.PLAN_MS}, {seed.PLAN_LEAST_INDICES} to {seed.PLAN_MOST_INDICES:,}",
        f"{min(times):.3f} to {max(times):.3f}, {min(counts):,} to {max(counts):,}",
    )], gpus_of(*timed.values()))  # fmt: skip


# --- XQA over page size ---------------------------------------------------------------------------

PAGES = ("tokens a page", "time us", "95 % interval", f"time over page {BASE_PAGE}", "LDG",
         f"of predicted {ANEW}", f"LDG over page {BASE_PAGE}", "local loads", "L2 hit %",
         "DRAM busy %", "GB/s", "of nominal", "note")  # fmt: skip
SHARED, DISTINCT, DISTINCT_LONG = REGIMES


@dataclass(frozen=True, slots=True)
class Pages:
    """One regime's times and counters by page size; `words` say which, `filter` finds its cells."""

    words: str
    filter: str
    timed: Mapping[int, Timed]
    counted: Mapping[int, Line]

    @property
    def gpu(self) -> str:
        return gpus_of(*self.timed.values(), *self.counted.values())

    @property
    def missing(self) -> str:
        """What would make the records that are not here."""
        lacks = []
        if not self.timed:
            lacks.append(f"No times of {self.words}: `pagebench run {self.filter} --suite pages`.")
        if not self.counted:
            lacks.append(f"No counters of {self.words}: `pagebench profile {self.filter}`.")
        return " ".join(lacks)

    def ldg_ratio(self, page: int) -> str:
        ldg = {size: line["total"]["ldg"]["value"] for size, line in self.counted.items()}
        return f"{ldg[page] / ldg[BASE_PAGE]:.2f}" if {page, BASE_PAGE} <= set(ldg) else ""

    def time_ratio(self, page: int) -> str:
        if page == BASE_PAGE or not {page, BASE_PAGE} <= set(self.timed):
            return ""
        return ratio_text(ratio(self.timed[page], self.timed[BASE_PAGE]))


def pages_of(recorded: Recorded, regime: str) -> Pages:
    """What the records hold of a regime of the suite `pages`, contiguous."""
    cells = {page: Cell.parse("xqa_" + regime.format("", page)) for page in XQA_PAGES}
    names = [cell.name for cell in cells.values()]
    timed = recorded.timed(names)
    on = next((found.record.environment for found in timed.values()), None)
    counted = recorded.counted(names, on)
    shape = cells[BASE_PAGE].shape
    sharing = cells[BASE_PAGE].sharing.kind
    return Pages(
        f"{sharing} KV, {shape.batch} requests of {shape.kv_len:,} tokens",
        f"xqa {sharing} b{shape.batch} l{shape.kv_len}",
        {page: timed[cell.name] for page, cell in cells.items() if cell.name in timed},
        {page: counted[cell.name] for page, cell in cells.items() if cell.name in counted},
    )


def xqa_pages(recorded: Recorded) -> Section:
    """Shared KV: what page size does to loads and time."""
    return _pages_section("pages", "XQA's page size, shared KV", [pages_of(recorded, SHARED)],
                          _shared_beside)  # fmt: skip


def distinct(recorded: Recorded) -> Section:
    """The control: the same loads behind a stream of distinct bytes."""
    regimes = [pages_of(recorded, regime) for regime in (DISTINCT, DISTINCT_LONG)]
    return _pages_section("distinct", "XQA's page size, distinct KV: the control", regimes,
                          _distinct_beside)  # fmt: skip


def _pages_section(
    anchor: str, title: str, regimes: Sequence[Pages], beside_of: Callable[[Pages], Table]
) -> Section:
    """A section of regimes; the seed's figures stand beside the first."""
    found = [pages for pages in regimes if pages.timed or pages.counted]
    compared = (beside_of(regimes[0]),) * bool(found)
    return Section(
        anchor, title, (QUOTIENT, UNSTABLE) if found else (),
        tables=(*compared, *map(_pages_table, found)),
        figures=tuple(_pages_figure(f"{anchor}-{number}", pages)
                      for number, pages in enumerate(regimes) if pages.timed),
        commands=tuple(command for pages in found for command in _pages_commands(pages)),
        missing=" ".join(filter(None, (pages.missing for pages in regimes))),
    )  # fmt: skip


def _shared_beside(found: Pages) -> Table:
    hits = {page: hit for page in XQA_PAGES if (hit := l2_hit(found.counted.get(page)))}
    low, high = seed.SHARED_L2_HIT_PCT
    return beside((
        ("LDG, page 16 over 64", f"{seed.SHARED_LDG_RATIO}", found.ldg_ratio(16)),
        ("time, page 16 over 64", f"{seed.SHARED_TIME_PCT:+.1f}%", found.time_ratio(16)),
        (f"L2 hit %, page {' / '.join(map(str, hits))}", f"about {low} to {high}",
         " / ".join(hits.values())),
    ), found.gpu)  # fmt: skip


def _distinct_beside(found: Pages) -> Table:
    def by_page(show: Callable[[int], str]) -> str:
        shown = [show(page) for page in XQA_PAGES]
        return " / ".join(text or "none" for text in shown) if any(shown) else ""

    sizes = "8 x 4,096, page " + " / ".join(map(str, XQA_PAGES))
    return beside((
        (f"time us, {sizes}", f"about {seed.DISTINCT_TIME_US} at every page",
         by_page(lambda page: time_text(found.timed.get(page)))),
        (f"DRAM busy %, {sizes}", f"about {seed.DISTINCT_DRAM_PCT}",
         by_page(lambda page: rate(found.counted.get(page), "dram_busy_pct"))),
    ), found.gpu)  # fmt: skip


def _pages_table(found: Pages) -> Table:
    present = [page for page in XQA_PAGES if page in found.timed or page in found.counted]
    caption = f"XQA, {found.words}.{files_of(found.timed.values())}"
    gpus = [gpus_of(found.timed.get(page), found.counted.get(page)) for page in present]
    return table_of(caption, PAGES, [_page_row(found, page) for page in present], gpus=gpus)


def _page_row(found: Pages, page: int) -> tuple[str, ...]:
    timed, line = found.timed.get(page), found.counted.get(page)
    shown = timed and report.row(timed.record)
    return (
        str(page), time_text(timed), interval_text(timed), found.time_ratio(page),
        total(line, "ldg"), of_predicted(line, "ldg"), found.ldg_ratio(page),
        total(line, "local_loads"), l2_hit(line), rate(line, "dram_busy_pct"),
        f"{timed.gbps:.0f}" if timed else "",
        f"{shown.of_nominal:.1%}" if shown and shown.of_nominal else "",
        note(timed),
    )  # fmt: skip


def _pages_figure(name: str, found: Pages) -> Figure:
    times = {str(page): timed.summary for page, timed in found.timed.items()}
    counted = {label: counts for counter, label in PLOTTED.items()
               if any((counts := _counts(found, counter)).values())}  # fmt: skip
    cells = [timed.record.cell for timed in found.timed.values()]
    alt = (
        f"{cells[0]} to {cells[-1]}: time, global and local loads over tokens a page; numbers are "
        "in the table."
    )
    return replace(figures.ladder(name, alt, times, counted), gpus=(found.gpu,))


PLOTTED = {"ldg": "LDG", "local_loads": "local loads"}


def _counts(found: Pages, counter: str) -> dict[str, float]:
    return {str(page): line["total"][counter]["value"] for page, line in found.counted.items()
            if page in found.timed and counter in line["total"]}  # fmt: skip


def _pages_commands(found: Pages) -> tuple[str, ...]:
    return commands_of(found.timed.values(), found.counted.values())


# --- Replay stability -----------------------------------------------------------------------------

REPLAY = ("counter", "kind", "may differ by", "L2, replay", "cells", "repeated", "largest spread",
          "in")  # fmt: skip


Groups = dict[tuple[str, str, str], list[tuple[str, Line]]]  # by counter, way of counting, GPU


def replay(recorded: Recorded) -> Section:
    """Which counters repeat: all counters records, by counter and the way they were counted."""
    groups: Groups = {}
    for line in recorded.counters:
        how = line["how"]
        state = f"{how.get('l2', 'unknown')}, {how.get('replay_mode', 'imported')}"
        for name, entry in line["total"].items():
            key = name, state, gpu_name(line["environment"])
            groups.setdefault(key, []).append((line["cell"], entry))
    if not groups:
        return Section("replay", "Which counters repeat",
                       missing="No counters: `pagebench profile NAME`.")  # fmt: skip
    rows = tuple(_replay_row(name, state, found) for (name, state, _), found in groups.items())
    table = table_of("Every cell counted at least twice; the spread is between its calls", REPLAY,
                     rows, gpus=[gpu for _, _, gpu in groups])  # fmt: skip
    return Section("replay", "Which counters repeat", tables=(_replay_beside(groups), table),
                   commands=commands_of((), recorded.counters))  # fmt: skip


def _replay_row(name: str, state: str, found: Sequence[tuple[str, Line]]) -> tuple[str, ...]:
    kind = metric(name).kind
    repeated = sum(bool(entry["stable"]) for _, entry in found)
    worst, entry = max(found, key=lambda each: each[1]["spread"])
    return (name, kind, f"{TOLERANCE[kind]:.1%}", state, str(len(found)), str(repeated),
            f"{entry['spread']:.3%}", worst if entry["spread"] else "")  # fmt: skip


def _replay_beside(groups: Groups) -> Table:
    def spread(name: str, sharing: str) -> str:
        found = [entry["spread"] for (counter, state, _), lines in groups.items()
                 if counter == name and state.startswith("cold")
                 for cell, entry in lines if f"_{sharing}_" in cell]  # fmt: skip
        return f"at most {max(found):.3%}" if found else "not counted"

    return beside((
        ("LDG, shared cells", f"{seed.REPLAY_LDG_PCT:.0f}% (exact)", spread("ldg", "shared")),
        ("DRAM bytes read, shared cells", f"within {seed.REPLAY_DRAM_PCT}%",
         spread("dram_read_bytes", "shared")),
        ("DRAM bytes read, distinct cells", "", spread("dram_read_bytes", "distinct")),
    ), ", ".join(dict.fromkeys(filter(None, (gpu for _, _, gpu in groups)))))  # fmt: skip
