"""The commands that count: profile, calibrate, ceilings, show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from pagebench.harness.cell import Cell
from pagebench.harness.cli.options import (
    AsJson,
    DeviceName,
    KernelFile,
    Names,
    Out,
    SuiteName,
    chosen,
    device_and_kernel,
    named_outright,
    print_json,
    refuse_named,
    results_path,
    say,
    wanted_cells,
)
from pagebench.harness.records import store
from pagebench.harness.records.timing import Record
from pagebench.harness.show import timings as reports
from pagebench.harness.timing.clocks.sampling import L2_STATES
from pagebench.harness.timing.measure import default_options, refusal
from pagebench.kernels.device import Device, find_device
from pagebench.kernels.registry import add_kernel_file

IMPORT = "without one, `pagebench profile --import FILE` reads what was counted elsewhere"


def profile(
    names: Names = None,
    suite: SuiteName = None,
    out: Out = None,
    keep: Annotated[Path | None, typer.Option(help="keep ncu's report for its own window")] = None,
    import_: Annotated[
        Path | None, typer.Option("--import", help="read a raw CSV page or .ncu-rep instead")
    ] = None,
    launches: Annotated[int, typer.Option(min=2, help="times every cell is counted")] = 2,
    l2: Annotated[str, typer.Option(help="cold or warm, before each call")] = "cold",
    single_pass: Annotated[
        bool, typer.Option("--single-pass", help="groups of one pass, a process each")
    ] = False,
    audit: Annotated[
        bool, typer.Option("--audit", help="does the flush make the cache cold?")
    ] = False,
    save_baseline: Annotated[Path | None, typer.Option(help="write exact counts")] = None,
    check_baseline: Annotated[Path | None, typer.Option(help="exit 1 if a count changed")] = None,
    device: DeviceName = "auto",
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> int:
    """Count cells' device work under Nsight Compute. Durations under a profiler are no timings."""
    from pagebench.harness.counting import baseline
    from pagebench.harness.counting.count import Wanted, count

    here = device_and_kernel(device, kernel)
    chosen("l2", [l2], L2_STATES, default_options(here), here)
    alone = not (save_baseline or check_baseline)
    how_to_count = names or suite or keep or (launches, l2) != (2, "cold")
    _refuse_together(import_, bool(how_to_count), audit, single_pass, alone)
    kept = baseline.prepare(save_baseline, check_baseline)
    cells = () if import_ else _countable(names, suite, here)
    how = "audit" if audit else "single" if single_pass else "card"
    wanted = Wanted(cells, here, how, launches, l2, keep, import_, kernel)
    path = results_path(out)
    records = count(wanted, say)
    store.append_lines(path, records)
    _print_counters(records, as_json, path)
    lost = len(records) < len(cells)
    if save_baseline:
        _save_baseline(save_baseline, records, lost)
    failed = baseline.changes(kept, records) if kept is not None and records else []
    if kept is not None and not failed and not lost:
        say(f"every count is that of {check_baseline}")
    failed += [f"{r['cell']}: the flush leaves it in L2" for r in records if not _is_cold(r)]
    for line in failed:
        say(line)
    return 1 if failed or lost else 0


def _refuse_together(
    import_: Path | None, chosen: bool, audit: bool, single_pass: bool, alone: bool
) -> None:
    """ValueError for options of which one leaves the other without a meaning."""
    if import_ and (chosen or audit or single_pass):
        raise ValueError(
            "--import reads what was counted elsewhere, whole: without NAME, --suite, --keep, "
            "--launches, --l2, --audit and --single-pass"
        )
    if audit and (single_pass or not alone):
        raise ValueError(
            "--audit checks the flush alone: without --single-pass, --save-baseline and "
            "--check-baseline"
        )


def _save_baseline(path: Path, records: list[dict[str, Any]], lost: bool) -> None:
    from pagebench.harness.counting import baseline

    if lost:
        say(f"{path}: not written, for not every cell was counted")
    else:
        say(f"{reports.counted(baseline.save(path, records), 'kernel')} in {path}")


def _is_cold(record: dict[str, Any]) -> bool:
    return record["kind"] != "audit" or bool(record["flushed"])


def _countable(names: list[str] | None, suite: str | None, here: Device) -> tuple[Cell, ...]:
    """The wanted cells that run here; ValueError if one named outright cannot, or none is named."""
    if not names and not suite:
        raise ValueError("name a cell or a suite, or --import a report")
    wished = wanted_cells(names, suite)
    if here.kind == "cpu":
        raise ValueError(f"counting needs an NVIDIA GPU; {IMPORT}")
    refuse_named(named_outright(names or ()) if not suite else (), here, default_options(here))
    refused = {cell: reason for cell in wished if (reason := refusal(cell, here))}
    if len(refused) == len(wished):
        raise ValueError(
            f"none of {len(wished)} cells can run here: {next(iter(refused.values()))}"
        )
    if refused:
        words = " ".join([*(names or ()), *(("--suite", suite) if suite else ())])
        say(f"{len(refused)} of {len(wished)} cells cannot run here; "
            f"`pagebench list {words}` says why")  # fmt: skip
    return tuple(cell for cell in wished if cell not in refused)


def _print_counters(records: list[dict[str, Any]], as_json: bool, path: Path) -> None:
    from pagebench.harness.show.card import counters_card

    if as_json:
        print_json(records)
        return
    for record in records:
        if record["kind"] == "counters":
            print(counters_card(record), end="\n\n")
        else:
            cold, warm = record["cold_over_distinct"], record["warm_over_distinct"]
            print(f"{record['cell']}: DRAM reads {cold:.1%} of the distinct bytes after the flush, "
                  f"{warm:.1%} without it")  # fmt: skip
    print(f"{reports.counted(len(records), 'record')} in {path}")


def print_counted(
    counted: list[dict[str, Any]], timings: list[Record], as_json: bool, markdown: bool
) -> None:
    """Stored counters as a table, or as JSON, with what is predicted of them today."""
    from pagebench.harness.counting.predict import predicted_anew
    from pagebench.harness.show.card import COUNTER_HEADINGS, counters_row

    anew = [predicted_anew(record) for record in counted]
    rows = [counters_row(record, timings) for record in anew]
    if as_json:
        print_json(anew)
    elif markdown:
        environments = (record["environment"] for record in anew)
        print(reports.under_environments(environments, COUNTER_HEADINGS, rows))
    else:
        print(reports.plain(COUNTER_HEADINGS, rows))


def calibrate(
    out: Annotated[Path | None, typer.Option(help="append the record here too")] = None,
    device: DeviceName = "auto",
    as_json: AsJson = False,
) -> int:
    """Which counter sees what here, by kernels of known loads."""
    from pagebench.harness.counting.count import as_value_error
    from pagebench.harness.instruments.calibrate import CALIBRATIONS
    from pagebench.harness.instruments.calibrate import calibrate as run_calibration

    here = find_device(device)
    if here.kind == "cpu":
        raise ValueError(f"calibration needs an NVIDIA GPU, the one that counts; {IMPORT}")
    paths = {CALIBRATIONS, out or CALIBRATIONS}
    for path in paths:
        store.check_appendable(path)
    record = as_value_error(run_calibration, here, say)
    for path in paths:
        store.append_line(path, record)
    if as_json:
        print_json([record])
    else:
        names = max(record["expected"].values(), key=len)
        rows = [
            (kernel, *(f"{seen[name][0]:,.0f}" for name in names))
            for kernel, seen in record["seen"].items()
        ]
        print(reports.plain(("kernel", *names), rows))
        for name, sees in record["sees_async"].items():
            print(f"{name}: {'counted' if sees else 'not counted'}")
    for line in record["disagree"]:
        say(f"disagrees: {line}")
    return 1 if record["disagree"] else 0


def ceilings(
    out: Out = None,
    device: DeviceName = "auto",
    as_json: AsJson = False,
) -> None:
    """What this GPU reaches: DRAM, L2, issue, FMA, matrix, launch."""
    from pagebench.harness.instruments.ceilings import measure_ceilings
    from pagebench.harness.show.card import CEILING_HEADINGS, ceiling_rows

    path = results_path(out or Path("runs/ceilings.jsonl"))
    record = measure_ceilings(find_device(device), say)
    store.append_line(path, record)
    if as_json:
        print_json([record])
        return
    print(reports.plain(CEILING_HEADINGS, ceiling_rows(record)))
    print(f"1 record in {path}")


def show(
    name: Annotated[str, typer.Argument(help="a cell's full name", metavar="NAME")],
    files: Annotated[
        list[Path] | None, typer.Argument(help="results files (runs/*.jsonl)", metavar="FILE")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="another cell: did both run the same binary?")
    ] = None,
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> None:
    """One card of a cell: its newest time, counters, prediction."""
    from pagebench.harness.show.card import contrast, joined, joined_card

    if kernel:
        add_kernel_file(kernel)
    found = files or sorted(Path("runs").glob("*.jsonl"))
    card = joined(Cell.parse(name).name, found)
    if against:
        card["against"] = contrast(card, joined(Cell.parse(against).name, found))
    print(json.dumps(card) if as_json else joined_card(card))


COMMANDS = (profile, calibrate, ceilings, show)
