"""A time that is no measurement says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes import made, pagebench_here
from pagebench.harness.cell import Cell
from pagebench.harness.records import store
from pagebench.harness.records.timing import Asked, Block, Samples, Timing
from pagebench.harness.show.grouped import repeats
from pagebench.harness.show.sentences import time_line

NAME = "gather_distinct_p16"
NOTE = "no measurement: the interval is wider than a fifth of the time"
WILD = tuple(19_000.0 + 35_000.0 * at for at in range(31))  # 19 ms to 1,069 ms
STEADY = tuple(1000.0 + at for at in range(31))


def timing(times: tuple[float, ...], process: int = 0) -> Timing:
    return Timing(
        cell=NAME,
        boundary="run",
        clock="wall",
        l2="cold",
        status="measured",
        axes=Cell.parse(NAME).axes(),
        started=f"2026-01-01T00:00:0{process}+00:00",
        device="cpu",
        asked=Asked(seconds=2.0, device="cpu"),
        samples=Samples(times, 0.1, (Block(0),), "time"),
        process=process,
    )


@pytest.mark.parametrize(("times", "is_noted"), [(WILD, True), (STEADY, False)])
def test_a_wide_interval_is_noted_in_the_table_and_the_records_note(
    times: tuple[float, ...], is_noted: bool, tmp_path: Path
) -> None:
    """3acd176 printed a time with an interval from 19 ms to 1,069 ms, and no note."""
    path = tmp_path / "a.jsonl"
    store.append(path, timing(times))
    assert (NOTE in " ".join(pagebench_here("report", str(path)).stdout.split())) is is_noted
    (row,) = map(json.loads, pagebench_here("report", str(path), "--json").stdout.splitlines())
    assert (NOTE in row["note"]) is is_noted


@pytest.mark.parametrize(("half", "is_noted"), [(99.0, False), (101.0, True)])
def test_a_fifth_of_the_median_is_the_limit(half: float, is_noted: bool, tmp_path: Path) -> None:
    """Low and high are the range of six samples."""
    times = (1000 - half, 1000 - half, 1000.0, 1000.0, 1000 + half, 1000 + half)
    path = tmp_path / "a.jsonl"
    store.append(path, timing(times))
    assert (NOTE in pagebench_here("report", str(path), "--json").stdout) is is_noted


def test_a_range_of_too_few_samples_is_noted_too(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    store.append(path, timing((100.0, 900.0)))
    said = pagebench_here("report", str(path), "--json").stdout
    assert NOTE in said
    assert "no interval from 2 samples" in said


def test_processes_that_disagree_are_no_measurement_together() -> None:
    apart = repeats([timing(STEADY), timing(tuple(2 * each for each in STEADY), 1)])[1]
    assert apart[0][4].endswith(", no measurement")
    alike = repeats([timing(STEADY), timing(STEADY, 1)])[1]
    assert alike[0][4] == "0.00%"


@pytest.mark.parametrize(
    ("half", "word", "is_said"),
    [(0.5, "changed", True), (0.01, "changed", False), (0.5, "unclear", False)],
)
def test_a_verdict_says_that_the_size_of_a_change_is_not_measured(
    half: float, word: str, is_said: bool
) -> None:
    """An effect may be certain while its size is not: [1.5, 2.5] leaves out 1."""
    line = time_line(made.change(word, 2.0, half), 1)
    assert line.endswith(": it changed, but by how much is no measurement") is is_said
