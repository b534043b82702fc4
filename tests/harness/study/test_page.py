"""The study's page: every section, numbers that the records give, and nothing from outside.

Verdicts, doses, ceilings and planted effects here are made up to be drawn; they are no results.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import asdict, replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import H200, pagebench
from pagebench.harness.cell import Cell
from pagebench.harness.contrasts import CONTRASTS
from pagebench.harness.judging.judge import headline, time_sentence
from pagebench.harness.judging.verdict import Work, judge
from pagebench.harness.records import store
from pagebench.harness.study import original as seed
from pagebench.harness.study import page as study_page
from pagebench.harness.study.figures import strip
from pagebench.harness.study.read import Timed, read
from pagebench.harness.study.section import Section, Table, ratio, table_of
from pagebench.harness.study.sections import Study, study
from pagebench.harness.timing.change import Change
from pagebench.harness.timing.stats import Modes, Summary

NAMES = ("placements", "pages", "plan", "counters", "counters_shared_dram", "kernels", "repeats")
FILES = [H200 / f"{name}.jsonl" for name in NAMES]
pytestmark = pytest.mark.skipif(not H200.exists(), reason="the records are not installed")

SECTIONS = [
    "verdicts", "environment", "gather", "nsight", "plan", "pages", "distinct", "replay",
    "dose", "attacks", "ceilings", "modes", "planted", "reproduce",
]  # fmt: skip
ALIKE = {"symbol": True, "launch": True, "resources": True}


def verdict(name: str, change: Change, changed: dict[str, float]) -> dict[str, Any]:
    contrast = next(each for each in CONTRASTS if each.name == name)
    work = Work(changed, ("ldg", "dram_read_bytes"), tuple(changed), ALIKE)
    found = judge(change.word, time_sentence(change, 1), work, 80.0)
    return {
        "kind": "verdict", "schema": 1, "contrast": name, "knob": contrast.knob,
        "cells": [contrast.one, contrast.other], "verdict": found.word,
        "headline": headline(found, contrast.predicts), "predicted": contrast.predicts,
        "because": list(found.because), "time": asdict(change), "work": asdict(work),
    }  # fmt: skip


SAME = Change("same", 1.0012, 0.9975, 1.0049, 3, 0.0061)
SLOWER = Change("changed", 1.2265, 1.2201, 1.2329, 3, 0.0083)
OTHER_KINDS = [
    verdict("scatter", SAME, {}),
    verdict("positive", SLOWER, {"ldg": 3.9406}),
    verdict("vanishing", SLOWER, {"ldg": 3.9406}),
    {"kind": "ceilings", "schema": 2, "gpu": "NVIDIA H200",
     "launch_us": {"first": 2.5, "further": 1.25, "by_launches": {"1": 2.5, "2": 3.75},
                   "saturated": False},
     "issue_ginst": {"value": 1001.0, "by_warps": {"16": 1000.0, "32": 1001.0},
                     "saturated": True},
     "dram_read": [{"bytes_read": 2**power, "gbps": 4000.0 + 20 * power, "saturated": power > 25}
                   for power in range(24, 34)]},
    {"kind": "dose", "schema": 1, "regime": "shared", "knob": "page size", 
     "cells": ["xqa_shared_p16", "xqa_shared_p128"], "pages": [16, 32, 64, 128],
     "time_us": [[7.0, 8.25, 9.0], [5, 6, 7], [4, 5, 6], [4, 5, 6]],
     "steps_us": [[-3, -2.25, -1], [-1.5, -1, -0.5], [-0.1, 0, 0.1]],
     "counters": {"ldg": [4000, 2000, 1000, 1000], "tma": [0, 0, 0, 0]}, "follows": [["ldg"]],
     "because": ["made up"]},
    {"kind": "planted", "schema": 1, "rows": [
        {"cell": "tritontile_distinct_p64_y1250", "instrument": "clock (us)", "planted": 1.25,
         "found": 1.24, "low": 1.23, "high": 1.26, "right": True}], "detectable": 0.007},
    {"kind": "attack", "schema": 1, "attack": "kernel", "word": "reverses",
     "cells": ["xqa_shared_p64", "xqa_shared_p16"], "because": ["made up"],
     "variants": [{"cells": ["xqa_shared_p64", "xqa_shared_p16"], "time": asdict(SLOWER),
                   "delta_us": [30.0, 40.5, 50.0], "work": {"ldg": 304128}}]},
]  # fmt: skip


@pytest.fixture(scope="module")
def drawn() -> Study:
    return study(read(FILES))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Of every kind of record."""
    return study(read([*FILES, written(tmp_path_factory.mktemp("kinds"), OTHER_KINDS)]))


def written(folder: Path, lines: list[dict[str, Any]]) -> Path:
    path = folder / "other.jsonl"
    for line in lines:
        store.append_line(path, line)
    return path


def section(page: Study, anchor: str) -> Section:
    return next(each for each in page.sections if each.anchor == anchor)


def column(table: Table, heading: str) -> list[str]:
    return [row[table.headings.index(heading)] for row in table.rows]


def medians(name: str, boundary: str = "run") -> dict[str, float]:
    """Worked out here without the code that draws."""
    lines = map(json.loads, (H200 / f"{name}.jsonl").read_text().splitlines())
    return {
        line["cell"]: float(np.median(line["samples"]["time_us"]))
        for line in lines
        if line["samples"] and line["boundary"] == boundary and line["clock"] in ("events", "wall")
    }


def counters(cell: str) -> dict[str, Any]:
    lines = map(json.loads, (H200 / "counters.jsonl").read_text().splitlines())
    return next(line for line in lines if line["cell"] == cell)


# --- Content --------------------------------------------------------------------------------------


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
        "+1.14% to +1.98%, 0.13 to 4.29 GB, without 0.03 and 8.59 GB, where a cell has two modes"
    )
    notes = dict(zip(column(table, "GB of KV"), column(table, "note"), strict=True))
    assert notes["4.29"] == "contiguous, block128, scatter: throttled (power cap)"
    assert notes["8.59"].endswith("; scatter: SM clock moved 1912 to 1981 MHz")


def test_a_scaling_attack_names_its_work_and_says_what_it_cannot_tell() -> None:
    first, _ = section(study(read([H200 / "study_other_gpu.jsonl"])), "attacks").text
    assert first.startswith("`xqa_shared_p64` → `xqa_shared_p16`, another context: **scales**.")
    assert "each global load (LDG) that B is predicted to do beyond A" in first
    assert "singles out no counter" in first


def test_a_candidate_outside_a_steps_interval_is_marked_and_all_are_plotted() -> None:
    found = section(study(read([H200 / "study_other_gpu.jsonl"])), "dose")
    tried = found.tables[1]
    assert tried.rows[2] == ("ldg (alike: l1_requests)", "0.104", "-21.1 ✕", "-10.5 ✕", "+0.0 ✕",
                             "no")  # fmt: skip
    assert "-0.0" not in str(found)
    labels = re.findall(r">([a-z0-9_, ]+) \(most: ", found.figures[0].svg)
    assert labels == ["instructions", "ldg, l1_requests", "local_loads", "local_stores"]
    assert "xqa_shared_p16 to xqa_shared_p128" in found.figures[0].alt


def test_ceilings_tell_page_sizes_and_throttling_apart() -> None:
    (figure,) = section(study(read([H200 / "study_other_gpu.jsonl"])), "ceilings").figures
    assert re.findall(r">(xqa p\d+|throttled)<", figure.svg) == [
        "xqa p16", "xqa p32", "xqa p64", "xqa p128", "throttled"]  # fmt: skip


def test_a_ratios_interval_is_the_quotient_of_the_far_ends() -> None:
    record = next(store.read([H200 / "plan.jsonl"]))
    one, other = (
        Timed(record, summary, "plan.jsonl")
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
    assert beside.rows[0][1].startswith(f"about {seed.PLAN_MS}")


def test_a_counter_that_did_not_repeat_is_marked_and_counted(drawn: Study) -> None:
    assert not counters("xqa_shared_p16")["total"]["l2_hits"]["stable"]
    assert column(section(drawn, "pages").tables[1], "L2 hit %")[0].endswith(" *")
    lines = list(map(json.loads, (H200 / "counters.jsonl").read_text().splitlines()))
    stable = sum(line["total"]["l2_hits"]["stable"] for line in lines)
    rows = section(drawn, "replay").tables[1].rows
    (row,) = [row for row in rows if row[0] == "l2_hits" and "cold, kernel" in row]
    at = row.index("cold, kernel")
    assert row[at + 1 : at + 3] == (str(len(lines)), str(stable))


def test_a_verdict_is_a_row_and_what_failed_its_prediction_is_told(whole: Study) -> None:
    found = section(whole, "verdicts")
    assert found.text == ("3 verdicts: 2 as predicted, 1 not; the latter (≠) are explained under "
                          "the tables.",)  # fmt: skip
    (told,) = found.after
    assert told.startswith(
        "`xqa_distinct_p64_b32_l8192` → `xqa_distinct_p16_b32_l8192` (vanishing): "
        "**exposed, but hidden was predicted**. On the seed's RTX 5060 Ti it was `hidden`; "
        "time × 1.2265 [1.2201, 1.2329]; work that moved: ldg × 3.941"
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


PATH = {
    "binding": "issue", "share": 0.95, "time_us": 20.0, "unstable": ["L2"], "unsaturated": [],
    "terms_us": {"launch": 2.0, "L2": 3.0, "issue": 17.0},
}  # fmt: skip


def test_what_binds_stands_with_its_share_of_the_time_and_every_term(tmp_path: Path) -> None:
    path = written(tmp_path, [OTHER_KINDS[1] | {"path": PATH}])
    matrix, terms = section(study(read([path])), "verdicts").tables
    assert column(matrix, "what binds B")[3] == "issue, T 95.0%"  # as recorded: no †
    assert terms.headings == ("B", "launch", "L2", "issue", "T", "measured", "T of it",
                              "what binds")  # fmt: skip
    assert terms.rows == (
        ("xqa_shared_p16", "2.0", "3.0 *", "17.0", "19.0", "20.0", "95.0%", "issue"),
    )


def test_what_binds_by_todays_rule_is_marked() -> None:
    page = study(read([H200 / "study_other_gpu.jsonl"]))
    matrix = section(page, "verdicts").tables[0]
    assert all(text.endswith(" †") for text in column(matrix, "what binds B"))
    assert "† marks what is worked out when the page is drawn" in study_page.as_markdown(page)


def test_cells_that_are_no_contrast_get_a_row_of_their_own(tmp_path: Path) -> None:
    line = OTHER_KINDS[0] | {"cells": ["xqa_shared_p16", "xqa_shared_p32"], "predicted": None}
    (table,) = section(study(read([written(tmp_path, [line])])), "verdicts").tables
    assert len(table.rows) == len(CONTRASTS) + 1
    assert column(table, "A")[-1:] + column(table, "B")[-1:] == ["xqa_shared_p16", "xqa_shared_p32"]


# --- Several GPUs ---------------------------------------------------------------------------------

BOTH = [H200 / "study_other_gpu.jsonl", H200 / "study_third_gpu.jsonl"]
NEWER, OLDER = "GPU-73505915", "GPU-dc69e1e5"


def test_of_several_gpus_the_newest_is_drawn_whatever_the_order_of_files() -> None:
    one, other = (study_page.as_markdown(study(read(paths))) for paths in (BOTH, BOTH[::-1]))
    assert one == other
    alone = section(study(read(BOTH[:1])), "verdicts").tables[0].rows
    assert section(study(read(BOTH)), "verdicts").tables[0].rows == alone


def test_of_several_gpus_every_table_and_figure_says_which() -> None:
    page = study(read(BOTH))
    assert f"The records are of 2 GPUs of that model: {NEWER}, {OLDER}." in (
        study_page.as_markdown(page)
    )
    for each in page.sections:
        for table in each.tables if each.anchor not in ("environment", "reproduce") else ():
            assert "GPU" in table.headings or NEWER in table.caption, table.caption
        assert all(NEWER in figure.alt or OLDER in figure.alt for figure in each.figures)
    counted = section(page, "replay").tables[1]
    assert set(column(counted, "GPU")) == {NEWER, OLDER}


def test_counters_beside_times_are_the_same_gpus_where_it_has_any(tmp_path: Path) -> None:
    lines = map(json.loads, BOTH[0].read_text().splitlines())
    times = [line for line in lines if line["kind"] == "timing"]
    path = written(tmp_path, times)
    mixed = section(study(read([path, BOTH[1]])), "pages").tables[1]
    assert mixed.caption.endswith(f"On {NEWER}, {OLDER}.")  # it has none: of its model
    same = section(study(read([path, *BOTH])), "pages").tables[1]
    assert same.caption.endswith(f"On {NEWER}.")


def test_one_gpu_is_named_at_the_top_alone() -> None:
    text = study_page.as_markdown(study(read(BOTH[:1])))
    assert f"on NVIDIA H200 ({NEWER})" in text
    assert "On GPU-" not in text


def test_dose_ceilings_and_planted_effects_are_drawn(whole: Study) -> None:
    dose, tried = section(whole, "dose").tables
    assert dose.headings == ("tokens a page", "time us", "range of processes", "step to here us",
                             "interval of the step", "ldg")  # fmt: skip
    assert dose.rows[:2] == (("16", "8.25", "7.00 to 9.00", "", "", "4,000"),
                             ("32", "6.00", "5.00 to 7.00", "-2.2", "-3.0 to -1.0", "2,000"),
                             )  # fmt: skip
    assert tried.rows[0] == ("measured", "", "-2.2 [-3.0, -1.0]", "-1.0 [-1.5, -0.5]",
                             "+0.0 [-0.1, +0.1]", "")  # fmt: skip
    assert tried.rows[1][0] == "ldg"
    curve, others, reached = section(whole, "ceilings").tables
    assert curve.rows[0] == ("17", "4,480", "no")
    assert others.rows == (
        ("issue, 10^9 warp instructions a second", "1,001", "16: 1,000, 32: 1,001", "yes"),
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


# --- The page -------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """Start tags with their attributes; `open` is what was not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br", "img", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_loads_nothing_and_runs_nothing(whole: Study) -> None:
    page = study_page.html(whole)
    found = Elements(page)
    assert found.open == []
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in found.tags}
    places = [value or "" for _, attributes in found.tags for name, value in attributes.items()
              if name in ("src", "href", "xlink:href", "srcset", "data")]  # fmt: skip
    assert all(place.startswith("#") for place in places)
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_ids_are_unique_and_what_is_referred_to_is_there(whole: Study) -> None:
    tags = Elements(study_page.html(whole)).tags
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {(a.get("xlink:href") or "#")[1:] for _, a in tags} - {""} <= set(ids)
    headings = [int(tag[1]) for tag, _ in tags if re.fullmatch(r"h\d", tag)]
    assert headings[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(headings))


def test_every_figure_is_described(whole: Study) -> None:
    tags = Elements(study_page.html(whole)).tags
    described = [a["aria-label"] for _, a in tags if a.get("role") == "img"]
    figures = sum(len(each.figures) for each in whole.sections)
    assert len(described) == sum(tag == "svg" for tag, _ in tags) == figures
    assert all(described)


def test_words_from_records_are_escaped() -> None:
    assert study_page.marked("<b> `a<b` **c**") == (
        "&lt;b&gt; <code>a&lt;b</code> <strong>c</strong>"
    )


def test_two_drawings_are_equal_bytes(whole: Study, tmp_path: Path) -> None:
    again = study(read([*FILES, written(tmp_path, OTHER_KINDS)]))
    assert study_page.html(again) == study_page.html(whole)
    assert study_page.as_markdown(again) == study_page.as_markdown(whole)


def test_the_markdown_has_the_pages_words_and_tables(whole: Study) -> None:
    text = study_page.as_markdown(whole)
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == [
        each.title for each in whole.sections
    ]
    assert "| 16 | 224.94 |" in text
    assert f"| {medians('pages')['xqa_shared_p16']:.2f} |" in text


def test_both_modes_of_a_strip_are_marked_apart() -> None:
    svg = strip("one", "", (1.0, 2.0, 1.1, 2.1), Modes(1.05, 2.05, 0.5)).svg
    assert svg.startswith("<svg")
    assert {"#0072b2", "#d55e00"} <= set(re.findall(r"#[0-9a-f]{6}", svg))


# --- The command ----------------------------------------------------------------------------------


def test_the_command_writes_both_and_says_where(tmp_path: Path) -> None:
    done = pagebench("study", str(H200 / "plan.jsonl"), "--out", "page", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["page/study.html", "page/study.md"]
    assert (tmp_path / "page" / "study.html").read_text().startswith("<!doctype html>")


def another_gpu(folder: Path) -> Path:
    record = next(store.read([H200 / "plan.jsonl"]))
    path = folder / "another.jsonl"
    facts = {**record.environment, "gpu": "NVIDIA B200"}
    store.append(path, replace(record, environment=facts))
    return path


def test_input_that_cannot_be_drawn_is_one_line_and_exit_2(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    verdict_without = {name: value for name, value in OTHER_KINDS[0].items() if name != "time"}
    odd = OTHER_KINDS[0] | {"time": {}}
    bad = {
        "no record that a study draws": [str(H200 / "speed.jsonl")],
        "no record that a study draws in empty": ["empty.jsonl"],
        "name results files": [],
        "--measure needs a GPU": ["--measure", "--device", "cpu"],
        "--measure makes its own records": [str(H200 / "plan.jsonl"), "--measure"],
        "give the folder": [str(H200 / "plan.jsonl"), "--out", "x.html"],
        "No such file": ["nowhere.jsonl"],
        "NVIDIA B200, NVIDIA H200": [str(H200 / "plan.jsonl"), str(another_gpu(tmp_path))],
        "a verdict record lacks time": [str(named(tmp_path / "lacks.jsonl", verdict_without))],
        "cannot be drawn: KeyError('ratio')": [str(named(tmp_path / "odd.jsonl", odd))],
        "Not a directory": [str(H200 / "plan.jsonl"), "--out", "empty.jsonl/page"],
    }
    for message, words in bad.items():
        done = pagebench("study", *words, cwd=tmp_path)
        assert done.returncode == 2, message
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert not (tmp_path / "runs").exists()


def named(path: Path, line: dict[str, Any]) -> Path:
    store.append_line(path, line)
    return path


# --- A browser ------------------------------------------------------------------------------------

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
               None)  # fmt: skip
# Headless windows have a least width of 500 pixels, an iframe has none.
MEASURE = """<iframe src="study.html" style="width:375px;height:2000px;border:0"></iframe>
<script>onload = () => { const page = frames[0].document, root = page.documentElement;
  const out = [...page.querySelectorAll("main *")].filter(e => !e.closest(".table") &&
    e.getBoundingClientRect().right > 375.5).map(e => e.tagName);
  document.title = root.clientWidth + " " + root.scrollWidth + " " + out.length; }</script>"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_a_phone_sees_the_page_without_scrolling_sideways(whole: Study, tmp_path: Path) -> None:
    study_page.write(whole, tmp_path)
    (tmp_path / "measure.html").write_text(MEASURE)
    done = subprocess.run(
        [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--allow-file-access-from-files", "--virtual-time-budget=5000", "--dump-dom",
         (tmp_path / "measure.html").as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert re.findall(r"<title>(.*?)</title>", done.stdout) == ["375 375 0"], done.stderr[-500:]
