"""How to reproduce each row of the page."""

from __future__ import annotations

from collections.abc import Sequence

from pagebench.harness.study.section import Section, table_of


def reproduce(sections: Sequence[Section]) -> Section:
    """Every command that makes a record of this page, once, with the first section that uses it."""
    first: dict[str, str] = {}
    for section in sections:
        for command in section.commands:
            first.setdefault(command, section.title)
    rows = [(title, command) for command, title in first.items()]
    caption = "Each command appends to the file that `--out` names"
    table = table_of(caption, ("section", "command"), rows)
    return Section("reproduce", "How to reproduce each row", tables=(table,))
