"""The study's page puts together only what was measured alike, or names the difference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes import H200 as RECORDED
from fakes import pagebench_here
from fakes.made import ceilings, change, rounds
from fakes.ncu_pages import recorded
from pagebench.harness.cell import Cell
from pagebench.harness.contrasts import find_contrasts
from pagebench.harness.environment import Environment
from pagebench.harness.judging.verdict import verdict_of
from pagebench.harness.records import store
from pagebench.harness.records.base import Record
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.select import Evidence
from pagebench.harness.records.timing import Timing
from pagebench.harness.records.verdict import Verdict
from pagebench.harness.timing.interleaved import Interleaved

PAIR = ("xqa_shared_p64", "xqa_shared_p16")
H200 = Environment(
    gpu="NVIDIA H200", uuid="GPU-11111111-2222-3333", sm_count=132, driver="580.1", cuda="13.0",
    capability=(9, 0), mig=False, versions={"torch": "2.13.0"}, variables={},
)  # fmt: skip
CALLS: tuple[dict[str, str | int], ...] = (
    {"kernel": "k", "splits": 4},
    {"kernel": "k", "splits": 4},
)
OF_MODEL: dict[str, dict[str, Any]] = {
    "SMs 66 and 132": {"sm_count": 66},
    "slice 1g.18gb and the whole GPU": {"mig_slice": "1g.18gb"},
    "capability (9, 1) and (9, 0)": {"capability": (9, 1)},
}
OF_SOFTWARE: dict[str, dict[str, Any]] = {
    "driver 570.9 and 580.1": {"driver": "570.9"},
    "CUDA 12.8 and 13.0": {"cuda": "12.8"},
    "torch 2.9.0 and 2.13.0": {"versions": {"torch": "2.9.0"}},
    "variables CUDA_X=1 and none": {"variables": {"CUDA_X": "1"}},
}
OF_CALL: dict[str, dict[str, Any]] = {
    "binary cubin:ff and cubin:00": {"binary": "cubin:ff"},
    "splits 9 and 4": {"resolved": {"kernel": "k", "splits": 9}},
    "kernel other and k": {"resolved": {"kernel": "other", "splits": 4}},
}
WHERE = {name: {"environment": replace(H200, **f)} for name, f in (OF_MODEL | OF_SOFTWARE).items()}
EVERY = WHERE | OF_CALL
NOT_USED = "the counters of xqa_shared_p16 are not used, for they are of something else: "
USED = "the counters of xqa_shared_p16 are not of the timed run: "


def counted(cell: str = PAIR[1], **fields: Any) -> Counters:
    (found,) = (each for each in recorded() if each.cell == cell)
    known = {"environment": H200, "binary": "cubin:00", "resolved": CALLS[1]}
    return replace(found, **known | fields)


def judged(**fields: Any) -> Verdict:
    """A verdict on the pair that knew no counters."""
    known: dict[str, Any] = {"contrast": "", "knob": "page size", "cells": PAIR, "among": 1}
    known |= {"word": "likely exposed", "time": change(), "time_us": (100.0, 110.0)}
    known |= {"environment": H200, "resolved": CALLS, "binary": ("cubin:64", "cubin:00")}
    return Verdict(**known | fields)


def drawn(folder: Path, *records: Record) -> str:
    path = folder / "s.jsonl"
    path.unlink(missing_ok=True)
    store.append(path, *records)
    done = pagebench_here("study", str(path), "--out", str(folder / "page"))
    assert done.returncode == 0, done.stderr
    return (folder / "page" / "study.md").read_text(encoding="utf-8")


def row(page: str) -> str:
    """The line of the matrix about the pair."""
    found = [line for line in page.splitlines() if all(f"| {cell} " in line for cell in PAIR)]
    return found[0]


@pytest.mark.parametrize("name", EVERY)
def test_what_binds_is_worked_out_from_counters_of_that_call_and_model(
    name: str, tmp_path: Path
) -> None:
    """3acd176 took the newest counters of a GPU of that name, whatever they were counted of."""
    of_gpu = ceilings(environment=H200)
    alike = row(drawn(tmp_path, judged(), counted(), of_gpu))
    assert "†" in alike
    assert "not of the timed run" not in alike
    assert "not used" not in alike
    said = row(drawn(tmp_path, judged(), counted(**EVERY[name]), of_gpu))
    is_used = name in OF_SOFTWARE
    assert ("†" in said) is is_used
    assert f"{USED if is_used else NOT_USED}{name}" in said


@pytest.mark.parametrize("name", [*OF_MODEL, *OF_CALL])
def test_older_counters_of_the_very_call_are_preferred(name: str, tmp_path: Path) -> None:
    """The newest ones are of another call or model: 3acd176 drew those."""
    both = (counted(written="2026-01-01"), counted(written="2026-02-02", **EVERY[name]))
    said = row(drawn(tmp_path, judged(), *both, ceilings(environment=H200)))
    assert "†" in said
    assert "not used" not in said


@pytest.mark.parametrize("name", EVERY)
def test_of_an_old_verdict_only_what_it_knows_is_compared(name: str, tmp_path: Path) -> None:
    """It does not say what ran."""
    old = judged(resolved=(), binary=())
    said = row(drawn(tmp_path, old, counted(**EVERY[name]), ceilings(environment=H200)))
    assert ("†" in said) is (name not in OF_MODEL)
    assert ("not used" in said) is (name in OF_MODEL)


@pytest.mark.parametrize("name", [*OF_MODEL, *OF_SOFTWARE])
def test_ceilings_of_another_model_bind_nothing_and_other_software_is_named(
    name: str, tmp_path: Path
) -> None:
    """3acd176 took the newest ceilings of a GPU of that name."""
    said = row(drawn(tmp_path, judged(), counted(), ceilings(**WHERE[name])))
    assert ("†" in said) is (name in OF_SOFTWARE)
    assert (f"the ceilings are not of the timed run: {name}" in said) is (name in OF_SOFTWARE)


def test_a_verdict_says_what_ran() -> None:
    cells = tuple(map(Cell.parse, PAIR))
    group = Interleaved(cells, 1)
    for _ in range(4):
        told = {"environment": H200, "resolved": CALLS, "binary": ("cubin:64", "cubin:00")}
        group.add(rounds(cells, [100.0, 110.0], [100.1, 110.1], **told))
    found = verdict_of(find_contrasts(PAIR)[0], group, "cold", Evidence())
    assert (found.resolved, found.binary) == (CALLS, ("cubin:64", "cubin:00"))


# --- A time and its counters in one row -----------------------------------------------------------


def timed(cell: str = PAIR[1], **fields: Any) -> Timing:
    every = store.read([RECORDED / "pages.jsonl"], Timing).of(Timing)
    found = next(each for each in every if (each.cell, each.clock) == (cell, "events"))
    known: dict[str, Any] = {"environment": H200, "binary": "cubin:00", "resolved": CALLS[1]}
    return replace(found, **known | fields)


def of_page(page: str, tokens: int) -> dict[str, str]:
    """The row of that page size, by heading; columns that are empty in all rows are not drawn."""
    lines = page.splitlines()
    begins = next(at for at, line in enumerate(lines) if line.startswith("| tokens per page "))
    found = next(line for line in lines[begins:] if line.startswith(f"| {tokens} "))
    cells = ([cell.strip() for cell in line.split("|")] for line in (lines[begins], found))
    return dict(zip(*cells, strict=True))


@pytest.mark.parametrize("name", EVERY)
def test_counters_of_another_call_do_not_stand_in_a_times_row(name: str, tmp_path: Path) -> None:
    """3acd176 put the newest counters of the model beside a time."""
    alike = of_page(drawn(tmp_path, timed(), counted()), 16)
    assert alike["LDG"]
    found = of_page(drawn(tmp_path, timed(), counted(**EVERY[name])), 16)
    is_used = name in OF_SOFTWARE
    assert found.get("LDG", "") == (alike["LDG"] if is_used else "")
    assert f"{USED if is_used else NOT_USED}{name}" in found["note"]


# --- A time and the ceiling -----------------------------------------------------------------------

STREAM = "xqa_distinct_p16"


@pytest.mark.parametrize("name", OF_MODEL)
def test_no_share_of_another_models_ceiling_is_drawn(name: str, tmp_path: Path) -> None:
    """3acd176 divided by the newest ceilings of a GPU of that name."""
    time = timed(STREAM)

    def reached(**where: Any) -> str:
        page = drawn(tmp_path, time, ceilings(**where))
        after = page[page.index("Bandwidth reached") :]
        return next(line for line in after.splitlines() if line.startswith(f"| {STREAM} "))

    alike, other = reached(environment=H200), reached(**WHERE[name])
    assert alike.count("%") == other.count("%") + 1
    assert f"the ceilings are not used, for they are of something else: {name}" in other
