"""Sections of a study, and how numbers of records stand in their tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pagebench.harness.counting.predict import over_predicted
from pagebench.harness.show import timings as report
from pagebench.harness.study import original as seed
from pagebench.harness.study.figures import Figure, Ratio
from pagebench.harness.study.read import Line, Timed
from pagebench.profiles.counters import median_of, ratio_repeats

QUOTIENT = (
    "A ratio's brackets are the quotients of both intervals' ends: it compares separate calls, "
    "where a verdict compares interleaved ones."
)
# A number, its unit or mark, and an interval: what stands to the right in a column.
NUMBER = re.compile(r"[-+]?[\d,.]+%?( [*^‡✕])*( \[[^]]*\]| to [-+]?[\d,.]+)?")
UNSTABLE = "A * marks a counter that did not repeat within its rule."
ANEW = "†"  # what is worked out when the page is drawn, and stands in no record
THIS = "this device"  # a heading that the study replaces by the device's name


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headings; `classes` are the rows' where they have any.

    `gpus` says which GPUs the rows are of: one text a row, or one for all of them.
    """

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    classes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Whether a column holds numbers, which stand to the right."""
        columns = zip(*self.rows, strict=True)
        return tuple(all(_is_number(cell) for cell in column) for column in columns)


def _is_number(cell: str) -> bool:
    return not cell or NUMBER.fullmatch(cell) is not None


def table_of(
    caption: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    classes: Sequence[str] = (),
    gpus: Sequence[str] = (),
) -> Table:
    """A table without the columns that say nothing."""
    kept = [index for index in range(len(headings)) if any(row[index] for row in rows)]
    return Table(
        caption,
        tuple(headings[index] for index in kept),
        tuple(tuple(row[index] for index in kept) for row in rows),
        tuple(classes),
        tuple(gpus),
    )


@dataclass(frozen=True, slots=True)
class Section:
    """`missing` says what would make the records, where there are none; `commands` remake them.

    `text` stands above the figures and tables, `after` below them.
    """

    anchor: str
    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    commands: tuple[str, ...] = ()
    missing: str = ""
    after: tuple[str, ...] = ()


def named_for(section: Section, device: str) -> Section:
    """Tables that compare have the device's name in place of THIS."""
    tables = tuple(
        replace(table, headings=tuple(device if h == THIS else h for h in table.headings))
        for table in section.tables
    )
    return replace(section, tables=tables)


def told_apart(section: Section, gpus: Sequence[str]) -> Section:
    """Where a page has several GPUs, every table and figure says which it is of."""
    if len(gpus) < 2:
        return section
    drawn = tuple(replace(figure, alt=f"{figure.alt}{_on(figure.gpus)}")
                  for figure in section.figures)  # fmt: skip
    return replace(section, tables=tuple(map(_by_gpu, section.tables)), figures=drawn)


def _on(gpus: Iterable[str]) -> str:
    known = ", ".join(dict.fromkeys(filter(None, gpus)))
    return f" On {known}." if known else ""


def _by_gpu(table: Table) -> Table:
    """The GPU in the caption, or in a second column where rows are of several."""
    if len({*table.gpus} - {""}) < 2:
        return replace(table, caption=f"{table.caption.rstrip('.')}.{_on(table.gpus)}")
    rows = zip(table.rows, table.gpus, strict=True)
    return replace(
        table,
        headings=(table.headings[0], "GPU", *table.headings[1:]),
        rows=tuple((row[0], gpu, *row[1:]) for row, gpu in rows),
    )


def beside(rows: Iterable[tuple[str, str, str]], gpu: str = "") -> Table:
    """The seed's figures beside this device's, which are of that GPU."""
    shown = tuple((what, theirs, ours or "not measured") for what, theirs, ours in rows)
    headings = ("", f"{seed.GPU} (the seed)", THIS)
    return Table("The seed's figures beside these", headings, shown, gpus=(gpu,))


def gb_of(found: Timed) -> float:
    return float(found.record.predicted["distinct_kv_bytes"] / 1e9)


def time_text(found: Timed | None) -> str:
    return "" if found is None else f"{found.summary.median_us:.2f}"


def interval_text(found: Timed | None) -> str:
    if found is None or not found.summary.has_interval:
        return ""
    return f"{found.summary.low_us:.2f} to {found.summary.high_us:.2f}"


def ratio(other: Timed, one: Timed) -> Ratio:
    """Median of `other` over `one`, and the quotients of their intervals' far ends."""
    a, b = one.summary, other.summary
    return b.median_us / a.median_us, b.low_us / a.high_us, b.high_us / a.low_us


def percent(value: float) -> str:
    return f"{value - 1:+.2%}"


def ratio_text(found: Ratio) -> str:
    value, low, high = (percent(part) for part in found)
    return f"{value} [{low}, {high}]"


def note(found: Timed | None) -> str:
    """What a reader must know before using the number."""
    return "; ".join(report.notes(found.record, found.summary)) if found else ""


def notes_of(found: Mapping[str, Timed]) -> str:
    """Notes of several cells in one row, each with the words for the cells it is of."""
    words: dict[str, list[str]] = {}
    for name, each in found.items():
        for line in report.notes(each.record, each.summary):
            words.setdefault(line, []).append(name)
    return "; ".join(f"{', '.join(names)}: {line}" for line, names in words.items())


def total(line: Line | None, name: str, scale: float = 1, digits: int = 0) -> str:
    entry = line and line["total"].get(name)
    if not entry:
        return ""
    return f"{entry['value'] / scale:,.{digits}f}{'' if entry['stable'] else ' *'}"


def of_predicted(line: Line | None, name: str) -> str:
    share = over_predicted(line, name) if line else None
    return "" if share is None else f"{share:.4f}"


def _ratio_of(line: Line | None, name: str) -> str:
    """A derived ratio; marked where a counter that it is made of did not repeat."""
    value = line and line["ratios"].get(name)
    if not line or not isinstance(value, float):
        return str(value or "")
    return f"{value:.1f}{'' if ratio_repeats(line['total'], name) else ' *'}"


def l2_hit(line: Line | None) -> str:
    return _ratio_of(line, "l2_hit_pct")


def sectors(line: Line | None) -> str:
    return _ratio_of(line, "l1_sectors_per_request")


def rate(line: Line | None, name: str) -> str:
    """A rate of the call's first kernel, the decode kernel."""
    found = median_of(line["kernels"][0], name) if line else None
    if not line or found is None:
        return ""
    return f"{found:.1f}{' *' if name in line['kernels'][0]['unstable'] else ''}"


def files_of(timed: Iterable[Timed]) -> str:
    """A sentence of where timings come from; empty where there are none."""
    names = dict.fromkeys(found.file for found in timed)
    return f" Timings of {', '.join(names)}." if names else ""


def commands_of(timed: Iterable[Timed], counted: Iterable[Line] = ()) -> tuple[str, ...]:
    """What measures the timings and counts the counters again, a command a record."""
    timings = (report.command(found.record) for found in timed)
    return (*timings, *map(counters_command, counted))


def counters_command(line: Line) -> str:
    """The command that counts this again; options that are the default are left out."""
    how = line["how"]
    options = (
        (f" --launches {how.get('launches')}", how.get("launches", 2) == 2),
        (" --single-pass", "single" not in str(how.get("replay_mode"))),
        (f" --l2 {how.get('l2')}", how.get("l2", "cold") == "cold"),
    )
    words = "".join(word for word, is_default in options if not is_default)
    return f"pagebench profile {line['cell']}{words}"
