"""The commands of load-count baselines: baseline save, baseline check."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pagebench.harness.cli.counting import Launches, count_cells
from pagebench.harness.cli.options import (
    DeviceName,
    KernelFile,
    Names,
    Out,
    SuiteName,
    add_kernel,
    device_and_kernel,
    say,
    seen_device,
    wanted,
)
from pagebench.harness.counting import baseline
from pagebench.harness.counting.baseline import Baseline
from pagebench.harness.counting.profile import Request
from pagebench.harness.environment import Environment, environment
from pagebench.harness.errors import UserError
from pagebench.harness.records import identity
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.identity import Difference
from pagebench.harness.show import identities
from pagebench.harness.show.text import plural
from pagebench.kernels.device import Device

group = typer.Typer(help="Save counts that must not change, or check cells against them.")
File = Annotated[Path, typer.Argument(help="the baseline file", metavar="FILE")]
Recorded = Annotated[
    list[Path] | None,
    typer.Option("--counters", help="read counters from results files instead of counting"),
]


@group.command("save")
def save(
    file: File,
    names: Names = None,
    suite: SuiteName = None,
    counters: Recorded = None,
    out: Out = None,
    launches: Launches = 2,
    device: DeviceName = "auto",
    kernel: KernelFile = None,
) -> int:
    """Write the exact counts of cells, counted now or read with --counters."""
    here = _here(device, kernel, counters)
    baseline.check_place(file)
    request = Request(here, launches, kernel_file=kernel)
    records, has_lost = _records(names, suite, counters, out, request)
    if has_lost:
        say(f"{file}: not written: some cells were not counted")
        return 1
    say(f"{plural(baseline.save(file, records), 'kernel')} in {file}")
    return 0


@group.command("check")
def check(
    file: File,
    names: Names = None,
    suite: SuiteName = None,
    counters: Recorded = None,
    out: Out = None,
    launches: Launches = 2,
    device: DeviceName = "auto",
    kernel: KernelFile = None,
) -> int:
    """Compare exact counts with a baseline: exit code 1 if one changed.

    Counts of another GPU model are not compared: exit code 2.
    """
    here, kept = _here(device, kernel, counters), baseline.load(file)
    if not counters and here.kind == "cuda":  # known before minutes of counting
        _refuse_other_gpu(file, kept, environment(here))
    request = Request(here, launches, kernel_file=kernel)
    records, has_lost = _records(names, suite, counters, out, request)
    for line in _of_what(file, kept, records):
        say(line)
    changed = baseline.changes(kept.counts, records) if records else []
    for line in changed:
        say(line)
    if not changed and not has_lost:
        say(f"every count equals that of {file}")
    return int(bool(changed) or has_lost)


def _here(device: str, kernel: Path | None, files: Sequence[Path] | None) -> Device:
    """The device that counts. Nothing counts where counters are read from files."""
    if not files:
        return device_and_kernel(device, kernel)
    add_kernel(kernel)
    return seen_device(device)


def _refuse_other_gpu(file: Path, kept: Baseline, here: Environment) -> None:
    """UserError where no cell of the baseline was counted on a GPU like this one."""
    mine = identity.of_environment(here)
    found = [baseline.of_other_gpu(identity.differences(of, mine)) for of in kept.of.values()]
    if found and all(found):
        raise UserError(_other_gpu(file, found[0]))


def _other_gpu(file: Path, found: Sequence[Difference]) -> str:
    return f"{file} is a baseline of another GPU: {identities.between(found)}; save one of this GPU"


def _of_what(file: Path, kept: Baseline, records: Sequence[Counters]) -> list[str]:
    """A line for each difference but those of counts. UserError for another GPU."""
    apart = baseline.apart(kept, records)
    for found in apart.values():
        if other := baseline.of_other_gpu(found):
            raise UserError(_other_gpu(file, other))
    if not kept.of:
        return [f"{file} does not say which GPU, versions and code it is of: save it again"]
    cells = defaultdict[str, list[str]](list)
    for cell, found in apart.items():
        cells[identities.between(found)].append(cell)
    return [
        f"{file} is of other software or code: {what} ({', '.join(names[:2])}"
        + (f" and {len(names) - 2} more)" if len(names) > 2 else ")")
        for what, names in cells.items()
    ]


def _records(
    names: list[str] | None,
    suite: str | None,
    files: Sequence[Path] | None,
    out: Path | None,
    request: Request,
) -> tuple[list[Counters], bool]:
    """Counters of the wanted cells, counted now or read from `files`; whether cells were lost."""
    if not files:
        counted = count_cells(names, suite, out, request)
        say(f"{plural(len(counted.records), 'record')} in {counted.path}")
        return counted.records, counted.has_lost
    if out:
        raise UserError("--counters reads counts and writes no records: leave out --out")
    if not names and not suite:
        return baseline.counted_before(files), False
    asked = wanted(names, suite)
    return baseline.counted_before(files, asked.cells, all_of=asked.named), False


GROUPS = {"baseline": group}
