"""Recorded doses, concluded again."""

from __future__ import annotations

import json

import pytest

from fakes import H200
from pagebench.harness.contrasts import LADDERS
from pagebench.harness.judging.explain import (
    conclude,
)
from pagebench.harness.records import store
from pagebench.harness.records.dose import Dose

recorded = pytest.mark.skipif(not H200.exists(), reason="the records are not installed")


@recorded
@pytest.mark.parametrize("name", ["study", "study_other_gpu", "study_third_gpu"])
def test_recorded_doses_follow_from_their_steps_and_counters(name: str) -> None:
    """They were written with what they follow; the oldest do not tell which of it was tested."""
    path = H200 / f"{name}.jsonl"
    lines = [line for line in map(json.loads, path.open()) if line["kind"] == "dose"]
    doses = store.read([path], Dose).of(Dose)
    assert [each.regime for each in doses] == [ladder.name for ladder in LADDERS]
    for line, each in zip(lines, doses, strict=True):
        found = conclude(each)
        fitting = list(map(list, [*found.follows, *found.untested]))
        assert fitting == [*line["follows"], *line.get("untested", ())]
