"""Read the raw CSV page of Nsight Compute: rows by column name, checked units, parsed numbers.

The second row holds units. Numbers may contain thousands separators. Source: the CLI guide of ncu
2024.1 to 2025.3.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence

from pagebench.profiles.counters import KernelRow
from pagebench.profiles.metrics import LAUNCH, PASSES, metric
from pagebench.profiles.ncu import NcuError, explain

NVTX_COLUMN = "Push/Pop_Range"
COLUMNS = ("Kernel Name", "Grid Size", "Block Size")
EXPORT = "export with LC_ALL=C ncu --import FILE --csv --page raw --print-units base"
LONG_FORM = {"Metric Name", "Metric Value"}  # columns of any page but the raw one
NUMBER = re.compile(r"-?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?([eE][+-]?\d+)?")
THREE_DECIMALS = re.compile(r"\.\d{3}$")  # ncu prints two: a thousand in another locale
MOST_PER_CENT = 200  # a rate whose parts come from different passes may exceed 100 a little


def parse(text: str, names: Mapping[str, str]) -> list[KernelRow]:
    """Rows of a raw CSV page. `names` maps our names to ncu's.

    NcuError where the page has no kernels or none of our counters, or is not in base units and the
    C locale.
    """
    header, units, rows = read_page(text)
    if not set(header) & set(names.values()):
        raise NcuError("this page has no counter of pagebench: profile with `pagebench profile`")
    _check_units(dict(zip(header, units, strict=True)), names)
    nvtx = next((column for column in header if NVTX_COLUMN in column), None)
    return [_row(row, names, nvtx) for row in rows]


def read_page(text: str) -> tuple[list[str], list[str], list[dict[str, str]]]:
    """Header, units and rows of a raw CSV page; NcuError where it has no kernels or is cut off."""
    lines = [line for line in text.splitlines() if line.startswith(('"', "ID,"))]
    try:
        table = list(csv.reader(lines, strict=True))
    except csv.Error as error:
        raise NcuError("a row of this page is cut off: " + EXPORT) from error
    header = table[0] if table else []
    if set(header) >= LONG_FORM:
        raise NcuError("this page has a metric a line; one kernel a line is read: " + EXPORT)
    missing = [column for column in COLUMNS if column not in header]
    if len(table) < 3 or missing:
        raise NcuError(explain(text) or "not a raw CSV page of ncu with kernels: " + EXPORT)
    if any(line[0] == header[0] for line in table[1:]):
        raise NcuError("several pages in one file: import each page on its own")
    if any(len(line) != len(header) for line in table[1:]):
        raise NcuError("a row of this page is cut off: " + EXPORT)
    return header, table[1], [dict(zip(header, line, strict=True)) for line in table[2:]]


def _check_units(units: Mapping[str, str], names: Mapping[str, str]) -> None:
    for ours, column in names.items():
        wanted = metric(ours).unit
        if units.get(column, wanted) not in (wanted, ""):
            raise NcuError(f"{column} is in {units[column]}, not {wanted}: {EXPORT}")


def _row(row: Mapping[str, str], names: Mapping[str, str], nvtx: str | None) -> KernelRow:
    passes = number(row.get(PASSES, ""))
    return KernelRow(
        symbol=row["Kernel Name"],
        grid=row["Grid Size"],
        block=row["Block Size"],
        launch={ours: _fact(column, row.get(column, "")) for ours, column in LAUNCH.items()},
        values={ours: _value(ours, row[column]) for ours, column in names.items() if column in row},
        passes=None if passes is None else int(passes),
        range_name=row.get(nvtx, "") if nvtx else "",
    )


def _value(ours: str, text: str) -> float | None:
    """A counter's value; None where there is no digit, as in `n/a`, `(!) n/a` and `nan`.

    NcuError for an impossible value, which comes from another locale: 407.552 loads, 9,138 %.
    """
    value, kind = number(text), metric(ours)
    if value is None:
        possible = not re.search(r"\d", text)
    elif kind.unit == "%":
        possible = 0 <= value <= MOST_PER_CENT
    else:
        possible = value >= 0 and value.is_integer() and not THREE_DECIMALS.search(text)
    if not possible:
        raise NcuError(f"{ours} is {text} {kind.unit}: not a number of the C locale; {EXPORT}")
    return value


def _fact(column: str, text: str) -> float | None:
    """A fact of the launch; NcuError for 74.240 bytes, which are 74,240 in another locale."""
    value = number(text)
    possible = not re.search(r"\d", text) if value is None else value >= 0
    if value is not None and column != LAUNCH["waves"]:
        possible = possible and value.is_integer() and not THREE_DECIMALS.search(text.strip())
    if not possible:
        raise NcuError(f"{column} is {text}: not a number of the C locale; {EXPORT}")
    return value


def number(text: str) -> float | None:
    """A number as ncu prints it in the C locale; None for any other text."""
    text = text.strip()
    return float(text.replace(",", "")) if NUMBER.fullmatch(text) else None


def rows_of(rows: Sequence[KernelRow], cell: str) -> list[KernelRow]:
    """Rows inside an NVTX range whose name contains the cell's."""
    pattern = re.compile(rf"(?<![a-z0-9_]){re.escape(cell)}(?![a-z0-9_])")
    return [row for row in rows if pattern.search(row.range_name)]
