"""The commands calibrate, ceilings, oracle and show: what can be trusted, and one cell."""

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
    refuse_named,
    results_path,
    say,
    with_file,
)
from pagebench.harness.cli.report import CEILINGS, print_oracle
from pagebench.harness.counting.trust import CALIBRATIONS
from pagebench.harness.errors import UserError
from pagebench.harness.instruments import calibrate as calibration
from pagebench.harness.instruments.ceilings import measure_ceilings
from pagebench.harness.instruments.oracle import planted, quick, trial, try_oracle
from pagebench.harness.progress import silent
from pagebench.harness.records import store
from pagebench.harness.records.calibration import Calibration
from pagebench.harness.records.oracle import Oracle
from pagebench.harness.show.card import contrast, joined, joined_card, read_files
from pagebench.harness.show.counters import CEILING_HEADINGS, ceiling_rows
from pagebench.harness.show.machine import calibration_json, card_json, ceilings_json
from pagebench.harness.show.neighbours import neighbours_of
from pagebench.harness.show.sentences import calibration_lines
from pagebench.harness.show.text import plain, plural
from pagebench.harness.timing.options import default_options
from pagebench.harness.workers.worker import Pool


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
    here, path = device_and_kernel(device, None), results_path(out or CEILINGS)
    found = measure_ceilings(here, say)
    store.append(path, found)
    if as_json:
        print_json([ceilings_json(found)])
        return
    put(plain(CEILING_HEADINGS, ceiling_rows(found)))
    for note in neighbours_of(found.environment):
        put(note)
    put(f"1 record in {path}")


def oracle(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="full cell names without a seed; without any, planted bugs", metavar="NAME"
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="runs of each cell")] = 20,
    out: Out = None,
    device: DeviceName = "auto",
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> int:
    """Measure kernels that are wrong on purpose, or yours, over many seeds: are they found?"""
    here = device_and_kernel(device, kernel)
    options = with_file(quick(default_options(here)), kernel)
    cells = tuple(map(Cell.parse, names or ()))
    for cell in cells:
        if cell.shape.seed:
            raise UserError(f"{cell.name}: leave the seed out; --seeds says how many there are")
    refuse_named(cells, here, options)
    trials = tuple(map(trial, cells)) or planted(here.kind)
    path, kept = results_path(out), list[Oracle]()
    with Pool(here, kernel) as pool:
        for found in try_oracle(trials, seeds, options, pool, silent):
            store.append(path, found)
            kept.append(found)
            say(f"{found.cell}: found in {found.found} of {seeds} ({len(kept)}/{len(trials)})")
    print_oracle(kept, as_json=as_json)
    if not as_json:
        put(f"\n{plural(len(kept), 'record')} in {path}")
    return int(any(each.is_as_expected is False for each in kept))


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


COMMANDS = (calibrate, ceilings, oracle, show)
