"""Reports: every value of a row against one worked out by hand, and nothing shown cut."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from pagebench.harness.cell import Cell
from pagebench.harness.environment import Environment
from pagebench.harness.records.timing import Asked, Block, Check, Predicted, Samples, Timing
from pagebench.harness.show.grouped import pivot, repeats
from pagebench.harness.show.machine import timing_json
from pagebench.harness.show.text import markdown, plain
from pagebench.harness.show.timings import HEADINGS, Row, cells_of, command, notes, row, tall
from pagebench.harness.timing.options import Options, default_options
from pagebench.harness.timing.stats import summarise
from pagebench.kernels.device import CPU, Device

NAME = "xqa_shared_p16"
# ranks 2 and 9: 11.5 and 12.4
TIMES = (12.3, 11.6, 12.0, 11.8, 12.2, 11.5, 12.4, 12.0, 11.4, 12.5)
GPU = Device("cuda", "an H200", 0, (9, 0))


def samples(times: tuple[float, ...] = TIMES, floor: float = 1.0, *blocks: Block) -> Samples:
    return Samples(times, floor, blocks or (Block(0, 1980, 3201),), "time")


def predicted(distinct_kv_bytes: int) -> Predicted:
    return Predicted(
        index_entries=0,
        distinct_kv_bytes=distinct_kv_bytes,
        read_kv_bytes=distinct_kv_bytes,
        compulsory_bytes=distinct_kv_bytes,
        flop=0,
        device_bytes=distinct_kv_bytes,
    )


ENVIRONMENT = Environment(nominal_dram_gbps=4800.0, other_processes=0)


def record(time_us: tuple[float, ...] = TIMES, floor_us: float = 1.0, **changes: Any) -> Timing:
    fields: dict[str, Any] = {
        "cell": NAME,
        "boundary": "run",
        "clock": "events",
        "l2": "cold",
        "status": "measured",
        "axes": Cell.parse(NAME).axes(),
        "started": "now",
        "device": "cuda",
        "samples": samples(time_us, floor_us),
        "resolved": {"kernel": "mha_sm90", "splits": 4},
        "predicted": predicted(33_554_432),
        "environment": ENVIRONMENT,
    }
    fields |= changes
    fields.setdefault("asked", Asked(seconds=2.0, device=fields["device"]))
    return Timing(**fields)


def refused() -> Timing:
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
        NAME, "run", "events", "cold", "measured", 12.0, 11.5, 12.4, 1.0, None, None,
        kernel="mha_sm90", splits="4", note="", command=f"pagebench run {NAME}",
    )  # fmt: skip


def test_a_row_as_text_stands_in_the_order_of_the_headings() -> None:
    shown = dict(zip(HEADINGS, cells_of(row(record())), strict=True))
    assert list(shown.values())[:4] == [NAME, "run", "events, cold", "12.00"]
    assert (shown["95 % interval"], shown["floor us"]) == ("11.50 to 12.40", "1.00")
    assert (shown["GB/s"], shown["of nominal"]) == ("2796", "58.3%")
    assert (shown["resolved kernel"], shown["splits"]) == ("mha_sm90", "4")


def test_a_low_bandwidth_keeps_two_digits() -> None:
    slow = row(record(predicted=predicted(1_199_000)))  # in 12 us
    assert cells_of(slow)[6] == "99.92"
    assert cells_of(row(record(predicted=predicted(1_200_000))))[6] == "100"


@pytest.mark.parametrize(
    "changes", [{"boundary": "plan", "l2": "warm", "clock": "wall"}, {"predicted": None}]
)
def test_planning_and_unknown_bytes_have_no_bandwidth(changes: dict[str, Any]) -> None:
    shown = row(record(**changes))
    assert (shown.gbps, shown.of_nominal, shown.time_us) == (None, None, 12.0)


def test_without_a_nominal_bandwidth_there_is_no_share_of_it() -> None:
    shown = row(record(environment=Environment()))
    assert shown.of_nominal is None
    assert shown.gbps == pytest.approx(2796.2027)


def test_a_refused_cell_has_a_reason_and_no_number() -> None:
    shown = row(refused())
    assert (shown.time_us, shown.low_us, shown.floor_us, shown.gbps) == (None,) * 4
    assert shown.note == "refused: it has no pages of 3 | 5"
    assert cells_of(shown)[3:8] == ("",) * 5


def test_json_adds_what_identifies_the_measurement() -> None:
    found = timing_json(record(process=2))
    assert (found["process"], found["axes"]["page_size"]) == (2, 16)
    assert found["predicted"]["distinct_kv_bytes"] == 33_554_432
    assert {name: found[name] for name in ("time_us", "low_us", "high_us")} == {
        "time_us": 12.0, "low_us": 11.5, "high_us": 12.4}  # fmt: skip


# --- Notes ----------------------------------------------------------------------------------------

TWO_MODES = tuple(100 + step / 10 for step in range(31)) + tuple(
    120 + step / 10 for step in range(11)
)


def notes_of(made: Timing) -> list[str]:
    return notes(made, summarise(made.samples.time_us) if made.samples else None)


def test_two_modes_are_noted_with_their_medians_and_share() -> None:
    assert notes_of(record(TWO_MODES)) == ["bimodal: 101.5 and 120.5 us (26% slow)"]


@pytest.mark.parametrize(("floor", "found"), [(1.2, []), (1.21, ["under 10 floors"])])
def test_a_time_under_ten_floors_is_noted(floor: float, found: list[str]) -> None:
    assert notes_of(record(floor_us=floor)) == found


def with_blocks(*blocks: Block) -> Timing:
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
    assert notes_of(record(environment=Environment(other_processes=others))) == found


@pytest.mark.parametrize(
    ("splits", "said"), [(1, ", 1 split\n"), (4, ", 4 splits\n"), ("auto", ", auto splits\n")]
)
def test_a_terminal_reads_one_split_and_more_splits(splits: int | str, said: str) -> None:
    shown = tall([row(record(resolved={"kernel": "mha", "splits": splits}))])
    assert f"mha{said}" in f"{shown}\n"


def test_all_notes_stand_in_one_cell() -> None:
    throttled = samples(TIMES, 1.0, Block(0, None, None, ("power cap",)))
    noted = record(samples=throttled, environment=Environment(other_processes=2))
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


def test_a_markdown_row_has_as_many_columns_as_headings() -> None:
    lines = markdown(HEADINGS, map(cells_of, map(row, (record(), refused())))).split("\n")
    assert {line.replace("\\|", "").count("|") for line in lines} == {len(HEADINGS) + 1}


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
    same = structs.replace(samples((100.0, 110.0, 90.0), 0.1), events_us=(102.5, 112.4, 92.6),
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
    assert repeats(group)[1] == [(NAME, "events, cold", "3", "101.00", "1.98%", "unimodal")]


def test_repeats_find_modes_that_no_single_process_shows() -> None:
    fast, slow = TWO_MODES[:31], TWO_MODES[31:]
    (found,) = repeats([record(fast), record(slow, process=1)])[1]
    assert found[2:] == ("2", "111.00", "17.12%", "bimodal: 101.5 and 120.5 us (26% slow)")


def test_repeats_leave_out_what_was_measured_once_or_in_another_way() -> None:
    assert repeats([record(), record(l2="warm"), record(clock="graph"), refused()])[1] == []


@pytest.mark.parametrize(
    ("cell", "check", "told"),
    [
        (NAME, Check(tolerance=0.0075, requests=65, of_requests=65), []),
        (NAME, Check(tolerance=0.0075, requests=32, of_requests=65), ["checked 32 of 65 requests"]),
        ("mine_shared_p16", Check(tolerance=0.02, requests=1, of_requests=1), []),
        (
            "mine_shared_p16",
            Check(tolerance=0.001, requests=1, of_requests=1),
            ["claims an error of at most 0.001"],
        ),
    ],
)
def test_what_was_not_compared_and_what_is_claimed_is_said(
    cell: str, check: Check, told: list[str]
) -> None:
    """3acd176 kept the number of compared requests in the record alone."""
    wide = tuple(100.0 + at % 3 for at in range(30))
    found = record(wide, cell=cell, check=check)
    assert notes(found, summarise(wide)) == told
