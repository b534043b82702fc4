"""Counters without a GPU: names per chip, recorded ncu output, predictions, calibration, cards."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import DATA, H200
from pagebench.harness.cell import Cell
from pagebench.harness.counting import baseline
from pagebench.harness.counting.predict import (
    _of_launches,
    off,
    predict_counters,
    predicted_anew,
    read_counters,
)
from pagebench.harness.counting.profile import imported
from pagebench.harness.instruments import calibrate as calibration
from pagebench.harness.instruments import speed
from pagebench.harness.instruments.speed import _profiled
from pagebench.harness.records import store
from pagebench.harness.show import card
from pagebench.kernels import registry
from pagebench.kernels.adapter import Loads
from pagebench.kernels.device import Device
from pagebench.kernels.flashinfer.loads import fidecode_merge_ldg
from pagebench.kernels.gather import Gather
from pagebench.kernels.probes.calibration import BULK_COPIES, SOURCE, WARP_LOADS, kernels_on
from pagebench.kernels.probes.cubin import compile_cubin
from pagebench.kernels.registry import KernelError, loads_of
from pagebench.layouts.shape import Shape
from pagebench.profiles import ncu
from pagebench.profiles.ceilings import Point, bandwidth_at, is_saturated
from pagebench.profiles.counters import (
    CountError,
    KernelRow,
    by_call,
    expect,
    ratios,
    stability,
    summary,
    totals,
)
from pagebench.profiles.metrics import (
    CHIPS,
    LAUNCH,
    METRICS,
    PASSES,
    SINGLE_PASS,
    chip_of,
    metric,
    names_on,
)
from pagebench.profiles.ncu import NcuError, Setting

TABLES = json.loads(gzip.decompress((DATA / "metrics.json.gz").read_bytes()))["chips"]
ONE = (DATA / "ncu_xqa_shared_p16.csv").read_text()
THREE = (DATA / "ncu_three_cells.csv").read_text()


def recorded() -> list[dict[str, Any]]:
    return list(store.read_kind([H200 / "counters.jsonl"], "counters"))


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", CHIPS.values())
def test_every_counter_is_in_nvidias_table_of_the_chip(chip: str) -> None:
    known = set(TABLES[chip])
    for name, column in names_on(chip).items():
        assert column.rsplit(".", 1)[0].split(".")[0] in known, f"{name} on {chip}"


@pytest.mark.parametrize("chip", CHIPS.values())
def test_counts_are_sums_and_shares_are_shares(chip: str) -> None:
    for name, known in names_on(chip).items():
        share = re.fullmatch(r"\w+\.(pct|avg\.pct_of_peak_sustained_(active|elapsed))", known)
        assert bool(share) is (metric(name).unit == "%"), known
        assert share or re.fullmatch(r"\w+\.sum", known), known


def test_launch_facts_and_passes_are_columns_that_ncu_prints() -> None:
    header, _, _ = ncu.read_page(ONE)
    assert {*LAUNCH.values(), PASSES} <= set(header)


def test_the_renamed_and_the_missing_counters_differ_by_chip() -> None:
    assert names_on("gh100")["dram_read_bytes"] == "dram__bytes_read.sum"
    assert names_on("gb202")["dram_read_bytes"] == "dram__bytes_op_read.sum"
    assert "dram__bytes_read" not in TABLES["gb202"]
    assert "tma" not in names_on("ga100")
    assert "tma" in names_on("gb100")


def test_names_are_unique_and_each_says_what_it_means() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert all(metric.meaning and metric.unit for metric in METRICS)


def test_a_chip_is_found_by_capability_or_refused_by_name() -> None:
    assert chip_of((9, 0)) == "gh100"
    assert chip_of((12, 1)) == "gb202"
    with pytest.raises(ValueError, match="no counters are mapped"):
        chip_of((7, 5))


# --- what ncu prints --------------------------------------------------------------------------


def test_a_recorded_page_is_read_by_column_name_units_and_separators_apart() -> None:
    first, second = ncu.parse(ONE, names_on("gh100"))
    assert first.symbol.startswith("kernel_mha(")
    assert (first.grid, first.block, first.passes) == ("(1, 8, 32)", "(128, 1, 2)", 6)
    assert first.values["ldg"] == second.values["ldg"] == 407_552
    assert first.values["l1_sectors"] == 33_953_792
    assert first.launch["registers"] == 128


def test_thousands_separators_are_read() -> None:
    """An older recording, in the locale that ncu met."""
    text = (DATA / "ncu_thousands_separators.csv").read_text()
    assert '"407,552"' in text
    (record,) = imported(text)
    assert record["total"]["ldg"]["value"] == 407_552
    assert record["total"]["dram_read_bytes"]["value"] > 50e6


def test_a_cell_is_not_taken_for_another_whose_name_begins_alike() -> None:
    ranges = ["<default domain>:xqa_shared_p16:none", "x:xqa_shared_p16_b4:none"]
    rows = [replace(row(), range_name=name) for name in ranges]
    assert ncu.rows_of(rows, "xqa_shared_p16") == [rows[0]]
    assert ncu.rows_of(rows, "xqa_shared_p16_b4") == [rows[1]]


def test_many_cells_are_told_apart_by_their_ranges() -> None:
    rows = ncu.parse(THREE, names_on("gh100"))
    assert len(ncu.rows_of(rows, "fidecode_distinct_p1")) == 4  # decode and merge, twice
    assert len(ncu.rows_of(rows, "tritontile_distinct_p64")) == 4
    assert len(ncu.rows_of(rows, "xqa_shared_p64")) == 2
    assert ncu.rows_of(rows, "xqa_shared_p6") == []


def test_an_imported_page_gives_a_record_a_cell_with_a_row_a_kernel_and_their_sum() -> None:
    records = {record["cell"]: record for record in imported(THREE)}
    assert set(records) == {"fidecode_distinct_p1", "tritontile_distinct_p64", "xqa_shared_p64"}
    decode, merge = records["fidecode_distinct_p1"]["kernels"]
    assert "BatchDecode" in decode["symbol"]
    assert "MergeStates" in merge["symbol"]
    both = decode["values"]["ldg"][0] + merge["values"]["ldg"][0]
    assert records["fidecode_distinct_p1"]["total"]["ldg"]["value"] == both


@pytest.mark.parametrize(("said", "remedy"), [
    ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
     "Performance Counters on the target device 0.", "run as root"),
    ("==ERROR== Profiling failed because a driver resource was unavailable.", "dcgmi"),
    ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "gVisor"),
    ((DATA / "ncu_no_kernels.txt").read_text(), "no kernel matched"),
])  # fmt: skip
def test_trouble_is_one_line_with_its_remedy(said: str, remedy: str) -> None:
    with pytest.raises(NcuError, match=remedy) as caught:
        ncu.parse(said, names_on("gh100"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "value"), [
    ("1,234,567", 1_234_567.0), ("5.35", 5.35), ("n/a", None), ("", None), ("PolicySpread", None),
])  # fmt: skip
def test_numbers_as_ncu_prints_them(text: str, value: float | None) -> None:
    assert ncu.number(text) == value


def test_an_old_or_a_missing_ncu_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NcuError, match="not on the PATH"):
        ncu.find_ncu()
    tool = tmp_path / "ncu"
    tool.write_text("#!/bin/sh\necho 'Version 2021.3.1.0 (build 1)'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(NcuError, match=r"2021\.3 is too old"):
        ncu.find_ncu()


def test_the_command_leaves_clocks_alone_and_says_what_it_does_to_caches() -> None:
    words = ncu.command(Path("ncu"), Setting(), ["a.sum"], Path("r"), ["child"])
    text = " ".join(words)
    assert "--clock-control none" in text
    assert "--cache-control all" in text
    assert "--profile-from-start off" in text
    assert f"a.sum,{LAUNCH['registers']}" in text
    assert words[-1] == "child"
    warm = ncu.command(Path("ncu"), Setting(cold=False), [], Path("r"), [])
    assert "--cache-control none" in " ".join(warm)


def test_single_pass_groups_hold_known_counters() -> None:
    known = {metric.name for metric in METRICS}
    assert all(set(group) <= known for group in SINGLE_PASS.values())


# --- rows and stability -----------------------------------------------------------------------


def row(symbol: str = "k", grid: str = "(1)", **values: float) -> KernelRow:
    return KernelRow(symbol, grid, "(32)", {}, values, 1, "")


def test_a_call_of_two_kernels_gives_a_column_each() -> None:
    kernels = by_call([row("a"), row("b"), row("a"), row("b")], launches=2)
    assert [[r.symbol for r in same] for same in kernels] == [["a", "a"], ["b", "b"]]


@pytest.mark.parametrize("rows", [[], [row("a")], [row("a"), row("b")],
                                  [row("a"), row("a", grid="(2)")]])  # fmt: skip
def test_calls_that_are_not_alike_are_an_error_that_lists_what_was_seen(
    rows: list[KernelRow],
) -> None:
    with pytest.raises(CountError, match=", ".join(r.symbol for r in rows) or "none"):
        by_call(rows, launches=2)


def test_an_unexpected_kernel_is_an_error() -> None:
    decode, merge = [row("void decode<1>(int)")], [row("merge")]
    expect([decode, merge], ("decode", "merge"))
    expect([[row("memset")]], ())  # nothing was promised
    with pytest.raises(CountError, match="expected decode; saw memset"):
        expect([[row("memset")]], ("decode",))


@pytest.mark.parametrize("seen", [["decode"], ["merge", "decode"], ["decode", "merge", "merge"]])
def test_a_missing_kernel_another_order_and_one_too_many_are_errors(seen: list[str]) -> None:
    with pytest.raises(CountError, match=f"expected decode, merge; saw {', '.join(seen)}"):
        expect([[row(symbol)] for symbol in seen], ("decode", "merge"))


def test_totals_add_kernels_launch_by_launch() -> None:
    kernels = by_call([row(ldg=5, tma=0), row("b", ldg=2, tma=1)] * 2, launches=2)
    assert totals(kernels)["ldg"] == [7.0, 7.0]
    assert totals(kernels)["tma"] == [1.0, 1.0]


@pytest.mark.parametrize(("kind", "values", "stable"), [
    ("count", [10, 10], True), ("count", [10, 11], False), ("count", [0, 0], True),
    ("traffic", [1000, 1002], True), ("traffic", [1000, 1003], False),
    ("rate", [50.0, 50.9], True), ("rate", [50.0, 51.5], False),
])  # fmt: skip
def test_counts_repeat_exactly_and_traffic_within_two_in_a_thousand(
    kind: str, values: list[float], stable: bool
) -> None:
    assert stability(kind, values).stable is stable


def test_a_kernels_rates_are_marked_where_they_do_not_repeat() -> None:
    rows = [row(issue_pct=40.0, ldg=5), row(issue_pct=42.0, ldg=5)]
    (kernel,) = summary([rows])
    assert kernel["unstable"] == ["issue_pct"]


def test_sectors_a_request_are_undefined_for_tma() -> None:
    plain = {"l1_requests": 2.0, "l1_sectors": 32.0, "ldg": 2.0, "ldgsts": 0.0, "tma": 0.0}
    assert ratios(plain)["l1_sectors_per_request"] == 16.0
    assert ratios(plain | {"tma": 9.0})["l1_sectors_per_request"] == "n/a (TMA)"
    assert ratios({"l2_hits": 3.0, "l2_misses": 1.0})["l2_hit_pct"] == 75.0


# --- predictions ------------------------------------------------------------------------------


UNSEEN = ("counters_unseen", "counters_unseen_again", "counters_unseen_third")
STUDIES = ("study", "study_other_gpu", "study_third_gpu")
FILES_OF_COUNTERS = (
    *("counters", "make_ncu", *UNSEEN, "counters_idle_splits", "selftest"),
    *STUDIES,
)
DRAM_READ = "dram_read_bytes"


def every_recorded() -> list[dict[str, Any]]:
    """Counters of every file that holds loads; some cells were counted on several GPUs."""
    files = [H200 / f"{name}.jsonl" for name in FILES_OF_COUNTERS]
    return list(store.read_kind(files, "counters"))


def test_ldg_is_predicted_exactly_from_source_for_every_recorded_cell() -> None:
    judged = set()
    for record in every_recorded():
        cell = Cell.parse(record["cell"])
        predicted = loads_of(cell.kernel, cell.shape, record["resolved"], (9, 0)).ldg
        if predicted is not None:
            assert record["total"]["ldg"]["value"] == predicted, record["cell"]
            judged.add(record["cell"])
    assert len(judged) == 98  # with three of FlashInfer's that do not split


def test_l2_requests_and_sectors_repeat_as_traffic_does_and_seldom_exactly() -> None:
    distinct = [line for line in every_recorded() if line["axes"]["sharing"] == "distinct"]
    counted = {name: [_of_launches(line, name) for line in distinct]
               for name in ("l2_requests", "l2_sectors")}  # fmt: skip
    exact = {name: sum(len(set(launches)) == 1 for launches in values)
             for name, values in counted.items()}  # fmt: skip
    assert len(distinct) == 170
    assert exact == {"l2_requests": 16, "l2_sectors": 12}
    assert all(stability("traffic", launches).stable
               for values in counted.values() for launches in values)  # fmt: skip


def test_flashinfers_decode_kernel_is_predicted_exactly_whatever_the_placement() -> None:
    judged = set()
    for record in every_recorded():
        cell = Cell.parse(record["cell"])
        predicted = loads_of(cell.kernel, cell.shape, record["resolved"], (9, 0)).decode_ldg
        if predicted is not None:
            assert record["kernels"][0]["values"]["ldg"] == [predicted, predicted]
            judged.add(record["cell"])
    assert len(judged) == 30


def test_flashinfers_merge_kernel_is_predicted_exactly_from_its_grid() -> None:
    """Older records have no `merge_blocks`: the blocks are those that were launched."""
    judged = set()
    for record in every_recorded():
        cell, kernels = Cell.parse(record["cell"]), record["kernels"]
        if cell.kernel == "fidecode" and len(kernels) == 2:
            blocks = int(kernels[1]["grid"].strip("()").split(",")[0])
            assert record["resolved"].get("merge_blocks", blocks) == blocks
            resolved = record["resolved"] | {"merge_blocks": blocks}
            if fidecode_merge_ldg(cell.shape, resolved) is None:
                continue  # rows of a single chunk, which are copied
            assert kernels[1]["values"]["ldg"][0] == fidecode_merge_ldg(cell.shape, resolved)
            total = loads_of("fidecode", cell.shape, resolved, (9, 0)).ldg
            assert total == record["total"]["ldg"]["value"]
            judged.add(cell.name)
    assert len(judged) == 26


def test_dram_bytes_of_distinct_cells_are_the_compulsory_ones_and_what_merges_read() -> None:
    """Within 0.5 %, or 0.12 MB: a kernel's own code, constants and spills are read too."""
    judged = set()
    for record in map(predicted_anew, every_recorded()):
        predicted, read = record["predicted"]["dram_read_bytes"], record["total"]["dram_read_bytes"]
        if predicted is not None and predicted > 2e6:
            assert read["stable"], record["cell"]
            margin = max(0.005 * predicted, 0.12e6)
            assert abs(read["value"] - predicted) <= margin, record["cell"]
            judged.add(record["cell"])
    assert len(judged) == 76


TILE = {"block_n": 64, "num_warps": 4, "num_stages": 3}


@pytest.mark.parametrize(("name", "resolved", "rows"), [
    ("fidecode_distinct_p1_b4_l8192", {"tiles": 148}, 148 * 16 * (256 + 4)),
    ("fidecode_distinct_p1_b4_l8192", {"tiles": 4}, 0),
    ("tritontile_distinct_p64", TILE | {"splits": 4}, 8 * 4 * 16 * (512 + 4)),
    ("tritontile_distinct_p64", TILE | {"splits": 1}, 0),
    ("xqa_distinct_p64", {"kernel": "kernel_mha (mha.cu)", "splits": 2}, 0),
])  # fmt: skip
def test_a_merge_reads_its_partials_from_dram_only_where_ncu_flushes_before_every_kernel(
    name: str, resolved: dict[str, Any], rows: int
) -> None:
    """FlashInfer's partials are bf16, a tile of the plan each; ours float32, a split each."""
    cell = Cell.parse(name)
    assert loads_of(cell.kernel, cell.shape, resolved, (9, 0)).merge_bytes == rows
    flushed, kept = (
        predict_counters(cell, resolved, {}, {"cache_control": control})["dram_read_bytes"]
        for control in ("all", "none")
    )
    assert flushed - kept == rows


def test_shared_dram_bytes_do_not_repeat_whatever_the_cache_state() -> None:
    lines = list(store.read_kind([H200 / "counters_shared_dram.jsonl"], "counters"))
    assert {line["how"]["l2"] for line in lines} == {"cold", "warm"}
    assert all(line["kernels"][0]["passes"] == 1 for line in lines)
    assert not any(line["total"]["dram_read_bytes"]["stable"] for line in lines)
    megabytes = {
        (line["cell"], line["how"]["l2"]): [value / 1e6 for value in _of_launches(line, DRAM_READ)]
        for line in lines
    }
    ranges = {of: (round(min(read), 1), round(max(read), 1)) for of, read in megabytes.items()}
    assert ranges["xqa_shared_p16", "cold"] == (58.4, 58.7)
    assert ranges["xqa_shared_p16", "warm"] == (49.7, 55.1)


def test_shared_kv_is_read_from_dram_more_than_once() -> None:
    """Of XQA's shared cells, cold, what the log says: 1.45 to 1.82 times."""
    files = [H200 / f"{name}.jsonl" for name in ("counters", *STUDIES)]
    times = [
        line["total"][DRAM_READ]["value"] / line["predicted"]["distinct_kv_bytes"]
        for line in read_counters(files)
        if line["cell"].startswith("xqa_shared_p")
    ]
    assert (round(min(times), 2), round(max(times), 2)) == (1.45, 1.82)


def test_what_is_off_is_flagged() -> None:
    predicted = {"ldg": 1000, "dram_read_bytes": 10**8}
    assert off({"ldg": 1009.0, "dram_read_bytes": 1.01e8}, predicted) == []
    assert off({"ldg": 1011.0, "dram_read_bytes": 1.03e8}, predicted) == [
        "ldg", "dram_read_bytes",
    ]  # fmt: skip


def test_a_kernels_own_code_and_constants_are_not_off() -> None:
    assert off({"dram_read_bytes": 1.1e6}, {"dram_read_bytes": 10**6}) == []
    assert off({"dram_read_bytes": 1.2e6}, {"dram_read_bytes": 10**6}) == ["dram_read_bytes"]


def test_the_flush_makes_the_cache_cold_and_without_it_a_small_cell_stays_in_l2() -> None:
    audits = {a["cell"]: a for a in store.read_kind([H200 / "audit.jsonl"], "audit")}
    assert all(audit["cold_over_distinct"] >= 0.98 for audit in audits.values())
    assert audits["xqa_distinct_p64_b1"]["warm_over_distinct"] < 0.5  # 17 MB: fits


# --- calibration ------------------------------------------------------------------------------


def table(**changes: dict[str, list[float]]) -> dict[str, dict[str, list[float]]]:
    names = names_on("gh100")
    seen = {
        kernel: {name: [0.0, 0.0] for name in names}
        | {name: [float(count)] * 2 for name, count in calibration.expected(kernel, names).items()}
        for kernel in kernels_on((9, 0))
    }
    return seen | {kernel: seen[kernel] | change for kernel, change in changes.items()}


def calibrated(seen: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    names = names_on("gh100")
    return {"seen": seen, "expected": {name: calibration.expected(name, names) for name in seen}}


def test_a_counter_that_shows_what_was_executed_agrees() -> None:
    assert calibration.disagreements(calibrated(table())) == []


def test_a_counter_that_does_not_is_named_with_both_numbers_and_distrusted() -> None:
    wrong = table(cal_bulk={"tma": [4.0 * BULK_COPIES] * 2})
    (line,) = calibration.disagreements(calibrated(wrong))
    assert line.startswith(f"tma: [{4.0 * BULK_COPIES}")
    assert str(BULK_COPIES) in line
    assert calibration.distrusted(calibrated(wrong)) == ("tma",)


def test_the_recorded_calibration_settles_what_l1_requests_see() -> None:
    (record,) = store.read_kind([H200 / "calibration.jsonl"], "calibration")
    assert record["seen"]["cal_ldg"]["ldg"] == [WARP_LOADS, WARP_LOADS]
    assert record["seen"]["cal_async_cg"]["ldgsts"] == [WARP_LOADS, WARP_LOADS]
    assert record["sees_async"]["l1_requests of cal_async_cg"] is True
    assert record["sees_async"]["l1_requests of cal_bulk"] is False
    assert "ldg_active" in calibration.distrusted(record)


def test_no_recorded_card_builds_on_a_distrusted_counter() -> None:
    for record in recorded():
        assert not set(record["distrusted"]) & set(record["total"])


def test_bulk_copies_need_hopper() -> None:
    assert "cal_bulk" in kernels_on((9, 0))
    assert "cal_bulk" not in kernels_on((8, 9))


def nvcc() -> bool:
    return subprocess.run(["bash", "-c", "command -v nvcc"], capture_output=True).returncode == 0


@pytest.mark.skipif(not nvcc(), reason="nvcc is not installed")
@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (12, 0)])
def test_the_calibration_kernels_compile(capability: tuple[int, int], tmp_path: Path) -> None:
    cubin = compile_cubin(SOURCE, capability, tmp_path).read_bytes()
    assert all(kernel.encode() in cubin for kernel in kernels_on(capability))


# --- cards and baselines ----------------------------------------------------------------------


def test_a_card_shows_kernels_counters_prediction_and_stability() -> None:
    (record,) = imported(ONE)
    text = card.counters_card(record)
    for word in ("kernel_mha", "128 registers", "407,552", "stable", "unstable", "6, cache"):
        assert word in text


@pytest.mark.parametrize(
    ("symbol", "shown"),
    [
        ("k<1, 2>(int)", "k<1, 2>(int)"),
        ("kernel_mha(unsigned int, " + "x" * 100 + ")", "kernel_mha(unsigned int,…"),
        ("k<" + "y" * 120 + ">", "k<…"),
        ("z" * 120, "z" * 90 + "…"),
    ],
)
def test_a_long_symbol_is_cut_where_a_parameter_ends(symbol: str, shown: str) -> None:
    assert card.short_symbol(symbol) == shown


def test_one_card_joins_timing_counters_and_prediction() -> None:
    joined = card.joined("xqa_shared_p16", [H200 / "pages.jsonl", H200 / "counters.jsonl"])
    text = card.joined_card(joined)
    for word in ("asked", "resolved", "floor", "GB/s", "407,552", "1.0000", "unstable"):
        assert word in text
    assert " 1 block an SM" in text
    assert json.loads(json.dumps(joined))["counters"]["cell"] == "xqa_shared_p16"


def reread(record: dict[str, Any], folder: Path) -> dict[str, Any]:
    (folder / "reread.jsonl").write_text(json.dumps(record), encoding="utf-8")
    (found,) = read_counters([folder / "reread.jsonl"])
    return found


def test_stability_is_worked_out_from_each_launch_when_it_is_read(tmp_path: Path) -> None:
    """Not from a rounded spread: and whoever reads it, a verdict or a table, reads the same."""
    line = recorded()[0]
    kernel = line["kernels"][0]
    close = kernel | {"values": kernel["values"] | {"ldg": [79_733_672.0, 79_733_673.0]}}
    entry = {"value": 79_733_672.5, "stable": False, "spread": 0.0}
    record = line | {"kernels": [close], "total": line["total"] | {"ldg": entry}}
    found = reread(record, tmp_path)
    assert not found["total"]["ldg"]["stable"]
    assert "ldg" in found["kernels"][0]["unstable"]
    once = close | {"values": {name: values[:1] for name, values in close["values"].items()}}
    found = reread(record | {"kernels": [once]}, tmp_path)
    assert not any(each["stable"] for each in found["total"].values())


def test_what_is_read_is_as_stable_as_when_it_was_counted(tmp_path: Path) -> None:
    """But for bytes written, which were allowed 2 % in records of before."""
    for line in every_recorded():
        for name, entry in reread(line, tmp_path)["total"].items():
            if name != "dram_write_bytes":
                assert entry["stable"] is line["total"][name]["stable"], (line["cell"], name)


def test_kernels_whose_source_was_not_counted_are_not_predicted() -> None:
    hopper = {"kernel": "kernel_mha (mha_sm90.cu)", "splits": 1}
    fp8 = Cell.parse("xqa_distinct_p64_e4m3").shape
    assert loads_of("xqa", fp8, hopper, (9, 0)) == Loads()
    resolved = TILE | {"splits": 1}
    assert loads_of("tritontile", fp8, resolved, (9, 0)) == Loads()
    assert loads_of("gather", fp8, {"splits": 1}, (9, 0)) == Loads()


def own_kernel(monkeypatch: pytest.MonkeyPatch, formula: Any) -> Cell:
    """A cell of a kernel from elsewhere, gather but for what it says that it loads."""

    class Own(Gather):
        name = "own"

        def loads(self, shape: Shape, resolved: Any, capability: Any) -> Any:
            return formula(shape)

    monkeypatch.setitem(registry._from_files, "own", Own())
    return Cell.parse("own_distinct_p16")


def test_a_kernel_from_elsewhere_may_say_what_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = own_kernel(monkeypatch, lambda shape: Loads(ldg=shape.batch, merge_bytes=512))
    found = predict_counters(cell, {"kernel": "own"}, {"capability": [9, 0]})
    without = predict_counters(cell, {}, {"capability": [9, 0]})  # imported: not resolved
    assert (found["ldg"], without["ldg"]) == (8, None)
    assert found["dram_read_bytes"] == without["dram_read_bytes"] + 512


@pytest.mark.parametrize(("formula", "says"), [
    (lambda shape: 1 / 0, r"own\.loads\(\): ZeroDivisionError"),
    (lambda shape: 7, r"own\.loads\(\): TypeError: it gives int; give adapter\.Loads"),
    (lambda shape: Loads("8"), r"own\.loads\(\): TypeError"),  # type: ignore[arg-type]
])  # fmt: skip
def test_a_formula_that_fails_is_said_beside_what_is_predicted_without_it(
    formula: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = own_kernel(monkeypatch, formula)
    with pytest.raises(KernelError, match=says):
        loads_of("own", cell.shape, {"kernel": "own"}, None)
    found = predict_counters(cell, {"kernel": "own"}, {})
    assert (found["ldg"], found["dram_read_bytes"]) == (None, None)
    assert re.match(says, found["failed"])


def test_a_formula_may_count_with_numpy_and_not_know_what_a_merge_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell = own_kernel(monkeypatch, lambda shape: Loads(shape.lengths().sum(), merge_bytes=None))
    found = predict_counters(cell, {"kernel": "own"}, {})
    assert json.loads(json.dumps(found))["ldg"] == 8 * 4096
    assert found["dram_read_bytes"] is None


def test_a_stored_prediction_is_made_anew_when_it_is_read() -> None:
    """This cell was counted under an earlier formula, which flagged it."""
    cell = "xqa_distinct_p16_b4_l3000_d64"
    file = H200 / "counters_unseen_again.jsonl"
    (stored,) = [line for line in store.read_kind([file], "counters") if line["cell"] == cell]
    assert stored["off"] == ["ldg"]
    joined = card.joined(cell, [file])["counters"]
    assert joined["off"] == []
    assert joined["predicted"]["ldg"] == joined["total"]["ldg"]["value"]
    assert joined["total"]["ldg"] == stored["total"]["ldg"]


def test_an_unknown_kernels_prediction_stays_as_it_was() -> None:
    record = recorded()[0]
    foreign = record | {
        "cell": "foreign_shared_p16",
        "axes": record["axes"] | {"kernel": "foreign"},
    }
    assert predicted_anew(foreign) == foreign


def test_a_row_of_counters_says_shares_and_what_does_not_repeat() -> None:
    rows = {row[0]: dict(zip(card.COUNTER_HEADINGS, row, strict=True))
            for row in map(card.counters_row, recorded())}  # fmt: skip
    shared = rows["xqa_shared_p16"]
    assert (shared["L2, replay"], shared["LDG"]) == ("cold, kernel", "407,552")
    assert "dram_read_bytes" in shared["does not repeat"]
    assert card.counters_row(recorded()[0])[3] == "1.0000"


def test_dram_bytes_over_time_stand_beside_how_busy_dram_was() -> None:
    file = H200 / "study.jsonl"
    cell = "xqa_distinct_p64_b32_l8192"
    (line,) = [r for r in store.read_kind([file], "counters") if r["cell"] == cell]
    timings = list(store.read([file]))
    row = dict(zip(card.COUNTER_HEADINGS, card.counters_row(line, timings), strict=True))
    (us,) = [np.median(r.samples.time_us) for r in timings if r.cell == cell and r.samples]
    assert row["DRAM GB/s"] == f"{line['total']['dram_read_bytes']['value'] / us / 1e3:,.0f}"
    assert row["DRAM busy %"] == "85.2"
    elsewhere = line | {"environment": line["environment"] | {"uuid": "another"}}
    assert card.counters_row(elsewhere, timings)[card.COUNTER_HEADINGS.index("DRAM GB/s")] == ""


def test_a_line_of_counters_that_a_kill_cut_off_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    whole = json.dumps(recorded()[0])
    file.write_text(f"{whole}\n{whole[:300]}\n{whole}\n")
    assert len(list(store.read_kind([file], "counters"))) == 2


def test_two_page_sizes_of_xqa_are_two_binaries() -> None:
    by_cell = {record["cell"]: record for record in recorded()}
    small, large = by_cell["xqa_shared_p16"], by_cell["xqa_shared_p64"]
    assert set(card.same_binary(small, small).values()) == {True}
    assert card.same_binary(small, large)["launch"]
    assert not card.same_binary(small, large)["module"]
    near = card.same_binary(small, by_cell["xqa_shared_p32"])
    assert near == {"module": False, "symbol": True, "launch": True, "resources": True}


def test_kernels_whose_page_size_is_no_constant_are_one_binary() -> None:
    by_cell = {record["cell"]: record for record in recorded()}
    token, block = (
        by_cell[f"fidecode_distinct{where}_p1_b32_l8192"] for where in ("", "_block128")
    )
    assert card.same_binary(token, block)["module"]
    told = token | {"resolved": token["resolved"] | {"module": "one"}}
    assert not card.same_binary(told, block | {"resolved": {"module": "another"}})["module"]
    assert card.same_binary(told, token)["module"]  # an older record, without the name


def test_a_contrast_says_which_stable_counters_moved_and_if_the_binary_did() -> None:
    files = [H200 / "counters.jsonl"]
    small, large = (card.joined(f"xqa_distinct_p{page}", files) for page in (16, 64))
    found = card.contrast(small, large)
    assert found["ratio"]["ldg"] == round(56_448 / 14_976, 4)
    assert "ldgsts" not in found["ratio"]  # KV copies do not depend on the page size
    assert found["same"]["launch"]
    text = card.joined_card(small | {"against": found})
    assert "xqa_distinct_p16 over it: " in text
    assert "ldg x 3.7692" in text
    assert "local_loads from none" in text  # page 64 has none
    other_way = card.joined_card(large | {"against": card.contrast(large, small)})
    assert "local_loads x 0.0000" in other_way


def test_a_contrast_needs_counters_of_both() -> None:
    timed = card.joined("xqa_shared_p32", [H200 / "pages.jsonl"])
    with pytest.raises(ValueError, match="no counters"):
        card.contrast(timed, timed)


def test_the_ceiling_is_a_curve_over_bytes() -> None:
    points = [Point(2**20, 1000.0, True), Point(2**22, 3000.0, True)]
    assert bandwidth_at(points, 2**21) == 2000.0
    assert bandwidth_at(points, 2**30) == 3000.0
    assert bandwidth_at(points, 2**19) is None
    assert bandwidth_at([], 2**19) is None


@pytest.mark.parametrize(("gbps", "saturated"), [
    ([3000, 4000, 4030], True), ([3000, 4000, 4300], False), ([4000], False),
])  # fmt: skip
def test_a_probe_saturates_when_larger_tiles_gain_nothing(
    gbps: list[float], saturated: bool
) -> None:
    assert is_saturated(gbps) is saturated


def test_a_card_shows_the_share_of_what_the_gpu_reads(tmp_path: Path) -> None:
    curve = [{"bytes_read": 2**20, "gbps": 4000.0, "saturated": True}]
    line = {"kind": "ceilings", "schema": 1, "dram_read": curve,
            "gpu": "NVIDIA H200", "environment": {"gpu": "NVIDIA H200"}}  # fmt: skip
    store.append_line(tmp_path / "c.jsonl", line)
    files = [H200 / "pages.jsonl", tmp_path / "c.jsonl"]
    text = card.joined_card(card.joined("xqa_distinct_p64_b32_l8192", files))
    assert "of the 4000 this GPU reads" in text


def test_a_cell_without_records_is_named() -> None:
    with pytest.raises(ValueError, match="no record of it"):
        card.joined("xqa_shared_p128", [H200 / "plan.jsonl"])


def test_a_baseline_holds_and_a_changed_count_is_named(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    records = recorded()
    assert baseline.save(path, records) == len(baseline.counts_of(records))
    assert baseline.changes(baseline.load(path), records) == []
    changed = json.loads(json.dumps(records))
    changed[0]["kernels"][0]["values"]["ldg"] = [407_553, 407_553]
    (line,) = baseline.changes(baseline.load(path), changed)
    assert "ldg was 407,552 and is 407,553" in line


def test_the_committed_baseline_is_that_of_the_committed_counters() -> None:
    assert baseline.changes(baseline.load(H200 / "baseline.json"), recorded()) == []


def counted_kernels(*kernels: tuple[str, dict[str, list[float]]]) -> list[dict[str, Any]]:
    entries = [{"symbol": symbol, "values": values} for symbol, values in kernels]
    return [{"cell": "c", "how": {"chip": "gh100"}, "kernels": entries}]


BOTH = (("decode", {"ldg": [5.0, 5.0], "tma": [0.0, 0.0]}), ("merge", {"ldg": [2.0, 2.0]}))


@pytest.mark.parametrize(("now", "change"), [
    ((("decode", {"ldg": [6.0, 6.0], "tma": [0.0, 0.0]}), BOTH[1]), "decode: ldg was 5 and is 6"),
    ((("decode", {"tma": [0.0, 0.0]}), BOTH[1]), "ldg was 5 and is not counted, or does not"),
    ((("decode", {"ldg": [5.0, 6.0], "tma": [0.0, 0.0]}), BOTH[1]), "is not counted, or does not"),
    ((("decode", {"ldg": [5.0], "tma": [0.0, 0.0]}), BOTH[1]), "is not counted, or does not"),
    ((BOTH[0],), "merge: no longer runs"),
    ((*BOTH, BOTH[1]), "merge #2: not in the baseline"),
])  # fmt: skip
def test_whatever_a_baseline_holds_must_be_there_again(now: Any, change: str) -> None:
    kept = baseline.counts_of(counted_kernels(*BOTH))
    assert baseline.changes(kept, counted_kernels(*BOTH)) == []
    (line,) = baseline.changes(kept, counted_kernels(*now))
    assert change in line


def test_cells_of_a_baseline_that_were_not_counted_now_are_no_change() -> None:
    kept = baseline.counts_of(counted_kernels(*BOTH)) | {"gh100 other decode": {"ldg": 1.0}}
    assert baseline.changes(kept, counted_kernels(*BOTH)) == []


@pytest.mark.parametrize("text", [
    "[]", "5", '{"schema":1}', '{"schema":99,"counts":{}}', '{"counts":{}}',
    '{"schema":1,"counts":5}', '{"schema":1,"counts":null}', '{"schema":1,"counts":[]}',
    '{"schema":1,"counts":{"k":5}}', '{"schema":1,"counts":{"k":{"ldg":"x"}}}',
    '{"schema":1,"counts":{"k":{"ldg":null}}}', "no JSON",
    pytest.param("[" * 100_000, id="nested beyond reading"),
])  # fmt: skip
def test_a_malformed_baseline_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(ValueError, match=r"b\.json is no baseline.*--save-baseline makes one"):
        baseline.load(tmp_path / "b.json")


@pytest.mark.parametrize(("field", "value"), [
    ("environment", None), ("total", None), ("kernels", None), ("schema", 99), ("kernels", []),
    ("resolved", 5), ("how", {}), ("how", []), ("how", 5), ("cell", 5), ("axes", {}),
    ("ratios", []), ("total", {"ldg": 5}), ("kernels", ["kernel_mha"]),
])  # fmt: skip
def test_a_counters_record_that_cannot_be_read_is_an_error_of_one_line(
    field: str, value: object, tmp_path: Path
) -> None:
    line = {name: entry for name, entry in recorded()[0].items() if name != field}
    store.append_line(tmp_path / "c.jsonl", line if value is None else line | {field: value})
    with pytest.raises(ValueError, match=rf"c\.jsonl, line 1: a counters record .*{field}"):
        card.joined("xqa_shared_p16", [tmp_path / "c.jsonl"])


def test_a_record_of_an_unheard_of_counter_is_an_error_that_names_it(tmp_path: Path) -> None:
    line = recorded()[0]
    total = line["total"] | {"unheard_of": line["total"]["ldg"]}
    store.append_line(tmp_path / "c.jsonl", line | {"total": total})
    with pytest.raises(ValueError, match="a counters record counts unheard_of"):
        card.joined(line["cell"], [tmp_path / "c.jsonl"])


@pytest.mark.parametrize(("field", "value"), [
    ("symbol", None), ("launch", None), ("grid", 5), ("values", {}), ("values", []),
    ("values", {"ldg": []}), ("values", {"ldg": [5.0, 5.0], "issue_pct": [9.0]}),
    ("values", {"ldg": [5.0, 5.0], "issue_pct": ["a", "b"]}),
    ("values", {"ldg": [None, None]}), ("values", {"ldg": ["a", "b"]}),
])  # fmt: skip
def test_a_kernel_that_no_card_can_be_made_of_is_an_error_of_one_line(
    field: str, value: object, tmp_path: Path
) -> None:
    line = recorded()[0]
    kernel, counted = line["kernels"][0], {"ldg": line["total"]["ldg"]}
    damaged = {"kernels": [kernel | {field: value}], "total": counted}
    store.append_line(tmp_path / "c.jsonl", line | damaged)
    with pytest.raises(ValueError, match="a counters record has no proper kernels"):
        card.joined(line["cell"], [tmp_path / "c.jsonl"])


def test_a_line_nested_beyond_reading_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"kind":"counters","total":' + "[" * 100_000 + "\n")
    assert list(read_counters([tmp_path / "c.jsonl"])) == []


def test_a_baseline_holds_counts_alone_and_no_empty_one_is_written_or_passes(
    tmp_path: Path,
) -> None:
    values = {"ldg": [5.0, 5.0], "dram_read_bytes": [9.0, 9.0], "issue_pct": [50.0, 50.0]}
    records = counted_kernels(("decode", values))
    assert list(baseline.counts_of(records).values()) == [{"ldg": 5.0}]
    once = counted_kernels(("decode", {"ldg": [5.0]}))
    path = tmp_path / "b.json"
    path.write_text("kept")
    with pytest.raises(ValueError, match="no count was counted twice"):
        baseline.save(path, once)
    assert path.read_text() == "kept"
    with pytest.raises(ValueError, match="holds no count"):
        baseline.changes(baseline.counts_of(once), once)


def test_a_baseline_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "b.json"
    baseline.save(path, counted_kernels(*BOTH))
    before = path.read_text()

    def on_a_full_disk(self: Path, text: str, **options: Any) -> int:
        self.write_bytes(text[:20].encode())
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", on_a_full_disk)
    with pytest.raises(OSError, match="No space left"):
        baseline.save(path, counted_kernels(BOTH[0]))
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_that_a_baseline_could_not_take_its_place_is_known_before_counting(tmp_path: Path) -> None:
    (tmp_path / "b.json.part").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        baseline.prepare(tmp_path / "b.json", None)
    (tmp_path / "b.json.part").rmdir()
    assert baseline.prepare(tmp_path / "b.json", None) is None
    assert list(tmp_path.iterdir()) == []


def test_a_baseline_that_an_editor_gave_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    baseline.save(path, counted_kernels(*BOTH))
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert baseline.load(path) == baseline.counts_of(counted_kernels(*BOTH))


def test_a_baseline_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.json: No such file .*--save-baseline makes one"):
        baseline.load(tmp_path / "none.json")
    with pytest.raises(ValueError, match="is no baseline"):
        baseline.load(H200 / "pages.jsonl")


def test_where_nothing_can_be_profiled_doctor_says_why_and_times_the_rest() -> None:
    said: list[str] = []
    absent = Device("cuda", "an absent GPU", 99, (9, 0))
    assert list(_profiled(absent, {}, said.append)) == []
    assert len(said) == 1
    assert said[0].startswith("no profile to time: device cuda:99: ")


def test_a_profile_that_is_killed_without_a_word_costs_the_doctor_that_line_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(*words: str) -> None:
        raise subprocess.CalledProcessError(-9, list(words), stderr="")

    monkeypatch.setattr(speed, "_pagebench", killed)
    said: list[str] = []
    assert list(_profiled(Device("cuda", "", 0, (9, 0)), {}, said.append)) == []
    assert "died with <Signals.SIGKILL: 9>" in said[0]


@pytest.mark.parametrize(("name", "wrong", "of"), [
    ("counters_unseen", 6, 6), ("counters_unseen_again", 4, 23), ("counters_unseen_third", 2, 14),
])  # fmt: skip
def test_how_often_an_unseen_cell_found_a_formula_wrong(name: str, wrong: int, of: int) -> None:
    """By the predictions that these records were stored with; the decode kernel's if no more."""
    judged = []
    for record in store.read_kind([H200 / f"{name}.jsonl"], "counters"):
        whole, decode = (record["predicted"].get(what) for what in ("ldg", "decode_ldg"))
        if whole:
            judged.append(whole == record["total"]["ldg"]["value"])
        elif decode and name == "counters_unseen":
            judged.append(decode == record["kernels"][0]["values"]["ldg"][0])
    assert (judged.count(False), len(judged)) == (wrong, of)
