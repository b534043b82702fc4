"""A cell that beats a measured ceiling: the ceiling falls, or the time does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes import H200, pagebench
from fakes.made import ceilings
from pagebench.harness.records import store
from pagebench.harness.records.timing import Check, Timing
from pagebench.profiles.ceilings import Point

pytestmark = pytest.mark.skipif(not H200.exists(), reason="the records are not installed")
CELL = "xqa_distinct_p64_b32_l8192"
PASSED = Check(tolerance=0.01, requests=1, of_requests=1, error_needles=0.0)


def recorded(check: Check | None = PASSED, **fields: Any) -> Timing:
    found = store.read([H200 / "pages.jsonl"], Timing).of(Timing)
    timing = next(each for each in found if each.cell == CELL and each.clock == "events")
    return replace(timing, check=check, **fields)


def drawn(folder: Path, timing: Timing, share: float | None, *words: str) -> str:
    """What a command prints of a time that reaches that share of the ceiling; None: no ceiling."""
    assert timing.samples is not None
    assert timing.predicted is not None
    times = sorted(timing.samples.time_us)
    gbps = timing.predicted.distinct_kv_bytes / times[len(times) // 2] / 1e3
    curve = () if share is None else (Point(2**20, gbps / share, True),)
    path = folder / "runs" / "all.jsonl"
    path.parent.mkdir(exist_ok=True)
    store.append(path, timing, *([ceilings(dram_read=curve)] if curve else []))
    done = pagebench(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


SHOW, REPORT = ("show", CELL), ("report", "runs/all.jsonl")


@pytest.mark.parametrize("command", [SHOW, REPORT])
def test_a_time_above_the_ceiling_refutes_it_where_needles_passed(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    """3acd176 printed 101 % of what this GPU reads without a word."""
    said = drawn(tmp_path, recorded(), 1.01, *command)
    assert "beats the measured ceiling of" in said
    assert "GB/s: ceiling refuted" in said


@pytest.mark.parametrize("command", [SHOW, REPORT])
@pytest.mark.parametrize(
    "check", [None, replace(PASSED, error_needles=None), replace(PASSED, error_needles=0.5)]
)
def test_a_time_above_the_ceiling_does_not_stand_without_needles(
    check: Check | None, command: tuple[str, ...], tmp_path: Path
) -> None:
    """3acd176 knew no needles: such a time looked like any other."""
    said = drawn(tmp_path, recorded(check), 1.01, *command)
    assert "no needles passed through this call: the time does not stand" in said
    assert "refuted" not in said


@pytest.mark.parametrize("share", [0.9, 1.0, 1.004])
def test_within_its_uncertainty_a_ceiling_stands(share: float, tmp_path: Path) -> None:
    """Or every second cell at the ceiling would refute it."""
    assert "beats" not in drawn(tmp_path, recorded(), share, *SHOW)


@pytest.mark.parametrize("fields", [{"l2": "warm"}, {"boundary": "plan"}])
def test_what_need_not_come_from_dram_beats_no_ceiling(
    fields: dict[str, str], tmp_path: Path
) -> None:
    """A warm cell reads from the cache, and planning reads no KV."""
    assert "beats" not in drawn(tmp_path, recorded(**fields), 1.5, *REPORT)


def test_without_a_ceiling_of_this_gpu_the_card_says_so(tmp_path: Path) -> None:
    """3acd176 left the share out, and no word in its place."""
    said = drawn(tmp_path, recorded(), None, *SHOW)
    assert "no measured ceiling of this GPU for as many bytes" in said
