"""The commands that conclude: judge, dose, attack, selftest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from pagebench.harness.cell import Cell, moving_axes
from pagebench.harness.cli.options import (
    AsJson,
    DeviceName,
    KernelFile,
    Out,
    device_and_kernel,
    print_json,
    refuse_named,
    results_path,
    say,
)
from pagebench.harness.contrasts import CONTRASTS, LADDERS, Contrast, Ladder
from pagebench.harness.records import store
from pagebench.harness.records.timing import FAILURES
from pagebench.harness.show import timings as reports
from pagebench.harness.timing.measure import Options, default_options, refusal
from pagebench.harness.workers.interleave import GroupFailed
from pagebench.harness.workers.sweep import EXIT_DONE, EXIT_FAILED, EXIT_NOTHING
from pagebench.kernels.adapter import needs_gpu
from pagebench.kernels.device import Device

Counters = Annotated[
    list[Path] | None, typer.Option(help="files with counters and ceilings (runs/*.jsonl)")
]


def judge(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="two cells, names of contrasts, or all", metavar="A B"),
    ] = None,
    counters: Counters = None,
    out: Out = None,
    device: DeviceName = "auto",
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> int:
    """Did a knob change device work, and does the work show?"""
    from pagebench.harness.judging.judge import cells_of, judge_contrasts

    if not names:
        _list_contrasts(as_json)
        return EXIT_DONE
    here = device_and_kernel(device, kernel)
    contrasts = _contrasts(names)
    pairs = [cells_of(contrast) for contrast in contrasts]
    options = _options([cell for pair in pairs for cell in pair], here, kernel,
                       _shipped("judge", names, contrasts))  # fmt: skip
    files = _files(counters, pairs, "both cells")
    path = results_path(out)
    records = _kept(path, judge_contrasts, contrasts, options, here, files, path, say)
    if as_json:
        print_json(records)
    for record in () if as_json else records:
        print(reports.fold(f"{record['headline']}: {' against '.join(record['cells'])}", 2))
        print_reasons(record["because"])
    verdicts = reports.counted(len(records), "verdict")
    say(f"{verdicts} in {path}, after the processes behind")
    return _exit_code(records)


def _exit_code(records: Sequence[dict[str, Any]]) -> int:
    """1 if a cell crashed or was wrong, 2 if nothing was measured, else 0; as of a sweep."""
    if any(record["status"] in FAILURES for record in records):
        return EXIT_FAILED
    return EXIT_DONE if any(record["time"] for record in records) else EXIT_NOTHING


def dose(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="cells in order of a knob, or names of ladders", metavar="NAME"),
    ] = None,
    counters: Counters = None,
    out: Out = None,
    device: DeviceName = "auto",
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> None:
    """Which counter does time follow over all values of a knob?"""
    from pagebench.harness.judging.ladder import doses

    if not names:
        _list_ladders(as_json)
        return
    here = device_and_kernel(device, kernel)
    ladders = _ladders(names)
    groups = [tuple(map(Cell.parse, ladder.cells)) for ladder in ladders]
    options = _options([cell for group in groups for cell in group], here, kernel,
                       _shipped("dose", names, ladders))  # fmt: skip
    files = _files(counters, groups, "all cells")
    path = results_path(out)
    records = _kept(path, doses, ladders, options, here, files, path, say)
    if as_json:
        print_json(records)
        return
    for record in records:
        print(dose_text(record))
        print_reasons((*record["because"], *record["notes"]))


def print_reasons(lines: Iterable[str]) -> None:
    """A line each, indented; on a terminal folded to its width, elsewhere uncut."""
    for line in lines:
        print(reports.fold(f"  {line}", 4))


def dose_text(record: dict[str, Any]) -> str:
    """Times and counters of a ladder as a table."""
    from pagebench.harness.judging.ladder import follows

    rows = [("time us", *(f"{middle:.2f}" for _, middle, _ in record["time_us"]))]
    rows += [
        (name, *(f"{value:,.0f}" for value in values))
        for name, values in record["counters"].items()
    ]
    heads = (record["knob"], *record["values"])
    head = reports.fold(f"{record['regime']}: the time follows {follows(record)}", 2)
    return f"{head}\n{reports.plain(heads, rows)}"


def attack(
    how: Annotated[str, typer.Argument(help="context or kernel", metavar="HOW")],
    one: Annotated[str, typer.Argument(metavar="A")],
    other: Annotated[str, typer.Argument(metavar="B")],
    with_: Annotated[
        str | None, typer.Option("--with", help="the other kernel (the first that takes both)")
    ] = None,
    out: Out = None,
    device: DeviceName = "auto",
    kernel: KernelFile = None,
    as_json: AsJson = False,
) -> None:
    """Another context, another kernel: what does the effect do?"""
    from pagebench.harness.judging import attack as attacks

    here = device_and_kernel(device, kernel)
    if how not in ("context", "kernel"):
        raise ValueError(f"attack {how}: use context or kernel")
    if with_ and how == "context":
        raise ValueError("--with names another kernel: use it with attack kernel")
    cells = Cell.parse(one), Cell.parse(other)
    attacks.check(how, cells)
    pairs = attacks.scaled(cells) if how == "context" else attacks.switched(cells, here, with_)
    options = _options([cell for pair in pairs for cell in pair], here, kernel)
    path = results_path(out)
    record = _kept(path, attacks.attack, how, pairs, options, here, path, say)
    if as_json:
        print_json([record])
        return
    print(reports.fold(f"{record['word']}: {' against '.join(record['cells'])}", 2))
    print_reasons(record["because"])


def selftest(out: Out = None, device: DeviceName = "auto", as_json: AsJson = False) -> int:
    """Plant known loads and a known wait: are they found?"""
    from pagebench.harness.contrasts import planted_contrasts
    from pagebench.harness.counting.count import as_value_error
    from pagebench.harness.instruments.planted import planted_cells
    from pagebench.harness.instruments.planted import selftest as run_selftest

    here = device_and_kernel(device, None)
    options, path = (
        _options(planted_cells(planted_contrasts()), here, None, "selftest"),
        results_path(out),
    )
    record = _kept(path, as_value_error, run_selftest, options, here, path, say)
    if as_json:
        print_json([record])
    else:
        print(planted_text(record))
    return 0 if record["found_all"] else 1


def planted_text(record: dict[str, Any]) -> str:
    """A planted record as a table, and the smallest effect that would be found."""
    rows = [
        (
            *(str(row[name]) for name in ("cell", "instrument", "planted", "found")),
            f"{row['low']} to {row['high']}" if "low" in row else "",
            "yes" if row["right"] else "NO",
        )
        for row in record["rows"]
    ]
    table = reports.plain(("cell", "instrument", "planted", "found", "interval", "right"), rows)
    least = record["detectable"]
    return f"{table}\nsmallest effect that would be found: {least:.2%}" if least else table


def _options(
    cells: Sequence[Cell], here: Device, kernel: Path | None, asked: str | None = None
) -> Options:
    """Options for this device; ValueError where a cell cannot run on it.

    `asked` is what asked for cells that the user did not name: no other kernel would help.
    """
    options = replace(default_options(here), kernel_file=str(kernel) if kernel else None)
    try:
        refuse_named(cells, here, options)
    except ValueError as error:
        if here.kind != "cpu" or not any(_lacks_gpu(cell, here) for cell in cells):
            raise
        what = f"{asked} needs an NVIDIA GPU" if asked else str(error)
        raise ValueError(
            f"{what}; `pagebench study FILE...` draws what was concluded elsewhere"
        ) from error
    return options


def _lacks_gpu(cell: Cell, here: Device) -> bool:
    reason = refusal(cell, here)
    return reason is not None and reason == needs_gpu(cell.kernel, here)


def _shipped(command: str, names: Sequence[str], found: Sequence[Contrast | Ladder]) -> str | None:
    """The command with its names where those are of shipped contrasts or ladders, not of cells."""
    return f"{command} {' '.join(names)}" if found[0] in (*CONTRASTS, *LADDERS) else None


def _files(
    counters: list[Path] | None, groups: Iterable[Sequence[Cell]], of: str
) -> Sequence[Path]:
    """Where counters are looked for, seen to be readable before anything is timed.

    ValueError also where files were named that have counters of none of the groups.
    """
    from pagebench.harness.counting.predict import newest_counters
    from pagebench.profiles.ceilings import read_ceilings

    files = counters or sorted(Path("runs").glob("*.jsonl"))
    for ceilings in store.read_kind(files, "ceilings"):
        read_ceilings(ceilings)
    found = [newest_counters(cells, files) for cells in groups]
    if counters and not any(found):
        raise ValueError(f"--counters: no counters of {of} in {', '.join(map(str, counters))}")
    return files


def _kept(path: Path, work: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return work(*arguments)
    except KeyboardInterrupt:
        say(f"stopped without a conclusion; the processes measured are in {path}, to look at: "
            "they are not taken up again")  # fmt: skip
        raise
    except GroupFailed as error:
        if not error.crashed:
            raise
        say(str(error))
        raise SystemExit(EXIT_FAILED) from error


def _list_ladders(as_json: bool) -> None:
    if as_json:
        print_json(map(asdict, LADDERS))
        return
    rows = [(each.name, each.knob, " ".join(each.cells)) for each in LADDERS]
    print(reports.plain(("ladder", "knob", "cells"), rows))


def _contrasts(names: Sequence[str]) -> list[Contrast]:
    """Shipped contrasts by name, or one of two cells; ValueError says what would be right."""
    known = {contrast.name: contrast for contrast in CONTRASTS}
    if list(names) == ["all"]:
        return list(CONTRASTS)
    if all(name in known for name in names):
        return [known[name] for name in dict.fromkeys(names)]
    if len(names) != 2:
        raise ValueError(_wanted(names, known, "two cells", "contrasts"))
    one, other = map(Cell.parse, names)
    return [Contrast("", _knob(one, other), one.name, other.name)]


def _knob(one: Cell, other: Cell) -> str:
    return ", ".join(moving_axes((one, other))).replace("_", " ") or "nothing"


def _ladders(names: Sequence[str]) -> list[Ladder]:
    """Shipped ladders by name, or one of the cells given; ValueError says what would be right."""
    known = {ladder.name: ladder for ladder in LADDERS}
    if list(names) == ["all"]:
        return list(LADDERS)
    if all(name in known for name in names):
        return [known[name] for name in dict.fromkeys(names)]
    if len(names) < 3:
        raise ValueError(_wanted(names, known, "three cells or more", "ladders"))
    cells = [Cell.parse(name) for name in names]
    moving = moving_axes(cells)
    if len(moving) != 1:
        found = ", ".join(moving).replace("_", " ") or "nothing"
        raise ValueError(f"the cells of a dose differ in one knob; these differ in {found}")
    knob = moving[0].replace("_", " ")
    return [Ladder(knob, knob, tuple(cell.name for cell in cells))]


def _wanted(names: Sequence[str], known: Iterable[str], cells: str, kind: str) -> str:
    """What would have been right, with the nearest name to one that is not known."""
    listed = list(known)
    near = [match for name in names for match in get_close_matches(name, listed, 1)]
    guess = f"; did you mean {near[0]}?" if near else ""
    return (
        f"{len(names)} given: give {cells}, all, or some of the {kind} {', '.join(listed)}{guess}"
    )


def _list_contrasts(as_json: bool) -> None:
    if as_json:
        print_json(map(asdict, CONTRASTS))
        return
    rows = [(c.name, c.knob, c.one, c.other, c.predicts or "", c.why) for c in CONTRASTS]
    print(reports.plain(("contrast", "knob", "A", "B", "predicted", "because"), rows))


COMMANDS = (judge, dose, attack, selftest)
