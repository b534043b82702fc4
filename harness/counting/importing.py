"""Import counters that ncu counted elsewhere, from a raw CSV page or a report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pagebench.harness.cell import Cell, CellNameError
from pagebench.harness.counting.kernels import counters_of
from pagebench.harness.counting.profile import COMPLAINTS
from pagebench.harness.environment import Environment
from pagebench.harness.errors import UserError, as_user_error
from pagebench.harness.records.counters import Counters, How
from pagebench.harness.timing.once import Called
from pagebench.profiles import ncu_page
from pagebench.profiles.counters import CountError, KernelRow
from pagebench.profiles.metrics import METRICS, chip_of, names_on
from pagebench.profiles.ncu_page import EXPORT
from pagebench.profiles.ncu_report import csv_page

COUNTS = tuple(metric.name for metric in METRICS if metric.kind == "count")
REPORTS = (".ncu-rep", ".ncu-repz")  # the second is compressed
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # the first bytes of a file that a Windows shell wrote


def import_file(path: Path, per_call: int | None = None) -> list[Counters]:
    """Counters of a raw CSV page or an .ncu-rep; UserError, with the file, where it has none."""
    with as_user_error(UserError, *COMPLAINTS, prefix=f"{path}: "):
        return imported(_page(path), per_call)


def _page(path: Path) -> str:
    """The raw CSV page of a file: the file itself, or ncu's export of a report."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(str(error.strerror)) from error
    if path.suffix in REPORTS:
        return csv_page(path)
    encoding = "utf-16" if content.startswith(UTF_16) else "utf-8-sig"
    text = content.decode(encoding, errors="replace")
    if "\0" in text:
        raise UserError(f"not a text file: give a report the suffix .ncu-rep; for a page {EXPORT}")
    return text


@as_user_error(*COMPLAINTS)
def imported(text: str, per_call: int | None = None) -> list[Counters]:
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
        with as_user_error(CountError, prefix=f"{cell.name}: "):
            calls = _calls(ncu_page.rows_of(rows, cell.name), per_call)
            how = How(chip=chip, launches=calls, imported=True)
            records.append(counters_of(cell, rows, Called(cell=cell.name), how, environment))
    return records


def _calls(rows: Sequence[KernelRow], per_call: int | None) -> int:
    """How many calls made these rows: the kernels of a call repeat.

    CountError where kernels alike have counts that repeat over several launches only: then one call
    may launch a kernel several times, and only a user can tell.
    """
    if per_call:
        if len(rows) % per_call:
            raise CountError(f"{len(rows)} launches are not calls of {per_call} each")
        return len(rows) // per_call
    kernels = [(row.symbol, row.grid, row.block) for row in rows]
    period = _period(kernels)
    by_count = [_period([row.values.get(name) for row in rows]) for name in COUNTS]
    by_counts = max((n for n in by_count if n < len(rows)), default=1)
    if by_counts > period and by_counts % period == 0:
        raise CountError(
            f"a call has {period} or {by_counts} launches: say --launches-per-call {by_counts} if "
            f"it launches a kernel several times, else {period}"
        )
    if period == len(rows):  # one call, or calls that differ, which `by_call` then says
        return [row.symbol for row in rows].count(rows[0].symbol)
    return len(rows) // period


def _period(sequence: Sequence[object]) -> int:
    """The least length of a piece that the sequence repeats; its own where it repeats none."""
    count = len(sequence)
    pieces = (n for n in range(1, count + 1) if count % n == 0)
    return next(n for n in pieces if list(sequence[:n]) * (count // n) == list(sequence))


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
