"""What the fuzzers found, each as it was found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes import H200, pagebench, pagebench_here
from pagebench.harness.records import codec

CELL = "odd_distinct_p16_b2_l48_h4x2_d64"
ON_CPU = ("--device", "cpu", "--kernel", "odd.py")
SOURCE = """
import os, sys
from dataclasses import replace
from pagebench.kernels.gather import Gather

class Own(BaseException):
    def __str__(self):
        raise Own

class Odd(Gather):
    name = "odd"
MEMBER
ADAPTER = Odd()
"""


def write(member: str) -> None:
    lines = "".join(f"    {line}\n" for line in member.splitlines())
    Path("odd.py").write_text(SOURCE.replace("MEMBER", lines))


@pytest.mark.parametrize(
    ("error", "member", "words"),
    [
        ("Own", "def refuses(self, shape, device): raise {}", ("run", CELL, "--out", "r.jsonl")),
        ("GeneratorExit", "def lowering(self, shape): raise {}", ("once", CELL)),
        ("SystemExit(0)", "def plan(self, batch, *, graph): raise {}", ("once", CELL)),
        ("KeyboardInterrupt", "def plan(self, batch, *, graph): raise {}", ("once", CELL)),
        ("KeyboardInterrupt", "raise {}", ("list", CELL)),
        ("Own", "name = property(lambda self: (_ for _ in ()).throw({}))", ("list", CELL)),
    ],
)
def test_a_plugin_does_not_end_the_command(
    in_tmp: Path, error: str, member: str, words: tuple[str, ...]
) -> None:
    """3acd176 exited 0 and printed nothing where an adapter raised SystemExit(0), and printed a
    traceback of any other BaseException."""
    write(member.format(error))
    done = pagebench(*words, *ON_CPU)
    assert done.returncode in (1, 2)
    assert done.stderr.count("\n") == 1, done.stderr
    assert error.split("(")[0] in done.stderr


def test_a_plugin_that_ends_its_worker_is_a_crash(in_tmp: Path) -> None:
    """3acd176 lost the worker, and told its exit code alone."""
    write("def plan(self, batch, *, graph): sys.exit('gone')")
    done = pagebench("run", CELL, "--out", "r.jsonl", "--seconds", "0.05", *ON_CPU)
    assert done.returncode == 1
    record = json.loads(Path("r.jsonl").read_text())
    assert record["status"] == "crashed"
    assert "SystemExit: gone" in record["reason"]


@pytest.mark.parametrize("member", ["has_plan", "plants"])
def test_a_property_that_fails_is_a_refusal(in_tmp: Path, member: str) -> None:
    """3acd176 ended with a traceback."""
    write(f"@property\ndef {member}(self): raise ValueError('no\\x1b[2J')")
    cell = f"{CELL}_x1" if member == "plants" else CELL
    words = ("run", cell, "--boundary", "plan" if member == "has_plan" else "run")
    done = pagebench_here(*words, "--out", "r.jsonl", *ON_CPU)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "ValueError: no\\x1b[2J" in done.stderr


def test_an_error_without_a_text_is_named(in_tmp: Path) -> None:
    """3acd176 ended with the traceback of the second error."""
    write("def refuses(self, shape, device):\n    class E(Exception): __str__ = None\n    raise E")
    done = pagebench_here("list", CELL, *ON_CPU)
    assert done.returncode == 0
    assert "its text cannot be read" in done.stdout


def test_loads_and_lowering_of_a_plugin_cost_no_report(in_tmp: Path) -> None:
    """3acd176 ended `report` with a traceback where `lowering` failed beside counters."""
    line = json.loads((H200 / "counters.jsonl").read_text().splitlines()[0])
    axes = line["axes"] | {"kernel": "odd", "page_size": 16}
    line |= {"cell": "odd_shared_p16", "axes": axes}
    Path("c.jsonl").write_text(json.dumps(line))
    write("def lowering(self, shape): raise Own")
    done = pagebench_here("show", "odd_shared_p16", "c.jsonl", "--kernel", "odd.py")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("does", ["os.close(1)", "sys.__stdout__.close()"])
def test_a_plugin_that_closes_descriptors_spoils_no_file(in_tmp: Path, does: str) -> None:
    """3acd176 opened its results file under the number of a closed stdout, where kernels print."""
    write(f"{does}\ndef workspace_bytes(self, shape):\n    os.system('echo spoilt')\n    return 0")
    words = ("run", CELL, "--out", "r.jsonl", "--seconds", "0.05", "--json")
    done = pagebench(*words, *ON_CPU)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "measured"
    assert json.loads(Path("r.jsonl").read_text())["status"] == "measured"


@pytest.mark.parametrize("when", ["always", "late"])
def test_a_call_that_changes_its_query_is_wrong(in_tmp: Path, when: str) -> None:
    """3acd176 measured it: each question put the query anew, so nothing was seen afterwards."""
    spoil = "batch.q.zero_()" if when == "always" else "len(calls) > 60 and batch.q[0, 0].zero_()"
    write(
        "def plan(self, batch, *, graph):\n"
        "    call, calls = super().plan(batch, graph=graph), []\n"
        f"    return replace(call, run=lambda: (call.run(), calls.append(1), {spoil}))"
    )
    done = pagebench_here("run", CELL, "--out", "r.jsonl", "--seconds", "0.05", *ON_CPU)
    assert done.returncode == 1
    record = json.loads(Path("r.jsonl").read_text())
    assert (record["status"], record.get("samples")) == ("wrong", None)
    assert "changed its inputs: query" in record["reason"]


@pytest.mark.parametrize("file", ["x" * 300, "loop", "loop/below", "a/" * 2500 + "b"])
@pytest.mark.parametrize(
    "words", [("report",), ("ceilings", "--out"), ("baseline", "save"), ("study", "--out")]
)
def test_a_file_name_that_cannot_be_is_one_line(
    in_tmp: Path, file: str, words: tuple[str, ...]
) -> None:
    """3acd176 ended with a traceback of `File name too long` or of a link to itself."""
    Path("loop").symlink_to("loop")
    kept = Path("r.jsonl")
    kept.write_text((H200 / "pages.jsonl").read_text())
    more = {"study": ("r.jsonl",), "baseline": ("--counters", "r.jsonl")}.get(words[0], ())
    done = pagebench_here(*words, file, *more)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr


@pytest.mark.parametrize("value", ["1" + "0" * 400, "NaN", "-1e999", "true"])
def test_a_count_that_no_counter_shows_is_no_baseline(in_tmp: Path, value: str) -> None:
    """3acd176 ended with a traceback where a count of a baseline was a very large number."""
    assert pagebench_here(
        "baseline", "save", "b.json", "--counters", str(H200 / "counters.jsonl")
    ).returncode == 0  # fmt: skip
    whole = json.loads(Path("b.json").read_text())
    kernel = next(iter(whole["counts"]))
    whole["counts"][kernel] = dict.fromkeys(whole["counts"][kernel], "HERE")
    Path("b.json").write_text(json.dumps(whole).replace('"HERE"', value))
    done = pagebench_here("baseline", "check", "b.json", "--counters", str(H200 / "counters.jsonl"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is not a baseline" in done.stderr


@pytest.mark.parametrize("field", ["knob", "values", "regime"])
def test_a_record_holds_no_formula(in_tmp: Path, field: str) -> None:
    """3acd176 ended `study` with a traceback where a record's word looked like a formula."""
    lines = map(json.loads, (H200 / "study.jsonl").read_text().splitlines())
    line = codec.to_json(codec.from_json(next(each for each in lines if each["kind"] == "dose")))
    bad = "$\\foo$"
    line[field] = [bad] * len(line["values"]) if field == "values" else bad
    Path("r.jsonl").write_text(json.dumps(line))
    done = pagebench_here("study", "r.jsonl", "--out", ".")
    assert (done.returncode, done.stderr) == (0, "")
    assert bad in Path("study.html").read_text()
