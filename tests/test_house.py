"""The counter of the house, and that docs/architecture.md says what it counts."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from fakes import ROOT, script

house = script("house")

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
BEFORE = "3acd176"  # the last commit of four flat folders


def tree(folder: Path, **files: str) -> Path:
    """A tree of modules; a double underscore in a name stands for a folder."""
    for name, source in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return folder


def test_imports_count_once_a_pair_wherever_they_stand(tmp_path: Path) -> None:
    made = tree(
        tmp_path,
        layouts__shape="import numpy",
        harness__cell="from pagebench.layouts import shape\nfrom pagebench.layouts.shape import A",
        harness__cli__main="def run():\n    import pagebench.harness.cell\n    import json",
    )
    modules = house.module_arrows(made)
    assert set(modules.edges) == {
        ("pagebench.harness.cell", "pagebench.layouts.shape"),
        ("pagebench.harness.cli.main", "pagebench.harness.cell"),
    }
    assert house.count(modules) == house.Count(3, 2, 3)


def test_modules_that_import_each_other_stand_on_one_floor(tmp_path: Path) -> None:
    made = tree(
        tmp_path,
        layouts__a="import pagebench.layouts.b",
        layouts__b="import pagebench.layouts.a\nimport pagebench.layouts.c",
        layouts__c="",
        harness__d="import pagebench.layouts.a",
    )
    modules = house.module_arrows(made)
    assert house.floors(modules) == {
        "pagebench.layouts.c": 1,
        "pagebench.layouts.a": 2,
        "pagebench.layouts.b": 2,
        "pagebench.harness.d": 3,
    }
    assert house.count(house.room_arrows(modules)) == house.Count(2, 1, 2)


def test_an_arrow_of_rooms_counts_those_of_its_modules(tmp_path: Path) -> None:
    both = "import pagebench.layouts.a\nimport pagebench.layouts.b"
    made = tree(tmp_path, layouts__a="", layouts__b="", harness__c=both, harness__d=both)
    rooms = house.room_arrows(house.module_arrows(made))
    assert rooms.edges["harness", "layouts"]["count"] == 4
    assert rooms.nodes["harness"]["modules"] == 2


def test_the_flat_house_is_counted_as_it_was(tmp_path: Path) -> None:
    words = ["git", "archive", BEFORE, "layouts", "profiles", "kernels", "harness"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True)
    if done.returncode:
        pytest.skip(f"not a git checkout that goes back to {BEFORE}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(tmp_path, filter="data")
    modules = house.module_arrows(tmp_path)
    assert house.count(modules) == house.Count(79, 377, 23)
    assert table_in_docs("before") == rows(house.table(modules))


def rows(text: str) -> list[str]:
    return re.findall(r"^\| (?:modules|rooms) \|.*$", text, re.M)


def table_in_docs(when: str) -> list[str]:
    """The rows of that time, as the tool would print them."""
    found = rf"^\| (modules|rooms), {when} \|(.*)$"
    return [f"| {of} |{numbers}" for of, numbers in re.findall(found, ARCHITECTURE, re.M)]


def test_the_architecture_says_what_the_tool_prints() -> None:
    assert table_in_docs("now") == rows(house.table(house.module_arrows(ROOT)))


def test_the_figure_is_of_this_tree() -> None:
    """Where it is not: make house."""
    rooms = house.room_arrows(house.module_arrows(ROOT))
    assert (ROOT / "docs" / "house.svg").read_text() == house.draw(rooms)


def test_every_arrow_of_the_figure_leads_down() -> None:
    rooms = house.room_arrows(house.module_arrows(ROOT))
    at = house.places(rooms)
    assert [(a, b) for a, b in rooms.edges if at[a].y >= at[b].y] == []


def test_no_number_of_the_figure_covers_another_or_a_box() -> None:
    """Numbers stand on crossings of a row and a column; a box ends before its row's first."""
    rooms = house.room_arrows(house.module_arrows(ROOT))
    picture = house.draw(rooms)
    spots = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"', picture)
    assert len(spots) == len(set(spots)) == rooms.number_of_edges()
    boxes = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="24"', picture)
    assert len(boxes) == len(rooms)
    for x, y, size in boxes:
        left, right, middle = float(x), float(x) + float(size), float(y) + house.BOX / 2
        assert house.MARGIN + house.FLOOR_LABEL <= left < right <= house.WIDTH - house.MARGIN
        numbers = [(float(at), float(r)) for at, row, r in spots if float(row) == middle]
        assert [at for at, radius in numbers if left - radius < at < right + radius] == []


def test_the_target_of_the_move_is_met() -> None:
    """At most twelve floors of rooms, and fewer floors of modules than the flat house had."""
    modules = house.module_arrows(ROOT)
    assert house.count(house.room_arrows(modules)).floors <= 12
    assert house.count(modules).floors < 23
