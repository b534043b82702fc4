"""A kernel is its file and what that imports from its folder: a changed neighbour is another."""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import pytest

from fakes import pagebench
from pagebench.harness.records import store
from pagebench.harness.records.timing import Timing
from pagebench.kernels.plugin_content import content_hash

KERNEL = """
{top}
from pagebench.kernels.gather import Gather

class Mine(Gather):
    name = "mine"

    def plan(self, batch, *, graph):
        {lazy}
        return super().plan(batch, graph=graph)

ADAPTER = Mine()
"""
FILES = {
    "helper.py": "from further import SCALE\n",
    "further.py": "SCALE = 1\n",
    "pack/__init__.py": "",
    "pack/inner.py": "from . import beside\nfrom .deep.er import X\n",
    "pack/beside.py": "Y = 1\n",
    "pack/deep/er.py": "X = 1\n",
    "alone.py": "Z = 1\n",
    "mine.txt": "data",
    "lib/site-packages/helper2.py": "",
    ".cache/made.py": "",
}
IN_PACK = ["pack/__init__.py", "pack/inner.py", "pack/beside.py", "pack/deep/er.py"]
STATEMENTS = {
    "import helper": ["helper.py", "further.py"],
    "from helper import SCALE": ["helper.py", "further.py"],
    "import json, helper as h": ["helper.py", "further.py"],
    "import further": ["further.py"],
    "import pack.inner": IN_PACK,
    "from pack import inner": IN_PACK,
    "from pack.inner import X": IN_PACK,
    "import pack": ["pack/__init__.py"],
    "try:\n    import helper\nexcept ImportError: pass": ["helper.py", "further.py"],
    "import numpy": [],
    "pass": [],
}


def folder_with(folder: Path, top: str = "", lazy: str = "pass") -> Path:
    """A kernel's file that imports so, and its neighbours."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    file = folder / "mine.py"
    file.write_text(KERNEL.format(top=top, lazy=lazy))
    return file


@pytest.mark.parametrize(
    ("statement", "is_lazy"),
    [*((each, False) for each in STATEMENTS), *((s, True) for s in STATEMENTS if "\n" not in s)],
)
def test_what_an_import_names_is_part_of_the_kernel_and_nothing_else(
    statement: str, is_lazy: bool, tmp_path: Path
) -> None:
    """3acd176 recorded no content; then only that of the file itself."""
    how = {"lazy": statement} if is_lazy else {"top": statement}
    file = folder_with(tmp_path, **how)
    before = content_hash(file)
    changed = []
    for name in FILES:
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(text + "# edited\n")
        changed += [name] if content_hash(file) != before else []
        (tmp_path / name).write_text(text)
    assert sorted(changed) == sorted(STATEMENTS[statement])
    assert content_hash(file) == before


def test_a_file_without_neighbours_is_what_it_was_recorded_as(tmp_path: Path) -> None:
    """Records that hold the file's own hash stay true."""
    file = folder_with(tmp_path)
    assert content_hash(file) == sha256(file.read_bytes()).hexdigest()


def test_a_neighbour_that_appears_goes_or_gets_another_name_is_a_difference(
    tmp_path: Path,
) -> None:
    file = folder_with(tmp_path, "import helper\ntry:\n    import late\nexcept ImportError: pass")
    found = [content_hash(file)]
    (tmp_path / "late.py").write_text("")
    found.append(content_hash(file))
    (tmp_path / "further.py").rename(tmp_path / "farther.py")
    found.append(content_hash(file))
    (tmp_path / "helper.py").write_text("from farther import SCALE\n")
    found.append(content_hash(file))
    assert len(set(found)) == 4


def test_two_folders_with_the_same_files_are_one_kernel(tmp_path: Path) -> None:
    files = [folder_with(tmp_path / name, "import pack.inner, helper") for name in ("a", "b")]
    one, other = map(content_hash, files)
    assert one == other
    (tmp_path / "here").symlink_to(tmp_path / "a")
    assert content_hash(tmp_path / "here" / "mine.py") == one


@pytest.mark.parametrize(
    ("name", "place", "is_part"),
    [
        ("loaded_by_name", "by_name.py", True),
        ("pagebench.kernels.gather", "kernels/gather.py", False),
        ("torch_of_a_folder", "lib/site-packages/torch/__init__.py", False),
        ("of_a_cache", ".triton/cache/launcher.py", False),
        ("elsewhere", "../elsewhere.py", False),
    ],
)
def test_what_is_loaded_otherwise_counts_if_it_is_the_kernels_own(
    name: str, place: str, is_part: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`importlib` names no file: what is loaded tells."""
    (tmp_path / "own").mkdir()
    file = folder_with(tmp_path / "own")
    before = content_hash(file)
    other = tmp_path / "own" / place
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_text("")
    module = ModuleType(name)
    module.__file__ = str(other)
    monkeypatch.setitem(sys.modules, name, module)
    assert (content_hash(file) != before) is is_part


@pytest.mark.parametrize(
    "bad", ["def", "\0", "import " + "a." * 3000 + "b", "from ...... import x"]
)
def test_a_neighbour_that_is_no_python_does_not_fail(bad: str, tmp_path: Path) -> None:
    file = folder_with(tmp_path, "import helper")
    (tmp_path / "helper.py").write_text(bad)
    assert len(content_hash(file)) == 64
    (tmp_path / "helper.py").unlink()
    (tmp_path / "helper.py").mkdir()
    assert len(content_hash(file)) == 64


@pytest.mark.parametrize(
    ("top", "lazy"),
    [
        ("import further", "pass"),
        ("", "from further import SCALE"),
        ("import importlib; importlib.import_module('fur' + 'ther')", "pass"),
    ],
    ids=["at once", "in plan", "by name"],
)
def test_a_changed_neighbour_is_measured_again(top: str, lazy: str, tmp_path: Path) -> None:
    """--resume took the old time for the new kernel's."""
    folder_with(tmp_path, top, lazy)
    words = ("run", "mine_distinct_p16_b2_l64", "--device", "cpu", "--seconds", "0.05")
    words = (*words, "--kernel", "mine.py", "--out", "a.jsonl")
    assert pagebench(*words, cwd=tmp_path).returncode == 0
    assert "1 of 1 are" in pagebench(*words, "--resume", cwd=tmp_path).stderr
    (tmp_path / "further.py").write_text("SCALE = 2\n")
    said = pagebench(*words, "--resume", cwd=tmp_path).stderr
    assert "1 measured again: another content of the kernel file" in said
    one, other = store.read([tmp_path / "a.jsonl"], Timing).of(Timing)
    assert one.asked.kernel_sha != other.asked.kernel_sha
    told = pagebench("report", "a.jsonl", cwd=tmp_path).stdout
    assert "kernel file" in told
