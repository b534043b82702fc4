"""The recorded self-test, worked out again."""

from __future__ import annotations

import pytest

from fakes import H200
from fakes.made import evidence
from pagebench.harness.contrasts import planted_contrasts
from pagebench.harness.instruments.planted import planted_of
from pagebench.harness.records import store
from pagebench.harness.records.planted import Planted
from pagebench.harness.records.verdict import Verdict

recorded = pytest.mark.skipif(not H200.exists(), reason="the records are not installed")


PLANTED = planted_contrasts()


def verdicts() -> list[Verdict]:
    """The study's, of what was planted."""
    found = {
        each.contrast: each for each in store.read([H200 / "study.jsonl"], Verdict).of(Verdict)
    }
    return [found[contrast.name] for contrast in PLANTED]


@recorded
def test_the_studys_planted_record_follows_from_its_verdicts_and_counters() -> None:
    (stored,) = store.read([H200 / "study.jsonl"], Planted).of(Planted)
    made = planted_of(verdicts(), evidence("study.jsonl"))
    assert made.rows == stored.rows
    assert made.found_all
    assert made.detectable == stored.detectable
