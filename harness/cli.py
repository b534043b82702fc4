"""The command line: pagebench list, run, once, report, doctor."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from pagebench.harness import report as reports
from pagebench.harness import store
from pagebench.harness.cell import MUST, Cell, matches, read_words
from pagebench.harness.clock import CLOCKS, L2_STATES
from pagebench.harness.environment import commit
from pagebench.harness.record import Record
from pagebench.harness.run import BOUNDARIES, Failure, Options, default_options, refusal
from pagebench.harness.suites import SUITES, find_suite
from pagebench.harness.sweep import (
    EXIT_FAILED,
    EXIT_NOTHING,
    Job,
    Remaining,
    default_path,
    exit_code,
    jobs,
    pending,
    recorded,
    sweep,
)
from pagebench.harness.worker import Pool
from pagebench.kernels.device import Device, find_device
from pagebench.kernels.registry import add_kernel_file, kernel_names

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Time paged-attention decode kernels and say what was timed.",
)

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="cells by full name, or words that filter (xqa shared p16)", metavar="NAME"
    ),
]
SuiteName = Annotated[str | None, typer.Option("--suite", help="only this suite's cells")]
DeviceName = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N")]
KernelFile = Annotated[
    Path | None, typer.Option("--kernel", help="a Python file with an ADAPTER of your own")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for machines")]
Boundary = Annotated[str | None, typer.Option(help=f"what is timed: {', '.join(BOUNDARIES)}")]

# Newer typer brings its own click, older imports it: this is the class that either one raises.
UsageError: Any = typer.BadParameter.__bases__[0]
MOST_RICH_ROWS = 200  # beyond, a drawn table takes longer to draw than to read


def main() -> NoReturn:
    """Entry point: bad input ends in one line on stderr and exit code 2, never in a traceback."""
    try:
        code = app(standalone_mode=False)
    except UsageError as error:
        code = _complain(f"{error.format_message()} (see pagebench --help)")
    except ValueError as error:
        code = _complain(str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        code = _complain(f"{error.filename or 'output'}: {error.strerror}")
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str) -> int:
    print(" ".join(message.split()), file=sys.stderr)
    return EXIT_NOTHING


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


# --- which cells ------------------------------------------------------------------------------


def _named(names: Sequence[str]) -> tuple[Cell, ...]:
    """The cells if every name is a full one, () if they are words of a filter."""
    words = [read_words(name) for name in names]
    if not all(set(MUST) <= set(found) for found in words):
        return ()
    return tuple(dict.fromkeys(Cell.parse(name) for name in names))


def _cells(names: Sequence[str] | None, suite: str | None) -> tuple[Cell, ...]:
    """Cells named outright where no suite is given, else what the words leave of the suites."""
    return (_named(names or ()) if not suite else ()) or _filtered(names or (), suite)


def _filtered(names: Sequence[str], suite: str | None) -> tuple[Cell, ...]:
    """Cells of one suite, or of all, that have every word; ValueError where there are none."""
    chosen = [find_suite(suite)] if suite else SUITES
    words = frozenset(word for name in names for word in name.split("_"))
    cells = dict.fromkeys(cell for each in chosen for cell in each.cells if matches(cell, words))
    if not cells:
        where = f"suite {suite}" if suite else "any suite"
        raise ValueError(f"no cell of {where} has all of: {' '.join(sorted(words))}")
    return tuple(cells)


# --- list -------------------------------------------------------------------------------------


@app.command("list")
def list_(
    names: Names = None,
    suite: SuiteName = None,
    device: DeviceName = "auto",
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> None:
    """Suites, or the cells of one with whether they can run here, and if not, why."""
    if kernel:
        add_kernel_file(kernel)
    here = find_device(device)
    if not names and not suite:
        _list_suites(here, as_json)
        return
    cells = _cells(names, suite)
    boundary = find_suite(suite).boundary if suite else "run"
    rows = [(cell.name, refusal(cell, here, boundary)) for cell in cells]
    if as_json:
        _print_json(
            {"cell": name, "runs": reason is None, "reason": reason} for name, reason in rows
        )
        return
    if suite:
        print(f"{suite}: {find_suite(suite).question}")
    print(reports.plain(("cell", f"on {here.name}"), [(n, r or "runs") for n, r in rows]))


def _list_suites(here: Device, as_json: bool) -> None:
    if as_json:
        _print_json(
            {"suite": suite.name, "question": suite.question, "cells": len(suite.cells)}
            for suite in SUITES
        )
        return
    rows = [(suite.name, str(len(suite.cells)), suite.question) for suite in SUITES]
    print(reports.plain(("suite", "cells", "question"), rows))
    print(f"\nkernels: {', '.join(kernel_names())}\ndevice: {here}")


def _print_json(lines: Iterable[dict[str, Any]]) -> None:
    for line in lines:
        print(json.dumps(line))


# --- run --------------------------------------------------------------------------------------


@app.command()
def run(
    names: Names = None,
    suite: SuiteName = None,
    out: Annotated[Path | None, typer.Option(help="results file (JSON lines, appended to)")] = None,
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
    """Measure cells: named outright, those of a suite, or those that match a filter."""
    if kernel:
        add_kernel_file(kernel)
    if not names and not suite:
        raise ValueError("name a cell or a suite; `pagebench list` shows them")
    if resume and out is None:
        raise ValueError("--resume needs --out FILE: the file to go on with")
    here = find_device(device)
    named = _named(names or ()) if not suite else ()
    options = _options(here, boundary or (find_suite(suite).boundary if suite else "run"), seconds)
    options = replace(options, kernel_file=str(kernel) if kernel else None)
    _refuse_named(named, here, options)
    wanted = jobs(
        named or _filtered(names or (), suite),
        options,
        _chosen("clock", clock, CLOCKS, options, here),
        _chosen("l2", l2, L2_STATES, options, here),
        processes,
    )
    path = out or default_path()
    store.check_appendable(path)
    return _run(wanted, path, here, kernel, resume=resume, as_json=as_json)


def _run(
    wanted: list[Job], path: Path, here: Device, kernel: Path | None, *, resume: bool, as_json: bool
) -> int:
    """Measure what is wanted and not there yet; table and exit code are of all that is wanted."""
    before = recorded(wanted, path) if resume else []
    todo = pending(wanted, before, here)
    if resume:
        _say(f"{len(wanted) - len(todo)} of {len(wanted)} are in {path}")
        _warn_of_change(before)
    measured = _sweep(todo, path, here, kernel) if todo else []
    records = recorded(wanted, path) if resume else measured
    if as_json:
        _print_json(reports.as_json(record) for record in records)
    else:
        _print_table(records)
        print(f"\n{len(records)} record{'' if len(records) == 1 else 's'} in {path}")
    code = exit_code(records)
    if code == EXIT_NOTHING:
        _say(f"nothing was measured; the reasons are in {path}")
    return code


def _warn_of_change(before: list[Record]) -> None:
    """Say when a file's records come from another commit than this one."""
    commits = {record.environment.get("commit") for record in before if record.samples}
    if commits - {commit()["commit"]}:
        _say("the file's records are of another commit; a new --out keeps them apart")


def _options(here: Device, boundary: str, seconds: float) -> Options:
    if boundary not in BOUNDARIES:
        raise ValueError(f"boundary {boundary}: use {' or '.join(BOUNDARIES)}")
    return replace(default_options(here, boundary), seconds=seconds)


def _chosen(
    axis: str, given: list[str] | None, known: Sequence[str], options: Options, here: Device
) -> list[str]:
    """Values of a run's axis, checked against the known, the device and the boundary."""
    default: str = getattr(options, axis)
    values = list(dict.fromkeys(given or [default]))
    for value in values:
        if value not in known:
            raise ValueError(f"--{axis} {value}: use {', '.join(known)}")
        if axis == "clock" and here.kind == "cpu" and value != "wall":
            raise ValueError(f"--clock {value} needs an NVIDIA GPU; on the CPU there is wall")
        if options.boundary == "plan" and value != default:
            raise ValueError(f"--{axis} {value}: planning is host work, timed {default} alone")
    return values


def _refuse_named(named: Sequence[Cell], here: Device, options: Options) -> None:
    """A cell named outright that cannot run ends the command before anything is measured."""
    for cell in named:
        reason = refusal(cell, here, options.boundary)
        if reason:
            raise ValueError(f"{cell.name}: {reason}")


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
                f"stopped; {len(records)} records in {path}; go on with --resume --out {path}",
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


# --- once -------------------------------------------------------------------------------------


@app.command()
def once(
    names: Annotated[list[str], typer.Argument(help="cells by full name", metavar="NAME")],
    launches: Annotated[int, typer.Option(min=1, help="calls of each cell")] = 1,
    l2: Annotated[str, typer.Option(help="cold or warm, before each call")] = "cold",
    device: DeviceName = "auto",
    kernel: KernelFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="it is JSON anyway")] = True,
) -> int:
    """Warm up, then call once between profiler start and stop: what a profiler replays."""
    from pagebench.harness.once import call_once

    if kernel:
        add_kernel_file(kernel)
    here, cells = find_device(device), tuple(map(Cell.parse, names))
    _chosen("l2", [l2], L2_STATES, default_options(here), here)
    _refuse_named(cells, here, default_options(here))
    try:
        for told in call_once(cells, here, launches, l2):
            print(json.dumps(told), flush=True)
    except Failure as failure:
        _say(f"{failure.status}: {failure.reason}")
        return EXIT_NOTHING if failure.status == "refused" else EXIT_FAILED
    return 0


# --- report -----------------------------------------------------------------------------------


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
    """Tables of records: time with interval, GB/s, resolved kernel, and how to reproduce it."""
    if as_json + markdown > 1 or repeats + clocks > 1 or (as_json and (repeats or clocks)):
        raise ValueError("choose one of --json and --markdown, and one of --repeats and --clocks")
    records = list(store.read(files))
    if not records:
        raise ValueError(f"no records in {', '.join(map(str, files))}")
    if as_json:
        _print_json(reports.as_json(record) for record in records)
    elif repeats or clocks:
        headings, rows = _grouped(records, repeats)
        print(reports.plain(headings, rows) if not markdown else _markdown(records, headings, rows))
    elif markdown:
        rows = [reports.cells_of(reports.row(record)) for record in records]
        print(_markdown(records, reports.HEADINGS, rows))
    else:
        _print_table(records)


def _markdown(records: list[Record], headings: Sequence[str], rows: list[tuple[str, ...]]) -> str:
    """A table under the environments that its numbers come from."""
    lines = [f"- {line}" for line in reports.environments(records)]
    return "\n".join([*lines, "", reports.markdown(headings, rows)])


def _grouped(records: list[Record], repeats: bool) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    if not repeats:
        return reports.pivot(records)
    rows = reports.repeats(records)
    if not rows:
        raise ValueError("no cell was measured in more than one process: use run --processes")
    return reports.REPEAT_HEADINGS, rows


# --- counters ---------------------------------------------------------------------------------


@app.command("profile")
def profile_(
    names: Names = None,
    suite: SuiteName = None,
    out: Annotated[Path | None, typer.Option(help="results file (JSON lines, appended to)")] = None,
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
    from pagebench.harness.counting import Wanted, count

    if kernel:
        add_kernel_file(kernel)
    here = find_device(device)
    _chosen("l2", [l2], L2_STATES, default_options(here), here)
    cells: tuple[Cell, ...] = ()
    if import_ is None:
        if not names and not suite:
            raise ValueError("name a cell or a suite, or --import a report")
        named = _named(names or ()) if not suite else ()
        _refuse_named(named, here, default_options(here))
        wished = _cells(names, suite)
        cells = tuple(cell for cell in wished if refusal(cell, here) is None)
        if len(cells) < len(wished):
            _say(f"{len(wished) - len(cells)} of {len(wished)} cells cannot run here")
    how = "audit" if audit else "single" if single_pass else "card"
    wanted = Wanted(cells, here, how, launches, l2, keep, import_, kernel)
    path = out or default_path()
    records = count(wanted, _say)
    for record in records:
        store.append_line(path, record)
    _print_counters(records, as_json, path)
    return _baselines(records, save_baseline, check_baseline)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print_counters(records: list[dict[str, Any]], as_json: bool, path: Path) -> None:
    from pagebench.harness.card import counters_card

    if as_json:
        _print_json(records)
        return
    for record in records:
        if record["kind"] == "counters":
            print(counters_card(record), end="\n\n")
        else:
            cold, warm = record["cold_over_distinct"], record["warm_over_distinct"]
            print(f"{record['cell']}: DRAM reads {cold:.1%} of the distinct bytes after the flush, "
                  f"{warm:.1%} without it")  # fmt: skip
    print(f"{len(records)} records in {path}")


def _baselines(records: list[dict[str, Any]], save: Path | None, check: Path | None) -> int:
    from pagebench.harness import baseline

    if save:
        print(f"{baseline.save(save, records)} kernels in {save}")
    changed = baseline.check(check, records) if check else []
    for line in changed:
        print(line, file=sys.stderr)
    return 1 if changed else 0


@app.command()
def calibrate(
    out: Annotated[Path | None, typer.Option(help="append the record here too")] = None,
    device: DeviceName = "auto",
    as_json: AsJson = False,
) -> int:
    """Kernels of known loads say which counter sees what on this GPU with this ncu."""
    from pagebench.harness.calibrate import CALIBRATIONS
    from pagebench.harness.calibrate import calibrate as run_calibration
    from pagebench.harness.counting import as_value_error

    record = as_value_error(run_calibration, find_device(device), _say)
    for path in {CALIBRATIONS, out or CALIBRATIONS}:
        store.append_line(path, record)
    if as_json:
        _print_json([record])
    else:
        rows = [
            (
                kernel,
                *(f"{record['seen'][kernel][name][0]:,.0f}" for name in record["expected"][kernel]),
            )
            for kernel in record["seen"]
        ]
        print(reports.plain(("kernel", *next(iter(record["expected"].values()))), rows))
        for name, sees in record["sees_async"].items():
            print(f"{name}: {'counted' if sees else 'not counted'}")
    for line in record["disagree"]:
        print(f"disagrees: {line}", file=sys.stderr)
    return 1 if record["disagree"] else 0


@app.command()
def ceilings(
    out: Annotated[Path | None, typer.Option(help="results file (JSON lines)")] = None,
    device: DeviceName = "auto",
    as_json: AsJson = False,
) -> None:
    """DRAM read bandwidth of this GPU as a curve over bytes, by a probe shown to saturate."""
    from pagebench.harness.ceilings import dram_curve

    path = out or Path("runs/ceilings.jsonl")
    record = dram_curve(find_device(device), _say)
    store.append_line(path, record)
    if as_json:
        _print_json([record])
        return
    rows = [
        (f"{point['bytes_read'] / 1e6:,.0f}", f"{point['gbps']:,.0f}", str(point["saturated"]))
        for point in record["dram_read"]
    ]
    print(reports.plain(("MB read", "GB/s", "saturated"), rows))
    print(f"1 record in {path}")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="a cell's full name", metavar="NAME")],
    files: Annotated[
        list[Path] | None, typer.Argument(help="results files (runs/*.jsonl)", metavar="FILE")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="another cell: did both run the same binary?")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """One card: the newest timing and counters of a cell, and what was predicted."""
    from pagebench.harness.card import contrast, joined, joined_card

    found = files or sorted(Path("runs").glob("*.jsonl"))
    card = joined(Cell.parse(name).name, found)
    if against:
        card["against"] = contrast(card, joined(Cell.parse(against).name, found))
    print(json.dumps(card) if as_json else joined_card(card))


# --- verdicts ---------------------------------------------------------------------------------


@app.command("judge")
def judge_(
    names: Annotated[
        list[str] | None, typer.Argument(help="two cells, or a contrast's name", metavar="A B")
    ] = None,
    counters: Annotated[
        list[Path] | None, typer.Option(help="files with counters records (runs/*.jsonl)")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="results file (JSON lines)")] = None,
    device: DeviceName = "auto",
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> None:
    """Did the knob between two cells change device work, and does that work show in time?"""
    from pagebench.harness import judge as judging

    if kernel:
        add_kernel_file(kernel)
    if not names:
        _list_contrasts()
        return
    cells, predicts = _contrast(names)
    here = find_device(device)
    options = replace(default_options(here), kernel_file=str(kernel) if kernel else None)
    _refuse_named(cells, here, options)
    path = out or default_path()
    store.check_appendable(path)
    work = judging.work_between(cells, counters or sorted(Path("runs").glob("*.jsonl")))
    found, floors = judging.measure_change(cells, options, here, path, _say)
    record = judging.verdict_record(cells, found, floors, work, predicts)
    store.append_line(path, record)
    if as_json:
        _print_json([record])
        return
    print(f"{record['headline']}: {cells[0].name} against {cells[1].name}")
    for line in record["because"]:
        print(f"  {line}")


def _contrast(names: Sequence[str]) -> tuple[tuple[Cell, Cell], str | None]:
    """Two cells and what is predicted of them; ValueError says what would be right."""
    from pagebench.harness.contrasts import CONTRASTS

    for contrast in CONTRASTS:
        if list(names) == [contrast.name]:
            return (Cell.parse(contrast.one), Cell.parse(contrast.other)), contrast.predicts
    if len(names) != 2:
        known = ", ".join(contrast.name for contrast in CONTRASTS)
        raise ValueError(f"give two cells, or one of the contrasts {known}")
    return (Cell.parse(names[0]), Cell.parse(names[1])), None


def _list_contrasts() -> None:
    from pagebench.harness.contrasts import CONTRASTS

    rows = [(c.name, c.knob, c.one, c.other, c.predicts, c.why) for c in CONTRASTS]
    print(reports.plain(("contrast", "knob", "A", "B", "predicted", "because"), rows))


# --- doctor -----------------------------------------------------------------------------------


@app.command()
def doctor(
    device: DeviceName = "auto",
    speed: Annotated[
        bool, typer.Option("--speed", help="measure how fast pagebench itself is")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="with --speed: append its records")] = None,
    as_json: AsJson = False,
) -> None:
    """What is here: device, driver, clocks, versions, neighbours, and which kernels can run."""
    from pagebench.harness.doctor import examine

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
    from pagebench.harness.speed import speeds

    rows = []
    for line in speeds(here):
        kept = "kept" if line["seconds"] <= line["limit_s"] else "over"
        rows.append((line["what"], f"{line['seconds']:.3f}", f"{line['limit_s']:.3f}", kept))
        if out:
            store.append_line(out, line)
        if as_json:
            _print_json([line])
    if not as_json:
        print(reports.plain(("the suite itself", "seconds", "limit", ""), rows))
