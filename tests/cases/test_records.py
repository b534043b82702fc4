"""Records, names and reports from elsewhere: what reaches a terminal, a page, a shell or a file."""

from __future__ import annotations

import csv
import io
import json
import shlex
import subprocess
import unicodedata
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from fakes import DATA, H200, pagebench_here
from pagebench.harness.escape import in_markdown, shell, visible
from pagebench.harness.records import codec
from pagebench.profiles.metrics import names_on

EVIL = "a\x1b[31m\x1b]0;owned\x07\r\nb\u202ec\u200b\x9b\x7f\ud800"


def line_of(name: str, number: int = 0) -> dict[str, Any]:
    """A recorded line, as it would be written today."""
    found = json.loads((H200 / f"{name}.jsonl").read_text().splitlines()[number])
    today: dict[str, Any] = json.loads(codec.encode(codec.from_json(found)))
    return today


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


# --- 21: damaged records --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("samples", "floor_us"), None, "$.samples.floor_us"),
        (("samples", "time_us", 1), 1e400, "$.samples.time_us[1]"),
        (("environment", "versions"), [], "$.environment.versions"),
        (("predicted", "distinct_kv_bytes"), "many", "$.predicted.distinct_kv_bytes"),
        (("environment", "capability"), [9, "x"], "$.environment.capability[1]"),
        (("asked", "seconds"), {}, "$.asked.seconds"),
        (("axes", "batch"), 2**80, "$.axes.batch"),
    ],
)
def test_a_wrong_value_is_one_line_with_its_field(
    in_tmp: Path, path: tuple[Any, ...], value: object, said: str
) -> None:
    """3acd176 ended many of these with a traceback."""
    line = line_of("pages")
    part: Any = line
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    (in_tmp / "r.jsonl").write_text(json.dumps(line).replace("Infinity", "1e400") + "\n")
    done = pagebench_here("report", "r.jsonl")
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (2, 1, "")
    assert done.stderr.startswith("r.jsonl, line 1: ")
    assert said in done.stderr


@pytest.mark.parametrize("field", ["axes", "options"])
def test_a_damaged_field_of_an_old_record_is_named(in_tmp: Path, field: str) -> None:
    """3acd176 ended with a traceback where an old record's field had another type."""
    old = json.loads((H200 / "pages.jsonl").read_text().splitlines()[0])
    kept(in_tmp / "r.jsonl", old | {field: 5})
    done = pagebench_here("report", "r.jsonl")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "r.jsonl, line 1" in done.stderr
    assert "$." in done.stderr


def test_a_field_given_twice_is_refused(in_tmp: Path) -> None:
    """3acd176 took the last one in silence."""
    line = json.dumps(line_of("pages"))
    (in_tmp / "r.jsonl").write_text(line.replace('"boundary"', '"boundary": "plan", "boundary"', 1))
    done = pagebench_here("report", "r.jsonl")
    assert done.returncode == 2
    assert "`boundary` stands there twice" in done.stderr


@pytest.mark.parametrize("cut", [20, 500, 1300])
def test_a_torn_line_in_the_middle_is_said(in_tmp: Path, cut: int) -> None:
    """3acd176 passed over it in silence."""
    line = json.dumps(line_of("pages"))
    (in_tmp / "r.jsonl").write_text(f"{line}\n{line[:cut]}\n{line}\n")
    done = pagebench_here("report", "r.jsonl")
    assert done.returncode == 0
    assert done.stderr == "r.jsonl, line 2: cut off, so it is left out\n"


def test_a_line_damaged_within_is_refused(in_tmp: Path) -> None:
    """3acd176 took any line that began as ours for one that a kill cut off."""
    line = json.dumps(line_of("pages"))
    (in_tmp / "r.jsonl").write_text(f"{line[:200]}{line[210:]}\n{line[:100]},,{line[100:]}\n")
    assert pagebench_here("report", "r.jsonl").returncode == 2


# --- 9 and 16: reports of ncu ---------------------------------------------------------------------

REPORT = DATA / "ncu_xqa_shared_p16.ncu-rep"
PAGE = DATA / "ncu_xqa_shared_p16.csv"


@pytest.mark.parametrize("name", ["r.ncu-rep", "r.ncu-repz"])
def test_a_report_newer_than_ncu_is_read_by_the_library(
    in_tmp: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3acd176 gave up where the ncu on the PATH was older than the report."""
    pytest.importorskip("ncu_report")
    old = in_tmp / "bin" / "ncu"
    old.parent.mkdir()
    old.write_text(
        "#!/bin/sh\ncase $* in *--version*) echo Version 2024.1.1;; "
        "*) echo '==ERROR== made by a newer version'; exit 1;; esac\n"
    )
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:/usr/bin:/bin")
    (in_tmp / name).write_bytes(REPORT.read_bytes())
    done = pagebench_here("import", name, "--out", "o.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    (in_tmp / name).write_bytes(b"not a report")
    done = pagebench_here("import", name, "--out", "o.jsonl")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "ncu: " in done.stderr
    assert "ncu-report" in done.stderr


def test_a_page_of_one_metric_a_line_is_named(in_tmp: Path) -> None:
    """3acd176 said that it had no counter of pagebench."""
    head = '"ID","Kernel Name","Block Size","Grid Size","CC","Metric Name","Metric Unit"'
    row = '"0","k","(1, 1, 1)","(1, 1, 1)","9.0","smsp__inst_executed.sum","inst","12"'
    (in_tmp / "p.csv").write_text(f'{head},"Metric Value"\n{row}\n{row}\n')
    done = pagebench_here("import", "p.csv")
    assert done.returncode == 2
    assert "a metric a line" in done.stderr
    assert "--page raw" in done.stderr


def test_facts_of_the_launch_are_numbers_of_the_c_locale(in_tmp: Path) -> None:
    """3acd176 read 74.240 bytes of shared memory as 74.24, and showed 0 KiB."""
    lines = PAGE.read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith('"ID"'))
    table = list(csv.reader(lines[start:]))
    column = table[0].index("launch__shared_mem_per_block")
    table[2][column] = "74.240"
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(table)
    (in_tmp / "p.csv").write_text(text.getvalue())
    done = pagebench_here("import", "p.csv")
    assert done.returncode == 2
    assert "launch__shared_mem_per_block is 74.240" in done.stderr


def test_calls_that_launch_a_kernel_twice_are_asked_about(in_tmp: Path) -> None:
    """3acd176 took each launch for a call: half the loads, and `stable`."""
    table = list(csv.reader(PAGE.read_text().splitlines()))
    start = next(n for n, line in enumerate(table) if line and line[0] == "ID")
    header, units, one, other = table[start : start + 4]
    ldg = header.index(names_on("gh100")["ldg"])
    less = [*one]
    less[ldg] = "7"
    text = io.StringIO()
    rows = (header, units, one, less, other, less)
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    (in_tmp / "p.csv").write_text(text.getvalue())
    asked = pagebench_here("import", "p.csv", "--out", "o.jsonl")
    assert (asked.returncode, asked.stderr.count("\n")) == (2, 1)
    assert "--launches-per-call 2" in asked.stderr
    told = pagebench_here(
        "import", "p.csv", "--launches-per-call", "2", "--json", "--out", "o.jsonl"
    )
    record = json.loads(told.stdout)
    assert record["how"]["launches"] == 2
    assert record["total"]["ldg"]["value"] == float(one[ldg].replace(",", "")) + 7
    assert pagebench_here("import", "p.csv", "--launches-per-call", "3").returncode == 2
