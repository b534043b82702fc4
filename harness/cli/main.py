"""The command line: what times cells, and reports it. cli_count counts, cli_judge concludes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from pagebench.harness.cell import Cell
from pagebench.harness.cli import counting as cli_count
from pagebench.harness.cli import judging as cli_judge
from pagebench.harness.cli import study as cli_study
from pagebench.harness.cli.options import (
    AsJson,
    Boundary,
    DeviceName,
    KernelFile,
    Names,
    Out,
    SuiteName,
    chosen,
    device_and_kernel,
    filtered,
    named_outright,
    print_json,
    refuse_named,
    results_path,
    say,
    wanted_cells,
)
from pagebench.harness.environment import commit
from pagebench.harness.records import store
from pagebench.harness.records.timing import Record
from pagebench.harness.show import timings as reports
from pagebench.harness.suites import SUITES, find_suite
from pagebench.harness.timing.clocks.sampling import CLOCKS, L2_STATES
from pagebench.harness.timing.measure import BOUNDARIES, Options, default_options, refusal
from pagebench.harness.workers.sweep import (
    EXIT_FAILED,
    EXIT_NOTHING,
    Job,
    Remaining,
    exit_code,
    jobs,
    pending,
    recorded,
    sweep,
)
from pagebench.harness.workers.worker import Pool
from pagebench.kernels.device import Device, find_device
from pagebench.kernels.registry import kernel_names


class Commands(TyperGroup):
    """The commands by name; a word that names none is answered with the nearest, or with all."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            known = self.list_commands(ctx)
            near = get_close_matches(args[0], known, n=1)
            right = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise ValueError(f"no command {args[0]}; {right}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Time paged-attention decode kernels and say what was timed.",
)

# Newer typer brings its own click, older imports it: this is the class that either one raises.
UsageError: Any = typer.BadParameter.__bases__[0]
READER_LEFT = 141  # what a shell says of a process that wrote to nobody: neither done nor failed
MOST_RICH_ROWS = 200  # beyond, a drawn table takes longer to draw than to read


def main() -> NoReturn:
    """Entry point: bad input ends in one line on stderr and exit code 2, never in a traceback."""
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()  # what cannot be written is said below, not at the interpreter's end
    except UsageError as error:
        code = _complain(f"{error.format_message()} (see pagebench --help)")
    except ValueError as error:
        code = _complain(str(error))
    except BrokenPipeError:
        code = _drop_output(READER_LEFT)
    except OSError as error:
        code = _drop_output(_complain(f"{error.filename or 'output'}: {error.strerror}"))
    except SystemExit as end:  # typer ends with 1, a failed cell's code, where the reader has left
        left = isinstance(end.__context__, BrokenPipeError)
        code = _drop_output(READER_LEFT) if left else end.code
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str) -> int:
    print(" ".join(message.split()), file=sys.stderr)
    return EXIT_NOTHING


def _drop_output(code: int) -> int:
    """The code; what cannot be written would fail again at the interpreter's end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"pagebench {version('pagebench')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print it and end")
    ] = False,
) -> None:
    """Time paged-attention decode kernels and say what was timed."""


# --- list --------------------------------------------------------------------------------------


@app.command("list")
def list_(
    names: Names = None,
    suite: SuiteName = None,
    device: DeviceName = "auto",
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> None:
    """Suites, or the cells of one and whether they can run here."""
    here = device_and_kernel(device, kernel)
    if not names and not suite:
        _list_suites(here, as_json)
        return
    cells = wanted_cells(names, suite)
    boundary = find_suite(suite).boundary if suite else "run"
    rows = [(cell.name, refusal(cell, here, boundary)) for cell in cells]
    if as_json:
        print_json(
            {"cell": name, "runs": reason is None, "reason": reason} for name, reason in rows
        )
        return
    if suite:
        print(f"{suite}: {find_suite(suite).question}")
    print(reports.plain(("cell", f"on {here.name}"), [(n, r or "runs") for n, r in rows]))


def _list_suites(here: Device, as_json: bool) -> None:
    if as_json:
        print_json(
            {"suite": suite.name, "question": suite.question, "cells": len(suite.cells)}
            for suite in SUITES
        )
        return
    rows = [(suite.name, str(len(suite.cells)), suite.question) for suite in SUITES]
    print(reports.plain(("suite", "cells", "question"), rows))
    print(f"\nkernels: {', '.join(kernel_names())}\ndevice: {here}")


# --- run ---------------------------------------------------------------------------------------


@app.command()
def run(
    names: Names = None,
    suite: SuiteName = None,
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="skip what --out has")] = False,
    device: DeviceName = "auto",
    clock: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(CLOCKS)}; may be repeated")
    ] = None,
    l2: Annotated[list[str] | None, typer.Option(help="cold, warm; may be repeated")] = None,
    boundary: Boundary = None,
    seconds: Annotated[float, typer.Option(min=0.05, help="longest sampling a cell")] = 2.0,
    processes: Annotated[
        int, typer.Option(min=1, max=100, help="fresh processes, each a record")
    ] = 1,
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> int:
    """Measure cells by name, of a suite, or those that words filter."""
    if not names and not suite:
        raise ValueError("name a cell or a suite; `pagebench list` shows them")
    if resume and out is None:
        raise ValueError("--resume needs --out FILE: the file to go on with")
    here = device_and_kernel(device, kernel)
    named = named_outright(names or ()) if not suite else ()
    options = _options(here, boundary or (find_suite(suite).boundary if suite else "run"), seconds)
    options = replace(options, kernel_file=str(kernel) if kernel else None)
    refuse_named(named, here, options)
    wanted = jobs(
        named or filtered(names or (), suite),
        options,
        chosen("clock", clock, CLOCKS, options, here),
        chosen("l2", l2, L2_STATES, options, here),
        processes,
    )
    return _run(wanted, results_path(out), here, kernel, resume=resume, as_json=as_json)


def _run(
    wanted: list[Job], path: Path, here: Device, kernel: Path | None, *, resume: bool, as_json: bool
) -> int:
    """Measure what is wanted and not there yet; table and exit code are of all that is wanted."""
    before = recorded(wanted, path) if resume else []
    todo = pending(wanted, before, here)
    if resume:
        say(f"{len(wanted) - len(todo)} of {len(wanted)} are in {path}")
        _warn_of_change(before)
    measured = _sweep(todo, path, here, kernel) if todo else []
    records = recorded(wanted, path) if resume else measured
    if as_json:
        print_json(reports.as_json(record) for record in records)
    else:
        _print_table(records)
        print(f"\n{reports.counted(len(records), 'record')} in {path}")
    code = exit_code(records)
    if code == EXIT_NOTHING:
        say(f"nothing was measured; the reasons are in {path}")
    return code


def _warn_of_change(before: list[Record]) -> None:
    """Say when a file's records come from another commit than this one."""
    commits = {record.environment.get("commit") for record in before if record.samples}
    if commits - {commit()["commit"]}:
        say("the file's records are of another commit; a new --out keeps them apart")


def _options(here: Device, boundary: str, seconds: float) -> Options:
    if boundary not in BOUNDARIES:
        raise ValueError(f"boundary {boundary}: use {' or '.join(BOUNDARIES)}")
    return replace(default_options(here, boundary), seconds=seconds)


def _sweep(todo: list[Job], path: Path, here: Device, kernel: Path | None) -> list[Record]:
    records: list[Record] = []
    left = Remaining(len(todo))
    with _progress() as show, Pool(here, kernel) as pool:
        try:
            for record in sweep(
                todo, path, pool, here, lambda job, stage: show(f"{_label(job)}: {stage} ({left})")
            ):
                left.finish_one()
                records.append(record)
                if record.status not in ("measured", "refused"):
                    show(f"{record.cell}: {record.status}: {record.reason}", keep=True)
        except KeyboardInterrupt:
            show(
                f"stopped; {reports.counted(len(records), 'new record')} in {path}; "
                f"go on with --resume --out {path}",
                keep=True,
            )
            raise
    return records


def _label(job: Job) -> str:
    options = job.options
    process = f", process {options.process}" if options.process else ""
    return f"{job.cell.name} [{options.clock}, {options.l2}{process}]"


@contextmanager
def _progress() -> Iterator[Any]:
    """One live line on a terminal; away from it, a plain line as each cell begins."""
    if sys.stderr.isatty():
        from rich.console import Console

        console = Console(stderr=True)
        with console.status("") as status:

            def show(text: str, keep: bool = False) -> None:
                if keep:
                    console.print(text, markup=False, highlight=False)
                else:
                    status.update(text.replace("[", "\\["))

            yield show
        return

    shown = ""

    def show_plain(text: str, keep: bool = False) -> None:
        nonlocal shown
        cell = text.partition(": ")[0]
        if keep or cell != shown:
            print(text, file=sys.stderr, flush=True)
        shown = cell

    yield show_plain


def _print_table(records: Sequence[Record]) -> None:
    """On a terminal the command and under it the numbers; elsewhere one uncut line a record."""
    rows = [reports.row(record) for record in records]
    if sys.stdout.isatty() and len(rows) <= MOST_RICH_ROWS:
        print(reports.tall(rows))
    else:
        print(reports.plain(reports.HEADINGS, map(reports.cells_of, rows)))


# --- once --------------------------------------------------------------------------------------


@app.command()
def once(
    names: Annotated[list[str], typer.Argument(help="cells by full name", metavar="NAME")],
    launches: Annotated[int, typer.Option(min=1, help="calls of each cell")] = 1,
    l2: Annotated[str, typer.Option(help="cold or warm, before each call")] = "cold",
    device: DeviceName = "auto",
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="call the rest after one that failed, and exit 0")
    ] = False,
    kernel: KernelFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="it is JSON anyway")] = True,
) -> int:
    """Warm cells up and call them once, for a profiler to replay."""
    from pagebench.harness.timing.once import call_once

    here, cells = device_and_kernel(device, kernel), tuple(map(Cell.parse, names))
    chosen("l2", [l2], L2_STATES, default_options(here), here)
    refuse_named(cells, here, default_options(here))
    for told in call_once(cells, here, launches, l2):
        print(json.dumps(told), flush=True)
        if "reason" in told and not keep_going:
            say("{status}: {cell}: {reason}".format_map(told))
            return EXIT_NOTHING if told["status"] == "refused" else EXIT_FAILED
    return 0


# --- report ------------------------------------------------------------------------------------


@app.command()
def report(
    files: Annotated[list[Path], typer.Argument(help="results files", metavar="FILE")],
    markdown: Annotated[bool, typer.Option("--markdown", help="a Markdown table")] = False,
    as_json: AsJson = False,
    repeats: Annotated[
        bool, typer.Option("--repeats", help="spread of medians over processes, and modes")
    ] = False,
    clocks: Annotated[bool, typer.Option("--clocks", help="one column a clock")] = False,
) -> None:
    """Tables of records: time, interval, GB/s, resolved kernel.

    Counters have a table of their own, against today's predictions.
    """
    if as_json + markdown > 1 or repeats + clocks > 1 or (as_json and (repeats or clocks)):
        raise ValueError("choose one of --json and --markdown, and one of --repeats and --clocks")
    from pagebench.harness.counting.predict import read_counters

    records, counted = list(store.read(files)), list(read_counters(files))
    if not records and (not counted or repeats or clocks):
        raise ValueError(_nothing_to_draw(files))
    if as_json:
        print_json(reports.as_json(record) for record in records)
    elif repeats or clocks:
        _print_grouped(records, repeats, markdown)
    elif records:
        _print_timings(records, markdown)
    if counted and not repeats and not clocks:
        cli_count.print_counted(counted, records, as_json, markdown)


def _nothing_to_draw(files: list[Path]) -> str:
    kinds = sorted(store.kinds(files))
    where = ", ".join(map(str, files))
    if not kinds:
        return f"no records in {where}"
    wanted = "timings" if "counters" in kinds else "timings or counters"
    return f"no {wanted} in {where}: only {', '.join(kinds)} records"


def _print_timings(records: list[Record], markdown: bool) -> None:
    if not markdown:
        _print_table(records)
        return
    rows = [reports.cells_of(reports.row(record)) for record in records]
    print(reports.under_environments(_measured_in(records), reports.HEADINGS, rows))


def _print_grouped(records: list[Record], repeats: bool, markdown: bool) -> None:
    headings, rows = _grouped(records, repeats)
    if markdown:
        print(reports.under_environments(_measured_in(records), headings, rows))
    else:
        print(reports.plain(headings, rows))


def _measured_in(records: list[Record]) -> list[Mapping[str, Any]]:
    return [record.environment for record in records if record.samples]


def _grouped(records: list[Record], repeats: bool) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    if not repeats:
        return reports.pivot(records)
    rows = reports.repeats(records)
    if not rows:
        raise ValueError("no cell was measured in more than one process: use run --processes")
    return reports.REPEAT_HEADINGS, rows


# --- doctor ------------------------------------------------------------------------------------


@app.command()
def doctor(
    device: DeviceName = "auto",
    speed: Annotated[
        bool, typer.Option("--speed", help="measure how fast pagebench itself is")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="with --speed: append its records")] = None,
    as_json: AsJson = False,
) -> None:
    """What is here: device, driver, versions, kernels that run."""
    from pagebench.harness.instruments.doctor import examine

    if out and not speed:
        raise ValueError("--out goes with --speed")
    if speed:
        _speed(find_device(device), out, as_json)
        return
    findings = examine(find_device(device))
    if as_json:
        print(json.dumps(findings))
        return
    for heading, found in findings.items():
        print(heading)
        print(
            reports.plain(
                ("", ""), [(f"  {key}", str(value)) for key, value in found.items()]
            ).lstrip("\n")
        )


def _speed(here: Device, out: Path | None, as_json: bool) -> None:
    from pagebench.harness.instruments.speed import speeds

    rows = []
    for line in speeds(here, say):
        kept = "kept" if line["seconds"] <= line["limit_s"] else "over"
        rows.append((line["what"], f"{line['seconds']:.3f}", f"{line['limit_s']:.3f}", kept))
        if out:
            store.append_line(out, line)
        if as_json:
            print_json([line])
    if not as_json:
        print(reports.plain(("the suite itself", "seconds", "limit", ""), rows))


for command in (*cli_count.COMMANDS, *cli_judge.COMMANDS, *cli_study.COMMANDS):
    app.command()(command)
