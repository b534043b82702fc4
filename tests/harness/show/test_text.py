"""Text: tables that cut nothing, lines that fit the terminal, environments in words."""

from __future__ import annotations

import os
import pty
import subprocess

import pytest

from fakes import H200
from pagebench.harness.environment import PAGEBENCH, Environment
from pagebench.harness.show import text
from pagebench.harness.show.text import fold, markdown, plain, plural, signed, under_environments


def test_one_is_told_from_several() -> None:
    assert [plural(count, "process", "es") for count in (0, 1, 2)] == [
        "0 processes",
        "1 process",
        "2 processes",
    ]
    assert plural("1", "split") == "1 split"


@pytest.mark.parametrize(("us", "shown"), [(-0.04, "+0.0"), (1.25, "+1.2"), (-3.0, "-3.0")])
def test_microseconds_have_a_sign_and_nothing_is_minus_zero(us: float, shown: str) -> None:
    assert signed(us) == shown


def test_markdown_escapes_pipes() -> None:
    table = markdown(("a", "b"), [("1|2", "|"), ("", "x")])
    assert table.split("\n") == ["| a | b |", "| --- | --- |", "| 1\\|2 | \\| |", "|  | x |"]


def test_plain_aligns_columns_and_leaves_out_those_that_say_nothing() -> None:
    table = plain(("name", "empty", "n"), [("a", "", "1"), ("longer", "", "22")])
    assert table == "name    n\na       1\nlonger  22"


def test_plain_cuts_nothing() -> None:
    long = "x" * 5000
    assert plain(("a", "b"), [(long, "y")]).split("\n")[1] == f"{long}  y"


def test_plain_shows_the_headings_of_an_empty_table() -> None:
    assert plain(("a", "b"), []) == "a  b"


@pytest.mark.parametrize(("columns", "is_upright"), [(13, False), (12, True)])
def test_on_a_terminal_that_is_too_narrow_rows_stand_upright(
    monkeypatch: pytest.MonkeyPatch, columns: int, is_upright: bool
) -> None:
    monkeypatch.setattr(text, "terminal_columns", lambda: columns)
    table = plain(("a", "b", "c"), [("abc", "def", "ghi"), ("x", "", "y")])
    upright = "abc\n    b: def\n    c: ghi\nx\n    c: y"
    assert table == (upright if is_upright else "a    b    c\nabc  def  ghi\nx         y")


def test_prose_is_folded_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "terminal_columns", lambda: 12)
    assert fold("  one two-three four_long_word", 4) == "  one\n    two-three\n    four_long_word"
    monkeypatch.undo()
    assert fold("  " + "word " * 400 + "end", 4).count("\n") == 0  # tests write to no terminal


def lines_on_a_terminal(*words: str, columns: int = 100) -> list[str]:
    """What pagebench prints where its output is a terminal of that width."""
    reads, writes = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns)}
    with subprocess.Popen([*PAGEBENCH, *words], stdout=writes, env=environment):
        os.close(writes)
        told = b""
        try:
            while found := os.read(reads, 4096):
                told += found
        except OSError:  # how Linux says that the other end was closed
            pass
    os.close(reads)
    return told.decode().splitlines()


@pytest.mark.parametrize("words", [
    ["judge"], ["dose"], ["show", "xqa_shared_p16", "study.jsonl"], ["report", "counters.jsonl"],
    ["report", "study.jsonl"], ["report", "clocks.jsonl", "--clocks"],
    ["report", "repeats.jsonl", "--repeats"],
])  # fmt: skip
def test_no_line_is_wider_than_the_terminal(words: list[str]) -> None:
    if not H200.exists():
        pytest.skip("the records are not installed")
    found = [str(H200 / word) if word.endswith("jsonl") else word for word in words]
    lines = lines_on_a_terminal(*found)
    assert len(lines) > 5
    assert max(map(len, lines)) <= 100


def test_an_imported_report_is_named_by_its_chip() -> None:
    imported = Environment(capability=(9, 0))
    assert under_environments([imported], ("a",), []).splitlines()[0] == (
        "- imported, GPU not named: gh100, capability 9.0; commit unknown"
    )
    assert under_environments([Environment()], ("a",), []).startswith(
        "- an unknown device; commit unknown"
    )
