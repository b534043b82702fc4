"""The codec: every record of the tree reads, survives a round trip, and damage is named."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes import RESULTS
from pagebench.harness.environment import Environment
from pagebench.harness.records import codec, store
from pagebench.harness.records.base import as_it_was
from pagebench.harness.records.caveats import NoTime, Throttled
from pagebench.harness.records.ceilings import MeasuredCeilings
from pagebench.harness.records.codec import KINDS
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.dose import Dose
from pagebench.harness.records.planted import Planted
from pagebench.harness.records.speed import Speed
from pagebench.harness.records.timing import Timing
from pagebench.harness.records.verdict import Verdict

FILES = sorted(RESULTS.glob("*/*.jsonl"))
SPEED = Speed(what="a thing", all_seconds=(3.0, 1.0, 2.0), limit_s=2.0, statistic="median")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def is_old(line: dict[str, Any]) -> bool:
    """Whether an upgrade that changes something lies before the line."""
    upgrades = KINDS[codec.kind_of(line)].upgrades[line["schema"] - 1 :]
    return any(upgrade.apply is not as_it_was for upgrade in upgrades)


def first(kind: str) -> dict[str, Any]:
    """The first recorded line of that kind, as it was written at the time."""
    return next(line for path in FILES for line in lines(path) if codec.kind_of(line) == kind)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_recorded_line_reads_and_survives_a_round_trip(path: Path) -> None:
    for line in lines(path):
        record = codec.from_json(line)
        assert codec.from_json(json.loads(codec.encode(record))) == record


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_an_upgrade_loses_no_number_that_cannot_be_worked_out_again(path: Path) -> None:
    """Totals, ratios and shares that older schemas stored are what their values give today."""
    for line in filter(is_old, lines(path)):
        record = codec.from_json(line)
        if isinstance(record, Counters):
            stored = {name: float(entry["value"]) for name, entry in line["total"].items()}
            assert {name: count.value for name, count in record.total.items()} == stored
            assert record.ratios == line["ratios"]
        if isinstance(record, MeasuredCeilings) and record.launch_us:
            launch = line["launch_us"]
            assert (record.launch_us.first, record.launch_us.further) == (
                launch["first"],
                launch["further"],
            )
            assert {name: rate.value for name, rate in record.rates.items()} == {
                name: line[name]["value"] for name in record.rates
            }
        if isinstance(record, Planted):
            assert [row.is_right for row in record.rows] == [row["right"] for row in line["rows"]]
        if isinstance(record, Verdict):
            old = line if line["schema"] > 1 else line | {"predicts": line["predicted"]}
            word = old.get("word", line.get("verdict"))
            assert record.predicts == old.get("predicts")
            # Schema 2 had a word that hid what the time did.
            effects = ("exposed", "hidden", "unexplained") if word == "confounded" else (word,)
            assert record.word in effects
        if isinstance(record, Timing) and record.samples:
            assert list(record.samples.time_us) == line["samples"]["time_us"]


def test_the_three_shapes_of_a_verdict_and_the_two_of_a_dose_become_one() -> None:
    shapes = {"verdict": set(), "dose": set()}  # type: dict[str, set[tuple[str, ...]]]
    for path in FILES:
        for line in filter(is_old, lines(path)):
            if line["kind"] in shapes and line["schema"] == 1:
                shapes[line["kind"]].add(tuple(sorted(line)))
                assert isinstance(codec.from_json(line), Verdict | Dose)
    assert [len(found) for found in shapes.values()] == [3, 2]


def test_notes_among_a_verdicts_sentences_become_caveats() -> None:
    line = first("verdict") | {"because": [*first("verdict")["because"], "throttled: power cap"]}
    record = codec.from_json(line)
    assert isinstance(record, Verdict)
    assert record.caveats[-1] == Throttled(("power cap",))


def test_a_sentence_that_schema_1_never_had_is_an_error() -> None:
    with pytest.raises(ValueError, match="no such sentence: the moon was full"):
        codec.from_json(first("verdict") | {"because": ["the moon was full"]})


@pytest.mark.parametrize("kind", KINDS)
def test_a_newer_schema_is_refused_with_what_is_read(kind: str) -> None:
    newest = KINDS[kind].schema
    for schema in (newest + 1, 0, True, None, "1"):
        with pytest.raises(
            ValueError, match=f"{codec.called(kind)} of schema {schema}; .* 1 to {newest}"
        ):
            codec.from_json({"kind": kind, "schema": schema})


@pytest.mark.parametrize("kind", KINDS)
def test_every_schema_number_has_a_line_of_history(kind: str) -> None:
    numbers = [int(line.split(":")[0]) for line in codec.history(kind)]
    assert numbers == list(range(1, KINDS[kind].schema + 1))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "speed"])
def test_a_damaged_record_of_any_kind_is_named_by_file_and_line(kind: str, tmp_path: Path) -> None:
    whole, complaints = first(kind), 0
    for name in whole:
        if name in ("kind", "schema", "written", "started"):
            continue
        path = tmp_path / "damaged.jsonl"
        path.write_text(json.dumps(whole | {name: {"a": [None]}}) + "\n")
        said = _said_of(path)
        assert not said or said.startswith(f"{path}, line 1: {codec.called(kind)}")
        assert "\n" not in said
        complaints += bool(said)
    assert complaints


def _said_of(path: Path) -> str:
    """What reading the file complains of; empty where a derived field was damaged."""
    try:
        store.read([path])
    except store.StoreError as error:
        return str(error)
    return ""


def test_what_json_cannot_hold_is_not_written_as_null() -> None:
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="not JSON compliant"):
            codec.encode(replace(SPEED, limit_s=value))


def test_a_field_at_its_default_is_absent_and_the_number_is_there() -> None:
    assert json.loads(codec.encode(SPEED)) == {
        "kind": "speed", "schema": 3, "what": "a thing", "all_seconds": [3.0, 1.0, 2.0],
        "limit_s": 2.0, "statistic": "median",
    }  # fmt: skip


def test_the_statistic_says_which_seconds_count() -> None:
    assert SPEED.seconds == 2.0
    assert SPEED.is_kept
    assert replace(SPEED, statistic="best").seconds == 1.0


def test_records_are_of_the_kinds_asked_for_and_the_newest_is_last(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    old = replace(SPEED, written="2026-01-01", what="old")
    store.append(path, replace(SPEED, written="2026-02-02"), old)
    found = store.read([path])
    assert [each.what for each in found.of(Speed)] == ["old", "a thing"]
    assert store.read([path], Timing).lines == ()
    assert store.read([path], Timing).kinds == {"speed"}


def test_an_environment_that_says_nothing_takes_no_room() -> None:
    assert "environment" not in json.loads(codec.encode(replace(SPEED, environment=Environment())))


BROKEN: dict[str, tuple[str, dict[str, Any], str]] = {
    "one launch": (
        "ceilings",
        {"launch_us": {"first": 2.0, "further": 1.0, "by_launches": {"1": 2.0}, "saturated": True}},
        "a ceilings record: launches need the times of two counts or more",
    ),
    "an unknown instrument": (
        "planted",
        {"rows": [{"cell": "x", "instrument": "eye"}]},
        "a planted record: instrument eye; there are verdict, counter",
    ),
    "two kinds of extra work": (
        "attack",
        {"variants": [{"cells": ["a", "b"], "work": {"ldg": 1, "index_entries": 2}}]},
        "an attack record: a variant has the extra work of one name",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_old_line_that_says_the_impossible_is_one_line(case: str, tmp_path: Path) -> None:
    kind, damage, says = BROKEN[case]
    path = tmp_path / "broken.jsonl"
    path.write_text(json.dumps(first(kind) | damage) + "\n")
    assert f"{path}, line 1: {says}" in _said_of(path)


def test_a_reason_of_several_lines_survives_its_upgrade() -> None:
    lost = {"because": ["no time: crashed: boom\nand more"], "verdict": "unclear", "time": None}
    record = codec.from_json(first("verdict") | lost | {"time_us": None, "floors": None})
    assert isinstance(record, Verdict)
    assert record.caveats == (NoTime("crashed", "boom\nand more"),)


def test_a_whole_line_with_nan_is_not_taken_for_one_that_a_kill_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "nan.jsonl"
    path.write_text('{"kind":"timing","schema":3,"floor_us":NaN}\n')
    assert _said_of(path) == f"{path}, line 1: NaN and Infinity are not JSON"
    path.write_text('{"kind":"timing","schema":3,"floor_us":Na')
    assert _said_of(path) == ""
