"""Commands that interleave cells and append processes, then conclusions, to a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagebench.harness.cell import Cell
from pagebench.harness.cli.options import (
    AsJson,
    DeviceName,
    KernelFile,
    Out,
    device_and_kernel,
    print_json,
    put,
    refuse_named,
    results_path,
    say,
    with_file,
)
from pagebench.harness.errors import UserError
from pagebench.harness.escape import shell
from pagebench.harness.records import store
from pagebench.harness.records.dose import Dose
from pagebench.harness.records.select import Evidence, read_evidence
from pagebench.harness.records.timing import FAILURES
from pagebench.harness.records.verdict import Verdict
from pagebench.harness.show import machine, sentences
from pagebench.harness.show.conclusions import (
    contrast_table,
    dose_table,
    ladder_table,
)
from pagebench.harness.show.identities import because
from pagebench.harness.show.text import fold, plural
from pagebench.harness.timing.interleaved import Interleaved, NotTimed
from pagebench.harness.timing.options import Options, default_options
from pagebench.harness.timing.refuse import refusal
from pagebench.harness.workers.bench import Bench
from pagebench.harness.workers.interleave import interleave
from pagebench.harness.workers.resume import resumed
from pagebench.harness.workers.sweep import EXIT_DONE, EXIT_FAILED, EXIT_NOTHING
from pagebench.kernels.device import Device

if TYPE_CHECKING:  # its cells are parsed when it is imported
    from pagebench.harness.contrasts import Contrast, Ladder

Resume = Annotated[
    bool, typer.Option("--resume", help="go on after the processes that --out already holds")
]
Counters = Annotated[
    list[Path] | None, typer.Option(help="files with counters and ceilings (runs/*.jsonl)")
]


# --- judge ----------------------------------------------------------------------------------------


def judge(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="two cells, names of contrasts, or all", metavar="A B"),
    ] = None,
    counters: Counters = None,
    out: Out = None,
    resume: Resume = False,
    device: DeviceName = "auto",
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> int:
    """Judge a knob: did it change device work, and does the time show it?

    Exit code 0: as predicted, or nothing was. 1: not so, or a cell failed. 2: could not judge.
    """
    from pagebench.harness.contrasts import CONTRASTS, find_contrasts

    if not names:
        if as_json:
            print_json(map(machine.contrast_json, CONTRASTS))
        else:
            put(contrast_table(CONTRASTS))
        return EXIT_DONE
    here = device_and_kernel(device, kernel)
    contrasts = find_contrasts(names)
    pairs = [contrast.cells for contrast in contrasts]
    asked = f"judge {' '.join(names)}" if contrasts[0] in CONTRASTS else None
    options = judging_options([cell for pair in pairs for cell in pair], here, kernel, asked)
    evidence = _evidence(counters, pairs, "both cells")
    path = results_path(out, resume=resume)
    with kept(path):
        verdicts = _judged(contrasts, Bench(here, options, path, say), evidence, resume)
    if as_json:
        print_json(map(machine.verdict_json, verdicts))
    for verdict in () if as_json else verdicts:
        put(fold(f"{sentences.headline(verdict)}: {' against '.join(verdict.cells)}", 2))
        print_reasons(sentences.verdict_lines(verdict))
    say(f"{plural(len(verdicts), 'verdict')} in {path}, after the processes behind")
    return _exit_code(verdicts)


def _judged(
    contrasts: Sequence[Contrast], bench: Bench, evidence: Evidence, resume: bool
) -> list[Verdict]:
    """A verdict on each contrast; `unclear` where its cells fail."""
    from pagebench.harness.judging.verdict import groups_of, verdict_of

    groups = groups_of(contrasts)
    timed(groups, bench, resume)
    verdicts = [
        verdict_of(contrast, group, bench.options.l2, evidence)
        for contrast, group in zip(contrasts, groups, strict=True)
    ]
    store.append(bench.out, *verdicts)
    return verdicts


def _exit_code(verdicts: Sequence[Verdict]) -> int:
    """1 if any cell crashed or was wrong, or any verdict is not as predicted; else 2 if any could
    not be judged; else 0."""
    if any(v.status in FAILURES or (v.judged and v.failed) for v in verdicts):
        return EXIT_FAILED
    return EXIT_DONE if all(verdict.judged for verdict in verdicts) else EXIT_NOTHING


# --- dose -----------------------------------------------------------------------------------------


def dose(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="cells in order of a knob, or names of ladders", metavar="NAME"),
    ] = None,
    counters: Counters = None,
    out: Out = None,
    resume: Resume = False,
    device: DeviceName = "auto",
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> None:
    """Find the counter that the time follows over all values of a knob."""
    from pagebench.harness.contrasts import LADDERS, find_ladders

    if not names:
        if as_json:
            print_json(map(machine.ladder_json, LADDERS))
        else:
            put(ladder_table(LADDERS))
        return
    here = device_and_kernel(device, kernel)
    ladders = find_ladders(names)
    asked = f"dose {' '.join(names)}" if ladders[0] in LADDERS else None
    options = judging_options(
        [cell for each in ladders for cell in each.cells], here, kernel, asked
    )
    evidence = _evidence(counters, [ladder.cells for ladder in ladders], "all cells")
    path = results_path(out, resume=resume)
    with kept(path):
        doses = _doses(ladders, Bench(here, options, path, say), evidence, resume)
    if as_json:
        print_json(map(machine.dose_json, doses))
        return
    for each in doses:
        put(dose_table(each))
        print_reasons(sentences.dose_lines(each))


def _doses(ladders: Sequence[Ladder], bench: Bench, evidence: Evidence, resume: bool) -> list[Dose]:
    """A dose of each ladder. NotTimed where one has no times, after the others are written."""
    from pagebench.harness.judging.dose import dose_of, groups_of

    groups = groups_of(ladders)
    timed(groups, bench, resume)
    pairs = list(zip(ladders, groups, strict=True))
    l2 = bench.options.l2
    doses = [dose_of(each, group, l2, evidence) for each, group in pairs if not group.failed]
    store.append(bench.out, *doses)
    for each, group in pairs:
        group.refuse_failed(each.name)
    return doses


# --- What they share ------------------------------------------------------------------------------


def timed(groups: Sequence[Interleaved], bench: Bench, resume: bool) -> None:
    """Interleave the groups; with `resume`, after the processes that the file already holds."""
    if resume:
        for group in groups:
            again = resumed(group, bench)
            had = f"{plural(len(group.measured), 'process', 'es')} of it in {bench.out}"
            more = f"; measured again: {because(again)}" if again else ""
            say(f"{' '.join(cell.name for cell in group.cells)}: {had}{more}")
    interleave(groups, bench)


def print_reasons(lines: Iterable[str]) -> None:
    """Print the lines, indented and folded to the width of a terminal; unfolded elsewhere."""
    for line in lines:
        put(fold(f"  {line}", 4))


def judging_options(
    cells: Sequence[Cell], here: Device, kernel: Path | None, asked: str | None = None
) -> Options:
    """Options for this device; UserError where a cell cannot run on it.

    `asked` is the command that chose cells which the user did not name, for the message.
    """
    options = with_file(default_options(here), kernel)
    try:
        refuse_named(cells, here, options)
    except UserError as error:
        if here.kind != "cpu" or not any(_lacks_gpu(cell, here) for cell in cells):
            raise
        what = f"{asked} needs an NVIDIA GPU" if asked else str(error)
        raise UserError(
            f"{what}; `pagebench study FILE...` draws what was concluded elsewhere"
        ) from error
    return options


def _lacks_gpu(cell: Cell, here: Device) -> bool:
    reason = refusal(cell, here)
    return reason is not None and reason.kind == "device"


def _evidence(counters: list[Path] | None, groups: Iterable[Sequence[Cell]], of: str) -> Evidence:
    """Counters and ceilings in the files, read once, before anything is timed.

    UserError where a file cannot be read, or the named files have counters of none of the groups.
    """
    evidence = read_evidence(counters or sorted(Path("runs").glob("*.jsonl")))
    if counters and not any(evidence.newest_counters(cells) for cells in groups):
        raise UserError(f"--counters: no counters of {of} in {', '.join(map(str, counters))}")
    return evidence


@contextmanager
def kept(path: Path) -> Iterator[None]:
    """Without a conclusion, say where the measured processes are; a crash exits with 1."""
    try:
        yield
    except KeyboardInterrupt:
        say(
            f"stopped without a conclusion; {path} holds the processes measured so far: continue "
            f"with {shell('--resume', '--out', path)}"
        )
        raise
    except NotTimed as error:
        if not error.crashed:
            raise
        say(str(error))
        raise SystemExit(EXIT_FAILED) from error


COMMANDS = (judge, dose)
