"""From what the command line wants to counters records: profile, single passes, audit or import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.counting.predict import without
from pagebench.harness.counting.profile import audit_flush, imported, profile, profile_single_pass
from pagebench.harness.instruments.calibrate import distrusted, newest
from pagebench.harness.records.store import check_writable
from pagebench.kernels.device import Device
from pagebench.profiles import ncu_report as report
from pagebench.profiles.counters import CountError
from pagebench.profiles.metrics import SINGLE_PASS
from pagebench.profiles.ncu import EXPORT, NcuError, Setting


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to count and how: `card` (all counters), `single` (one-pass groups) or `audit`."""

    cells: tuple[Cell, ...]
    device: Device
    how: str
    launches: int
    l2: str
    keep: Path | None
    import_: Path | None
    kernel_file: Path | None


def count(wanted: Wanted, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """The records; ValueError, one line with its remedy, whatever Nsight Compute complains of."""
    records = as_value_error(_count, wanted, progress)
    return [as_value_error(_without_distrusted, record, progress) for record in records]


def as_value_error(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def _count(wanted: Wanted, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    if wanted.import_:
        try:
            return imported(_page(wanted.import_))
        except (NcuError, CountError) as error:
            raise NcuError(f"{wanted.import_}: {error}") from error
    _refuse_mixed(wanted)
    options: dict[str, Any] = {
        "launches": wanted.launches,
        "kernel_file": wanted.kernel_file,
        "progress": progress,
    }
    if wanted.how == "audit":
        return audit_flush(wanted.cells, wanted.device, **options)
    options["l2"] = wanted.l2
    if wanted.how == "single":
        return profile_single_pass(wanted.cells, wanted.device, tuple(SINGLE_PASS), **options)
    return profile(wanted.cells, wanted.device, Setting(), keep=_report_path(wanted), **options)


def _refuse_mixed(wanted: Wanted) -> None:
    """ValueError for wishes that do not go together; nothing has been counted yet."""
    if not wanted.cells:
        raise NcuError("none of these cells can run here: `pagebench list NAME` says why")
    if wanted.l2 == "warm" and wanted.how == "card":
        raise NcuError("ncu flushes the caches before each of the card's passes, so no cell is "
                       "warm: add --single-pass")  # fmt: skip
    if wanted.l2 == "warm" and wanted.how == "audit":
        raise NcuError("--audit counts after the flush and without it: leave out --l2")
    if wanted.keep and wanted.how != "card":
        raise NcuError("--keep keeps the one report of a card: without --audit and --single-pass")


def _report_path(wanted: Wanted) -> Path | None:
    """Where the report is kept, with ncu's suffix; NcuError now, and not after counting."""
    keep = wanted.keep
    if keep is None:
        return None
    if keep.suffix != ".ncu-rep":
        keep = keep.with_name(keep.name + ".ncu-rep")
    try:
        check_writable(keep)
    except OSError as error:
        raise NcuError(f"--keep {keep}: {error.strerror}") from error
    return keep


def _page(path: Path) -> str:
    """The raw CSV page of a file: itself, or what ncu exports of a report."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NcuError(str(error.strerror)) from error
    if path.suffix == ".ncu-rep":
        return report.csv_page(path)
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    text = content.decode(encoding, errors="replace")
    if "\0" in text:
        raise NcuError("this is no text: a report is named .ncu-rep, and a page is what you "
                       + EXPORT)  # fmt: skip
    return text


def counted_and_trusted(
    cells: Sequence[Cell], device: Device, progress: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Cards of the cells, less what the newest calibration found wrong. NcuError has the remedy."""
    records = profile(cells, device, Setting(), progress=progress)
    return [_without_distrusted(record, progress) for record in records]


def _without_distrusted(record: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Take out what a calibration of this GPU and ncu found wrong; say so where there is none."""
    if "ncu" not in record["how"]:
        return record
    calibration = newest(record["environment"]["gpu"], record["how"]["ncu"])
    if calibration is None:
        progress("counters are not calibrated on this GPU and ncu: pagebench calibrate")
    wrong = distrusted(calibration)
    if record["kind"] == "audit" and "dram_read_bytes" in wrong:
        raise NcuError("--audit rests on dram_read_bytes, which the calibration here found wrong")
    kept = without(record, wrong) if record["kind"] == "counters" else record
    return kept | {"calibrated": calibration is not None}
