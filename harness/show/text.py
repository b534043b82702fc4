"""Text for a terminal, a pipe or Markdown: tables, folded lines, numbers and plurals."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from shutil import get_terminal_size
from textwrap import TextWrapper
from typing import TYPE_CHECKING

from pagebench.harness.escape import in_markdown, visible
from pagebench.profiles.metrics import CHIPS

if TYPE_CHECKING:
    from pagebench.harness.environment import Environment

UNBOUNDED = 10**6  # columns of a file or a pipe

# --- Numbers and words ----------------------------------------------------------------------------


def plural(count: int | str, noun: str, ending: str = "s") -> str:
    """`1 record`, `2 records`."""
    return f"{count} {noun}{'' if str(count) == '1' else ending}"


def number(value: float | None, digits: int) -> str:
    """With that many decimals; empty if unknown."""
    return "" if value is None else f"{value:.{digits}f}"


def share(of_whole: float | None) -> str:
    """A share of a whole in per cent; empty if unknown."""
    return "" if of_whole is None else f"{of_whole:.1%}"


def bandwidth(gbps: float | None) -> str:
    """GB/s, with two decimals below a hundred."""
    return number(gbps, 0 if (gbps or 0) >= 100 else 2)


def signed(us: float) -> str:
    """To a tenth of a microsecond, with its sign; zero has a plus."""
    return f"{round(us, 1) + 0.0:+.1f}"


# --- Tables ---------------------------------------------------------------------------------------


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A GitHub table; pipes in cells are escaped, and what Markdown would take for more."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(map(_markdown_cell, line)) + " |" for line in lines)


def _markdown_cell(text: str) -> str:
    return in_markdown(text).replace("|", "\\|")


def plain(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned columns, never cut, for a pipe or a log. Empty columns are left out.

    On a terminal too narrow for them each row is printed upright, one line per column.
    """
    table = [tuple(map(visible, line)) for line in (headings, *rows)]
    columns = [column for column in zip(*table, strict=True) if any(column[1:]) or len(table) == 1]
    widths = [max(map(len, column)) for column in columns]
    if len(columns) > 1 and sum(widths) + 2 * (len(widths) - 1) > terminal_columns():
        return "\n".join(upright(*zip(*columns, strict=True)))
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in zip(*columns, strict=True)
    )


def upright(headings: Sequence[str], *rows: Sequence[str]) -> Iterator[str]:
    """A row's first cell, and under it each other one that is not empty, with its heading."""
    for first, *others in rows:
        yield fold(first, 4)
        for heading, cell in zip(headings[1:], others, strict=True):
            if cell:
                yield fold(f"    {heading}: {cell}" if heading else f"    {cell}", 6)


def terminal_columns() -> int:
    """Width of the terminal that is written to; a pipe has no end."""
    return get_terminal_size().columns if sys.stdout.isatty() else UNBOUNDED


def fold(text: str, hang: int) -> str:
    """Lines no wider than the terminal, those after the first indented; words stay whole."""
    wrapper = TextWrapper(
        terminal_columns(),
        subsequent_indent=" " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapper.fill(visible(text, keep="\n"))


# --- Environments ---------------------------------------------------------------------------------


def under_environments(
    found: Iterable[Environment], headings: Sequence[str], rows: Iterable[Sequence[str]]
) -> str:
    """A Markdown table under the environments, a line each, that its numbers come from."""
    lines = dict.fromkeys(f"- {in_markdown(_environment(facts))}" for facts in found)
    return "\n".join([*lines, "", markdown(headings, rows)])


def _environment(facts: Environment) -> str:
    words = [
        _device(facts),
        facts.uuid and f"uuid {facts.uuid}",
        facts.driver and f"driver {facts.driver}",
        facts.cuda and f"cuda {facts.cuda}",
        f"power limit {facts.power_limit_w} W" if facts.power_limit_w else "",
        _clocks(facts),
        f"nominal DRAM {facts.nominal_dram_gbps:.0f} GB/s" if facts.nominal_dram_gbps else "",
        *(f"{name} {text}" for name, text in facts.versions.items()),
    ]
    return f"{', '.join(filter(None, words))}; commit {commit(facts)}"


def _clocks(facts: Environment) -> str:
    if not facts.max_sm_mhz:
        return ""
    return f"SM up to {facts.max_sm_mhz} MHz, memory {facts.max_memory_mhz} MHz"


def commit(facts: Environment) -> str:
    """The short commit, and whether the tree had uncommitted changes."""
    return f"{(facts.commit or 'unknown')[:12]}{' with changes' if facts.dirty else ''}"


def _device(facts: Environment) -> str:
    """The GPU or CPU; for an imported report, which names no GPU, the compute capability."""
    if facts.gpu:
        return facts.gpu
    if facts.cpu:
        return f"{facts.cpu}, {facts.cores} cores"
    if not facts.capability:
        return "an unknown device"
    chip = CHIPS.get(facts.capability, "unknown chip")
    return f"imported, GPU not named: {chip}, capability {'.'.join(map(str, facts.capability))}"
