"""The commands calibrate, ceilings and show: trust in counters, limits of the GPU, one cell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pagebench.harness.cell import Cell
from pagebench.harness.cli.counting import IMPORT
from pagebench.harness.cli.options import (
    AsJson,
    DeviceName,
    KernelFile,
    Out,
    add_kernel,
    device_and_kernel,
    print_json,
    put,
    results_path,
    say,
)
from pagebench.harness.counting.trust import CALIBRATIONS
from pagebench.harness.errors import UserError
from pagebench.harness.instruments import calibrate as calibration
from pagebench.harness.instruments.ceilings import measure_ceilings
from pagebench.harness.records import store
from pagebench.harness.records.calibration import Calibration
from pagebench.harness.show.card import contrast, joined, joined_card, read_files
from pagebench.harness.show.counters import CEILING_HEADINGS, ceiling_rows
from pagebench.harness.show.machine import calibration_json, card_json, ceilings_json
from pagebench.harness.show.sentences import calibration_lines
from pagebench.harness.show.text import plain


def calibrate(
    out: Annotated[Path | None, typer.Option(help="also append the record to this file")] = None,
    device: DeviceName = "auto",
    as_json: AsJson = False,
) -> int:
    """Count kernels of known loads: which counters can be trusted here?"""
    here = device_and_kernel(device, None)
    if here.kind == "cpu":
        raise UserError(f"calibration needs the NVIDIA GPU that counts; {IMPORT}")
    paths = {CALIBRATIONS, out or CALIBRATIONS}
    for path in paths:
        store.check_appendable(path)
    found = calibration.calibrate(here, say)
    for path in paths:
        store.append(path, found)
    sees = calibration.sees_async(found)
    if as_json:
        print_json([calibration_json(found, sees)])
    else:
        _print_calibration(found)
        for name, is_seen in sees.items():
            put(f"{name}: {'counted' if is_seen else 'not counted'}")
    for line in calibration_lines(found):
        say(f"disagrees: {line}")
    return int(bool(found.disagreements))


def _print_calibration(found: Calibration) -> None:
    """Print a table with a row per kernel and a column per counter."""
    names = max(found.expected.values(), key=len)
    rows = [
        (kernel, *(f"{seen[name][0]:,.0f}" for name in names))
        for kernel, seen in found.seen.items()
    ]
    put(plain(("kernel", *names), rows))


def ceilings(out: Out = None, device: DeviceName = "auto", as_json: AsJson = False) -> None:
    """Measure what this GPU reaches: DRAM, L2, issue, FMA, matrix, launch."""
    path = results_path(out or Path("runs/ceilings.jsonl"))
    found = measure_ceilings(device_and_kernel(device, None), say)
    store.append(path, found)
    if as_json:
        print_json([ceilings_json(found)])
        return
    put(plain(CEILING_HEADINGS, ceiling_rows(found)))
    put(f"1 record in {path}")


def show(
    name: Annotated[str, typer.Argument(help="a cell's full name", metavar="NAME")],
    files: Annotated[
        list[Path] | None, typer.Argument(help="results files (runs/*.jsonl)", metavar="FILE")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="compare with this cell: did both run the same binary?")
    ] = None,
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> None:
    """Show a cell's card: its newest time, counters and prediction."""
    add_kernel(kernel)
    files = files or sorted(Path("runs").glob("*.jsonl"))
    found = read_files(files)
    card = joined(Cell.parse(name).name, files, found)
    other = contrast(card, joined(Cell.parse(against).name, files, found)) if against else None
    if as_json:
        print_json([card_json(card, other)])
    else:
        put(joined_card(card, other))


COMMANDS = (calibrate, ceilings, show)
