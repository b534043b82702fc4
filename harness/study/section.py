"""Sections of a study: words, tables and figures, and which GPU each is of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pagebench.harness.study import original
from pagebench.harness.study.figures import Figure

# A number, its unit or mark, and an interval: what stands to the right in a column.
NUMBER = re.compile(r"[-+]?[\d,.]+%?( [*^‡✕])*( \[[^]]*\]| to [-+]?[\d,.]+)?")
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


def beside(rows: Iterable[tuple[str, str, str]], gpu: str = "") -> Table:
    """The original study's figures beside this device's, which are of that GPU."""
    shown = tuple((what, theirs, ours or "not measured") for what, theirs, ours in rows)
    headings = ("", f"{original.GPU} (the seed)", THIS)
    return Table("The seed's figures beside these", headings, shown, gpus=(gpu,))


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
    drawn = tuple(
        replace(figure, alt=f"{figure.alt}{_on(figure.gpus)}") for figure in section.figures
    )
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


def arrow(cells: Iterable[str]) -> str:
    """From cell to cell."""
    return " → ".join(f"`{cell}`" for cell in cells)
