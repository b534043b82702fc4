"""Shipped contrasts and ladders, and those that a user names."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from msgspec.structs import asdict

from pagebench.harness.cell import Cell
from pagebench.harness.contrasts import (
    CONTRASTS,
    LADDERS,
    Contrast,
    Ladder,
    find_contrasts,
    find_ladders,
    planted_contrasts,
)
from pagebench.harness.environment import PYTHON
from pagebench.harness.errors import UserError
from pagebench.harness.records.verdict import WORDS


@pytest.mark.parametrize("contrast", CONTRASTS, ids=lambda contrast: contrast.name)
def test_a_shipped_contrast_is_two_cells_and_a_promise(contrast: Contrast) -> None:
    assert contrast.predicts in WORDS
    one, other = asdict(contrast.one.axes()), asdict(contrast.other.axes())
    differing = {axis for axis, value in one.items() if other[axis] != value}
    assert len(differing) == (0 if contrast.name == "identity" else 1), differing
    assert contrast.cells == (Cell.parse(contrast.one.name), Cell.parse(contrast.other.name))
    assert contrast.why


def test_ladders_are_one_knob_in_order() -> None:
    for ladder in LADDERS:
        assert isinstance(ladder, Ladder)
        pages = [cell.shape.page_size for cell in ladder.cells]
        assert pages == sorted(pages)
        axes = [
            {k: v for k, v in asdict(cell.axes()).items() if k != "page_size"}
            for cell in ladder.cells
        ]
        assert all(each == axes[0] for each in axes)


def test_names_are_unique() -> None:
    names = [each.name for each in (*CONTRASTS, *planted_contrasts())]
    assert len(names) == len(set(names))
    assert len({ladder.name for ladder in LADDERS}) == len(LADDERS)


def test_shipped_ones_are_found_by_name_once_and_in_order() -> None:
    assert find_contrasts(["all"]) == list(CONTRASTS)
    found = find_contrasts(["tile", "negative", "tile"])
    assert [each.name for each in found] == ["tile", "negative"]
    assert find_ladders(["all"]) == list(LADDERS)
    assert [each.name for each in find_ladders(["short"])] == ["short"]


def test_two_cells_are_a_contrast_whose_knob_is_what_differs() -> None:
    (found,) = find_contrasts(["xqa_shared_p16", "xqa_shared_p64"])
    assert (found.name, found.knob, found.predicts, found.why) == ("", "page size", None, None)
    (found,) = find_contrasts(["xqa_shared_p16", "xqa_shared_p16"])
    assert found.knob == "nothing"


def test_three_cells_of_one_knob_are_a_ladder() -> None:
    names = [f"gather_distinct_p16_b2_l{tokens}" for tokens in (64, 512, 2048)]
    (found,) = find_ladders(names)
    assert (found.name, found.knob) == ("kv len", "kv len")
    assert [cell.name for cell in found.cells] == names
    with pytest.raises(UserError, match="differ in one knob; these differ in page size, kv len"):
        find_ladders([*names, "gather_distinct_p32_b2_l64"])
    with pytest.raises(UserError, match="these differ in nothing"):
        find_ladders(names[:1] * 3)


@pytest.mark.parametrize(
    ("find", "names", "said"),
    [
        (find_contrasts, ["til"], "1 given: give two cells, all, or some of the contrasts nega"),
        (find_contrasts, ["til"], r"did you mean tile\?"),
        (find_ladders, ["a", "b"], "2 given: give three cells or more, all, or some of the ladd"),
    ],
)
def test_what_is_neither_is_answered_with_what_there_is(
    find: Callable[[list[str]], object], names: list[str], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        find(names)


def test_contrasts_are_built_without_torch_and_only_where_they_are_needed() -> None:
    code = (
        "import sys; import pagebench.harness.cli.main\n"
        "print('pagebench.harness.contrasts' in sys.modules)\n"
        "import pagebench.harness.contrasts\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([*PYTHON, code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "False"], done.stderr
