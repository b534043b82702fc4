"""The package as installed: mapped folders that shadow nobody, and its entry points."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest

from fakes import ROOT, script

house = script("house")

ROOMS = ("layouts", "kernels", "profiles", "harness")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES = house.module_files(ROOT)
FOLDERS = sorted({str(path.parent.relative_to(ROOT)) for path in MODULES.values()})
BESIDES = {"tests", "docs", ".ci", ".gitignore", "pyproject.toml", "Makefile"}
BESIDES |= {"README.md", "CHANGELOG.md", "LICENSE"}


def test_rooms_are_no_packages_of_their_own() -> None:
    assert [path for room in ROOMS for path in (ROOT / room).rglob("__init__.py")] == []


def test_bare_room_names_do_not_resolve_into_this_tree() -> None:
    code = f"import importlib.util as u; print([r for r in {ROOMS} if u.find_spec(r)])"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_room_is_declared_to_setuptools() -> None:
    declared = PROJECT["tool"]["setuptools"]["package-dir"]
    assert declared == {f"pagebench.{room}": room for room in ROOMS}
    packages = PROJECT["tool"]["setuptools"]["packages"]
    assert packages == [f"pagebench.{folder.replace('/', '.')}" for folder in FOLDERS]


def test_whatever_is_no_python_is_declared_to_setuptools_too() -> None:
    declared = PROJECT["tool"]["setuptools"]["package-data"]
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*") if path.is_file()]
    others = [path for path in files if path.suffix not in (".py", ".pyc")]
    assert others
    for path in others:
        package = "pagebench." + ".".join(path.parent.relative_to(ROOT).parts)
        assert any(path.match(pattern) for pattern in declared.get(package, ())), path


def test_every_module_is_installed() -> None:
    assert [name for name in MODULES if find_spec(name) is None] == []


def test_console_script_and_plugin_are_installed() -> None:
    scripts = {entry.name: entry.value for entry in entry_points(group="console_scripts")}
    plugins = {entry.name: entry.value for entry in entry_points(group="pytest11")}
    assert scripts["pagebench"] == "pagebench.harness.cli.main:main"
    assert plugins["pagebench"] == "pagebench.harness.plugin.pytest_plugin"


def test_top_level_holds_what_the_design_gives_it_and_nothing_else() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    if not tracked:
        pytest.skip("not a git checkout")
    assert {name.split("/")[0] for name in tracked} <= {*ROOMS, *BESIDES}


BIN = Path(sys.executable).parent


@pytest.mark.skipif(not (BIN / "pagebench").exists(), reason="no script beside this Python")
def test_make_ncu_without_a_gpu_says_one_line() -> None:
    settings = ("READY=", "HAS_GPU=", f"BIN={BIN}/")
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "MAKEFLAGS": ""}
    done = subprocess.run(
        ["make", "--no-print-directory", "ncu", "CELL=xqa_shared_p16", *settings],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "counting needs an NVIDIA GPU" in line
