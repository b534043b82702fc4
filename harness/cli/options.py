"""What the commands share: options, reading cells from words, and printing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from pagebench.harness.cell import MUST, Cell, matches, read_words
from pagebench.harness.errors import UserError, as_user_error
from pagebench.harness.escape import visible
from pagebench.harness.suites import SUITES, find_suite
from pagebench.harness.timing.options import BOUNDARIES, Options
from pagebench.harness.timing.refuse import refusal, refuse_torch
from pagebench.harness.workers.patience import patience
from pagebench.kernels.device import Device, DeviceError, find_device, look_for_device
from pagebench.kernels.plugin_content import content_hash
from pagebench.kernels.registry import KernelError, add_kernel_file

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="full cell names, or words that cells must have (xqa shared p16)", metavar="NAME"
    ),
]
SuiteName = Annotated[str | None, typer.Option("--suite", help="only this suite's cells")]
DeviceName = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N")]
KernelFile = Annotated[
    Path | None, typer.Option("--kernel", help="Python file that defines ADAPTER, your own kernel")
]
Out = Annotated[Path | None, typer.Option(help="results file (JSON lines, appended to)")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON, one object a line")]
Boundary = Annotated[str | None, typer.Option(help=f"what is timed: {', '.join(BOUNDARIES)}")]


# --- Devices and cells ----------------------------------------------------------------------------


def device_and_kernel(device: str, kernel: Path | None) -> Device:
    """The device asked for; registers a kernel file's adapter. UserError if either is bad, if torch
    cannot use the device, or if it was left to us and a driver is here that fails."""
    add_kernel(kernel)
    with as_user_error(DeviceError):
        here = find_device(device)
    refuse_torch(here)
    return here


def seen_device(device: str) -> Device:
    """The device asked for, by a command that measures nothing: a failing driver is no error."""
    with as_user_error(DeviceError):
        return look_for_device(device)


def add_kernel(file: Path | None) -> None:
    """Register the adapter of a kernel file, if one is given. UserError for a bad one."""
    with as_user_error(KernelError):
        if file:
            add_kernel_file(file, patience("importing"))


@dataclass(frozen=True, slots=True)
class Wanted:
    """The cells asked for. `named` are those given by full name; empty where words filter."""

    cells: tuple[Cell, ...]
    named: tuple[Cell, ...] = ()


def wanted(names: Sequence[str] | None, suite: str | None) -> Wanted:
    """The cells with these full names, else the cells of the suites that have all the words.

    With a suite, names are always words. UserError where no cell is left.
    """
    named = _named_outright(names or ()) if not suite else ()
    return Wanted(named or _filtered(names or (), suite), named)


def _named_outright(names: Sequence[str]) -> tuple[Cell, ...]:
    """The cells if every name is a full one, () if they are words of a filter."""
    words = {name: read_words(name) for name in names}
    if not all(set(MUST) <= set(found) for found in words.values()):
        return ()
    return tuple(dict.fromkeys(Cell.of_words(found, name) for name, found in words.items()))


def _filtered(names: Sequence[str], suite: str | None) -> tuple[Cell, ...]:
    """Cells of one suite, or of all, that have every word."""
    suites = [find_suite(suite)] if suite else SUITES
    words = frozenset(word for name in names for word in name.split("_"))
    cells = dict.fromkeys(cell for each in suites for cell in each.cells if matches(cell, words))
    if not cells:
        where = f"suite {suite}" if suite else "any suite"
        raise UserError(f"no cell of {where} has all of: {' '.join(sorted(words))}")
    return tuple(cells)


def refuse_named(named: Sequence[Cell], here: Device, options: Options) -> None:
    """UserError for a cell given by name that cannot run, before anything is measured."""
    for cell in named:
        reason = refusal(cell, here, options.boundary)
        if reason:
            raise UserError(f"{cell.name}: {reason}")


# --- Options --------------------------------------------------------------------------------------


def chosen(
    axis: str, given: list[str] | None, known: Sequence[str], options: Options, here: Device
) -> list[str]:
    """Values of `--clock` or `--l2`. UserError for one that is unknown, or that the device or
    boundary does not have."""
    default: str = getattr(options, axis)
    values = list(dict.fromkeys(given or [default]))
    for value in values:
        if value not in known:
            raise UserError(f"--{axis} {value}: use {', '.join(known)}")
        if axis == "clock" and here.kind == "cpu" and value != "wall":
            raise UserError(f"--clock {value} needs an NVIDIA GPU; on the CPU use wall")
        if options.boundary == "plan" and value != default:
            raise UserError(f"--{axis} {value}: planning runs on the host: use {default}")
    return values


def results_path(out: Path | None, *, resume: bool = False) -> Path:
    """The file that results go to. UserError if it cannot be appended to, before anything runs, or
    if a run is to go on and no file is named."""
    from pagebench.harness.records.store import check_appendable
    from pagebench.harness.workers.sweep import default_path

    if resume and out is None:
        raise UserError("--resume needs --out FILE, the file to continue")
    path = out or default_path()
    check_appendable(path)
    return path


def with_file(options: Options, kernel: Path | None) -> Options:
    """The options with the kernel's file, which is loaded, and what identifies its content."""
    if kernel is None:
        return options
    return replace(options, kernel_file=str(kernel), kernel_sha=content_hash(kernel))


# --- Printing -------------------------------------------------------------------------------------


def put(text: object = "", end: str = "\n", *, flush: bool = False) -> None:
    """Print lines on stdout: every text of a command goes this way. Hidden characters are shown."""
    print(visible(str(text), keep="\n"), end=end, flush=flush)


def say(text: str) -> None:
    """Print a line on stderr, apart from the results."""
    print(visible(text), file=sys.stderr, flush=True)


def print_json(lines: Iterable[dict[str, Any]]) -> None:
    """Print JSON, one object a line."""
    for line in lines:
        put(json.dumps(line).replace("\x7f", "\\u007f"), flush=True)  # json escapes the others
