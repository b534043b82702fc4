"""The self-test: what was planted and found, on recorded verdicts and counters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes import H200
from fakes.made import evidence, rounds
from pagebench.harness.cell import Cell
from pagebench.harness.contrasts import planted_contrasts, spin_ns
from pagebench.harness.environment import bandwidth_of
from pagebench.harness.instruments import planted as planting
from pagebench.harness.instruments.planted import planted_cells, planted_of, selftest
from pagebench.harness.progress import silent
from pagebench.harness.records import store
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.planted import Planted, PlantedLoads, PlantedWait, PlantedWord
from pagebench.harness.records.select import Evidence
from pagebench.harness.records.verdict import Verdict
from pagebench.harness.show.conclusions import planted_table
from pagebench.harness.timing.interleaved import Interleaved
from pagebench.harness.timing.options import Options
from pagebench.harness.workers.bench import Bench
from pagebench.kernels.device import CPU, Device

recorded = pytest.mark.skipif(not H200.exists(), reason="the records are not installed")
PLANTED = planted_contrasts()
GPU = Device("cuda", "NVIDIA H200", 0, (9, 0))


def verdicts() -> list[Verdict]:
    """The study's, of what was planted."""
    found = {
        each.contrast: each for each in store.read([H200 / "study.jsonl"], Verdict).of(Verdict)
    }
    return [found[contrast.name] for contrast in PLANTED]


@recorded
def test_a_load_too_few_or_a_wrong_word_is_not_found() -> None:
    wrong = [replace(verdict, word="absent") for verdict in verdicts()]
    assert not planted_of(wrong, evidence("study.jsonl")).found_all
    fewer = tuple(map(_a_load_less, evidence("study.jsonl").counters))
    rows = planted_of(verdicts(), Evidence(fewer)).rows
    assert [row.cell for row in rows if not row.is_right] == ["tritontile_distinct_p64_l32768_x64"]


def _a_load_less(counters: Counters) -> Counters:
    """Of the cell with 64 more loads a tile, in every launch of its first kernel."""
    if "x64" not in counters.cell:
        return counters
    first, *others = counters.kernels
    values = {**first.values, "ldg": tuple((count or 0) - 1 for count in first.values["ldg"])}
    return replace(counters, kernels=(replace(first, values=values), *others))


@recorded
@pytest.mark.parametrize("found", ["no counter", "no counters"])
def test_without_the_counter_nothing_is_found(found: str) -> None:
    counters = evidence("study.jsonl").counters if found == "no counter" else ()
    without = Evidence(tuple(each.without(("ldg",)) for each in counters))
    made = planted_of(verdicts(), without)
    loads = [row for row in made.rows if isinstance(row, PlantedLoads)]
    assert [(row.planted, row.found, row.is_right) for row in loads] == [(None, None, False)] * 2
    assert not made.found_all


@pytest.mark.parametrize(
    ("gbps", "ns"), [(4814.304, 2500), (2039, 5500), (1555, 7000), (1008, 11_000), (448, 24_000)]
)
def test_the_planted_wait_is_one_per_cent_of_the_call_on_any_gpu(gbps: float, ns: int) -> None:
    """H200, H100 PCIe, A100, RTX 4090, RTX 5060 Ti: what is less than 0.4 % would be no change."""
    call_ns = 8 * 32_768 * 2 * 8 * 128 * 2 / gbps
    assert spin_ns(gbps) == ns
    assert 0.0095 < ns / call_ns < 0.0125


def test_the_planted_wait_of_a_gpu_that_does_not_say_is_as_on_an_h200() -> None:
    assert bandwidth_of(CPU) is None
    assert planted_contrasts()[-1].other.name.endswith("_y2500")


def test_planted_cells_are_counted_once_each() -> None:
    names = [cell.name for cell in planted_cells(PLANTED)]
    assert len(names) == len(set(names)) == 5


def test_a_wait_is_right_where_its_interval_holds_it() -> None:
    assert PlantedWait("c", 2.5, 2.6, 2.4, 2.8).is_right
    assert not PlantedWait("c", 2.5, 2.6, 2.51, 2.8).is_right


def test_the_table_shows_what_was_found_and_how_small_it_might_have_been() -> None:
    rows = (
        PlantedWord("a", "hidden", "exposed"),
        PlantedLoads("b"),
        PlantedWait("c", 2.5, 2.6, 2.4, 2.8),
    )
    text = planted_table(Planted(rows=rows, detectable=0.0051))
    assert [line.split() for line in text.splitlines()[1:] if line[0] in "abc"] == [
        ["a", "verdict", "hidden", "exposed", "NO"],
        ["b", "counter", "(LDG)", "None", "None", "NO"],
        ["c", "clock", "(us)", "2.5", "2.6", "2.4", "to", "2.8", "yes"],
    ]
    assert text.endswith("detectable effect: 0.51%")
    assert planted_table(Planted(rows=rows)).splitlines()[-1].endswith("yes")


# --- from end to end, with every instrument replaced ------------------------------------------


def slower(groups: Sequence[Interleaved], bench: Bench) -> None:
    """Four processes in which B takes 2.5 us more than A, or as much where it is A."""
    for group in groups:
        one, other = group.cells
        for _ in range(4):
            group.add(rounds(group.cells, (400.0, 400.0 if one == other else 402.5)))


@recorded
def test_a_self_test_counts_once_reads_once_and_writes_all_it_rests_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Sequence[Cell]] = []

    def counted(cells: Sequence[Cell], *_: object) -> list[Counters]:
        asked.append(cells)
        names = {cell.name for cell in cells}
        return [each for each in evidence("study.jsonl").counters if each.cell in names]

    opened: list[Path] = []
    read = store._lines
    monkeypatch.setattr(store, "_lines", lambda path: opened.append(path) or read(path))
    monkeypatch.setattr(planting, "bandwidth_of", lambda device: None)
    monkeypatch.setattr(planting, "counted_and_trusted", counted)
    monkeypatch.setattr(planting, "interleave", slower)
    evidence("study.jsonl")
    opened.clear()
    out = tmp_path / "out.jsonl"
    made = selftest(Bench(GPU, Options(), out, silent))
    assert (len(asked), opened) == (1, [out])
    found = store.read([out])
    assert len(found.of(Counters)) == 5
    assert [each.contrast for each in found.of(Verdict)] == [each.name for each in PLANTED]
    (stored,) = found.of(Planted)
    assert stored.rows == made.rows
    loads = [row for row in made.rows if isinstance(row, PlantedLoads)]
    assert all(row.is_right for row in loads)
    (wait,) = [row for row in made.rows if isinstance(row, PlantedWait)]
    assert (wait.planted, wait.is_right) == (2.5, True)
