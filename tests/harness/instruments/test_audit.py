"""The audit of the flush, with a stand-in for ncu."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from fakes.ncu_pages import GPU, HERE, NAME, TOLD, Fake, edited
from pagebench.harness.cell import Cell
from pagebench.harness.counting.profile import Request
from pagebench.harness.counting.trust import CALIBRATIONS
from pagebench.harness.errors import UserError
from pagebench.harness.instruments.audit import audit_flush
from pagebench.harness.records import store
from pagebench.harness.records.audit import Audit
from pagebench.harness.records.calibration import Calibration

DISTINCT = 8192 * 8 * 2 * 128 * 2
RIGHT = Calibration(
    gpu=GPU.name,
    chip="gh100",
    ncu="2025.3.1",
    started="2026-01-01",
    seen={"cal_ldg": {"dram_read_bytes": (2.0, 2.0)}},
    expected={"cal_ldg": {"dram_read_bytes": 2}},
    environment=HERE,
)


def audit(*names: str) -> list[Audit]:
    return audit_flush(tuple(map(Cell.parse, names or (NAME,))), Request(GPU), str)


def test_the_audit_compares_dram_bytes_after_the_flush_and_without(fake: Fake) -> None:
    cold, warm = (edited(passes="1", dram_read_bytes=each) for each in ("33,600,000", "9,000"))
    fake(pages={"warm": warm, "cold": cold})
    (record,) = audit()
    assert record.distinct_kv_bytes == DISTINCT
    assert record.cold_over_distinct == 33_600_000 / DISTINCT
    assert record.warm_over_distinct == 9_000 / DISTINCT
    assert record.is_flushed
    assert not record.calibrated
    assert (record.how.l2, record.how.replay_mode) == ("warm", "single pass")


def test_an_audit_of_cells_takes_two_processes_and_loses_those_alone_that_die(fake: Fake) -> None:
    pages = {"": edited(passes="1")}
    commands = fake(TOLD, pages=pages)
    (record,) = audit(NAME, "xqa_shared_p64")
    assert record.cell == NAME
    assert len(commands.read_text().splitlines()) == 2
    fake(TOLD, pages=pages, dies_on="xqa_shared_p64", last=[json.dumps(TOLD)])
    (record,) = audit(NAME, "xqa_shared_p64")
    assert record.cell == NAME


def test_a_flush_that_leaves_more_than_two_per_cent_in_the_cache_is_found(fake: Fake) -> None:
    for share, flushed in ((0.981, True), (0.979, False)):
        read = f"{int(share * DISTINCT):,}"
        fake(pages={"": edited(passes="1", dram_read_bytes=read)})
        (record,) = audit()
        assert record.is_flushed is flushed


def test_an_audit_does_not_rest_on_a_counter_that_was_found_wrong(fake: Fake) -> None:
    fake(pages={"": edited(passes="1")})
    store.append(CALIBRATIONS, RIGHT)
    (record,) = audit()
    assert record.calibrated
    wrong = {"cal_ldg": {"dram_read_bytes": 3}}
    store.append(CALIBRATIONS, replace(RIGHT, expected=wrong, started="2026-01-02"))
    with pytest.raises(UserError, match="an audit needs dram_read_bytes, which the calibration"):
        audit()


@pytest.mark.parametrize("text", ["n/a", "(!) n/a", "(!) nan", "-nan", "inf", "no data"])
def test_an_audit_needs_the_bytes_that_it_rests_on(text: str, fake: Fake) -> None:
    fake(pages={"": edited(dram_read_bytes=text, dram_busy_pct=text, passes="1")})
    with pytest.raises(UserError, match="an audit needs dram_read_bytes"):
        audit()
