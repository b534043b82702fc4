"""What is said of the recorded counters: what repeats, what is shared, what a flush does."""

from __future__ import annotations

import pytest

from fakes import H200
from fakes.ncu_pages import STUDIES, every_recorded, recorded
from pagebench.harness.records import store
from pagebench.harness.records.audit import Audit
from pagebench.harness.records.counters import Counters
from pagebench.profiles.counters import stability, totals

DRAM_READ = "dram_read_bytes"


def launches_of(counters: Counters, name: str) -> list[float]:
    return totals([kernel.values for kernel in counters.kernels])[name]


def test_l2_requests_and_sectors_repeat_as_traffic_does_and_seldom_exactly() -> None:
    distinct = [each for each in every_recorded() if each.axes.sharing == "distinct"]
    counted = {
        name: [launches_of(each, name) for each in distinct]
        for name in ("l2_requests", "l2_sectors")
    }
    exact = {
        name: sum(len(set(launches)) == 1 for launches in values)
        for name, values in counted.items()
    }
    assert len(distinct) == 170
    assert exact == {"l2_requests": 16, "l2_sectors": 12}
    assert all(
        stability("traffic", launches).stable for values in counted.values() for launches in values
    )


def test_shared_dram_bytes_do_not_repeat_whatever_the_cache_state() -> None:
    found = recorded("counters_shared_dram")
    assert {each.how.l2 for each in found} == {"cold", "warm"}
    assert all(each.kernels[0].passes == 1 for each in found)
    assert not any(each.total[DRAM_READ].stable for each in found)
    megabytes = {
        (each.cell, each.how.l2): [value / 1e6 for value in launches_of(each, DRAM_READ)]
        for each in found
    }
    ranges = {of: (round(min(read), 1), round(max(read), 1)) for of, read in megabytes.items()}
    assert ranges["xqa_shared_p16", "cold"] == (58.4, 58.7)
    assert ranges["xqa_shared_p16", "warm"] == (49.7, 55.1)


def test_shared_kv_is_read_from_dram_more_than_once() -> None:
    """Of XQA's shared cells, cold, what the log says: 1.45 to 1.82 times."""
    times = [
        each.total[DRAM_READ].value / each.predicted.distinct_kv_bytes
        for each in recorded("counters", *STUDIES)
        if each.cell.startswith("xqa_shared_p")
    ]
    assert (round(min(times), 2), round(max(times), 2)) == (1.45, 1.82)


def test_the_flush_makes_the_cache_cold_and_without_it_a_small_cell_stays_in_l2() -> None:
    audits = {each.cell: each for each in store.read([H200 / "audit.jsonl"], Audit).of(Audit)}
    assert audits
    assert all(each.is_flushed for each in audits.values())
    assert all(each.cold_over_distinct >= 0.98 for each in audits.values())
    assert audits["xqa_distinct_p64_b1"].warm_over_distinct < 0.5  # 17 MB: fits


def test_no_recorded_card_builds_on_a_distrusted_counter() -> None:
    for each in recorded():
        assert not set(each.distrusted) & set(each.total)


@pytest.mark.parametrize(
    ("name", "wrong", "of"),
    [
        ("counters_unseen", 6, 6),
        ("counters_unseen_again", 4, 23),
        ("counters_unseen_third", 2, 14),
    ],
)
def test_how_often_an_unseen_cell_found_a_formula_wrong(name: str, wrong: int, of: int) -> None:
    """By the predictions that these records were stored with; the decode kernel's if no more."""
    judged = []
    for each in recorded(name):
        if each.predicted.ldg:
            judged.append(each.predicted.ldg == each.value("ldg"))
        elif each.predicted.decode_ldg and name == "counters_unseen":
            judged.append(each.predicted.decode_ldg == each.kernels[0].values["ldg"][0])
    assert (judged.count(False), len(judged)) == (wrong, of)
