"""Recorded attacks, concluded again."""

from __future__ import annotations

import pytest

from fakes import H200
from pagebench.harness.judging import attack as attacks
from pagebench.harness.records import store
from pagebench.harness.records.attack import Attack

recorded = pytest.mark.skipif(not H200.exists(), reason="the records are not installed")


@recorded
@pytest.mark.parametrize("name", ["study", "study_other_gpu", "study_third_gpu"])
def test_recorded_attacks_follow_from_their_variants(name: str) -> None:
    words = {}
    for attack in store.read([H200 / f"{name}.jsonl"], Attack).of(Attack):
        assert attacks.word_of(attack.how, attack.variants) == attack.word
        words[attack.how] = attack.word
    assert words == {"context": "scales", "kernel": "reverses"}
