"""Docs that a test can hold: words, commands and the example kernel."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from fakes import ROOT, pagebench, script
from pagebench.harness.cell import WORDS, Cell
from pagebench.harness.cli.main import ROOM_OF, commands_of
from pagebench.harness.records.timing import STATUSES
from pagebench.harness.records.verdict import WORDS as VERDICTS
from pagebench.harness.suites import SUITES
from pagebench.harness.timing.clocks.sampling import CLOCKS
from pagebench.harness.timing.refuse import refusal
from pagebench.kernels.adapter import Loads
from pagebench.kernels.device import CPU
from pagebench.kernels.registry import ADAPTERS
from pagebench.profiles.metrics import METRICS

house = script("house")

DOCS = {path.stem: path.read_text() for path in (ROOT / "docs").glob("*.md")}
README = (ROOT / "README.md").read_text()
COMMANDS = {name: commands_of(room)[name] for name, room in ROOM_OF.items()}


def test_there_are_commands_and_each_has_options() -> None:
    """Or the tests below would hold nothing."""
    assert {"list", "run", "profile", "import", "audit", "baseline", "judge"} <= set(COMMANDS)
    assert len(OPTIONS) > 20


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


# The rooms in the order of their table, each with what its row says that it holds.
HOLDS = dict(re.findall(r"^\| `([\w/]+)/` \| (.*) \|$", DOCS["architecture"], re.M))


def test_every_room_stands_in_the_architecture_in_the_order_of_imports() -> None:
    assert tuple(HOLDS) == house.ROOMS


@pytest.mark.parametrize("room", house.ROOMS)
def test_every_module_stands_in_the_architecture(room: str) -> None:
    modules = [path.stem for path in (ROOT / room).glob("*.py")]
    assert [name for name in modules if f"`{name}`" not in HOLDS[room]] == []


@pytest.mark.parametrize("name", [name for name, _ in ADAPTERS])
def test_every_kernel_stands_in_the_architecture(name: str) -> None:
    assert f"`{name}`" in DOCS["architecture"]


@pytest.mark.parametrize("clock", CLOCKS)
def test_every_clock_is_explained(clock: str) -> None:
    assert f"| `{clock}` |" in DOCS["measuring"]


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_is_explained(status: str) -> None:
    assert f"| `{status}` |" in DOCS["architecture"]


def test_every_suite_is_named_in_the_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert all(f"`{suite.name}`" in text for suite in SUITES)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_changelog(command: str) -> None:
    assert re.search(rf"`(pagebench\s+)?{command}\b", (ROOT / "CHANGELOG.md").read_text())


def test_commands_in_the_readme_exist() -> None:
    used = set(re.findall(r"\$ pagebench (\w+)", README))
    assert used <= set(COMMANDS)


def _options(command: Any) -> set[str]:
    """Those of a command that its help shows, and of the commands below it."""
    below = getattr(command, "commands", {}).values()
    mine = (each for each in command.params if not getattr(each, "hidden", False))
    own = {option for each in mine for option in each.opts if option.startswith("--")}
    return own.union(*map(_options, below))


OPTIONS = set[str]().union(*map(_options, COMMANDS.values()))


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_every_option_is_explained(option: str) -> None:
    text = README + "".join(text for name, text in DOCS.items() if name != "log")
    assert re.search(rf"{option}\b", text)


@pytest.mark.parametrize("word", VERDICTS)
def test_every_verdict_is_explained(word: str) -> None:
    assert f"`{word}`" in DOCS["measuring"]


def test_what_the_readme_says_to_run_without_a_gpu_runs_without_one() -> None:
    anywhere = README.split("Without a GPU:")[1].split("With an NVIDIA GPU")[0]
    cells = re.findall(r"\$ pagebench run (\w+_p\d+\w*)(?!.*--kernel)", anywhere)
    assert cells
    assert all(refusal(Cell.parse(cell), CPU) is None for cell in cells)
    files = re.findall(r"docs/\S+\.(?:jsonl|md)", anywhere)
    assert files
    assert all((ROOT / file).is_file() for file in files)


def test_records_that_the_readme_makes_do_not_make_the_tree_dirty() -> None:
    written = re.findall(r"--out (\S+)", README)
    assert written
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {f"/{file.split('/')[0]}/" for file in written} <= set(ignored)


def test_the_table_of_counters_is_what_is_counted() -> None:
    row = re.compile(r"^\| `(\w+)` \| `(\S+)` \| (\S+) \| (\w+) \| (.+) \|$", re.M)
    known = [(m.name, m.on("gh100"), m.unit, m.kind, m.meaning) for m in METRICS]
    assert row.findall(DOCS["counters"]) == known


def test_every_axis_of_a_name_has_its_word_in_the_grammar() -> None:
    grammar = DOCS["architecture"].split("## Names")[1].split("## Records")[0]
    examples = {"sharing": "distinct", "placement": "scatter", "page_size": "p<page>",
                "batch": "b<batch>", "kv_len": "l<tokens>", "ragged_percent": "r<percent>",
                "seed": "s<seed>", "table_tokens": "w<tokens>", "heads": "h<q>x<kv>",
                "head_dim": "d<dim>", "dtype": "e4m3", "kv_layout": "hnd",
                "planted_loads": "x<loads>", "planted_ns": "y<ns>"}  # fmt: skip
    assert set(examples) == set(WORDS)
    assert all(f"`{word}" in grammar for word in examples.values())


def test_the_example_kernel_is_short_complete_and_right(tmp_path: Path) -> None:
    source = blocks(DOCS["adding-a-kernel"], "python")[0]
    assert len([line for line in source.splitlines() if line.strip()]) < 40
    (tmp_path / "mykernel.py").write_text(source)
    (command,) = re.findall(r"\$ pagebench (run mykernel.*)", DOCS["adding-a-kernel"])
    done = pagebench(*command.split(), "--seconds", "0.1", "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "torch matmul" in done.stdout


def test_the_example_of_a_kernels_loads_is_a_formula() -> None:
    scope: dict[str, Any] = {"Loads": Loads}
    exec(dedent(blocks(DOCS["adding-a-kernel"], "python")[1]), scope)
    shape = Cell.parse("xqa_shared_p16_b4_l1024").shape
    assert scope["loads"](None, shape, {}, None) == Loads(ldg=4 * 8 * 2 * 64)


def test_the_example_test_is_ten_lines_and_passes(pytester: pytest.Pytester) -> None:
    source = blocks(DOCS["adding-a-kernel"], "python")[-1]
    assert len(source.splitlines()) <= 10
    pytester.makepyfile(source)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_an_entry_point_adds_a_kernel(tmp_path: Path) -> None:
    (tmp_path / "mykernel.py").write_text(blocks(DOCS["adding-a-kernel"], "python")[0])
    info = tmp_path / "mypackage-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mypackage\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[pagebench.kernels]\nmykernel = mykernel:ADAPTER\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    code += "from pagebench.harness.cli.main import main; main()"
    words = ["list", "mykernel_distinct_p16", "mykernel_distinct_p17", "--device", "cpu"]
    done = subprocess.run([sys.executable, "-c", code, *words], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "runs" in done.stdout
    assert "multiple of 16 tokens, not 17" in done.stdout


def test_every_file_of_records_is_explained() -> None:
    results = ROOT / "docs" / "results"
    text = (results / "README.md").read_text()
    names = [path.stem for path in (results / "h200").glob("*.jsonl")]
    assert [name for name in names if f"`{name}`" not in text] == []
