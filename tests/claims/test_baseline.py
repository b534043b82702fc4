"""The committed baseline and the committed counters."""

from __future__ import annotations

from fakes import H200
from fakes.ncu_pages import recorded
from pagebench.harness.counting import baseline


def test_the_committed_baseline_is_that_of_the_committed_counters() -> None:
    assert baseline.changes(baseline.load(H200 / "baseline.json").counts, recorded()) == []
