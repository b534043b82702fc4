"""Records and their files: what a status allows, what survives JSON, a kill and a resume."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from fakes import DATA
from pagebench.harness.cell import Cell
from pagebench.harness.environment import Environment
from pagebench.harness.records import codec, store
from pagebench.harness.records.speed import Speed
from pagebench.harness.records.store import StoreError
from pagebench.harness.records.timing import (
    MOST_SAMPLES,
    STATUSES,
    Asked,
    Block,
    Check,
    Samples,
    Timing,
)
from pagebench.harness.timing.options import Options
from pagebench.harness.workers.sweep import Job, exit_code, jobs, pending, recorded
from pagebench.kernels.device import CPU

CELL = Cell.parse("xqa_shared_p16")
OTHER = Cell.parse("xqa_distinct_p64")
GOLDEN = DATA / "timing_schema1.jsonl"
SAMPLES = Samples((3.0, 1.5, 2.0), 0.25, (Block(0, 1980, 3201, ("power cap",)),), "time")
ENDED = [status for status in STATUSES if status != "measured"]


def measured(cell: Cell = CELL, **changes: Any) -> Timing:
    record = Timing(
        cell=cell.name,
        boundary="run",
        clock="events",
        l2="cold",
        status="measured",
        axes=cell.axes(),
        started="now",
        device="cuda",
        asked=Asked(seconds=2.0, device="cuda:0"),
        samples=SAMPLES,
    )
    return replace(record, **changes)


def ended(status: str, **changes: Any) -> Timing:
    return measured(status=status, samples=None, reason="because", **changes)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def line_of(record: Timing, **changes: Any) -> str:
    return json.dumps(codec.to_json(record) | changes, separators=(",", ":")) + "\n"


def read(path: Path) -> list[Timing]:
    return store.read([path], Timing).of(Timing)


def through_json(record: Timing) -> Any:
    return codec.from_json(json.loads(codec.encode(record)))


# --- What a status allows -------------------------------------------------------------------------


@pytest.mark.parametrize("status", ENDED)
def test_only_a_measured_record_has_a_time(status: str) -> None:
    assert ended(status).samples is None
    with pytest.raises(ValueError, match=f"a {status} record must not have samples"):
        measured(status=status, reason="because")


@pytest.mark.parametrize("status", ENDED)
def test_a_record_that_was_not_measured_says_why(status: str) -> None:
    with pytest.raises(ValueError, match=f"a {status} record must have a reason"):
        measured(status=status, samples=None)


def test_a_measured_record_has_samples_and_no_reason() -> None:
    with pytest.raises(ValueError, match="a measured record must have samples"):
        measured(samples=None)
    with pytest.raises(ValueError, match="a measured record must not have a reason"):
        measured(reason="because")


def test_an_unknown_status_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="status slow; there are measured, refused, wrong"):
        measured(status="slow")


@pytest.mark.parametrize("times", [(), (1.0,) * (MOST_SAMPLES + 1)])
def test_a_record_holds_1_to_200_samples(times: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=f"{len(times)} samples; a record holds 1 to 200"):
        replace(SAMPLES, time_us=times)


@pytest.mark.parametrize("time_us", [0.0, -1.0])
def test_a_sample_took_time(time_us: float) -> None:
    with pytest.raises(ValueError, match="positive, finite time"):
        replace(SAMPLES, time_us=(1.0, time_us))


def test_the_key_is_the_name_and_what_it_was_measured_with() -> None:
    assert measured(process=3).key == ("xqa_shared_p16", "run", "events", "cold", 3)
    assert measured(elapsed_s=9.0, device="cpu", started="later").key == measured().key


# --- JSON -----------------------------------------------------------------------------------------

NUMBERS = st.floats(1e-3, 1e6)
WORDS = st.text(max_size=8)
SAMPLE_SETS = st.builds(
    Samples,
    time_us=st.lists(NUMBERS, min_size=1, max_size=20).map(tuple),
    floor_us=NUMBERS,
    blocks=st.lists(
        st.builds(
            Block,
            st.integers(0, 199),
            st.none() | st.integers(1, 3000),
            st.none() | st.integers(1, 9000),
            st.lists(WORDS, max_size=2).map(tuple),
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
    stopped=st.sampled_from(["interval", "samples", "time"]),
    discarded=st.integers(0, 9),
    sum_us=st.lists(NUMBERS, max_size=3).map(tuple),
    kernels=st.lists(WORDS, max_size=3).map(tuple),
)
VALUES = st.booleans() | st.integers(0, 2**53) | NUMBERS | WORDS
RESOLVED = st.dictionaries(WORDS, VALUES, max_size=4)
ENVIRONMENTS = st.builds(
    Environment,
    versions=st.dictionaries(WORDS, WORDS, max_size=2),
    gpu=st.none() | WORDS,
    capability=st.none() | st.tuples(st.integers(1, 12), st.integers(0, 9)),
    dirty=st.none() | st.booleans(),
    nominal_dram_gbps=st.none() | NUMBERS,
    load=st.none() | NUMBERS,
)


@settings(max_examples=60, deadline=None)
@given(SAMPLE_SETS, ENVIRONMENTS, RESOLVED, st.integers(0, 9))
def test_a_measured_record_survives_json(
    samples: Samples, environment: Environment, resolved: dict[str, Any], process: int
) -> None:
    record = measured(samples=samples, environment=environment, resolved=resolved, process=process)
    assert through_json(record) == record


@pytest.mark.parametrize("status", ENDED)
def test_a_record_without_a_time_survives_json(status: str) -> None:
    check = Check(tolerance=0.01, requests=1, of_requests=2, error_before=0.5)
    record = ended(status, check=check, elapsed_s=1.25)
    assert through_json(record) == record


def test_the_first_schemas_record_is_still_read() -> None:
    (record,) = read(GOLDEN)
    assert record.cell == "gather_distinct_scatter_p16_b3_l100_r50_h4x2_d64"
    assert record.key[1:] == ("run", "wall", "cold", 0)
    assert record.samples is not None
    assert (len(record.samples.time_us), record.samples.time_us[1]) == (5, 641.042)
    assert (record.samples.blocks, record.samples.floor_us) == ((Block(0),), 0.11)
    assert record.predicted is not None
    assert record.predicted.distinct_kv_bytes == 287 * 2 * 2 * 64 * 2


def said(value: Any) -> Any:
    """JSON without what says nothing, as today's schema writes it."""
    if isinstance(value, list):
        return [said(each) for each in value]
    if not isinstance(value, dict):
        return value
    told = {name: said(each) for name, each in value.items()}
    return {name: each for name, each in told.items() if each not in (None, [], {}, 0)}


def test_the_first_schemas_record_says_the_same_in_todays(tmp_path: Path) -> None:
    (record,) = read(GOLDEN)
    store.append(tmp_path / "again.jsonl", record)
    again, first = (json.loads(path.read_text()) for path in (tmp_path / "again.jsonl", GOLDEN))
    assert again["schema"] == codec.KINDS["timing"].schema
    asked = first.pop("options")
    assert said(again) == said(first | {"asked": asked, "schema": again["schema"]})


def test_the_first_schemas_record_has_the_axes_of_its_cell() -> None:
    (record,) = read(GOLDEN)
    cell = Cell.parse(record.cell)
    assert cell.name == record.cell
    since = {"planted_loads": 0, "planted_ns": 0}  # axes that this schema has gained
    first = json.loads(GOLDEN.read_text())
    assert asdict(cell.axes()) == first["axes"] | since
    assert cell.axes() == record.axes


def test_a_newer_schema_is_no_timing_record() -> None:
    with pytest.raises(ValueError, match=r"a timing record of schema 5; .* reads 1 to 4"):
        codec.from_json(codec.to_json(measured()) | {"schema": 5})


def test_another_kind_is_no_timing_record(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", line_of(measured(), kind="speed"))
    assert store.read([path], Timing).lines == ()


def test_a_kind_that_is_no_word_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", line_of(measured(), kind=None))
    with pytest.raises(store.StoreError, match="line 1: not a pagebench record"):
        store.read([path], Timing)


def test_a_field_that_this_schema_does_not_have_is_named() -> None:
    """A change of shape moves the schema's number: such a line is damaged, not newer."""
    with pytest.raises(ValueError, match="unknown field `mood`"):
        codec.from_json(codec.to_json(measured()) | {"mood": "good"})


# --- Files ----------------------------------------------------------------------------------------


def test_records_are_appended_in_order_and_nothing_before_them_changes(tmp_path: Path) -> None:
    path, records = tmp_path / "new" / "runs.jsonl", [measured(process=n) for n in range(3)]
    before = ""
    for record in records:
        store.append(path, record)
        now = path.read_text()
        assert now == before + line_of(record)
        before = now
    assert read(path) == records


def test_a_record_is_whole_in_the_file_when_it_is_forced_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "runs.jsonl", []
    monkeypatch.setattr(os, "fsync", lambda handle: seen.append(path.read_text()))
    store.append(path, measured())
    assert seen == [line_of(measured())]


def cut_lines(whole: str, cuts: range) -> list[str]:
    return [whole[:cut] for cut in cuts]


def unread(path: Path, lines: list[str]) -> list[str]:
    """Those cut-off last lines that keep the record before them from being read."""
    bad = []
    for line in lines:
        write(path, line_of(measured()) + line)
        try:
            assert read(path) == [measured()]
        except StoreError:
            bad.append(line)
    return bad


def test_a_last_line_that_a_kill_cut_off_is_passed_over(tmp_path: Path) -> None:
    whole = line_of(measured(process=1))
    assert unread(tmp_path / "runs.jsonl", cut_lines(whole, range(8, len(whole) - 1))) == []


def test_a_last_line_cut_off_after_its_first_bytes_is_passed_over(tmp_path: Path) -> None:
    whole = line_of(measured(process=1))
    assert unread(tmp_path / "runs.jsonl", cut_lines(whole, range(1, 8))) == []


def test_a_kind_is_known_wherever_it_stands_in_its_line(tmp_path: Path) -> None:
    """`jq -S` sorts a line's keys."""
    line = json.dumps(codec.to_json(measured()), sort_keys=True)
    assert not line.startswith(store.STARTS)
    path = write(tmp_path / "sorted.jsonl", line + "\n")
    assert read(path) == [measured()]


def test_a_cut_off_last_line_of_another_kind_is_passed_over(tmp_path: Path) -> None:
    whole = codec.encode(Speed(what="it", all_seconds=(1.0,), limit_s=2.0, statistic="best"))
    assert unread(tmp_path / "runs.jsonl", cut_lines(whole, range(8, len(whole)))) == []


def test_a_last_line_that_lacks_only_its_end_is_a_record(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", line_of(measured()).rstrip("\n"))
    assert read(path) == [measured()]


@pytest.mark.parametrize("cut", [1, 9, 100, -2])
def test_the_next_record_after_a_cut_off_line_starts_a_line(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "runs.jsonl", line_of(measured()) + line_of(measured(process=1))[:cut])
    before = path.read_text()
    store.append(path, measured(process=2))
    assert path.read_text() == before + "\n" + line_of(measured(process=2))


def test_records_on_both_sides_of_a_cut_off_line_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", line_of(measured()) + line_of(measured(process=1))[:200])
    store.append(path, measured(process=2))
    assert [record.process for record in read(path)] == [0, 2]


WITHOUT_BLOCKS = {"time_us": [1.0], "floor_us": 1.0, "stopped": "time"}
CORRUPT = {
    "not JSON": ("}{\n", "not a JSON record"),
    "a list": ("[1, 2]\n", "not a pagebench record"),
    "no kind": ('{"cell":"xqa_shared_p16"}\n', "not a pagebench record"),
    "a newer schema": (line_of(measured(), schema=5), "a timing record of schema 5; .* 1 to 4"),
    "a field missing": ('{"kind":"timing","schema":3}\n', "missing"),
    "a field missing before": ('{"kind":"timing","schema":1}\n', "schema 1 lacks 'axes'"),
    "an unknown status": (line_of(measured(), status="slow"), "status slow"),
    "a field of another type before": (
        '{"kind":"timing","schema":1,"axes":3}\n',
        "a timing record of schema 1 is damaged: a field has the wrong type",
    ),
    "samples of no record": (line_of(ended("crashed"), status="measured", reason=None), "samples"),
    "blocks missing": (
        line_of(measured(), samples={"time_us": [1.0], "floor_us": 1.0, "stopped": "time"}),
        "blocks",
    ),
    "a schema in words": (line_of(measured(), schema="one"), "of schema one; this pagebench"),
}


@pytest.mark.parametrize("case", CORRUPT)
def test_a_corrupt_line_is_an_error_that_names_file_and_line(tmp_path: Path, case: str) -> None:
    corrupt, message = CORRUPT[case]
    path = write(tmp_path / "runs.jsonl", line_of(measured()) + corrupt + line_of(measured()))
    with pytest.raises(StoreError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}, line 2: ")


def test_other_kinds_and_empty_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    write(path, '{"kind":"speed","schema":9,"seconds":0.1}\n')
    store.append(path, measured())
    path.write_text(path.read_text() + "\n\n" + line_of(ended("refused")))
    assert [record.status for record in read(path)] == ["measured", "refused"]


def test_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, line_of(measured(process=number)))
             for number, name in enumerate(("b", "a"))]  # fmt: skip
    assert [timing.process for timing in store.read(paths, Timing).of(Timing)] == [0, 1]


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "No such file": lambda path: None,
    "directory": lambda path: path.mkdir(),
    "not valid UTF-8": lambda path: path.write_bytes(b"\xff\xfe"),
}


@pytest.mark.parametrize("reason", UNREADABLE)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, reason: str) -> None:
    path = tmp_path / "runs.jsonl"
    UNREADABLE[reason](path)
    with pytest.raises(StoreError, match=reason) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = write(tmp_path / "file", "") / "runs.jsonl"
    with pytest.raises(StoreError, match=str(blocked)):
        store.append(blocked, measured())


# --- Sweeps ---------------------------------------------------------------------------------------


def test_jobs_finish_a_process_before_the_next_and_a_cell_before_the_next() -> None:
    made = jobs([CELL, OTHER], Options(seconds=1.5), ["events", "graph"], ["cold", "warm"], 2, CPU)
    one = [(cell.name, "run", clock, l2) for cell in (CELL, OTHER)
           for clock in ("events", "graph") for l2 in ("cold", "warm")]  # fmt: skip
    assert [job.key for job in made] == [(*key, process) for process in (0, 1) for key in one]
    assert {job.options.seconds for job in made} == {1.5}


def test_a_job_and_its_record_have_one_key() -> None:
    job = Job(CELL, Options("plan", "wall", "warm", process=2))
    record = measured(boundary="plan", clock="wall", l2="warm", process=2)
    assert job.key == record.key


def test_a_new_file_has_all_jobs_pending(tmp_path: Path) -> None:
    wanted = jobs([CELL, OTHER], Options(), ["events"], ["cold"], 1, CPU)
    assert recorded(wanted, tmp_path / "none.jsonl") == []
    assert pending(wanted, [], {}) == [(job, ()) for job in wanted]


def test_what_the_file_has_is_not_pending_unless_it_crashed(tmp_path: Path) -> None:
    wanted = jobs([CELL, OTHER], Options(), ["events", "cupti"], ["cold"], 2, CPU)
    lines = [line_of(measured(process=1)), line_of(ended("crashed"), cell=OTHER.name)]
    path = write(tmp_path / "runs.jsonl", "".join(lines) + line_of(measured(process=0))[:300])
    left = [job.key for job, _ in pending(wanted, recorded(wanted, path), {})]
    gone = [job.key for job in wanted if job.key not in left]
    assert gone == [(CELL.name, "run", "events", "cold", 1)]
    assert len(left) == 7


def test_a_refused_job_is_pending_once_it_would_not_be_refused(tmp_path: Path) -> None:
    gather = Cell.parse("gather_distinct_p16")
    wanted = jobs([CELL, gather], Options(clock="wall"), ["wall"], ["cold"], 1, CPU)
    before = [ended("refused", cell=job.cell, clock="wall") for job in wanted]
    assert [(job.cell, why) for job, why in pending(wanted, before, {})] == [
        (gather, ("it was refused",))
    ]


@pytest.mark.parametrize(
    ("statuses", "code"),
    [("measured", 0), ("measured refused", 0), ("refused", 2), ("", 2), ("measured crashed", 1),
     ("wrong", 1), ("refused poisoned", 1), ("measured rejected refused", 1)],
)  # fmt: skip
def test_the_exit_code_is_1_after_a_failure_and_2_after_nothing(statuses: str, code: int) -> None:
    records = [measured() if word == "measured" else ended(word) for word in statuses.split()]
    assert exit_code(records) == code
