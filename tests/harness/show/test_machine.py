"""What `--json` prints: the keys that it had before records had types, and what follows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes import H200
from pagebench.harness.records import store
from pagebench.harness.records.attack import Attack
from pagebench.harness.records.audit import Audit
from pagebench.harness.records.base import Record
from pagebench.harness.records.calibration import Calibration
from pagebench.harness.records.ceilings import MeasuredCeilings
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.dose import Dose
from pagebench.harness.records.planted import Planted
from pagebench.harness.records.speed import Speed
from pagebench.harness.records.verdict import Verdict
from pagebench.harness.show import machine, sentences

SEEN = {"l1_requests of cal_async_ca": True}
VIEWS: list[tuple[str, type[Record], Callable[[Any], dict[str, Any]]]] = [
    ("study", Verdict, machine.verdict_json),
    ("study", Dose, machine.dose_json),
    ("study", Attack, machine.attack_json),
    ("study", Planted, machine.planted_json),
    ("study", MeasuredCeilings, machine.ceilings_json),
    ("study", Counters, machine.counters_json),
    ("speed", Speed, machine.speed_json),
    ("audit", Audit, machine.audit_json),
    ("calibration", Calibration, lambda found: machine.calibration_json(found, SEEN)),
]


def as_written(path: Path, kind: str) -> list[dict[str, Any]]:
    """Lines of schema 1, as they were printed and written at the time; the newest last."""
    lines = map(json.loads, path.read_text().splitlines())
    found = [line for line in lines if line["kind"] == kind]
    return sorted(found, key=lambda line: str(line.get("started") or line.get("written") or ""))


@pytest.mark.parametrize(
    ("name", "kind", "view"), VIEWS, ids=[kind.__name__ for _, kind, _ in VIEWS]
)
def test_no_key_of_before_is_lost_and_json_takes_it(
    name: str, kind: type[Record], view: Callable[[Any], dict[str, Any]]
) -> None:
    path = H200 / f"{name}.jsonl"
    records = store.read([path], kind).of(kind)
    tag = str(kind.__struct_config__.tag)
    assert records
    for record, old in zip(records, as_written(path, tag), strict=True):
        told = json.loads(json.dumps(view(record), allow_nan=False))
        # The page sizes of a dose are its values.
        assert old.keys() - {"pages"} <= told.keys(), old.keys() - told.keys()
        assert told["kind"] == tag


@pytest.mark.parametrize("key", ["verdict", "predicted", "time_us", "floors", "why"])
def test_a_verdict_says_what_it_said(key: str) -> None:
    path = H200 / "study.jsonl"
    records = store.read([path], Verdict).of(Verdict)
    for record, old in zip(records, as_written(path, "verdict"), strict=True):
        told = json.loads(json.dumps(machine.verdict_json(record)))
        if key == "verdict" and old[key] == "confounded":  # a word that hid what the time did
            assert told[key] in ("exposed", "hidden", "unexplained")
        else:
            assert told[key] == old[key]


# Words of schema 1, and what they became: the numbers between them stay.
REWORDED = {
    r"an effect of ([\d.]+%) would be found": r"detectable effect \1",
    "no stable counter moved": "no stable counter changed",
    "work moved: ": "work changed: ",
    "from none": "from zero",
    r"\(its busy share": "(from its busy share",
    "no counted work gives": "no counted work explains",
    "one cost for each (.*) that B is predicted to do beyond A": (
        r"one cost per extra \1 predicted for B"
    ),
    "so would a cost of anything else that a tile does, for all of it grows with the context: this "
    "singles out no counter": sentences.SCALING_BESIDES,
}


def today(sentence: str) -> str:
    for old, new in REWORDED.items():
        sentence = re.sub(old, new, sentence)
    return sentence


def test_the_words_of_recorded_conclusions_are_the_recorded_ones() -> None:
    path = H200 / "study.jsonl"
    views: tuple[tuple[type[Record], Any], ...] = (
        (Verdict, machine.verdict_json),
        (Attack, machine.attack_json),
    )
    for kind, view in views:
        records = store.read([path], kind).of(kind)
        for record, old in zip(
            records, as_written(path, str(kind.__struct_config__.tag)), strict=True
        ):
            told = map(today, filter(is_kept, old["because"]))
            said = [line.removesuffix(sentences.NO_SIZE) for line in view(record)["because"]]
            assert list(filter(is_kept, said)) == list(told)


def is_kept(sentence: str) -> bool:
    """Another binary, and work against the time, are told of more verdicts than they were."""
    return not re.search("no prediction gives the|moved in opposite directions", sentence)


def test_totals_of_counters_and_numbers_of_doses_are_the_recorded_ones() -> None:
    path = H200 / "study.jsonl"
    counters = store.read([path], Counters).of(Counters)
    for record, old in zip(counters, as_written(path, "counters"), strict=True):
        told = machine.counters_json(record)
        values = {name: entry["value"] for name, entry in told["total"].items()}
        assert values == {name: entry["value"] for name, entry in old["total"].items()}
        assert told["ratios"] == old["ratios"]
    for dose, old in zip(store.read([path], Dose).of(Dose), as_written(path, "dose"), strict=True):
        told = machine.dose_json(dose)
        assert (told["time_us"], told["steps_us"]) == (old["time_us"], old["steps_us"])


def test_what_was_planted_says_whether_it_is_right() -> None:
    (planted,) = store.read([H200 / "study.jsonl"], Planted).of(Planted)
    told = machine.planted_json(planted)
    assert told["found_all"]
    assert {row["instrument"] for row in told["rows"]} == {
        "verdict", "counter (LDG)", "clock (us)",
    }  # fmt: skip
    assert all(row["right"] for row in told["rows"])
