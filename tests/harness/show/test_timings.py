"""Reports: every value of a row against one worked out by hand, and nothing shown cut."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from fakes import H200
from pagebench.harness.cell import Cell
from pagebench.harness.environment import PAGEBENCH
from pagebench.harness.records.timing import Block, Record, Samples
from pagebench.harness.show import timings as report
from pagebench.harness.show.timings import (
    HEADINGS,
    Row,
    as_json,
    cells_of,
    command,
    fold,
    markdown,
    notes,
    pivot,
    plain,
    repeats,
    row,
    tall,
    under_environments,
)
from pagebench.harness.timing.measure import Options, default_options
from pagebench.harness.timing.stats import summarise
from pagebench.kernels.device import CPU, Device

NAME = "xqa_shared_p16"
TIMES = (14.0, 10.0, 12.0, 11.0, 13.0, 9.0, 15.0, 12.0, 8.0, 16.0)  # ranks 2 and 9: 9 and 15
GPU = Device("cuda", "an H200", 0, (9, 0))


def samples(times: tuple[float, ...] = TIMES, floor: float = 1.0, *blocks: Block) -> Samples:
    return Samples(times, floor, blocks or (Block(0, 1980, 3201),), "time")


def record(time_us: tuple[float, ...] = TIMES, floor_us: float = 1.0, **changes: Any) -> Record:
    made = Record(
        NAME, "run", "events", "cold", "measured", Cell.parse(NAME).axes(), "now", "cuda",
        samples=samples(time_us, floor_us),
        resolved={"kernel": "mha_sm90", "splits": 4},
        predicted={"distinct_kv_bytes": 33_554_432},
        environment={"nominal_dram_gbps": 4800.0, "other_processes": 0},
    )  # fmt: skip
    return replace(made, **changes)


def refused() -> Record:
    return record(status="refused", reason="it has no pages of 3 | 5", samples=None)


# --- Rows -----------------------------------------------------------------------------------------


def test_five_samples_have_no_95_percent_interval() -> None:
    few = row(record(time_us=(12.0,) * 5))
    assert (few.time_us, few.low_us, few.high_us) == (12.0, None, None)
    assert few.note.startswith("no interval from 5 samples")
    assert row(record(time_us=(12.0,) * 6)).low_us == 12.0


def test_a_row_holds_what_the_record_gives() -> None:
    shown = row(record())
    assert shown.gbps == pytest.approx(2796.2027)  # 33,554,432 B in 12 us
    assert shown.of_nominal == pytest.approx(0.58254222)
    assert replace(shown, gbps=None, of_nominal=None) == Row(
        NAME, "run", "events", "cold", "measured", 12.0, 9.0, 15.0, 1.0, None, None,
        kernel="mha_sm90", splits="4", note="", command=f"pagebench run {NAME}",
    )  # fmt: skip


def test_a_row_as_text_stands_in_the_order_of_the_headings() -> None:
    shown = dict(zip(HEADINGS, cells_of(row(record())), strict=True))
    assert list(shown.values())[:4] == [NAME, "run", "events, cold", "12.00"]
    assert (shown["95 % interval"], shown["floor us"]) == ("9.00 to 15.00", "1.00")
    assert (shown["GB/s"], shown["of nominal"]) == ("2796", "58.3%")
    assert (shown["resolved kernel"], shown["splits"]) == ("mha_sm90", "4")


def test_a_low_bandwidth_keeps_two_digits() -> None:
    slow = row(record(predicted={"distinct_kv_bytes": 1_199_000}))  # in 12 us
    assert cells_of(slow)[6] == "99.92"
    assert cells_of(row(record(predicted={"distinct_kv_bytes": 1_200_000})))[6] == "100"


@pytest.mark.parametrize(
    "changes", [{"boundary": "plan", "l2": "warm", "clock": "wall"}, {"predicted": {}}]
)
def test_planning_and_unknown_bytes_have_no_bandwidth(changes: dict[str, Any]) -> None:
    shown = row(record(**changes))
    assert (shown.gbps, shown.of_nominal, shown.time_us) == (None, None, 12.0)


@pytest.mark.parametrize("environment", [{}, {"nominal_dram_gbps": None}])
def test_without_a_nominal_bandwidth_there_is_no_share_of_it(environment: dict[str, Any]) -> None:
    shown = row(record(environment=environment))
    assert shown.of_nominal is None
    assert shown.gbps == pytest.approx(2796.2027)


def test_a_refused_cell_has_a_reason_and_no_number() -> None:
    shown = row(refused())
    assert (shown.time_us, shown.low_us, shown.floor_us, shown.gbps) == (None,) * 4
    assert shown.note == "refused: it has no pages of 3 | 5"
    assert cells_of(shown)[3:8] == ("",) * 5


def test_json_adds_what_identifies_the_measurement() -> None:
    found = as_json(record(process=2))
    assert (found["process"], found["axes"]["page_size"]) == (2, 16)
    assert found["predicted"] == {"distinct_kv_bytes": 33_554_432}
    assert {name: found[name] for name in ("time_us", "low_us", "high_us")} == {
        "time_us": 12.0, "low_us": 9.0, "high_us": 15.0}  # fmt: skip


# --- Notes ----------------------------------------------------------------------------------------

TWO_MODES = tuple(100 + step / 10 for step in range(31)) + tuple(
    120 + step / 10 for step in range(11)
)


def notes_of(made: Record) -> list[str]:
    return notes(made, summarise(made.samples.time_us) if made.samples else None)


def test_two_modes_are_noted_with_their_medians_and_share() -> None:
    assert notes_of(record(TWO_MODES)) == ["bimodal: 101.5 and 120.5 us (26% slow)"]


@pytest.mark.parametrize(("floor", "found"), [(1.2, []), (1.21, ["under 10 floors"])])
def test_a_time_under_ten_floors_is_noted(floor: float, found: list[str]) -> None:
    assert notes_of(record(floor_us=floor)) == found


def with_blocks(*blocks: Block) -> Record:
    return record(samples=samples(TIMES, 1.0, *blocks))


def test_reasons_of_throttling_are_noted_once_each_in_order() -> None:
    throttled = with_blocks(
        Block(0, 1980, None, ("software thermal",)), Block(5, 1980, None, ()),
        Block(8, 1980, None, ("power cap", "software thermal")),
    )  # fmt: skip
    assert notes_of(throttled) == ["throttled (power cap, software thermal)"]


@pytest.mark.parametrize(
    ("mhz", "found"),
    [((2000, 1960), []), ((2000, 1959), ["SM clock moved 1959 to 2000 MHz"]), ((None, 1980), []),
     ((1500, None, 1900, 1700), ["SM clock moved 1500 to 1900 MHz"])],
)  # fmt: skip
def test_a_clock_that_moved_by_more_than_2_per_cent_is_noted(
    mhz: tuple[int | None, ...], found: list[str]
) -> None:
    assert notes_of(with_blocks(*(Block(n, clock) for n, clock in enumerate(mhz)))) == found


@pytest.mark.parametrize(
    ("others", "found"),
    [
        (0, []),
        (None, []),
        (1, ["1 other process on the GPU"]),
        (3, ["3 other processes on the GPU"]),
    ],
)
def test_other_processes_are_noted(others: int | None, found: list[str]) -> None:
    assert notes_of(record(environment={"other_processes": others})) == found


@pytest.mark.parametrize(
    ("splits", "said"), [(1, ", 1 split\n"), (4, ", 4 splits\n"), ("auto", ", auto splits\n")]
)
def test_a_terminal_reads_one_split_and_more_splits(splits: int | str, said: str) -> None:
    shown = tall([row(record(resolved={"kernel": "mha", "splits": splits}))])
    assert f"mha{said}" in f"{shown}\n"


def test_all_notes_stand_in_one_cell() -> None:
    noted = replace(with_blocks(Block(0, None, None, ("power cap",))),
                    environment={"other_processes": 2})  # fmt: skip
    assert row(noted).note == "throttled (power cap); 2 other processes on the GPU"


# --- Commands -------------------------------------------------------------------------------------


def options_of(line: str) -> tuple[Cell, Options]:
    """What `pagebench run` makes of a command: its defaults, and the options that it gives."""
    program, verb, name, *words = shlex.split(line)
    assert (program, verb) == ("pagebench", "run")
    given = dict(zip(words[::2], words[1::2], strict=True))
    device = CPU if given.pop("--device", None) == "cpu" else GPU
    usual = default_options(device, given.pop("--boundary", "run"))
    changes: dict[str, Any] = {option[2:]: value for option, value in given.items()}
    return Cell.parse(name), replace(usual, **changes)


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, ""),
        ({"clock": "graph"}, " --clock graph"),
        ({"l2": "warm"}, " --l2 warm"),
        ({"clock": "wall"}, " --clock wall"),
        ({"boundary": "plan", "clock": "wall", "l2": "warm"}, " --boundary plan"),
        ({"boundary": "plan", "clock": "wall", "l2": "cold"}, " --boundary plan --l2 cold"),
        ({"device": "cpu", "clock": "wall"}, " --device cpu"),
        ({"device": "cpu", "clock": "wall", "l2": "warm"}, " --device cpu --l2 warm"),
        ({"device": "cpu", "clock": "wall", "l2": "warm", "boundary": "plan"},
         " --device cpu --boundary plan"),
    ],
)  # fmt: skip
def test_a_command_has_the_options_that_are_not_the_default(
    changes: dict[str, Any], options: str
) -> None:
    made = record(**changes)
    assert command(made) == f"pagebench run {NAME}{options}"
    cell, found = options_of(command(made))
    assert (cell.name, found.boundary, found.clock, found.l2, 0) == made.key


# --- Tables ---------------------------------------------------------------------------------------


def test_markdown_escapes_pipes() -> None:
    table = markdown(("a", "b"), [("1|2", "|"), ("", "x")])
    assert table.split("\n") == ["| a | b |", "| --- | --- |", "| 1\\|2 | \\| |", "|  | x |"]


def test_a_markdown_row_has_as_many_columns_as_headings() -> None:
    lines = markdown(HEADINGS, map(cells_of, map(row, (record(), refused())))).split("\n")
    assert {line.replace("\\|", "").count("|") for line in lines} == {len(HEADINGS) + 1}


def test_plain_aligns_columns_and_leaves_out_those_that_say_nothing() -> None:
    table = plain(("name", "empty", "n"), [("a", "", "1"), ("longer", "", "22")])
    assert table == "name    n\na       1\nlonger  22"


def test_plain_cuts_nothing() -> None:
    long = "x" * 5000
    assert plain(("a", "b"), [(long, "y")]).split("\n")[1] == f"{long}  y"


def test_plain_shows_the_headings_of_an_empty_table() -> None:
    assert plain(("a", "b"), []) == "a  b"


@pytest.mark.parametrize(("columns", "is_upright"), [(13, False), (12, True)])
def test_on_a_terminal_that_is_too_narrow_rows_stand_upright(
    monkeypatch: pytest.MonkeyPatch, columns: int, is_upright: bool
) -> None:
    monkeypatch.setattr(report, "terminal_columns", lambda: columns)
    table = plain(("a", "b", "c"), [("abc", "def", "ghi"), ("x", "", "y")])
    upright = "abc\n    b: def\n    c: ghi\nx\n    c: y"
    assert table == (upright if is_upright else "a    b    c\nabc  def  ghi\nx         y")


def test_prose_is_folded_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "terminal_columns", lambda: 12)
    assert fold("  one two-three four_long_word", 4) == "  one\n    two-three\n    four_long_word"
    monkeypatch.undo()
    assert fold("  " + "word " * 400 + "end", 4).count("\n") == 0  # tests write to no terminal


def lines_on_a_terminal(*words: str, columns: int = 100) -> list[str]:
    """What pagebench prints where its output is a terminal of that width."""
    reads, writes = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns)}
    with subprocess.Popen([*PAGEBENCH, *words], stdout=writes, env=environment):
        os.close(writes)
        text = b""
        try:
            while found := os.read(reads, 4096):
                text += found
        except OSError:  # how Linux says that the other end was closed
            pass
    os.close(reads)
    return text.decode().splitlines()


@pytest.mark.parametrize("words", [
    ["judge"], ["dose"], ["show", "xqa_shared_p16", "study.jsonl"], ["report", "counters.jsonl"],
    ["report", "study.jsonl"], ["report", "clocks.jsonl", "--clocks"],
    ["report", "repeats.jsonl", "--repeats"],
])  # fmt: skip
def test_no_line_is_wider_than_the_terminal(words: list[str]) -> None:
    if not H200.exists():
        pytest.skip("the records are not installed")
    found = [str(H200 / word) if word.endswith("jsonl") else word for word in words]
    lines = lines_on_a_terminal(*found)
    assert len(lines) > 5
    assert max(map(len, lines)) <= 100


def test_an_imported_report_is_named_by_its_chip() -> None:
    assert under_environments([{"capability": [9, 0]}], ("a",), []).splitlines()[0] == (
        "- imported, GPU not named: gh100, capability 9.0; commit unknown"
    )
    assert under_environments([{}], ("a",), []).startswith("- an unknown device; commit unknown")


def test_plain_keeps_a_column_that_one_row_fills() -> None:
    lines = plain(HEADINGS, map(cells_of, map(row, (record(), refused())))).split("\n")
    assert "note" in lines[0]
    assert "refused: it has no pages of 3 | 5" in lines[2]


# --- Clocks side by side --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events_us", "gap", "within"),
    [(103.0, "3.00", "yes"), (103.1, "3.10", "no"), (100.0, "0.00", "yes"), (97.0, "-3.00", "yes"),
     (96.9, "-3.10", "no")],
)  # fmt: skip
def test_events_are_held_to_cupti_by_the_floor_and_one_per_cent(
    events_us: float, gap: str, within: str
) -> None:
    events = record((events_us,), 2.0)
    headings, rows = pivot([record((100.0,), 0.1, clock="cupti"), events])
    shown = dict(zip(headings, rows[0], strict=True))
    assert (shown["cupti us"], shown["events us"]) == ("100.00", f"{events_us:.2f}")
    assert (shown["events floor us"], shown["allowed us"]) == ("2.00", "3.00")
    assert (shown["events - cupti us"], shown["within"]) == (gap, within)


def test_events_of_the_same_calls_are_held_to_their_own_spans() -> None:
    other_process = record((115.0,), 2.0)
    same = replace(samples((100.0, 110.0, 90.0), 0.1), events_us=(102.5, 112.4, 92.6),
                   events_floor_us=2.9)  # fmt: skip
    watched = record(clock="cupti", samples=same)  # fmt: skip
    headings, rows = pivot([other_process, watched])
    shown = dict(zip(headings, rows[0], strict=True))
    assert (shown["events us"], shown["compared on"]) == ("115.00", "the same calls")
    assert (shown["events - cupti us"], shown["allowed us"]) == ("2.50", "3.90")
    assert pivot([watched])[1][0][2:] == rows[0][3:]  # the watched record alone says the same


def test_clocks_without_a_pair_are_not_compared() -> None:
    headings, rows = pivot([record((5.0, 7.0)), record((6.5,), clock="graph"), refused()])
    assert headings == ["cell", "events us", "graph us"]
    assert rows == [(NAME, "6.00", "6.50")]


def test_a_cell_that_lacks_one_of_the_pair_has_empty_columns() -> None:
    other = record((4.0,), cell="xqa_distinct_p16")
    headings, rows = pivot([record(), record(clock="cupti"), other])
    assert headings[:3] == ["cell", "cupti us", "events us"]
    assert rows[1] == ("xqa_distinct_p16", "", "4.00", "", "", "", "", "")


@pytest.mark.parametrize("changes", [{"l2": "warm"}, {"boundary": "plan"}])
def test_one_clocks_medians_in_two_states_do_not_hide_each_other(changes: dict[str, Any]) -> None:
    _, rows = pivot([record((100.0,)), record((50.0,), **changes)])
    shown = {text for line in rows for text in line}
    assert {"100.00", "50.00"} <= shown


def test_events_of_one_state_are_not_held_to_cupti_of_another() -> None:
    _, rows = pivot([record((100.0,)), record((50.0,), clock="cupti", l2="warm")])
    assert all("50.00" not in line[3:] for line in rows)  # no gap: they time different things


# --- Repeats --------------------------------------------------------------------------------------


def test_repeats_show_the_spread_of_medians_over_processes() -> None:
    group = [record((median - 1, median, median + 1), process=n)
             for n, median in enumerate((100.0, 102.0, 101.0))]  # fmt: skip
    assert repeats(group) == [(NAME, "events, cold", "3", "101.00", "1.98%", "unimodal")]


def test_repeats_find_modes_that_no_single_process_shows() -> None:
    fast, slow = TWO_MODES[:31], TWO_MODES[31:]
    (found,) = repeats([record(fast), record(slow, process=1)])
    assert found[2:] == ("2", "111.00", "17.12%", "bimodal: 101.5 and 120.5 us (26% slow)")


def test_repeats_leave_out_what_was_measured_once_or_in_another_way() -> None:
    assert repeats([record(), record(l2="warm"), record(clock="graph"), refused()]) == []
