"""The command that says whether a change made cells slower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pagebench.harness.cli.options import AsJson, print_json, put, say
from pagebench.harness.errors import UserError
from pagebench.harness.gate.compare import compare as compared
from pagebench.harness.records import store
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.rounds import Rounds
from pagebench.harness.records.timing import Timing
from pagebench.harness.show import gate, machine


def compare(
    base: Annotated[Path, typer.Argument(help="results file from before", metavar="BASE")],
    head: Annotated[Path, typer.Argument(help="results file from after", metavar="HEAD")],
    strict: Annotated[
        bool, typer.Option("--strict", help="exit with 2 where any cell could not be judged")
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="print what changed, and nothing else, in Markdown")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Say which cells became slower or faster from one results file to another, and why.

    Exit code 0: none slower. 1: a cell is slower, or fails now. 2: nothing could be judged.
    """
    if markdown and as_json:
        raise UserError("use only one of --json and --markdown")
    found = compared(_read(base), _read(head))
    if as_json:
        print_json([*map(machine.row_json, found.rows), machine.comparison_json(found)])
    else:
        put(gate.comment(found) if markdown else f"{gate.table(found)}\n{gate.summary(found)}")
    for line in gate.warnings(found, strict=strict):
        say(line)
    return found.exit_code(strict=strict)


def _read(path: Path) -> store.Stored:
    """The records of a file that can be compared. UserError where it has no times."""
    stored = store.read([path], Timing, Rounds, Counters)
    if not stored.of(Timing) and not stored.of(Rounds):
        kinds = ", ".join(sorted(filter(None, stored.kinds)))
        raise UserError(f"no times in {path}: {f'only {kinds} records' if kinds else 'no records'}")
    return stored


COMMANDS = (compare,)
