"""The command that draws tables of timings and counters."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pagebench.harness.cli.options import AsJson, print_json, put, say
from pagebench.harness.errors import UserError
from pagebench.harness.judging.ceiling import beside_ceiling
from pagebench.harness.records import store
from pagebench.harness.records.ceilings import MeasuredCeilings
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.oracle import Oracle
from pagebench.harness.records.select import Evidence
from pagebench.harness.records.timing import Timing
from pagebench.harness.show import grouped
from pagebench.harness.show import timings as tables
from pagebench.harness.show.text import plain, under_environments

CEILINGS = Path("runs/ceilings.jsonl")  # where `pagebench ceilings` puts them
MOST_RICH_ROWS = 200  # a longer table would take longer to draw than to read


def report(
    files: Annotated[list[Path], typer.Argument(help="results files", metavar="FILE")],
    markdown: Annotated[bool, typer.Option("--markdown", help="print a Markdown table")] = False,
    as_json: AsJson = False,
    repeats: Annotated[
        bool, typer.Option("--repeats", help="show the spread of medians over processes, and modes")
    ] = False,
    clocks: Annotated[bool, typer.Option("--clocks", help="show a column for each clock")] = False,
) -> None:
    """Draw tables of records: time, interval, GB/s, resolved kernel.

    Counters get their own table, compared with today's predictions.
    """
    is_grouped = repeats or clocks
    if (as_json and markdown) or (repeats and clocks) or (as_json and is_grouped):
        raise UserError("use --json alone, and only one of --repeats and --clocks")
    stored = store.read(files, Timing, Counters, MeasuredCeilings, Oracle)
    evidence = Evidence(ceilings=tuple(stored.of(MeasuredCeilings)))
    timings = [beside_ceiling(timing, evidence) for timing in stored.of(Timing)]
    counted = stored.of(Counters)
    tried = stored.of(Oracle)
    if not timings and (is_grouped or not (counted or tried)):
        raise UserError(_nothing_to_draw(stored, files))
    if is_grouped:
        _print_grouped(timings, repeats, markdown)
        return
    if timings:
        _print_timings(timings, as_json, markdown)
    if counted:
        from pagebench.harness.cli.counting import print_counted

        print_counted(counted, timings, as_json, markdown)
    if tried:
        print_oracle(tried, as_json=as_json, markdown=markdown)


def beside_ceilings(timings: Sequence[Timing], path: Path) -> list[Timing]:
    """The timings beside what their GPU was measured to reach, as the usual file or `path` holds
    it. Where neither has ceilings of a GPU that was timed, that is said."""
    files = [each for each in dict.fromkeys((CEILINGS, path)) if each.is_file()]
    found: list[MeasuredCeilings] = []
    try:
        found = store.read_whole(files, MeasuredCeilings)
    except UserError as error:
        say(str(error))
    evidence = Evidence(ceilings=tuple(found))
    joined = [beside_ceiling(timing, evidence) for timing in timings]
    lacking = (t for t in joined if t.samples and t.ceiling_gbps is None and t.environment.gpu)
    if gpu := next((timing.environment.gpu for timing in lacking), None):
        say(f"not compared with ceilings: {CEILINGS} has none of {gpu}")
    return joined


def _nothing_to_draw(stored: store.Stored, files: Sequence[Path]) -> str:
    where = ", ".join(map(str, files))
    if not stored.kinds:
        return f"no records in {where}"
    wanted = "timings" if "counters" in stored.kinds else "timings or counters"
    return f"no {wanted} in {where}: only {', '.join(sorted(stored.kinds))} records"


def print_oracle(found: Sequence[Oracle], *, as_json: bool = False, markdown: bool = False) -> None:
    """Print how kernels ended over many seeds."""
    from pagebench.harness.show import oracle

    if as_json:
        print_json(map(oracle.oracle_json, found))
    elif markdown:
        environments = (each.environment for each in found)
        put(under_environments(environments, oracle.HEADINGS, oracle.rows(found)))
    else:
        put(plain(oracle.HEADINGS, oracle.rows(found)))


def _print_timings(timings: Sequence[Timing], as_json: bool, markdown: bool) -> None:
    if as_json:
        from pagebench.harness.show.machine import timing_json

        print_json(map(timing_json, timings))
    elif markdown:
        rows = list(map(tables.cells_of, tables.rows(timings)))
        _print_markdown(timings, tables.HEADINGS, rows)
    else:
        print_table(timings)


def _print_grouped(timings: Sequence[Timing], repeats: bool, markdown: bool) -> None:
    headings, rows = _repeats(timings) if repeats else grouped.pivot(timings)
    if markdown:
        _print_markdown(timings, headings, rows)
    else:
        put(plain(headings, rows))


def _repeats(timings: Sequence[Timing]) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    headings, rows = grouped.repeats(timings)
    if not rows:
        raise UserError("no cell was measured in more than one process: use run --processes")
    return headings, rows


def _print_markdown(
    timings: Sequence[Timing], headings: Sequence[str], rows: Sequence[tuple[str, ...]]
) -> None:
    """Print a Markdown table under the environments it was measured in."""
    environments = (timing.environment for timing in timings if timing.samples)
    put(under_environments(environments, headings, rows))


def print_table(timings: Sequence[Timing]) -> None:
    """Each record's command with its numbers below on a terminal; elsewhere one uncut line."""
    if sys.stdout.isatty() and len(timings) <= MOST_RICH_ROWS:
        put(tables.tall(tables.rows(timings)))
    else:
        put(plain_table(timings))


def plain_table(timings: Sequence[Timing]) -> str:
    """One uncut line for each record."""
    return plain(tables.HEADINGS, map(tables.cells_of, tables.rows(timings)))


COMMANDS = (report,)
