"""Import counters that ncu counted elsewhere, from a raw CSV page or a report."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pagebench.harness.cell import Cell, CellNameError
from pagebench.harness.counting.kernels import counters_of
from pagebench.harness.counting.profile import COMPLAINTS
from pagebench.harness.environment import Environment
from pagebench.harness.errors import UserError, as_user_error
from pagebench.harness.records.counters import Counters, How
from pagebench.harness.timing.once import Called
from pagebench.profiles import ncu_page
from pagebench.profiles.counters import CountError
from pagebench.profiles.metrics import chip_of, names_on
from pagebench.profiles.ncu_page import EXPORT
from pagebench.profiles.ncu_report import csv_page

UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # the first bytes of a file that a Windows shell wrote


def import_file(path: Path) -> list[Counters]:
    """Counters of a raw CSV page or an .ncu-rep; UserError, with the file, where it has none."""
    with as_user_error(UserError, *COMPLAINTS, prefix=f"{path}: "):
        return imported(_page(path))


def _page(path: Path) -> str:
    """The raw CSV page of a file: the file itself, or ncu's export of a report."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(str(error.strerror)) from error
    if path.suffix == ".ncu-rep":
        return csv_page(path)
    encoding = "utf-16" if content.startswith(UTF_16) else "utf-8-sig"
    text = content.decode(encoding, errors="replace")
    if "\0" in text:
        raise UserError(f"not a text file: give a report the suffix .ncu-rep; for a page {EXPORT}")
    return text


@as_user_error(*COMPLAINTS)
def imported(text: str) -> list[Counters]:
    """Counters of a raw CSV page, whose NVTX ranges name the cells; UserError says what is wrong.

    A page does not contain the resolved kernel, so no LDG is predicted, nor the kernels that the
    adapter promised, so they are not checked.
    """
    capability = _capability(text)
    chip = chip_of(capability)
    rows = ncu_page.parse(text, names_on(chip))
    cells = dict.fromkeys(cell for row in rows for cell in _cells_in(row.range_name))
    if not cells:
        raise UserError("no NVTX range has a cell's name: profile with `pagebench profile`")
    environment = Environment(capability=capability)
    records = []
    for cell in cells:
        symbols = [row.symbol for row in ncu_page.rows_of(rows, cell.name)]
        how = How(chip=chip, launches=symbols.count(symbols[0]), imported=True)
        with as_user_error(CountError, prefix=f"{cell.name}: "):
            records.append(counters_of(cell, rows, Called(cell=cell.name), how, environment))
    return records


def _capability(text: str) -> tuple[int, int]:
    """The compute capability in a raw page's CC column."""
    _, _, rows = ncu_page.read_page(text)
    match = re.fullmatch(r"(\d+)\.(\d+)", rows[0].get("CC", ""))
    if not match:
        raise UserError(f"this page has no compute capability (column CC): {EXPORT}")
    return int(match[1]), int(match[2])


def _cells_in(range_name: str) -> Iterator[Cell]:
    """Cells whose canonical name is a word in the name of a range."""
    for word in re.findall(r"[a-z0-9]+(?:_[a-z0-9]+)+", range_name):
        try:
            cell = Cell.parse(word)
        except CellNameError:
            continue
        if cell.name == word:
            yield cell
