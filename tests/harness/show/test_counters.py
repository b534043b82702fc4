"""Counters as a card of one cell and a row of many, from what was recorded."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from fakes import H200
from pagebench.harness.counting.predict import anew
from pagebench.harness.records import store
from pagebench.harness.records.ceilings import ByWarps, Launches, MeasuredCeilings
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.timing import Timing
from pagebench.harness.show.counters import (
    CEILING_HEADINGS,
    COUNTER_HEADINGS,
    ceiling_rows,
    counters_card,
    counters_row,
    counters_table,
    short_symbol,
)
from pagebench.profiles.ceilings import Point


def recorded(name: str = "counters") -> list[Counters]:
    return list(map(anew, store.read([H200 / f"{name}.jsonl"], Counters).of(Counters)))


def of_cell(cell: str, name: str = "counters") -> Counters:
    return next(each for each in recorded(name) if each.cell == cell)


def named(counters: Counters, *timings: Timing) -> dict[str, str]:
    return dict(zip(COUNTER_HEADINGS, counters_row(counters, timings), strict=True))


def test_a_card_shows_kernels_counters_prediction_and_stability() -> None:
    text = counters_card(of_cell("xqa_shared_p16"))
    for word in ("kernel_mha", "128 registers", "407,552", "stable", "unstable", "6, replay"):
        assert word in text


def test_a_call_of_several_kernels_has_a_column_of_each() -> None:
    counters = next(each for each in recorded() if len(each.kernels) == 2)
    name, first, second, call, *_ = counters_table(counters)[0]
    assert name == "instructions"
    values = [float(text.replace(",", "")) for text in (first, second, call)]
    assert values[0] + values[1] == values[2]
    assert all(len(row) == 7 for row in counters_table(counters))


def test_what_was_counted_once_is_neither_stable_nor_unstable() -> None:
    counters = of_cell("xqa_shared_p16")
    once = replace(counters, how=replace(counters.how, launches=1))
    assert counters_table(once)[0][-1] == "counted once"


def test_an_imported_page_is_told_from_what_was_counted_here() -> None:
    counters = of_cell("xqa_shared_p16")
    how = replace(counters.how, imported=True, ncu=None, cache_control=None)
    text = counters_card(replace(counters, how=how))
    assert "cache control unknown" in text
    assert text.endswith("imported: not calibrated, kernels not checked")


def test_counters_that_were_found_wrong_are_named() -> None:
    trusted = replace(of_cell("xqa_shared_p16").without(["tma"]), calibrated=True)
    assert counters_card(trusted).endswith("calibrated: tma left out (found wrong)")


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
    assert short_symbol(symbol) == shown


def test_a_row_of_counters_says_shares_and_what_does_not_repeat() -> None:
    shared = named(of_cell("xqa_shared_p16"))
    assert (shared["L2, replay"], shared["LDG"]) == ("cold, kernel", "407,552")
    assert "dram_read_bytes" in shared["does not repeat"]
    assert counters_row(recorded()[0])[3] == "1.0000"


def test_dram_bytes_over_time_stand_beside_how_busy_dram_was() -> None:
    cell = "xqa_distinct_p64_b32_l8192"
    counters = of_cell(cell, "study")
    timings = store.read([H200 / "study.jsonl"], Timing).of(Timing)
    row = named(counters, *timings)
    (us,) = [np.median(t.samples.time_us) for t in timings if t.cell == cell and t.samples]
    assert row["DRAM GB/s"] == f"{counters.total['dram_read_bytes'].value / us / 1e3:,.0f}"
    assert row["DRAM busy %"] == "85.2"
    elsewhere = replace(counters, environment=replace(counters.environment, uuid="another"))
    assert named(elsewhere, *timings)["DRAM GB/s"] == ""


def test_ceilings_stand_a_row_each() -> None:
    measured = MeasuredCeilings(
        gpu="NVIDIA H200",
        launch_us=Launches(by_launches={1: 2.5, 2: 3.75}, saturated=False),
        issue_ginst=ByWarps(by_warps={16: 1000.0, 32: 1001.0}, saturated=True),
        dram_read=(Point(2**24, 4000.0, True),),
    )
    assert len(CEILING_HEADINGS) == 4
    assert ceiling_rows(measured) == [
        ("launch_us, first", "2.50", "launches: 1 2.5, 2 3.75", ""),
        ("launch_us, further", "1.25", "", "False"),
        ("issue_ginst", "1,001", "warps per SM: 16 1,000, 32 1,001", "True"),
        ("dram_read_gbps of 17 MB", "4,000", "", "True"),
    ]
