"""Records, names and reports from elsewhere: what reaches a terminal, a page, a shell or a file."""

from __future__ import annotations

import json
import shlex
import unicodedata
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from fakes import H200, pagebench_here
from pagebench.harness.escape import in_markdown, shell, visible
from pagebench.harness.records import codec

EVIL = "a\x1b[31m\x1b]0;owned\x07\r\nb\u202ec\u200b\x9b\x7f\ud800"


def line_of(name: str, number: int = 0) -> dict[str, Any]:
    """A recorded line, as it would be written today."""
    found = json.loads((H200 / f"{name}.jsonl").read_text().splitlines()[number])
    return codec.to_json(codec.from_json(found))


def kept(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def hidden(text: str) -> list[str]:
    """Characters of a terminal's output that are neither visible nor the end of a line."""
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return [char for char in text if unicodedata.category(char) in kinds and char != "\n"]


def evil_timing() -> dict[str, Any]:
    line = line_of("pages")
    line["environment"]["gpu"] = EVIL
    line["environment"]["commit"] = EVIL
    line["environment"]["versions"] = {EVIL: EVIL}
    line["resolved"] = {"kernel": EVIL, EVIL: EVIL, "splits": EVIL}
    line["asked"]["kernel"] = EVIL
    line["samples"]["blocks"][0]["throttle"] = [EVIL]
    return line


# --- 24: what is printed --------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("--markdown",), ("--clocks",), ("--json",)])
def test_a_records_control_characters_do_not_reach_the_terminal(
    in_tmp: Path, words: tuple[str, ...]
) -> None:
    """3acd176 printed ESC, OSC, BEL and bidirectional marks of a record as they are."""
    kept(in_tmp / "r.jsonl", evil_timing())
    done = pagebench_here("report", "r.jsonl", *words)
    assert done.returncode == 0
    assert hidden(done.stdout) == []
    plain = kept(in_tmp / "plain.jsonl", line_of("pages"))
    same = pagebench_here("report", plain.name, *words)
    assert done.stdout.count("\n") == same.stdout.count("\n")


def test_json_keeps_the_very_characters(in_tmp: Path) -> None:
    """3acd176 did this already; escaping the tables must not change it."""
    kept(in_tmp / "r.jsonl", evil_timing())
    printed = pagebench_here("report", "r.jsonl", "--json").stdout
    assert json.loads(printed)["environment"]["gpu"] == EVIL


@pytest.mark.parametrize("command", ["list", "show", "run", "once"])
def test_a_names_control_characters_are_shown_as_escapes(in_tmp: Path, command: str) -> None:
    """3acd176 sent ESC in a cell's name back to the terminal in its error."""
    done = pagebench_here(command, "xqa\x1b[31m_shared_p16\u202e")
    assert done.returncode == 2
    assert hidden(done.stdout + done.stderr) == []
    assert "\\x1b" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_name_is_shown_with_escapes(in_tmp: Path) -> None:
    """3acd176 printed the name of a file that is not there as it is, and died of half a
    surrogate."""
    done = pagebench_here("report", "no\x1b]0;t\x07such\udcff.jsonl")
    assert (done.returncode, hidden(done.stderr)) == (2, [])
    assert "\\x1b]0;t\\x07such\\udcff" in done.stderr


def test_no_html_and_no_link_reaches_markdown(in_tmp: Path) -> None:
    """3acd176 printed a record's <script> and its javascript: link into the Markdown table."""
    line = line_of("pages")
    line["resolved"]["kernel"] = "<img src=x onerror=alert(1)>[go](javascript:alert(1))&lt;|"
    line["environment"]["gpu"] = "<script>alert(1)</script> ![p](http://elsewhere/p.png)"
    kept(in_tmp / "r.jsonl", line)
    drawn = pagebench_here("report", "r.jsonl", "--markdown").stdout
    assert "<" not in drawn
    assert "](" not in drawn
    assert pagebench_here("study", "r.jsonl", "--out", ".").returncode == 0
    page = (in_tmp / "study.md").read_text()
    assert "<" not in page
    assert "](" not in page
    assert "<script>alert" not in (in_tmp / "study.html").read_text()


def test_a_studys_pages_hold_no_hidden_character(in_tmp: Path) -> None:
    """3acd176 copied bidirectional marks into both pages."""
    kept(in_tmp / "r.jsonl", evil_timing())
    assert pagebench_here("study", "r.jsonl", "--out", ".").returncode == 0
    for name in ("study.md", "study.html"):
        assert hidden((in_tmp / name).read_text(encoding="utf-8")) == []


def test_every_character_is_shown_or_escaped() -> None:
    """3acd176 escaped none."""
    shown = visible("".join(map(chr, range(0x110000))))
    assert hidden(shown) == []
    assert visible("24 µs × 3 – café 日本") == "24 µs × 3 – café 日本"
    assert visible("a\n\tb", keep="\n") == "a\n\\x09b"


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("void k<int, (bool)1>(T*)", "void k&lt;int, (bool)1>(T*)"),
        ("[a][b]", "[a]\\[b]"),
        ("\\](x)", "&#92;]\\(x)"),
        ("[ref]: javascript:x", "\\[ref]: javascript:x"),
        ("1.02 [0.99, 1.05] (same)", "1.02 [0.99, 1.05] (same)"),
        ("`xqa_shared_p16` **exposed**", "`xqa_shared_p16` **exposed**"),
    ],
)
def test_markdown_keeps_our_marks_and_no_others(text: str, safe: str) -> None:
    assert in_markdown(text) == safe


# --- 23: commands ---------------------------------------------------------------------------------


def test_a_printed_command_can_be_pasted_and_runs_nothing_else(in_tmp: Path) -> None:
    """3acd176 printed `pagebench run ... --kernel my kernel.py; curl x|sh` unquoted."""
    line, path = line_of("pages"), "my kernel.py; curl x|sh"
    line["asked"]["kernel"] = path
    line["asked"]["device"] = "$(touch owned)"
    kept(in_tmp / "r.jsonl", line)
    told = json.loads(pagebench_here("report", "r.jsonl", "--json").stdout)
    printed = pagebench_here("report", "r.jsonl").stdout
    command = shell(
        "pagebench", "run", told["cell"], "--kernel", path, "--device", "$(touch owned)"
    )
    assert command in printed
    assert shlex.split(command)[4:] == [path, "--device", "$(touch owned)"]


@pytest.mark.parametrize("cell", ["x; curl y|sh", "--kernel=evil.py", "a b", "xqa_\n", ""])
def test_a_cells_name_in_a_record_is_a_name(in_tmp: Path, cell: str) -> None:
    """3acd176 printed `pagebench run x; curl y|sh` for a record that said so."""
    kept(in_tmp / "r.jsonl", line_of("pages") | {"cell": cell})
    done = pagebench_here("report", "r.jsonl")
    assert done.returncode == 2
    assert done.stderr.startswith("r.jsonl, line 1: a timing record: ")
    assert "$.cell" in done.stderr


def test_words_survive_a_real_shell(in_tmp: Path) -> None:
    """3acd176 joined words with spaces."""
    import subprocess

    words = ["a b", "c'd", "$(x)", "e\x1bf\n\\'g", "plain", ""]
    told = shell("printf", "%s\\0", *words)
    assert hidden(told + "\n") == []
    done = subprocess.run(["bash", "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.split("\0")[:-1] == words


# --- 28: whole files ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["study.html", "study.md"])
def test_a_full_disk_leaves_the_good_page(in_tmp: Path, name: str) -> None:
    """3acd176 truncated study.html before it wrote, so a full disk lost the old page."""
    kept(in_tmp / "r.jsonl", line_of("pages"))
    (in_tmp / "study.html").write_text("good")
    (in_tmp / "study.md").write_text("good")

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    with patch("os.fsync", full):
        done = pagebench_here("study", "r.jsonl", "--out", ".")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "No space left" in done.stderr
    assert (in_tmp / name).read_text() == "good"
    assert sorted(path.name for path in in_tmp.iterdir()) == ["r.jsonl", "study.html", "study.md"]
