"""Loads are predicted for the launch that was counted, or not compared with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes import RESULTS, pagebench_here
from fakes.made import evidence
from pagebench.harness.cell import Cell
from pagebench.harness.counting.predict import anew
from pagebench.harness.instruments.planted import _loads
from pagebench.harness.judging.work import work_between
from pagebench.harness.records import store
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.select import Evidence
from pagebench.kernels import registry
from pagebench.kernels.adapter import Loads
from pagebench.kernels.gather import Gather

XQA, OTHER = "xqa_distinct_p16", "xqa_distinct_p64"
TOKEN = "tritontoken_distinct_p1"
FIDECODE = "fidecode_distinct_p1_b4_l8192"


def counted(name: str) -> Counters:
    return next(each for each in reversed(evidence().counters) if each.cell == name)


def regridded(counters: Counters, *grids: str) -> Counters:
    """The same counts, as if its kernels had been launched so; kernels without a grid are gone."""
    kernels = zip(counters.kernels, grids, strict=False)
    return replace(counters, kernels=tuple(replace(each, grid=grid) for each, grid in kernels))


def resolved(counters: Counters, **changes: Any) -> Counters:
    return replace(counters, resolved={**counters.resolved, **changes})


PLANTED = {
    "splits that the launch lacks": (resolved(counted(XQA), splits=4), "(4, 8, 8)", "(2, 8, 8)"),
    "fewer splits than launched": (resolved(counted(XQA), splits=1), "(1, 8, 8)", "(2, 8, 8)"),
    "another batch launched": (regridded(counted(XQA), "(2, 8, 4)"), "(2, 8, 8)", "(2, 8, 4)"),
    "another number of heads": (regridded(counted(XQA), "(2, 4, 8)"), "(2, 8, 8)", "(2, 4, 8)"),
    "axes the other way": (regridded(counted(XQA), "(8, 8, 2)"), "(2, 8, 8)", "(8, 8, 2)"),
    "no merge was launched": (
        regridded(counted(TOKEN), "(8, 4, 8)"), "(8, 4, 8) + (8, 16, 1)", "(8, 4, 8)",
    ),
    "a merge that no split needs": (
        resolved(counted(TOKEN), splits=1), "(8, 1, 8)", "(8, 4, 8) + (8, 16, 1)",
    ),
    "another merge": (
        regridded(counted(TOKEN), "(8, 4, 8)", "(4, 16, 1)"),
        "(8, 4, 8) + (8, 16, 1)", "(8, 4, 8) + (4, 16, 1)",
    ),
    "other tiles": (
        resolved(counted(FIDECODE), tiles=100),
        "(100, 8, 1) + (132, 1, 1)", "(148, 8, 1) + (132, 1, 1)",
    ),
    "other blocks of the merge": (
        resolved(counted(FIDECODE), merge_blocks=264),
        "(148, 8, 1) + (264, 1, 1)", "(148, 8, 1) + (132, 1, 1)",
    ),
}  # fmt: skip


def said(tmp_path: Path, *words: str, records: Sequence[Counters]) -> str:
    path = tmp_path / "c.jsonl"
    path.unlink(missing_ok=True)
    store.append(path, *records)
    done = pagebench_here(*words, str(path))
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


@pytest.mark.parametrize("planted", PLANTED)
def test_loads_of_another_launch_are_named_and_not_compared(planted: str, tmp_path: Path) -> None:
    """3acd176 compared them, and called the counter off its prediction."""
    record, assumed, launched = PLANTED[planted]
    card = said(tmp_path, "show", record.cell, records=[record])
    assert f"loads of grid {assumed}, and {launched} was counted: not compared" in card
    assert " off " not in card
    assert "of another grid" in said(tmp_path, "report", records=[record])
    (line,) = said(tmp_path, "report", "--json", records=[record]).splitlines()
    told = json.loads(line)
    assert told["predicted"]["other_grids"] == [assumed, launched]
    assert (told["predicted"]["ldg"], told["off"]) == (None, [])


@pytest.mark.parametrize("name", [XQA, TOKEN, FIDECODE])
def test_loads_of_the_launch_that_was_counted_are_compared(name: str, tmp_path: Path) -> None:
    card = said(tmp_path, "show", name, records=[counted(name)])
    assert "not compared" not in card
    share = anew(counted(name)).over_predicted("ldg")
    assert share is not None
    assert share == pytest.approx(1.0, abs=0.01)
    assert f"{share:.4f}" in said(tmp_path, "report", records=[counted(name)])


@pytest.mark.parametrize("name", [XQA, TOKEN])
def test_counts_that_are_off_in_the_right_launch_are_still_called_off(
    name: str, tmp_path: Path
) -> None:
    """Refusing the comparison must hide no mismatch of the law."""
    record = counted(name)
    twice = tuple(
        replace(k, values={**k.values, "ldg": tuple(2 * (v or 0) for v in k.values["ldg"])})
        for k in record.kernels
    )
    records = [replace(record, kernels=twice)]
    assert " off " in said(tmp_path, "show", name, records=records)
    assert "ldg" in anew(records[0]).off


@pytest.mark.parametrize("at", [0, 1])
def test_a_verdict_takes_no_ratio_from_a_prediction_of_another_launch(at: int) -> None:
    """3acd176 divided the predicted loads of two launches, whatever had been launched."""
    cells = (Cell.parse(OTHER), Cell.parse(XQA))
    pair = [counted(cell.name) for cell in cells]
    right = work_between(cells, Evidence(tuple(pair)))
    assert right is not None
    assert "ldg" in right.from_knob
    pair[at] = resolved(pair[at], splits=8)
    wrong = work_between(cells, Evidence(tuple(pair)))
    assert wrong is not None
    assert "ldg" in wrong.changed
    assert "ldg" not in wrong.from_knob


def test_a_planted_load_is_not_found_by_a_prediction_of_another_launch() -> None:
    cells = (Cell.parse(OTHER), Cell.parse(XQA))
    pair = [counted(cell.name) for cell in cells]
    assert _loads(*cells, Evidence(tuple(pair))).planted is not None
    pair[1] = regridded(pair[1], "(3, 8, 8)")
    assert _loads(*cells, Evidence(tuple(pair))).planted is None


def test_every_recorded_launch_is_the_one_that_the_formulas_assume() -> None:
    """Recorded counters redraw as before: none was compared with loads of another launch."""
    files = sorted(RESULTS.rglob("*.jsonl"))
    every = [each for each in store.read(files, Counters).of(Counters)]
    assert len(every) > 200
    assert {each.predicted.other_grids for each in map(anew, every)} == {None}
    assert any(len(each.kernels) > 1 and each.predicted.ldg for each in map(anew, every))


def test_bytes_of_a_merge_that_nobody_names_are_not_predicted() -> None:
    """An imported page names no splits: 3acd176 predicted the bytes of a call without a merge."""
    imported = replace(counted(TOKEN), resolved={})
    assert len(imported.kernels) == 2
    assert anew(imported).predicted.dram_read_bytes is None
    assert anew(replace(imported, kernels=imported.kernels[:1])).predicted.dram_read_bytes


# --- Kernels of one's own -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grids", "launched", "is_compared"),
    [
        ((), "(9, 9, 9)", True),
        (((8, 1, 4),), "(8, 1, 4)", True),
        ((), "", True),
        (((8, 1, 4),), "(4, 1, 8)", False),
        (((8, 1, 4), (1, 1, 1)), "(8, 1, 4)", False),
        ([[8, 1, 5]], "(8, 1, 4)", False),
    ],
)
def test_a_kernel_of_ones_own_says_which_launch_its_loads_are_of(
    grids: Any, launched: str, is_compared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = regridded(own(monkeypatch, Loads(ldg=4, grids=grids)), launched)
    predicted = anew(record).predicted
    assert (predicted.ldg == 4) is is_compared
    assert (predicted.other_grids is None) is is_compared


@pytest.mark.parametrize(
    "grids", [5, (1, 2, 3), ((1, 2),), (("a", "b", "c"),), (None,), "(1, 1, 1)"]
)
def test_a_launch_that_is_none_is_named_and_loses_no_counts(
    grids: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    predicted = anew(own(monkeypatch, Loads(ldg=4, grids=grids))).predicted
    assert predicted.ldg is None
    assert predicted.failed
    assert "own.loads(): " in predicted.failed


def own(monkeypatch: pytest.MonkeyPatch, loads: Loads) -> Counters:
    """Counters of a kernel of one's own whose formula gives that."""

    class Own(Gather):
        name = "own"

        def loads(self, *_: Any) -> Loads:
            return loads

    monkeypatch.setitem(registry._from_files, "own", Own())
    cell = Cell.parse("own_distinct_p16_b4_l64")
    return replace(counted(XQA), cell=cell.name, axes=cell.axes(), resolved={"kernel": "own"})
