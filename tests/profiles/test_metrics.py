"""Counters' names on each chip, against NVIDIA's own tables."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from fakes import DATA
from pagebench.profiles.metrics import (
    CHIPS,
    METRICS,
    SINGLE_PASS,
    ChipError,
    chip_of,
    metric,
    names_on,
)

TABLES = json.loads(gzip.decompress((DATA / "metrics.json.gz").read_bytes()))["chips"]


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
    with pytest.raises(ChipError, match="no counters are mapped"):
        chip_of((7, 5))


def test_single_pass_groups_hold_known_counters() -> None:
    known = {metric.name for metric in METRICS}
    assert all(set(group) <= known for group in SINGLE_PASS.values())
