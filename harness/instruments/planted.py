"""Plant known work in our own kernels, and require the instruments to find it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.contrasts import Contrast, planted_contrasts
from pagebench.harness.counting.count import counted_and_trusted
from pagebench.harness.counting.predict import newest_counters, predict_counters
from pagebench.harness.environment import bandwidth_of
from pagebench.harness.judging.judge import judge_contrasts
from pagebench.harness.records import store
from pagebench.harness.timing.change import Change
from pagebench.harness.timing.measure import Options
from pagebench.kernels.device import Device

PLANTED_SCHEMA = 1
Line = dict[str, Any]


def planted_cells(contrasts: Sequence[Contrast]) -> tuple[Cell, ...]:
    names = (name for contrast in contrasts for name in (contrast.one, contrast.other))
    return tuple(map(Cell.parse, dict.fromkeys(names)))


def selftest(
    options: Options, device: Device, out: Path, progress: Callable[[str], None]
) -> dict[str, Any]:
    """Count and judge the planted cells; a planted record, after all it rests on, in `out`.

    NcuError where nothing can be counted.
    """
    contrasts = planted_contrasts(bandwidth_of(device))
    store.append_lines(out, counted_and_trusted(planted_cells(contrasts), device, progress))
    verdicts = judge_contrasts(contrasts, options, device, [out], out, progress)
    record = planted_record(verdicts, [out])
    store.append_line(out, record)
    return record


def planted_record(verdicts: Sequence[Line], files: Sequence[Path]) -> dict[str, Any]:
    """What was planted, what each instrument found, and the smallest effect it would find."""
    quiet = next(line for line in verdicts if line["predicted"] == "absent")
    rows = [row for line in verdicts for row in _rows(line, files)]
    return {
        "kind": "planted",
        "schema": PLANTED_SCHEMA,
        "rows": rows,
        "found_all": all(row["right"] for row in rows),
        "detectable": quiet["time"] and quiet["time"]["detectable"],
        "environment": quiet["environment"],
    }


def _rows(line: Line, files: Sequence[Path]) -> list[dict[str, Any]]:
    """The verdict's word, and the planted amount where there is one."""
    cells = tuple(map(Cell.parse, line["cells"]))
    word = {
        "cell": line["cells"][1],
        "instrument": "verdict",
        "planted": line["predicted"],
        "found": line["verdict"],
        "right": line["predicted"] == line["verdict"],
    }
    rows = [word]
    if cells[1].shape.planted_loads != cells[0].shape.planted_loads:
        rows.append(_loads(cells, files))
    if cells[1].shape.planted_ns != cells[0].shape.planted_ns and line["time"]:
        rows.append(_spin(cells, line))
    return rows


def _loads(cells: Sequence[Cell], files: Sequence[Path]) -> dict[str, Any]:
    """LDG that were planted by construction, and those that the counter shows more.

    Nothing is found where a cell was not counted, or calibration withholds the counter.
    """
    records = newest_counters(cells, files)
    loads = [_ldg(cell, record) for cell, record in zip(cells, records or (), strict=False)]
    planted = found = None
    if len(loads) == 2 and None not in loads[0] + loads[1]:
        planted, found = (after - before for before, after in zip(*loads, strict=True))
    return {
        "cell": cells[1].name,
        "instrument": "counter (LDG)",
        "planted": planted,
        "found": found,
        "right": found is not None and found == planted,
    }


def _ldg(cell: Cell, record: Line) -> tuple[Any, Any]:
    """LDG predicted and counted; None where either is not known."""
    counted = record["total"].get("ldg")
    predicted = predict_counters(cell, record["resolved"], record["environment"]).get("ldg")
    return predicted, counted and int(counted["value"])


def _spin(cells: Sequence[Cell], line: Line) -> dict[str, Any]:
    """Microseconds that were planted, and those that the clock shows more, with the interval."""
    low, found, high = Change(**line["time"]).delta_us(line["time_us"][0])
    planted = (cells[1].shape.planted_ns - cells[0].shape.planted_ns) / 1e3
    return {
        "cell": cells[1].name,
        "instrument": "clock (us)",
        "planted": planted,
        "found": round(found, 3),
        "low": round(low, 3),
        "high": round(high, 3),
        "right": low <= planted <= high,
    }
