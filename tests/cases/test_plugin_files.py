"""Plug-in files run as modules do, and say where they fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes import pagebench, pagebench_here
from pagebench.kernels import registry
from pagebench.kernels.registry import KernelError, add_kernel_file

CELL = "distinct_p16_b2_l64"
QUICK = ("--device", "cpu", "--seconds", "0.05")
SETTINGS = """
from __future__ import annotations
import pickle
from dataclasses import dataclass
from pagebench.kernels.gather import Gather

@dataclass
class Tiles:
    rows: int = 16
    columns: int = 4

class Tiled(Gather):
    name = "tiled"
    tiles = pickle.loads(pickle.dumps(Tiles(8)))

ADAPTER = Tiled()
"""
COMPILED = """
import torch
from pagebench.kernels.adapter import Call
from pagebench.kernels.gather import Gather

SCALE = 1.0

@torch.compile(backend="eager")
def scaled(tensor):
    return tensor * SCALE

class Compiled(Gather):
    name = "compiled"

    def plan(self, batch, *, graph):
        call = super().plan(batch, graph=graph)

        def run():
            call.run()
            call.out.copy_(scaled(call.out))

        return Call(run, call.out, call.replan, call.resolved)

ADAPTER = Compiled()
"""
MUTABLE = """
from dataclasses import dataclass

@dataclass
class Settings:
    sizes: list = []
"""
STUBBORN = """
import time
while True:
    try:
        time.sleep(9)
    except Exception:
        pass
"""
NAMED = """
from pagebench.kernels.gather import Gather

class Named(Gather):
    name = "NAME"

ADAPTER = Named()
"""


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before, searched = set(sys.modules), list(sys.path)
    monkeypatch.setattr(registry, "_from_files", {})
    yield
    sys.path[:] = searched
    for name in set(sys.modules) - before:
        if name.startswith("pagebench_kernel_"):
            del sys.modules[name]


@pytest.mark.parametrize(("name", "source"), [("tiled", SETTINGS), ("compiled", COMPILED)])
def test_what_needs_its_module_finds_it(name: str, source: str, tmp_path: Path) -> None:
    """3acd176 refused the first (a dataclass under postponed annotations) and crashed in the second
    (torch.compile), because the file was not in sys.modules."""
    (tmp_path / "mine.py").write_text(source)
    done = pagebench("run", f"{name}_{CELL}", *QUICK, "--kernel", "mine.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 record in" in done.stdout


def test_two_files_of_one_stem_are_two_modules(tmp_path: Path) -> None:
    """3acd176 named both pagebench_kernel_mine."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text(NAMED.replace("NAME", name))
        add_kernel_file(tmp_path / name / "mine.py")
    modules = {type(adapter).__module__ for adapter in registry._from_files.values()}
    assert len(modules) == 2
    assert all(type(sys.modules[name].ADAPTER).__module__ == name for name in modules)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x = 1\ny = 2\nraise RuntimeError('no')", ", line 3: RuntimeError: no"),
        ("x = (\ny", ", line 1: SyntaxError"),
        ("\n\nimport nowhere_at_all", ", line 3: ModuleNotFoundError"),
        (
            "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: list = []",
            ", line 2: Val",
        ),
        ("import neighbour", " (neighbour.py, line 2): ZeroDivisionError"),
        ("raise SystemExit(3)", ", line 1: SystemExit: 3"),
        ("x = 1", ": the file defines no ADAPTER"),
        (NAMED.replace("NAME", "Not-a-name"), ": the name Not-a-name is taken or invalid"),
        ("class Odd:\n    @property\n    def name(self): return 1 / 0\nADAPTER = Odd()", "ZeroDiv"),
    ],
)
def test_a_file_that_fails_says_its_line_and_leaves_nothing(
    source: str, says: str, tmp_path: Path
) -> None:
    """3acd176 gave no line, and left the file's folder in sys.path."""
    (tmp_path / "neighbour.py").write_text("\n1 / 0")
    (tmp_path / "broken.py").write_text(source)
    before, searched = set(sys.modules), list(sys.path)
    with pytest.raises(KernelError) as failed:
        add_kernel_file(tmp_path / "broken.py")
    assert says in str(failed.value)
    left = {name for name in set(sys.modules) - before if "broken" in name or "neighbour" in name}
    assert left == set()
    assert sys.path == searched


def test_a_mended_file_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("1 / 0")
    with pytest.raises(KernelError):
        add_kernel_file(path)
    path.write_text(NAMED.replace("NAME", "mended"))
    assert add_kernel_file(path) == "mended"


@pytest.mark.parametrize(
    "hangs",
    [
        "import time\ntime.sleep(100)",
        "while True:\n    pass",
        STUBBORN,
    ],
)
def test_a_file_that_does_not_end_its_import_is_refused(hangs: str, tmp_path: Path) -> None:
    """3acd176's `list` waited for ever."""
    (tmp_path / "mine.py").write_text(hangs)
    with pytest.raises(KernelError, match=r"line .*: not imported after 0.3 s: raise --patience"):
        add_kernel_file(tmp_path / "mine.py", 0.3)


def test_a_file_that_prints_while_it_is_imported_leaves_stdout_alone(tmp_path: Path) -> None:
    """3acd176's `list --json` printed the file's words among its own."""
    (tmp_path / "mine.py").write_text("print('loud')\n" + NAMED.replace("NAME", "loud"))
    done = pagebench_here("list", f"loud_{CELL}", "--json", "--kernel", "mine.py", cwd=tmp_path)
    assert done.stdout.count("\n") == 1
    assert "loud\n" in done.stderr
