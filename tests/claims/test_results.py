"""Every number in the README and every table in docs/results comes from a record in the tree."""

from __future__ import annotations

import re
import subprocess
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from fakes import H200, ROOT, pagebench
from pagebench.harness.contrasts import CONTRASTS
from pagebench.harness.judging.explain import conclude
from pagebench.harness.records import store
from pagebench.harness.records.ceilings import MeasuredCeilings
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.dose import Dose
from pagebench.harness.records.planted import Planted, PlantedLoads, PlantedWait
from pagebench.harness.records.select import SomeRecord
from pagebench.harness.records.speed import Speed
from pagebench.harness.records.timing import Timing
from pagebench.harness.records.verdict import Change, Verdict
from pagebench.harness.show import grouped
from pagebench.harness.study import page as study_page
from pagebench.harness.study.read import read as read_study
from pagebench.harness.study.sections import study as draw_study
from pagebench.harness.suites import find_suite

README = (ROOT / "README.md").read_text()


def kind_of(kind: type[SomeRecord], name: str) -> list[SomeRecord]:
    return store.read([H200 / f"{name}.jsonl"], kind).of(kind)


def records(name: str) -> list[Timing]:
    return kind_of(Timing, name)


def medians(name: str, clock: str = "events") -> dict[str, float]:
    return {
        record.cell: float(np.median(record.samples.time_us))
        for record in records(name)
        if record.samples and record.clock == clock
    }


def readme_rows(name: str) -> list[list[str]]:
    """Numbers of a marked table in the README, row by row."""
    match = re.search(rf"<!-- results:{name} -->\n(.*?)<!-- /results:{name} -->", README, re.S)
    assert match
    lines = match[1].strip().splitlines()[2:]
    return [[cell.strip() for cell in line.strip("| ").split("|")][1:] for line in lines]


def test_the_readmes_page_sizes_are_the_studys_ladders() -> None:
    dose = doses("study")
    times = [
        [f"{us.middle_us:.2f}" for us in dose[regime].times]
        for regime in ("shared", "short", "distinct")
    ]
    counted = [
        [f"{value:,.0f}" for value in dose["distinct"].counters[name]]
        for name in ("ldg", "local_loads")
    ]
    assert readme_rows("pages") == times + counted


def test_the_readmes_card_is_what_the_command_prints() -> None:
    (told,) = re.findall(r"```console\n\$ (pagebench show .*?)```", README, re.S)
    command, *shown = told.strip().splitlines()
    done = draw(*command.split()[2:], command="show")
    printed = done.stdout.splitlines()
    assert shown == [line for line in printed if line in shown]
    assert len(shown) > 10


STUDIES = ("study", "study_other_gpu", "study_third_gpu")


def verdicts(name: str) -> dict[str, Verdict]:
    return {verdict.contrast: verdict for verdict in kind_of(Verdict, name)}


def time_of(name: str, contrast: str) -> Change:
    time = verdicts(name)[contrast].time
    assert time
    return time


def ratios(contrast: str) -> list[float]:
    """B over A of the three studies, a GPU each."""
    return [time_of(name, contrast).ratio for name in STUDIES]


def test_the_three_studies_are_of_three_gpus() -> None:
    uuids = {
        ceilings.environment.uuid
        for name in STUDIES
        for ceilings in kind_of(MeasuredCeilings, name)
    }
    assert len(uuids) == 3


def test_the_readmes_verdicts_are_the_studys() -> None:
    found = verdicts("study")
    expected = []
    for contrast in CONTRASTS:
        verdict, time = found[contrast.name], time_of("study", contrast.name)
        ratio = f"{time.ratio:.4f} [{time.low:.4f}, {time.high:.4f}]"
        others = ", ".join(f"{ratio:.4f}" for ratio in ratios(contrast.name)[1:])
        doubt = ", cause in doubt" if verdict.cause == "in doubt" else ""
        expected.append([verdict.predicts, verdict.word + doubt, ratio, others])
    assert readme_rows("verdicts") == expected


def doses(name: str) -> dict[str, Dose]:
    return {dose.regime: dose for dose in kind_of(Dose, name)}


def busy(name: str, cell: str, counter: str) -> float:
    counted = {counters.cell: counters for counters in kind_of(Counters, name)}
    (kernel,) = counted[cell].kernels
    median = kernel.median(counter)
    assert median
    return median


def test_what_the_readme_says_of_xqas_pages_is_in_three_studies() -> None:
    assert all(0.195 < ratio - 1 < 0.216 for ratio in ratios("positive"))
    assert all(0.15 < ratio - 1 < 0.2 for ratio in ratios("vanishing"))
    small, large = (f"xqa_distinct_p{page}_b32_l8192" for page in (16, 64))
    for name in STUDIES:
        assert 73 < busy(name, small, "dram_busy_pct") < 76.5
        assert 88.5 < busy(name, small, "l2_slice_pct") < 90
        assert busy(name, large, "dram_busy_pct") > 85
        shared = doses(name)["shared"]
        found = conclude(shared)
        assert (found.follows, found.untested) == ((), ())
        assert shared.counters["ldg"][1] > 1.9 * shared.counters["ldg"][2]
        assert 34 < -shared.steps[0].middle_us < 38
        assert 0.3 < -shared.steps[1].middle_us < 1.45


def test_what_the_time_of_distinct_pages_follows_is_not_tested_by_four_of_them() -> None:
    found = [conclude(doses(name)["distinct"]) for name in STUDIES]
    assert all(each.follows == () for each in found)
    untested = [each.untested for each in found]
    assert untested[0] == untested[2] == (("local_loads",),)
    assert ("ldg", "local_loads") in untested[1]
    assert not any(len(names) == 1 for names in untested[1])


def test_what_the_readme_says_of_flashinfer_is_in_three_studies() -> None:
    assert all(0.0105 < ratio - 1 < 0.0155 for ratio in ratios("scatter"))
    for name in STUDIES:
        work = verdicts(name)["scatter"].work
        assert work
        assert work.changed == {}
        assert verdicts(name)["negative"].word == "absent"
    identity = [
        judged
        for name in STUDIES
        for judged in read_study([H200 / f"{name}.jsonl"]).judged()
        if judged.verdict.contrast == "identity"
    ]
    assert len(identity) == len(STUDIES)
    assert all(judged.path and judged.path.binding == ("DRAM",) for judged in identity)


def test_l2_slices_and_dram_are_as_busy_in_all_that_streams_but_xqas_small_pages() -> None:
    for name in (*STUDIES, "counters"):
        for counters in kind_of(Counters, name):
            axes, kernel = counters.axes, counters.kernels[0]
            streams = counters.predicted.distinct_kv_bytes > 5e8
            if streams and axes.sharing == "distinct" and "l2_slice_pct" in kernel.values:
                slices, dram = (kernel.median(n) for n in ("l2_slice_pct", "dram_busy_pct"))
                small = axes.kernel == "xqa" and axes.page_size < 64
                planted = axes.planted_loads == 64
                assert slices is not None
                assert dram is not None
                assert (abs(slices - dram) < 5) is not (small or planted), counters.cell


def test_distinct_kvs_intervals_do_not_all_overlap() -> None:
    times = [time_of(name, "vanishing") for name in STUDIES]
    assert max(time.low for time in times) > min(time.high for time in times)


def test_the_readmes_number_of_processes() -> None:
    processes = {time_of("study", contrast).processes for contrast in verdicts("study")}
    assert processes == {4, 6, 8}


def test_the_study_took_less_than_ten_minutes() -> None:
    """As it said itself: the last line is when the last cells of the last process were begun."""
    lines = (H200 / "study_progress.txt").read_text().splitlines()
    seconds = [int(line.split()[0]) for line in lines]
    assert seconds == sorted(seconds)
    assert seconds[-1] < 600 - 60


def test_the_studys_planted_effects_were_all_found() -> None:
    (record,) = kind_of(Planted, "study")
    assert record.found_all
    loads = [row for row in record.rows if isinstance(row, PlantedLoads)]
    assert [row.found for row in loads] == [row.planted for row in loads] == [131072, 8388608]
    (wait,) = [row for row in record.rows if isinstance(row, PlantedWait)]
    assert wait.low <= wait.planted == 2.5 <= wait.high


TABLES = sorted(path for path in H200.parent.glob("*/*.md") if path.stem != "study")


@pytest.mark.parametrize("table", TABLES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_table_is_what_its_records_draw(table: Path) -> None:
    option = {"repeats": "--repeats"}.get(table.stem.split("_")[0])
    if "clocks" in (table.stem.split("_")[0], table.stem.split("_")[-1]):
        option = "--clocks"
    source = table.with_name(table.stem.removesuffix("_clocks") + ".jsonl")
    done = draw(str(source), "--markdown", *([option] if option else []))
    assert done.returncode == 0, done.stderr
    assert done.stdout == table.read_text()


def test_the_study_is_what_its_records_draw(tmp_path: Path) -> None:
    """Pictures are left out: another matplotlib draws the same numbers with other bytes."""
    drawn = study_page.write(draw_study(read_study([H200 / "study.jsonl"])), tmp_path)
    for path in drawn:
        pictures = re.compile(r"<svg.*?</svg>", re.S)
        stored = (H200 / path.name).read_text(encoding="utf-8")
        assert pictures.sub("", path.read_text(encoding="utf-8")) == pictures.sub("", stored)
    assert {path.name for path in drawn} == {"study.html", "study.md"}


@pytest.mark.parametrize("suite", ["placements", "plan", "kernels", "models", "pages"])
def test_every_suite_is_recorded_whole(suite: str) -> None:
    found = {record.cell for record in records(suite) if record.status == "measured"}
    assert found == {cell.name for cell in find_suite(suite).cells}


@pytest.mark.parametrize("path", sorted(H200.glob("*.jsonl")), ids=lambda path: path.stem)
def test_records_hold_their_environment_and_no_host(path: Path) -> None:
    for record in store.read([path], Timing).of(Timing):
        if record.status == "measured":
            assert record.environment.gpu == "NVIDIA H200"
            assert record.environment.driver
            assert record.environment.commit
            assert record.environment.dirty is False
        assert "host" not in str(record.environment)


def test_events_and_the_span_of_the_same_calls_differ_by_less_than_the_floor() -> None:
    found = records("pages_same_calls")
    assert [record.cell for record in found] == [cell.name for cell in find_suite("pages").cells]
    for record in found:
        samples = record.samples
        assert samples is not None
        assert samples.events_floor_us is not None
        gap = np.median(np.subtract(samples.events_us, samples.time_us))
        assert 0 < gap < samples.events_floor_us


def test_a_sweep_of_more_than_60_cells_took_less_than_five_minutes() -> None:
    found = records("models")
    stamps = [datetime.fromisoformat(record.started) for record in found]
    assert len(found) > 60
    assert (stamps[-1] - stamps[0]).total_seconds() < 300


def test_our_triton_kernels_keep_up_with_flashinfer_decode() -> None:
    found = medians("kernels")
    least = 0.95
    theirs = found["fidecode_distinct_p1_b32_l8192"]
    for ours in ("tritontoken_distinct_p1_b32_l8192", "tritontile_distinct_p64_b32_l8192"):
        assert theirs / found[ours] >= least


def test_a_crashing_kernel_cost_its_own_cell_alone() -> None:
    assert [record.status for record in records("crash")] == ["measured", "crashed", "measured"]
    assert "illegal memory access" in str(records("crash")[1].reason)


SIX = (
    "fitc_distinct_p1_b32_l8192", "xqa_distinct_p64_b32_l8192", "tritontile_distinct_p64_b32_l8192",
    "tritontoken_distinct_p1_b32_l8192", "fidecode_distinct_p1_b32_l8192", "xqa_distinct_p64",
)  # fmt: skip
STEADY = (
    "fitc_distinct_p1_b32_l8192", "xqa_distinct_p64_b32_l8192", "tritontile_distinct_p64_b32_l8192",
    "tritontoken_distinct_p1_b32_l8192",
)  # fmt: skip


@pytest.mark.parametrize(
    ("run", "cells", "most"),
    [("repeats_other_gpu", SIX, 0.5), ("repeats", STEADY, 0.5), ("repeats", SIX, 0.65)],
)
def test_medians_of_five_processes_agree_as_the_log_says(
    run: str, cells: tuple[str, ...], most: float
) -> None:
    rows = {row[0]: row for row in grouped.repeats(records(run))[1]}
    for cell in cells:
        _, _, processes, _, spread, modes = rows[cell]
        assert (processes, modes) == ("5", "unimodal")
        assert float(spread.rstrip("%")) <= most


@pytest.mark.parametrize("device", ["h200", "cpu"])
def test_the_suite_kept_its_own_speed_limits(device: str) -> None:
    lines = store.read([H200.parent / device / "speed.jsonl"], Speed).of(Speed)
    assert len(lines) == 5
    assert all(line.seconds <= line.limit_s for line in lines)


def test_a_card_takes_less_than_thirty_seconds() -> None:
    """`make ncu CELL=xqa_shared_p16` with its module built: the profiled process, and the whole."""
    (card,) = kind_of(Counters, "make_ncu")
    assert (card.cell, card.how.cells) == ("xqa_shared_p16", 1)
    assert card.how.elapsed_s is not None
    assert card.how.elapsed_s < 30
    assert [kernel.passes for kernel in card.kernels] == [6]
    lines = kind_of(Speed, "speed_other_host")
    (line,) = [line for line in lines if line.what == "pagebench profile xqa_shared_p16"]
    assert line.seconds < 30


def test_on_another_host_listing_a_suite_took_a_little_longer_than_it_may() -> None:
    lines = kind_of(Speed, "speed_other_host")
    over = [(line.what, line.seconds) for line in lines if line.seconds > line.limit_s]
    assert over == [("pagebench list --suite pages", 0.5065)]


def draw(*words: str, command: str = "report") -> subprocess.CompletedProcess[str]:
    return pagebench(command, *words, cwd=ROOT)


def test_report_draws_counters_beside_timings() -> None:
    files = [str(H200 / "kernels.jsonl"), str(H200 / "counters.jsonl")]
    both = draw(*files).stdout
    assert "95 % interval" in both
    assert "does not repeat" in both
    lines = draw(files[1], "--json").stdout.splitlines()
    assert len(lines) == len((H200 / "counters.jsonl").read_text().splitlines())
    done = draw(files[1], "--repeats")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("no timings in ")


def test_report_says_what_a_file_holds_that_it_does_not_draw() -> None:
    done = draw(str(H200 / "audit.jsonl"))
    assert done.returncode == 2
    assert done.stderr.startswith("no timings or counters in ")
    assert done.stderr.endswith("audit.jsonl: only audit records\n")
