"""The study's sections: numbers that the records give, and what would make those that lack."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes import H200
from fakes.study_records import (
    FILES,
    OTHER_KINDS,
    POSITIVE,
    SCATTER,
    column,
    counters,
    lines_of,
    medians,
    section,
    written,
)
from pagebench.harness.cell import Cell
from pagebench.harness.contrasts import CONTRASTS
from pagebench.harness.records import store
from pagebench.harness.records.timing import Timing
from pagebench.harness.study import original
from pagebench.harness.study import page as study_page
from pagebench.harness.study.numbers import ratio
from pagebench.harness.study.read import Timed, read
from pagebench.harness.study.section import table_of
from pagebench.harness.study.sections import Study, study
from pagebench.harness.timing.stats import Summary
from pagebench.profiles.ceilings import CriticalPath

pytestmark = pytest.mark.skipif(not H200.exists(), reason="the records are not installed")

SECTIONS = [
    "verdicts", "environment", "gather", "nsight", "plan", "pages", "distinct", "replay",
    "dose", "attacks", "ceilings", "modes", "planted", "reproduce",
]  # fmt: skip


@pytest.fixture(scope="module")
def drawn() -> Study:
    return study(read(FILES))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Of every kind of record."""
    return study(read([*FILES, written(tmp_path_factory.mktemp("kinds"), *OTHER_KINDS)]))


def test_sections_stand_in_order_and_one_without_records_says_what_makes_them(
    drawn: Study,
) -> None:
    assert [each.anchor for each in drawn.sections] == SECTIONS
    lacking = [each.anchor for each in drawn.sections if each.missing]
    assert lacking == ["verdicts", "dose", "attacks", "ceilings", "planted"]
    assert all("`" in section(drawn, anchor).missing for anchor in lacking)


def test_with_every_kind_of_record_no_section_lacks_any(whole: Study) -> None:
    assert [each.anchor for each in whole.sections if each.missing] == []


def test_the_gather_table_is_what_the_placements_give(drawn: Study) -> None:
    found = medians("placements")
    beside, table = section(drawn, "gather").tables
    for heading, where in (("contiguous us", ""), ("scatter us", "_scatter")):
        cells = [f"fidecode_distinct{where}_p1_b{b}_l8192" for b in (1, 4, 16, 32, 128, 256)]
        assert column(table, heading) == [f"{found[cell]:.2f}" for cell in cells]
    both = [found[f"fidecode_distinct{where}_p1_b128_l8192"] for where in ("", "_scatter")]
    assert beside.rows[0][2].startswith(f"{both[1] / both[0] - 1:+.2%} ({both[0] / 1e3:.4f} to")
    assert beside.headings[2] == "NVIDIA H200"


def test_a_footprint_in_two_modes_is_left_out_of_the_range_and_notes_name_cells() -> None:
    beside, table = section(study(read([H200 / "study_other_gpu.jsonl"])), "gather").tables
    assert beside.rows[1][2] == (
        "+1.14% to +1.98%, 0.13 to 4.29 GB, without 0.03 and 8.59 GB, where a cell is bimodal"
    )
    notes = dict(zip(column(table, "GB of KV"), column(table, "note"), strict=True))
    assert notes["4.29"] == "contiguous, block128, scatter: throttled (power cap)"
    assert notes["8.59"].endswith("; scatter: SM clock moved 1912 to 1981 MHz")


def test_a_scaling_attack_names_its_work_and_says_what_it_cannot_tell() -> None:
    first, _ = section(study(read([H200 / "study_other_gpu.jsonl"])), "attacks").text
    assert first.startswith("`xqa_shared_p64` → `xqa_shared_p16`, another context: **scales**.")
    assert "per extra global load (LDG) predicted for B" in first
    assert "does not single out a counter" in first


def test_a_candidate_outside_a_steps_interval_is_marked_and_all_are_plotted() -> None:
    found = section(study(read([H200 / "study_other_gpu.jsonl"])), "dose")
    tried = found.tables[1]
    assert tried.rows[2] == ("ldg (alike: l1_requests)", "0.104", "-21.1 ✕", "-10.5 ✕", "+0.0 ✕",
                             "no")  # fmt: skip
    assert "-0.0" not in str(found)
    labels = re.findall(r">([a-z0-9_, ]+) \(max: ", found.figures[0].svg)
    assert labels == ["instructions", "ldg, l1_requests", "local_loads", "local_stores"]
    assert "xqa_shared_p16 to xqa_shared_p128" in found.figures[0].alt


def test_ceilings_tell_page_sizes_and_throttling_apart() -> None:
    (figure,) = section(study(read([H200 / "study_other_gpu.jsonl"])), "ceilings").figures
    assert re.findall(r">(xqa p\d+|throttled)<", figure.svg) == [
        "xqa p16", "xqa p32", "xqa p64", "xqa p128", "throttled"]  # fmt: skip


def test_a_ratios_interval_is_the_quotient_of_the_far_ends() -> None:
    timing = store.read([H200 / "plan.jsonl"], Timing).of(Timing)[0]
    assert timing.samples
    assert timing.predicted
    one, other = (
        Timed(timing, timing.samples, timing.predicted, summary, "plan.jsonl")
        for summary in (Summary(100.0, 98.0, 103.0, 50), Summary(110.0, 107.0, 112.0, 50))
    )
    assert ratio(other, one) == pytest.approx((1.1, 107 / 103, 112 / 98))


def test_page_tables_hold_times_and_loads_of_the_records(drawn: Study) -> None:
    found = medians("pages")
    (_, shared), (_, short, long) = (section(drawn, a).tables for a in ("pages", "distinct"))
    for table, cells in ((shared, "xqa_shared_p{}"), (short, "xqa_distinct_p{}"),
                         (long, "xqa_distinct_p{}_b32_l8192")):  # fmt: skip
        names = [cells.format(page) for page in (16, 32, 64, 128)]
        assert column(table, "time us") == [f"{found[name]:.2f}" for name in names]
        ldg = [counters(name)["total"]["ldg"]["value"] for name in names]
        assert column(table, "LDG") == [f"{value:,.0f}" for value in ldg]
        assert column(table, "LDG over page 64") == [f"{value / ldg[2]:.2f}" for value in ldg]


def test_plan_times_and_indices_are_the_recorded_ones(drawn: Study) -> None:
    found = medians("plan", "plan")
    beside, table = section(drawn, "plan").tables
    assert column(table, "us") == [f"{time:.2f}" for time in found.values()]
    assert (column(table, "indices")[0], column(table, "indices")[-1]) == ("64", "2,097,152")
    assert beside.rows[0][1].startswith(f"about {original.PLAN_MS}")


def test_a_counter_that_did_not_repeat_is_marked_and_counted(drawn: Study) -> None:
    assert not counters("xqa_shared_p16")["total"]["l2_hits"]["stable"]
    assert column(section(drawn, "pages").tables[1], "L2 hit %")[0].endswith(" *")
    lines = lines_of("counters")
    stable = sum(line["total"]["l2_hits"]["stable"] for line in lines)
    rows = section(drawn, "replay").tables[1].rows
    (row,) = [row for row in rows if row[0] == "l2_hits" and "cold, kernel" in row]
    at = row.index("cold, kernel")
    assert row[at + 1 : at + 3] == (str(len(lines)), str(stable))


def test_a_verdict_is_a_row_and_what_failed_its_prediction_is_told(whole: Study) -> None:
    found = section(whole, "verdicts")
    (said,) = found.text
    assert said == "3 verdicts: 2 as predicted, 1 not (≠, explained below the tables)."
    (told,) = found.after
    assert told.startswith(
        "`xqa_distinct_p64_b32_l8192` → `xqa_distinct_p16_b32_l8192` (vanishing): "
        "**exposed, but hidden was predicted**. In the original study (RTX 5060 Ti) it was "
        "`hidden`; time × 1.2265 [1.2201, 1.2329]; work that changed: ldg × 3.941"
    )
    (table,) = found.tables
    assert table.headings[:3] == ("contrast (knob)", "A", "B")
    rows = {row[0]: (kind, row) for kind, row in zip(table.classes, table.rows, strict=True)}
    assert list(rows) == [f"{contrast.name} ({contrast.knob})" for contrast in CONTRASTS]
    kind, row = rows["vanishing (page size)"]
    assert kind == "exposed failed"
    assert row[1:6] == ("xqa_distinct_p64_b32_l8192", "xqa_distinct_p16_b32_l8192", "hidden",
                        "● exposed ≠", "1.2265 [1.2201, 1.2329]")  # fmt: skip
    assert row[6:] == ("0.83%", "3", "ldg × 3.941")
    assert rows["scatter (placement)"][1][4] == "○ absent"
    assert rows["scatter (placement)"][1][8] == "none"
    assert rows["identity (nothing)"][0] == "not-judged"


PATH = CriticalPath(
    {"launch": 2.0, "L2": 3.0, "issue": 17.0}, ("issue",), ("L2",), (), (), time_us=20.0
)


def test_what_binds_stands_with_its_share_of_the_time_and_every_term(tmp_path: Path) -> None:
    path = written(tmp_path, replace(POSITIVE, path=PATH))
    matrix, terms = section(study(read([path])), "verdicts").tables
    assert column(matrix, "what binds B")[3] == "issue, T 95.0%"  # as recorded: no †
    assert terms.headings == ("B", "launch", "L2", "issue", "T", "measured", "T / measured",
                              "what binds")  # fmt: skip
    assert terms.rows == (
        ("xqa_shared_p16", "2.0", "3.0 *", "17.0", "19.0", "20.0", "95.0%", "issue"),
    )


def test_what_binds_by_todays_rule_is_marked() -> None:
    page = study(read([H200 / "study_other_gpu.jsonl"]))
    matrix = section(page, "verdicts").tables[0]
    assert all(text.endswith(" †") for text in column(matrix, "what binds B"))
    assert "† marks what is recomputed when the page is drawn" in study_page.as_markdown(page)


def test_cells_that_are_no_contrast_get_a_row_of_their_own(tmp_path: Path) -> None:
    other = replace(SCATTER, cells=("xqa_shared_p16", "xqa_shared_p32"), predicts=None)
    (table,) = section(study(read([written(tmp_path, other)])), "verdicts").tables
    assert len(table.rows) == len(CONTRASTS) + 1
    assert column(table, "A")[-1:] + column(table, "B")[-1:] == ["xqa_shared_p16", "xqa_shared_p32"]


def test_dose_ceilings_and_planted_effects_are_drawn(whole: Study) -> None:
    dose, tried = section(whole, "dose").tables
    assert dose.headings == ("tokens per page", "time us", "range over processes", "step us",
                             "step interval", "ldg")  # fmt: skip
    assert dose.rows[:2] == (("16", "8.25", "7.00 to 9.00", "", "", "4,000"),
                             ("32", "6.00", "5.00 to 7.00", "-2.2", "-3.0 to -1.0", "2,000"),
                             )  # fmt: skip
    assert tried.rows[0] == ("measured", "", "-2.2 [-3.0, -1.0]", "-1.0 [-1.5, -0.5]",
                             "+0.0 [-0.1, +0.1]", "")  # fmt: skip
    assert tried.rows[1][0] == "ldg"
    curve, others, reached = section(whole, "ceilings").tables
    assert curve.rows[0] == ("17", "4,480", "no")
    assert others.rows == (
        ("issue, 10^9 warp instructions per second", "1,001", "16: 1,000, 32: 1,001", "yes"),
        ("launch, us", "first 2.5, further 1.25", "1: 2.5, 2: 3.75", "no"),
    )
    of_ceiling = dict(zip(column(reached, "cell"), column(reached, "of the ceiling"), strict=True))
    gbps = 1_073_741_824 / medians("pages")["xqa_distinct_p128_b32_l8192"] / 1e3
    assert of_ceiling["xqa_distinct_p128_b32_l8192"] == f"{gbps / 4600:.1%}"  # 2^30 bytes
    assert section(whole, "planted").tables[0].rows[0][2:] == (
        "1.25",
        "1.24",
        "1.23",
        "1.26",
        "yes",
    )
    assert section(whole, "attacks").tables[0].rows[0][3:5] == ("+40.50", "+30.00 to +50.00")


def test_every_bimodal_timing_has_its_strip(drawn: Study) -> None:
    found = section(drawn, "modes")
    assert len(found.figures) == len(found.tables[0].rows) > 0
    assert ("xqa_shared_p128", "pages.jsonl") in {(r[0], r[-1]) for r in found.tables[0].rows}


def test_every_drawn_row_has_a_command_and_the_command_parses(whole: Study) -> None:
    commands = column(section(whole, "reproduce").tables[0], "command")
    assert len(commands) == len(set(commands))
    assert {
        "pagebench run xqa_shared_p16",
        "pagebench ceilings",
        "pagebench run fidecode_distinct_p1_b128_l16384 --boundary plan",
    } <= set(commands)
    names = {word for line in commands for word in line.split() if word.count("_") > 1}
    assert all(Cell.parse(name).name == name for name in names)


def test_timings_that_are_not_drawn_are_counted() -> None:
    (line,) = [text for text in section(study(read([H200 / "clocks.jsonl"])), "environment").text
               if "not drawn" in text]  # fmt: skip
    assert "3 crashed" in line
    assert "1 wrong" in line


def test_columns_that_say_nothing_are_left_out_and_numbers_stand_right() -> None:
    table = table_of("", ("a", "b", "c"), [("1,024", "", "about 3"), ("+1.2% [0, 2]", "", "4")])
    assert table.headings == ("a", "c")
    assert table.numeric == (True, False)
