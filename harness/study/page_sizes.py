"""XQA over page size: shared KV, and distinct KV as its control."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pagebench.harness.cell import Cell
from pagebench.harness.records.caveats import Apart
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.select import state_of
from pagebench.harness.show.caveats import caveats
from pagebench.harness.show.text import share
from pagebench.harness.study import figures, original
from pagebench.harness.study.figures import Figure
from pagebench.harness.study.numbers import (
    QUOTIENT,
    UNSTABLE,
    commands_of,
    files_of,
    interval_text,
    l2_hit,
    note,
    of_predicted,
    rate,
    ratio,
    ratio_text,
    time_text,
    total,
)
from pagebench.harness.study.read import Recorded, Timed, gpus_of
from pagebench.harness.study.section import ANEW, Section, Table, beside, table_of
from pagebench.harness.suites import REGIMES, XQA_PAGES

BASE_PAGE = 64
SHARED, DISTINCT, DISTINCT_LONG = REGIMES
HEADINGS = (
    "tokens per page",
    "time us",
    "95 % interval",
    f"time over page {BASE_PAGE}",
    "LDG",
    f"of predicted {ANEW}",
    f"LDG over page {BASE_PAGE}",
    "local loads",
    "L2 hit %",
    "DRAM busy %",
    "GB/s",
    "of nominal",
    "note",
)


@dataclass(frozen=True, slots=True)
class Pages:
    """Times and counters of one regime by page size; `words` name it, `filter` finds its cells."""

    words: str
    filter: str
    timed: Mapping[int, Timed]
    counted: Mapping[int, Counters]
    apart: Mapping[int, Sequence[Apart]] = field(default_factory=dict)

    @property
    def gpu(self) -> str:
        return gpus_of(*self.timed.values(), *self.counted.values())

    @property
    def missing(self) -> str:
        """The commands that make the missing records."""
        lacks = []
        if not self.timed:
            lacks.append(f"No times of {self.words}: `pagebench run {self.filter} --suite pages`.")
        if not self.counted:
            lacks.append(f"No counters of {self.words}: `pagebench profile {self.filter}`.")
        return " ".join(lacks)

    def ldg_ratio(self, page: int) -> str:
        if not {page, BASE_PAGE} <= self.counted.keys():
            return ""
        ldg, base = (self.counted[size].total["ldg"].value for size in (page, BASE_PAGE))
        return f"{ldg / base:.2f}"

    def time_ratio(self, page: int) -> str:
        if page == BASE_PAGE or not {page, BASE_PAGE} <= self.timed.keys():
            return ""
        return ratio_text(ratio(self.timed[page], self.timed[BASE_PAGE]))


def pages_of(recorded: Recorded, regime: str) -> Pages:
    """Times and counters of a regime of the suite `pages`, contiguous cells."""
    cells = {page: Cell.parse("xqa_" + regime.format("", page)) for page in XQA_PAGES}
    names = [cell.name for cell in cells.values()]
    timed = recorded.timed(names)
    on = next((found.environment for found in timed.values()), None)
    beside = {name: recorded.beside(name, state_of(timed[name].timing)) for name in timed}
    alone = recorded.counted([name for name in names if name not in timed], on)
    counted = alone | {name: each.counters for name, each in beside.items() if each.counters}
    shape, sharing = cells[BASE_PAGE].shape, cells[BASE_PAGE].sharing.kind
    return Pages(
        f"{sharing} KV, {shape.batch} requests of {shape.kv_len:,} tokens",
        f"xqa {sharing} b{shape.batch} l{shape.kv_len}",
        {page: timed[cell.name] for page, cell in cells.items() if cell.name in timed},
        {page: counted[cell.name] for page, cell in cells.items() if cell.name in counted},
        {page: beside[cell.name].apart for page, cell in cells.items() if cell.name in beside},
    )


# --- Sections -------------------------------------------------------------------------------------


def shared(recorded: Recorded) -> Section:
    """Shared KV: what page size does to loads and time."""
    regimes = [pages_of(recorded, SHARED)]
    return _section("pages", "XQA's page size, shared KV", regimes, _shared_beside)


def distinct(recorded: Recorded) -> Section:
    """The control: the same loads behind a stream of distinct bytes."""
    regimes = [pages_of(recorded, regime) for regime in (DISTINCT, DISTINCT_LONG)]
    title = "XQA's page size, distinct KV: the control"
    return _section("distinct", title, regimes, _distinct_beside)


def _section(
    anchor: str, title: str, regimes: Sequence[Pages], beside_of: Callable[[Pages], Table]
) -> Section:
    """A section of regimes; the original study's figures stand beside the first."""
    found = [pages for pages in regimes if pages.timed or pages.counted]
    compared = (beside_of(regimes[0]),) if found else ()
    return Section(
        anchor,
        title,
        text=(QUOTIENT, UNSTABLE) if found else (),
        tables=(*compared, *map(_table, found)),
        figures=tuple(
            _figure(f"{anchor}-{number}", pages)
            for number, pages in enumerate(regimes)
            if pages.timed
        ),
        commands=tuple(command for pages in found for command in _commands(pages)),
        missing=" ".join(filter(None, (pages.missing for pages in regimes))),
    )


def _commands(found: Pages) -> tuple[str, ...]:
    return commands_of(found.timed.values(), found.counted.values())


# --- Beside the original --------------------------------------------------------------------------


def _shared_beside(found: Pages) -> Table:
    hits = {page: hit for page in XQA_PAGES if (hit := l2_hit(found.counted.get(page)))}
    low, high = original.SHARED_L2_HIT_PCT
    rows = (
        ("LDG, page 16 over 64", f"{original.SHARED_LDG_RATIO}", found.ldg_ratio(16)),
        ("time, page 16 over 64", f"{original.SHARED_TIME_PCT:+.1f}%", found.time_ratio(16)),
        (
            f"L2 hit %, page {' / '.join(map(str, hits))}",
            f"about {low} to {high}",
            " / ".join(hits.values()),
        ),
    )
    return beside(rows, found.gpu)


def _distinct_beside(found: Pages) -> Table:
    sizes = "8 x 4,096, page " + " / ".join(map(str, XQA_PAGES))
    times = [time_text(found.timed.get(page)) for page in XQA_PAGES]
    busy = [rate(found.counted.get(page), "dram_busy_pct") for page in XQA_PAGES]
    rows = (
        (f"time us, {sizes}", f"about {original.DISTINCT_TIME_US} at every page", _by_page(times)),
        (f"DRAM busy %, {sizes}", f"about {original.DISTINCT_DRAM_PCT}", _by_page(busy)),
    )
    return beside(rows, found.gpu)


def _by_page(shown: Sequence[str]) -> str:
    return " / ".join(text or "none" for text in shown) if any(shown) else ""


# --- Table and figure -----------------------------------------------------------------------------


def _table(found: Pages) -> Table:
    present = [page for page in XQA_PAGES if page in found.timed or page in found.counted]
    caption = f"XQA, {found.words}.{files_of(found.timed.values())}"
    gpus = [gpus_of(found.timed.get(page), found.counted.get(page)) for page in present]
    return table_of(caption, HEADINGS, [_row(found, page) for page in present], gpus=gpus)


def _row(found: Pages, page: int) -> tuple[str, ...]:
    timed, counters = found.timed.get(page), found.counted.get(page)
    return (
        str(page),
        time_text(timed),
        interval_text(timed),
        found.time_ratio(page),
        total(counters, "ldg"),
        of_predicted(counters, "ldg"),
        found.ldg_ratio(page),
        total(counters, "local_loads"),
        l2_hit(counters),
        rate(counters, "dram_busy_pct"),
        f"{timed.gbps:.0f}" if timed else "",
        share(timed.of_nominal) if timed else "",
        "; ".join(filter(None, (note(timed), *caveats(found.apart.get(page, ()))))),
    )


PLOTTED = {"ldg": "LDG", "local_loads": "local loads"}


def _figure(name: str, found: Pages) -> Figure:
    times = {str(page): timed.summary for page, timed in found.timed.items()}
    counted = {
        label: counts
        for counter, label in PLOTTED.items()
        if any((counts := _counts(found, counter)).values())
    }
    cells = [timed.timing.cell for timed in found.timed.values()]
    alt = (
        f"{cells[0]} to {cells[-1]}: time, global and local loads over tokens per page; numbers "
        "are in the table."
    )
    return replace(figures.ladder(name, alt, times, counted), gpus=(found.gpu,))


def _counts(found: Pages, counter: str) -> dict[str, float]:
    """By page size, if that was timed too."""
    return {
        str(page): counters.total[counter].value
        for page, counters in found.counted.items()
        if page in found.timed and counter in counters.total
    }
