"""What the code looks like: parameters, lengths, names, and no formatting by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from fakes import ROOT
from pagebench.harness.cli.main import ROOMS, commands_of

TOPS = ("layouts", "profiles", "kernels", "harness")
FILES = sorted(path for top in TOPS for path in (ROOT / top).rglob("*.py"))
DEVICE_KERNELS = ROOT / "kernels" / "triton" / "kernels.py"
MOST_PARAMETERS, MOST_LINES, SCREEN = 6, 300, 50
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(source: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function):
            yield node


def parameters(function: Function) -> list[str]:
    """Names of all parameters but self and cls."""
    given = function.args
    named = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    rest = [each.arg for each in (given.vararg, given.kwarg) if each]
    return [name for name in (*named, *rest) if name not in ("self", "cls")]


def commands(folder: str) -> set[str]:
    """Functions of the commands in a file of harness/cli: their parameters are options."""
    below = [vars(each).get("commands", {"": each}) for each in commands_of(folder).values()]
    return {each.callback.__name__ for found in below for each in found.values()}


def exempt(path: Path) -> set[str]:
    return commands(path.stem) if path.parent.name == "cli" and path.stem in ROOMS else set()


def too_many(source: str, besides: set[str]) -> list[str]:
    return [
        function.name
        for function in functions(source)
        if len(parameters(function)) > MOST_PARAMETERS and function.name not in besides
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_short_and_its_functions_take_few_parameters(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= MOST_LINES
    assert "fmt: skip" not in source
    if path == DEVICE_KERNELS:
        return
    assert too_many(source, exempt(path)) == []
    lengths = {each.name: (each.end_lineno or 0) - each.lineno for each in functions(source)}
    assert [name for name, length in lengths.items() if length >= SCREEN] == []


def test_a_function_of_seven_parameters_would_be_found() -> None:
    source = "def many(a, b, c, *, d, e, f, **g): ...\ndef few(self, a, b, c, d, e, f): ..."
    assert too_many(source, set()) == ["many"]
    assert too_many(source, {"many"}) == []


def test_the_median_function_is_under_ten_lines() -> None:
    every = [each for path in FILES for each in functions(path.read_text())]
    assert len(every) > 1000
    assert median((each.end_lineno or 0) - each.lineno + 1 for each in every) < 10


def test_no_module_has_a_name_that_means_several_things() -> None:
    vague = {"own", "group", "change", "counted", "choose", "seed", "concluded", "recorded"}
    assert vague & {path.stem for path in FILES} == set()


def test_there_is_one_progress() -> None:
    defined = [path for path in FILES if "\nProgress = " in path.read_text()]
    assert defined == [ROOT / "harness" / "progress.py"]
