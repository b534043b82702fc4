"""Read a report of Nsight Compute (.ncu-rep) as a raw CSV page, by ncu or NVIDIA's ncu-report."""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pagebench.profiles import ncu
from pagebench.profiles.ncu import NcuError
from pagebench.profiles.ncu_page import COLUMNS, EXPORT, NVTX_COLUMN

# The library writes a template argument as `(unsigned int)128`, ncu as 128.
CAST = re.compile(r"\((?:unsigned |signed )?(?:bool|char|short|int|long)\)(?=-?\d)")
PLAIN = b"NVR"  # the first bytes of a report that is not compressed
CAPABILITY = "device__attribute_compute_capability_"


def csv_page(report: Path) -> str:
    """The page that `ncu --import` prints, in base units.

    NcuError where neither ncu nor ncu-report can read the report, or it has no kernels.
    """
    if report.suffix == ".ncu-repz" and _is_plain(report):
        with TemporaryDirectory() as folder:
            return csv_page(Path(shutil.copy(report, Path(folder) / f"{report.stem}.ncu-rep")))
    if not shutil.which("ncu"):
        return _by_library(report)
    try:
        return ncu.export_csv(ncu.find_ncu(), report)
    except NcuError as by_ncu:
        try:
            return _by_library(report)
        except NcuError as by_library:
            raise NcuError(f"ncu: {by_ncu}; then {by_library}") from by_ncu


def _is_plain(report: Path) -> bool:
    """Whether a report has the name of a compressed one only: readers go by the name."""
    with report.open("rb") as file:
        return file.read(len(PLAIN)) == PLAIN


def _by_library(report: Path) -> str:
    try:
        import ncu_report
    except ImportError as error:
        raise NcuError(
            "reading an .ncu-rep needs Nsight Compute or ncu-report: install one of them (pip "
            "install ncu-report), or, where the report was made, " + EXPORT
        ) from error
    try:
        actions = list(_actions(ncu_report.load_report(str(report))))
    except Exception as error:  # the library documents no types
        raise NcuError(f"ncu-report cannot read this report: {error}") from error
    if not actions:
        raise NcuError("ncu-report finds no kernels here: give a report of Nsight Compute")
    return _page(actions)


def _actions(context: Any) -> Iterator[Any]:
    for range_ in map(context.range_by_idx, range(context.num_ranges())):
        yield from map(range_.action_by_idx, range(range_.num_actions()))


def _page(actions: list[Any]) -> str:
    """Header, units and one row per kernel; a counter that a kernel lacks is n/a."""
    metrics = sorted({name for action in actions for name in action.metric_names()})
    units = {
        name: action.metric_by_name(name).unit()
        for action in actions
        for name in action.metric_names()
    }
    text = io.StringIO()
    page = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    page.writerow([*COLUMNS, "CC", NVTX_COLUMN, *metrics])
    page.writerow([""] * (len(COLUMNS) + 2) + [units[name] for name in metrics])
    for action in actions:
        page.writerow([*_identity(action), *(_text(action, name) for name in metrics)])
    return text.getvalue()


def _identity(action: Any) -> tuple[str, ...]:
    capability = ".".join(_text(action, f"{CAPABILITY}{part}") for part in ("major", "minor"))
    grid, block = (_extent(action, what) for what in ("grid", "block"))
    symbol = CAST.sub("", action.name(action.NameBase_DEMANGLED))
    return symbol, grid, block, capability, _ranges(action)


def _extent(action: Any, what: str) -> str:
    sizes = (_text(action, f"launch__{what}_dim_{axis}") for axis in "xyz")
    return f"({', '.join(sizes)})"


def _ranges(action: Any) -> str:
    """The names of the NVTX push/pop ranges in which the kernel was launched."""
    state = action.nvtx_state()
    domains = map(state.domain_by_id, state.domains()) if state else ()
    return " ".join(name for domain in domains for name in domain.push_pop_ranges())


def _text(action: Any, name: str) -> str:
    found = action.metric_by_name(name)
    value = found.value() if found is not None else None
    return "n/a" if value is None else str(value)
