"""The layering: which room may import which, and that importing costs no GPU library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes import RESULTS, ROOT, TESTS, script

house = script("house")

# Arrows that the order would allow and the plan does not: tools and silicon know no layouts, what
# is drawn is drawn from records, and a kernel of one family knows no other family.
FAMILIES = ("kernels/probes", "kernels/xqa", "kernels/flashinfer", "kernels/triton")
MEASURING = (
    "pagebench.harness.timing.clocks.",
    "pagebench.harness.timing.measure",
    "pagebench.harness.workers.",
)
DRAWING = ("harness/show", "harness/study")
MEASURES_FOR_A_STUDY = "pagebench.harness.study.measure"

HEAVY = ("torch", "flashinfer", "triton", "scipy", "matplotlib", "pandas")
DEVICE_KERNELS = (  # and the file that pytest collects
    *("pagebench.kernels.triton.kernels", "pagebench.kernels.probes.stream"),
    "pagebench.harness.plugin.cells",
)
FILES = house.module_files(ROOT)


def upward(tree: Path) -> list[str]:
    """Imports of a room that stands no earlier in the order, as `importer > imported`."""
    return [f"{a} > {b}" for a, b in sorted(house.module_arrows(tree).edges) if _is_upward(a, b)]


def _is_upward(importer: str, taken: str) -> bool:
    ours, theirs = house.room_of(importer), house.room_of(taken)
    if ours == theirs:
        return False
    if {ours, theirs} <= set(FAMILIES) or ours == "profiles":
        return True
    return house.ROOMS.index(theirs) > house.ROOMS.index(ours)


def drawn_from_what_measures(tree: Path) -> list[str]:
    """Imports of what measures in the rooms that draw, but for the one module that measures."""
    return [
        f"{importer} > {taken}"
        for importer, taken in sorted(house.module_arrows(tree).edges)
        if house.room_of(importer) in DRAWING and importer != MEASURES_FOR_A_STUDY
        if taken.startswith(MEASURING)
    ]


def test_every_room_stands_in_the_order() -> None:
    assert {house.room_of(module) for module in FILES} == set(house.ROOMS)


def test_a_room_imports_only_rooms_before_it() -> None:
    assert upward(ROOT) == []


def test_what_draws_imports_nothing_that_measures() -> None:
    assert drawn_from_what_measures(ROOT) == []


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """This tree's rooms and what the layering test reads, elsewhere."""
    for room in ("layouts", "profiles", "kernels", "harness", "tests"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("data"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def plant(tree: Path, file: str, line: str) -> None:
    path = tree / file
    path.write_text(path.read_text() + line + "\n")


@pytest.mark.parametrize(
    ("file", "line", "arrow"),
    [
        ("harness/records/store.py", "import pagebench.harness.show.text", "harness.show.text"),
        (
            "harness/judging/verdict.py",
            "from pagebench.harness.show import text",
            "harness.show.text",
        ),
        (
            "layouts/shape.py",
            "def late():\n    from pagebench.kernels.device import CPU",
            "kernels.device",
        ),
        ("profiles/metrics.py", "from pagebench.layouts.shape import Shape", "layouts.shape"),
        ("kernels/xqa/loads.py", "import pagebench.kernels.triton.loads", "kernels.triton.loads"),
        (
            "harness/cell.py",
            "if TYPE_CHECKING:\n    import pagebench.harness.records.store",
            "harness.records.store",
        ),
    ],
)
def test_an_upward_import_is_found_wherever_it_is_written(
    file: str, line: str, arrow: str, copied: Path
) -> None:
    before = upward(copied)
    plant(copied, file, line)
    importer = "pagebench." + file.removesuffix(".py").replace("/", ".")
    assert set(upward(copied)) - set(before) == {f"{importer} > pagebench.{arrow}"}


def test_a_table_that_imports_a_clock_is_found(copied: Path) -> None:
    before = drawn_from_what_measures(copied)
    line = "from pagebench.harness.timing.clocks import wall"
    plant(copied, "harness/show/timings.py", line)
    (found,) = set(drawn_from_what_measures(copied)) - set(before)
    assert found == "pagebench.harness.show.timings > pagebench.harness.timing.clocks.wall"


def test_make_check_fails_on_an_upward_import(copied: Path) -> None:
    """By the very command that `make check` runs, in a tree that holds one."""
    plant(copied, "harness/environment.py", "import pagebench.harness.cli.main")
    words = [sys.executable, "-m", "pytest", "-q", "tests/test_imports.py", "-k", "only_rooms"]
    done = subprocess.run(words, cwd=copied, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "pagebench.harness.environment > pagebench.harness.cli.main" in done.stdout


@pytest.mark.parametrize("path", FILES.values(), ids=FILES)
def test_imports_are_absolute_and_no_room_is_imported_by_its_bare_name(path: Path) -> None:
    names = house.imported(path)
    assert not [name for name in names if name.startswith(".")]
    assert not {name.split(".")[0] for name in names} & {room.split("/")[0] for room in house.ROOMS}


def loaded_by(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own; its last line names the heavy libraries it loaded."""
    code += f"\nimport sys; print([m for m in {HEAVY} if m in sys.modules])"
    command = [sys.executable, "-c", code, *words]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_importing_everything_but_device_kernels_loads_no_heavy_library() -> None:
    modules = [name for name in FILES if name not in DEVICE_KERNELS]
    done = loaded_by(f"import importlib\nfor m in {modules}: importlib.import_module(m)")
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


STUDY = str(RESULTS / "h200" / "study.jsonl")
VIEWERS = (
    ("list",),
    ("report", STUDY),
    ("compare", STUDY, STUDY),
    ("show", "xqa_shared_p16", STUDY),
    ("study", STUDY, "--out", "page"),
)


@pytest.mark.parametrize("words", VIEWERS, ids=lambda words: words[0])
def test_what_only_shows_loads_no_torch(words: tuple[str, ...], in_tmp: Path) -> None:
    code = (
        "from pagebench.harness.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code"
    )
    done = loaded_by(code, *words)
    assert done.returncode == 0, done.stderr
    assert "torch" not in done.stdout.splitlines()[-1]


def test_tests_import_nothing_of_ours_by_a_bare_name_but_the_fakes() -> None:
    files = sorted(TESTS.rglob("*.py"))
    ours = {path.relative_to(TESTS).parts[0].removesuffix(".py") for path in files}
    bare = {name.split(".")[0] for path in files for name in house.imported(path)}
    assert bare & (ours | {room.split("/")[0] for room in house.ROOMS}) == {"fakes"}
