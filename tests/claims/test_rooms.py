"""The study after the code moved into rooms: measured whole, and a page of the same form."""

from __future__ import annotations

import pytest

from fakes import H200, RESULTS
from pagebench.harness.records import store
from pagebench.harness.records.codec import KINDS
from pagebench.harness.records.speed import Speed
from pagebench.harness.study.read import read
from pagebench.harness.study.section import Section
from pagebench.harness.study.sections import study

AFTER, BEFORE = "study_rooms", "study"
BY_WHAT_MOVED = {"dose"}  # its tables have a column for each counter that moved
WHERE_NEEDED = {"note"}  # a column that is left out where it is empty


@pytest.fixture(scope="module")
def pages() -> list[tuple[Section, ...]]:
    return [study(read([H200 / f"{name}.jsonl"])).sections for name in (BEFORE, AFTER)]


def test_the_page_has_the_sections_tables_and_headings_of_the_one_before(
    pages: list[tuple[Section, ...]],
) -> None:
    before, after = pages
    assert [each.title for each in after] == [each.title for each in before]
    for one, other in zip(before, after, strict=True):
        assert len(one.tables) == len(other.tables), one.title
        assert bool(one.missing) == bool(other.missing), one.title
        if one.anchor not in BY_WHAT_MOVED:
            assert headings(other) == headings(one)


def headings(section: Section) -> list[list[str]]:
    return [[h for h in table.headings if h not in WHERE_NEEDED] for table in section.tables]


def test_it_was_measured_whole_by_one_clean_commit() -> None:
    stored = store.read([H200 / f"{AFTER}.jsonl"])
    environments = {record.environment.commit for _, record in stored.lines}
    assert len(environments) == 1
    assert all(record.environment.dirty is False for _, record in stored.lines)
    lacking = set(KINDS) - stored.kinds
    assert lacking == {"audit", "oracle"}  # `make study` makes neither


def test_the_study_and_the_suite_kept_their_limits() -> None:
    (whole,) = store.read([H200 / f"{AFTER}.jsonl"], Speed).of(Speed)
    assert (whole.what, whole.is_kept) == ("make study", True)
    rows = store.read([H200 / "speed_rooms.jsonl"], Speed).of(Speed)
    assert len(rows) == 6
    assert all(row.is_kept for row in rows)
    (listing,) = [row for row in rows if row.what == "pagebench list --suite pages"]
    assert (listing.limit_s, listing.statistic, len(listing.all_seconds)) == (0.4, "median", 5)


def test_on_two_quiet_cores_a_list_takes_at_most_0_4_s_and_all_limits_are_kept() -> None:
    rows = store.read([RESULTS / "cpu" / "speed_rooms.jsonl"], Speed).of(Speed)
    assert len(rows) == 5
    assert all(row.is_kept for row in rows)
    assert {row.environment.cores for row in rows} == {2}
    (listing,) = [row for row in rows if row.what == "pagebench list --suite pages"]
    assert (listing.limit_s, listing.statistic, len(listing.all_seconds)) == (0.4, "median", 5)
