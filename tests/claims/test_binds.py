"""What binds in the recorded studies."""

from __future__ import annotations

import pytest

from fakes import H200
from fakes.made import ON_H200, evidence
from pagebench.harness.judging.binds import path_of
from pagebench.harness.records import store
from pagebench.harness.records.dose import Dose
from pagebench.harness.records.select import State
from pagebench.harness.show.sentences import binding

COLD = State(ON_H200, "cold")


recorded = pytest.mark.skipif(not H200.exists(), reason="the records are not installed")


@recorded
@pytest.mark.parametrize(
    ("name", "binds"),
    [
        ("study", ["latency", "latency", "DRAM", "DRAM"]),
        ("study_other_gpu", ["latency", "L2", "DRAM", "DRAM"]),
        ("study_third_gpu", ["latency", "latency", "DRAM", "DRAM"]),
    ],
)
def test_on_three_h200s_dram_binds_pages_of_64_and_more_and_those_of_16_are_just_under_the_rule(
    name: str, binds: list[str]
) -> None:
    doses = {dose.regime: dose for dose in store.read([H200 / f"{name}.jsonl"], Dose).of(Dose)}
    found = evidence(f"{name}.jsonl")
    assert len(found.ceilings) == 1
    counted = {each.cell: each for each in found.counters}
    dose = doses["distinct"]
    paths = [
        path_of(counted[cell], COLD, us.middle_us, found)
        for cell, us in zip(dose.cells, dose.times, strict=True)
    ]
    assert [path and binding(path) for path in paths] == binds
    assert paths[0] is not None
    assert paths[0].share == pytest.approx(0.894, abs=0.005)
