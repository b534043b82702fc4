"""The layering: which folder may import which, and that importing costs no GPU library."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from fakes import ROOT

MAY_IMPORT = {
    "layouts": {"layouts"},
    "kernels": {"kernels", "layouts"},
    "profiles": {"profiles"},
    "harness": {"harness", "kernels", "layouts", "profiles"},
}
HEAVY = ("torch", "flashinfer", "triton", "scipy", "matplotlib", "pandas")
FILES = [path for room in MAY_IMPORT for path in sorted((ROOT / room).rglob("*.py"))]


DEVICE_KERNELS = (  # and the file that pytest collects
    *("pagebench.kernels.triton.kernels", "pagebench.kernels.probes.stream"),
    "pagebench.harness.plugin.cells",
)


def name_of(path: Path) -> str:
    return ".".join(("pagebench", *path.relative_to(ROOT).with_suffix("").parts))


def imported(path: Path) -> list[str]:
    """Modules that a file imports anywhere, as dotted names."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.append(node.module or "")
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_the_rooms_it_may(path: Path) -> None:
    rooms = {name.split(".")[1] for name in imported(path) if name.startswith("pagebench.")}
    assert rooms <= MAY_IMPORT[path.relative_to(ROOT).parts[0]]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_room_is_imported_by_its_bare_name(path: Path) -> None:
    assert not {name.split(".")[0] for name in imported(path)} & set(MAY_IMPORT)


def test_importing_everything_but_device_kernels_loads_no_heavy_library() -> None:
    modules = [name_of(path) for path in FILES if name_of(path) not in DEVICE_KERNELS]
    code = f"import sys, importlib\nfor m in {modules}: importlib.import_module(m)\n"
    code += f"print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
