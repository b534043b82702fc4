"""No number of a drawn table changes with its words: each table's numbers are those of the fixture.

`python tests/claims/test_numbers.py` prints the fixture for the tables as they are, for
tests/data/drawn_numbers.json: where a number changed because a record did, and never otherwise.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from html import unescape
from itertools import groupby
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
FIXTURE = TESTS / "data" / "drawn_numbers.json"
RESULTS = TESTS.parent / "docs" / "results"
# A number that stands alone, not one in a name: 1,024 and -0.5 and 1.2e3, but not p16 or v2.1.
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*[a-zA-Z_])")
DRAWN = sorted(path.relative_to(RESULTS).as_posix() for path in RESULTS.glob("*/*.md"))


def numbers_of(cells: list[str]) -> list[str]:
    """Numbers of a table's cells, without thousands' commas, in an order of their own."""
    return sorted(n.replace(",", "") for cell in cells for n in NUMBER.findall(cell))


def tables_in_markdown(text: str) -> list[list[str]]:
    """Cells of each table's rows under its headings."""
    grouped = groupby(text.splitlines(), key=lambda line: line.startswith("|"))
    tables = [list(lines)[2:] for is_table, lines in grouped if is_table]
    return [[cell for row in rows for cell in re.split(r"(?<!\\)\|", row)] for rows in tables]


def tables_in_html(text: str) -> list[list[str]]:
    tables = re.findall(r"<tbody>(.*?)</tbody>", text, re.S)
    plain = (unescape(table.replace("<wbr>", "")) for table in tables)
    return [re.findall(r"<td[^>]*>(.*?)</td>", table) for table in plain]


def summary(numbers: list[str]) -> list[int | str]:
    """How many they are, and a hash of them: a page of numbers in a few letters."""
    return [len(numbers), hashlib.sha256("\n".join(numbers).encode()).hexdigest()[:16]]


def drawn(name: str) -> list[list[int | str]]:
    text = (RESULTS / name).read_text(encoding="utf-8")
    return [summary(numbers_of(cells)) for cells in tables_in_markdown(text)]


def test_the_fixture_knows_every_drawn_file() -> None:
    assert list(json.loads(FIXTURE.read_text())) == DRAWN


@pytest.mark.parametrize("name", DRAWN)
def test_a_drawn_files_numbers_are_those_of_the_fixture(name: str) -> None:
    assert drawn(name) == json.loads(FIXTURE.read_text())[name]


def test_the_page_has_the_numbers_of_its_markdown() -> None:
    page, text = ((RESULTS / "h200" / f"study.{kind}").read_text() for kind in ("html", "md"))
    in_page, in_text = tables_in_html(page), tables_in_markdown(text)
    assert len(in_page) == len(in_text) > 10
    assert list(map(numbers_of, in_page)) == list(map(numbers_of, in_text))


def test_numbers_are_told_from_names() -> None:
    cells = ["1,024.5 [-0.1, +2]", "xqa_shared_p16 at 12.5%", "v2.1, 2026.1.post1", "3 us", "x4"]
    assert numbers_of(cells) == ["+2", "-0.1", "1024.5", "12.5", "3"]
    assert summary(["1", "2"]) != summary(["1", "3"])


if __name__ == "__main__":
    lines = (f" {json.dumps(name)}: {json.dumps(drawn(name))}" for name in DRAWN)
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")
