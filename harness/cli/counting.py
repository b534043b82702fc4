"""The commands that count: profile, import, audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pagebench.harness.cell import Cell
from pagebench.harness.cli.options import (
    AsJson,
    DeviceName,
    KernelFile,
    Names,
    Out,
    SuiteName,
    add_kernel,
    chosen,
    device_and_kernel,
    print_json,
    put,
    refuse_named,
    results_path,
    say,
    wanted,
)
from pagebench.harness.counting.importing import import_file
from pagebench.harness.counting.predict import anew
from pagebench.harness.counting.profile import Request, profile_single_pass
from pagebench.harness.counting.profile import profile as profile_passes
from pagebench.harness.counting.trust import without_distrusted
from pagebench.harness.errors import UserError
from pagebench.harness.escape import shell
from pagebench.harness.instruments.audit import audit_flush
from pagebench.harness.records import store
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.timing import Timing
from pagebench.harness.show.counters import COUNTER_HEADINGS, counters_card, counters_row
from pagebench.harness.show.machine import audit_json, counters_json
from pagebench.harness.show.text import plain, plural, under_environments
from pagebench.harness.timing.clocks.sampling import L2_STATES
from pagebench.harness.timing.options import default_options
from pagebench.harness.timing.refuse import refusal
from pagebench.kernels.device import Device

IMPORT = "without one, `pagebench import FILE` reads what was counted elsewhere"
Launches = Annotated[int, typer.Option(min=2, help="how many times to count each cell")]
# Former options, each now a separate command.
OldImport = Annotated[Path | None, typer.Option("--import", hidden=True)]
OldAudit = Annotated[bool, typer.Option("--audit", hidden=True)]
OldSave = Annotated[Path | None, typer.Option("--save-baseline", hidden=True)]
OldCheck = Annotated[Path | None, typer.Option("--check-baseline", hidden=True)]


# --- profile --------------------------------------------------------------------------------------


def profile(
    names: Names = None,
    suite: SuiteName = None,
    out: Out = None,
    keep: Annotated[Path | None, typer.Option(help="save ncu's report, to open in ncu-ui")] = None,
    launches: Launches = 2,
    l2: Annotated[str, typer.Option(help="L2 before each call: cold or warm")] = "cold",
    single_pass: Annotated[
        bool, typer.Option("--single-pass", help="count groups of one pass, a process for each")
    ] = False,
    device: DeviceName = "auto",
    kernel: KernelFile = None,
    as_json: AsJson = False,
    import_: OldImport = None,
    audit: OldAudit = False,
    save_baseline: OldSave = None,
    check_baseline: OldCheck = None,
) -> int:
    """Count cells' device work under Nsight Compute. Durations under a profiler are not timings."""
    old = ("--save-baseline", save_baseline, "save"), ("--check-baseline", check_baseline, "check")
    words = _words(names, suite)
    if import_:
        raise _renamed("--import", "import", import_)
    if audit:
        raise _renamed("--audit", "audit", *words)
    for option, file, command in old:
        if file:
            raise _renamed(option, "baseline", command, file, *words)
    here = device_and_kernel(device, kernel)
    chosen("l2", [l2], L2_STATES, default_options(here), here)
    request = Request(here, launches, l2, keep, kernel)
    counted = count_cells(names, suite, out, request, single_pass=single_pass)
    _print_counters(counted.records, counted.path, as_json)
    return int(counted.has_lost)


def _words(names: Sequence[str] | None, suite: str | None) -> list[str]:
    """The wanted cells, as on the command line."""
    return [*(names or ()), *(("--suite", suite) if suite else ())]


def _renamed(option: str, *words: object) -> UserError:
    return UserError(f"profile {option} is now: {shell('pagebench', *words)}")


@dataclass(frozen=True, slots=True)
class Counted:
    """The records, whether cells were lost, and the results file that holds the records."""

    records: list[Counters]
    has_lost: bool
    path: Path


def count_cells(
    names: list[str] | None,
    suite: str | None,
    out: Path | None,
    request: Request,
    *,
    single_pass: bool = False,
) -> Counted:
    """Count the wanted cells that run here and append the records to a results file.

    Counters that the newest calibration found wrong are left out. UserError where nothing can be
    counted.
    """
    cells = _countable(names, suite, request.device)
    path = results_path(out)
    count = profile_single_pass if single_pass else profile_passes
    records = without_distrusted(count(cells, request, say), say)
    store.append(path, *records)
    return Counted(records, len(records) < len(cells), path)


def _countable(names: list[str] | None, suite: str | None, here: Device) -> tuple[Cell, ...]:
    """The wanted cells that run here; UserError if a named cell cannot run, or none can."""
    if not names and not suite:
        raise UserError("name a cell or a suite; `pagebench import FILE` reads a report")
    asked = wanted(names, suite)
    if here.kind == "cpu":
        raise UserError(f"counting needs an NVIDIA GPU; {IMPORT}")
    refuse_named(asked.named, here, default_options(here))
    refused = {cell: reason for cell in asked.cells if (reason := refusal(cell, here))}
    if len(refused) == len(asked.cells):
        reason = next(iter(refused.values()))
        raise UserError(f"none of {len(asked.cells)} cells can run here: {reason}")
    if refused:
        command = shell("pagebench", "list", *_words(names, suite))
        say(f"{len(refused)} of {len(asked.cells)} cells cannot run here; `{command}` says why")
    return tuple(cell for cell in asked.cells if cell not in refused)


def _print_counters(records: Sequence[Counters], path: Path, as_json: bool) -> None:

    if as_json:
        print_json(map(counters_json, records))
        return
    for record in records:
        put(counters_card(record), end="\n\n")
    put(f"{plural(len(records), 'record')} in {path}")


# --- import ---------------------------------------------------------------------------------------


def import_(
    file: Annotated[Path, typer.Argument(help="a raw CSV page or an .ncu-rep", metavar="FILE")],
    out: Out = None,
    per_call: Annotated[
        int | None,
        typer.Option("--launches-per-call", min=1, help="where a call launches a kernel again"),
    ] = None,
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> None:
    """Read the counters of all cells in a page or report that Nsight Compute made elsewhere."""
    add_kernel(kernel)
    path = results_path(out)
    records = import_file(file, per_call)
    store.append(path, *records)
    _print_counters(records, path, as_json)


# --- audit ----------------------------------------------------------------------------------------


def audit(
    names: Names = None,
    suite: SuiteName = None,
    out: Out = None,
    launches: Launches = 2,
    device: DeviceName = "auto",
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> int:
    """Does the flush make the cache cold? Count DRAM bytes after it and without it."""
    here = device_and_kernel(device, kernel)
    cells = _countable(names, suite, here)
    path = results_path(out)
    audits = audit_flush(cells, Request(here, launches, kernel_file=kernel), say)
    store.append(path, *audits)
    if as_json:
        print_json(map(audit_json, audits))
    else:
        for each in audits:
            put(
                f"{each.cell}: DRAM reads {each.cold_over_distinct:.1%} of the distinct bytes "
                f"after the flush, {each.warm_over_distinct:.1%} without it"
            )
        put(f"{plural(len(audits), 'record')} in {path}")
    left = [each.cell for each in audits if not each.is_flushed]
    for cell in left:
        say(f"{cell}: the flush does not evict it from L2")
    return int(bool(left) or len(audits) < len(cells))


# --- report ---------------------------------------------------------------------------------------


def print_counted(
    counted: Sequence[Counters], timings: Sequence[Timing], as_json: bool, markdown: bool
) -> None:
    """Print stored counters as a table or as JSON, beside what today's formulas predict."""
    records = list(map(anew, counted))
    if as_json:
        print_json(map(counters_json, records))
        return
    rows = [counters_row(record, timings) for record in records]
    if markdown:
        environments = (record.environment for record in records)
        put(under_environments(environments, COUNTER_HEADINGS, rows))
    else:
        put(plain(COUNTER_HEADINGS, rows))


COMMANDS = (profile, import_, audit)
