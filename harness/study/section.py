"""Sections of a study: text, tables and figures, and the GPU of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pagebench.harness.study import original
from pagebench.harness.study.figures import Figure

# A number, its unit or mark, and an interval: such columns are right-aligned.
NUMBER = re.compile(r"[-+]?[\d,.]+%?( [*^‡✕])*( \[[^]]*\]| to [-+]?[\d,.]+)?")
ANEW = "†"  # marks what is recomputed when the page is drawn
THIS = "this device"  # a heading that the study replaces by the device's name


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headings; `classes` are the CSS classes of the rows, if any.

    `gpus` names the GPUs of the rows: one text per row, or one for all rows.
    """

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    classes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Whether each column holds only numbers, which are right-aligned."""
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
    """A table without its empty columns."""
    kept = [index for index in range(len(headings)) if any(row[index] for row in rows)]
    return Table(
        caption,
        tuple(headings[index] for index in kept),
        tuple(tuple(row[index] for index in kept) for row in rows),
        tuple(classes),
        tuple(gpus),
    )


def beside(rows: Iterable[tuple[str, str, str]], gpu: str = "") -> Table:
    """The original study's figures beside those of this device, whose GPU is `gpu`."""
    shown = tuple((what, theirs, ours or "not measured") for what, theirs, ours in rows)
    headings = ("", f"{original.GPU} (original study)", THIS)
    return Table("The original study's figures beside these", headings, shown, gpus=(gpu,))


@dataclass(frozen=True, slots=True)
class Section:
    """`missing` says how to make the records if there are none; `commands` make them again.

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
    """The section with the device's name in place of THIS in its headings."""
    tables = tuple(
        replace(table, headings=tuple(device if h == THIS else h for h in table.headings))
        for table in section.tables
    )
    return replace(section, tables=tables)


def told_apart(section: Section, gpus: Sequence[str]) -> Section:
    """If a page has several GPUs, every table and figure names its own."""
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
    """The GPU in the caption, or in a second column if the rows have several."""
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
