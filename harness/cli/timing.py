"""The commands that time: run and once."""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Protocol

import msgspec
import typer

from pagebench.harness.cell import Cell
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
    print_json,
    put,
    refuse_named,
    results_path,
    say,
    wanted,
    with_file,
)
from pagebench.harness.cli.report import beside_ceilings, print_table
from pagebench.harness.environment import commit
from pagebench.harness.errors import UserError
from pagebench.harness.escape import shell, visible
from pagebench.harness.records.timing import Timing
from pagebench.harness.show.identities import because
from pagebench.harness.show.text import plural
from pagebench.harness.suites import find_suite
from pagebench.harness.timing.clocks.sampling import CLOCKS, L2_STATES
from pagebench.harness.timing.options import (
    BOUNDARIES,
    USUAL_SECONDS,
    Options,
    default_options,
)
from pagebench.harness.timing.refuse import lacks_gpu
from pagebench.harness.workers.resume import identity_now
from pagebench.harness.workers.sweep import (
    EXIT_DONE,
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
from pagebench.kernels.device import NO_GPU, Device
from pagebench.kernels.quiet import stdout_to_stderr

if TYPE_CHECKING:
    from rich.text import Text as RichText

    from pagebench.harness.timing.once import Called

# --- run ------------------------------------------------------------------------------------------


def run(
    names: Names = None,
    suite: SuiteName = None,
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="skip what --out already holds")] = False,
    device: DeviceName = "auto",
    clock: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(CLOCKS)}; may be repeated")
    ] = None,
    l2: Annotated[
        list[str] | None, typer.Option(help="state of the L2: cold, warm; may be repeated")
    ] = None,
    boundary: Boundary = None,
    seconds: Annotated[
        float, typer.Option(min=0.05, help="longest sampling time a cell, in seconds")
    ] = USUAL_SECONDS,
    processes: Annotated[
        int, typer.Option(min=1, max=100, help="number of fresh processes; one record each")
    ] = 1,
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> int:
    """Measure cells: by full name, of a suite, or those that have all the words."""
    if not names and not suite:
        raise UserError("name a cell or a suite; `pagebench list` shows them")
    if not math.isfinite(seconds):
        raise UserError(f"--seconds {seconds}: use a number of seconds, 0.05 or more")
    if resume and out is None:
        raise UserError("--resume needs --out FILE, the file to continue")
    here, asked = device_and_kernel(device, kernel), wanted(names, suite)
    options = _options(here, boundary or (find_suite(suite).boundary if suite else "run"))
    options = with_file(replace(options, seconds=seconds), kernel)
    clocks = chosen("clock", clock, CLOCKS, options, here)
    states = chosen("l2", l2, L2_STATES, options, here)
    todo = jobs(asked.cells, options, clocks, states, processes, here)
    if asked.named:
        _refuse(todo)
    path = results_path(out)
    timings = beside_ceilings((_resumed if resume else _swept)(todo, path, here), path)
    if as_json:
        from pagebench.harness.show.machine import timing_json

        print_json(map(timing_json, timings))
    else:
        print_table(timings)
        put(f"\n{plural(len(timings), 'record')} in {path}")
    code = exit_code(timings)
    if code == EXIT_NOTHING:
        say(f"nothing was measured; the reasons are in {path}")
    return _without_gpu(todo, here, code) if device != "cpu" else code


def _without_gpu(todo: Sequence[Job], here: Device, code: int) -> int:
    """The exit code where the CPU was not asked for: cells that lack a GPU are said, and not 0."""
    lacking = {job.cell for job in todo if lacks_gpu(job.cell, here, job.refused)}
    if not lacking:
        return code
    why = here.why or NO_GPU
    refused = f"{plural(len(lacking), 'cell')} refused for want of a GPU: {why}"
    say(f"{refused}; --device cpu runs what the CPU can")
    return code or EXIT_NOTHING


def _options(here: Device, boundary: str) -> Options:
    if boundary not in BOUNDARIES:
        raise UserError(f"boundary {boundary}: use {' or '.join(BOUNDARIES)}")
    return default_options(here, boundary)


def _refuse(todo: Sequence[Job]) -> None:
    """UserError for a cell given by name that cannot run, before anything is measured."""
    for job in todo:
        if job.refused:
            raise UserError(f"{job.cell.name}: {job.refused}")


def _resumed(every: list[Job], path: Path, here: Device) -> list[Timing]:
    """Measure the jobs that the file lacks; returns the records of all jobs."""
    before = recorded(every, path)
    found = pending(every, before, identity_now(here, every[0].options))
    todo = [job for job, _ in found]
    say(f"{len(every) - len(todo)} of {len(every)} are already in {path}")
    for why, count in Counter(because(why) for _, why in found if why).items():
        say(f"{count} measured again: {why}")
    commits = {timing.environment.commit for timing in before if timing.samples}
    if commits - {commit()["commit"]}:
        say("the file has records of another commit; use a new --out to keep them apart")
    _swept(todo, path, here)
    return recorded(every, path)


def _swept(todo: Sequence[Job], path: Path, here: Device) -> list[Timing]:
    """Measure all jobs, with progress on stderr."""
    timings: list[Timing] = []
    if not todo:
        return timings
    left = Remaining(len(todo))
    kernel = todo[0].options.kernel_file
    with _progress() as show, Pool(here, Path(kernel) if kernel else None) as pool:
        try:
            for timing in sweep(
                todo, path, pool, lambda job, stage: show(f"{_label(job)}: {stage} ({left})")
            ):
                left.finish_one()
                timings.append(timing)
                if timing.status not in ("measured", "refused"):
                    show(f"{timing.cell}: {timing.status}: {timing.reason}", keep=True)
        except KeyboardInterrupt:
            done = f"stopped; {plural(len(timings), 'new record')} in {path}"
            again = shell("--resume", "--out", path)
            show(f"{done}; continue with {again}", keep=True)
            raise
    return timings


def _label(job: Job) -> str:
    options = job.options
    process = f", process {options.process}" if options.process else ""
    return f"{job.cell.name} [{options.clock}, {options.l2}{process}]"


class _Show(Protocol):
    """Shows a line of progress; with `keep` the line stays."""

    def __call__(self, text: str, keep: bool = False) -> None: ...


@contextmanager
def _progress() -> Iterator[_Show]:
    """One live line on a terminal; elsewhere a plain line as each cell begins."""
    if not sys.stderr.isatty():
        yield _plain_progress()
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("") as status:

        def show(text: str, keep: bool = False) -> None:
            if keep:
                console.print(visible(text), markup=False, highlight=False)
            else:
                status.update(_Elapsing(visible(text)))

        yield show


class _Elapsing:
    """A line of progress, and the seconds since it came."""

    def __init__(self, text: str) -> None:
        self._text, self._since = text, monotonic()

    def __rich__(self) -> RichText:
        from rich.text import Text

        return Text(f"{self._text} {monotonic() - self._since:.0f} s")  # no markup is read in it


def _plain_progress() -> _Show:
    shown = ""

    def show(text: str, keep: bool = False) -> None:
        nonlocal shown
        cell = text.partition(": ")[0]
        if keep or cell != shown:
            say(text)
        shown = cell

    return show


# --- once -----------------------------------------------------------------------------------------


def once(
    names: Annotated[list[str], typer.Argument(help="full cell names", metavar="NAME")],
    launches: Annotated[int, typer.Option(min=1, help="number of calls of each cell")] = 1,
    l2: Annotated[
        str, typer.Option(help="state of the L2 before each call: cold or warm")
    ] = "cold",
    device: DeviceName = "auto",
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="continue after a failed cell, and exit 0")
    ] = False,
    kernel: KernelFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="output is always JSON")] = True,
) -> int:
    """Warm cells up, then call them (once by default) for a profiler to replay."""
    from pagebench.harness.timing.once import NONCE, call_once

    nonce = os.environ.pop(NONCE, "")  # before a kernel's file can see it
    here, cells = device_and_kernel(device, kernel), tuple(map(Cell.parse, names))
    chosen("l2", [l2], L2_STATES, default_options(here), here)
    refuse_named(cells, here, default_options(here))
    for called in _quietly(call_once(cells, here, launches, l2)):
        put(nonce, end="")
        print_json([msgspec.to_builtins(called)])
        sys.stdout.flush()  # before the next call, which may end the process
        if called.reason and not keep_going:
            say(f"{called.status}: {called.cell}: {called.reason}")
            return EXIT_NOTHING if called.status == "refused" else EXIT_FAILED
    return EXIT_DONE


def _quietly(calls: Iterator[Called]) -> Iterator[Called]:
    """The same, while what a kernel prints goes to stderr."""
    while True:
        with stdout_to_stderr():
            called = next(calls, None)
        if called is None:
            return
        yield called


COMMANDS = (run, once)
