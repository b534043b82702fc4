"""Baselines: what they hold, what is a change, and that no file is half written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes import H200
from fakes.ncu_pages import recorded
from pagebench.harness.cell import Cell
from pagebench.harness.counting import baseline
from pagebench.harness.errors import UserError
from pagebench.harness.records import store
from pagebench.harness.records.counters import Counters, Values

REMEDY = "pagebench baseline save makes one"
Kernels = tuple[tuple[str, dict[str, Values]], ...]


def test_a_baseline_holds_and_a_changed_count_is_named(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    records = recorded()
    assert baseline.save(path, records) == len(baseline.counts_of(records))
    assert baseline.changes(baseline.load(path).counts, records) == []
    first, *others = records
    kernel = first.kernels[0]
    other = replace(kernel, values={**kernel.values, "ldg": (407_553.0, 407_553.0)})
    changed = [replace(first, kernels=(other, *first.kernels[1:])), *others]
    (line,) = baseline.changes(baseline.load(path).counts, changed)
    assert "ldg was 407,552 and is 407,553" in line


def counted_kernels(*kernels: tuple[str, dict[str, Values]]) -> list[Counters]:
    """Counters of one cell, of kernels by symbol."""
    like = recorded()[0]
    given = (replace(like.kernels[0], symbol=name, values=values) for name, values in kernels)
    return [replace(like, kernels=tuple(given))]


BOTH: Kernels = (
    ("decode", {"ldg": (5.0, 5.0), "tma": (0.0, 0.0)}),
    ("merge", {"ldg": (2.0, 2.0)}),
)


@pytest.mark.parametrize(
    ("now", "change"),
    [
        (
            (("decode", {"ldg": (6.0, 6.0), "tma": (0.0, 0.0)}), BOTH[1]),
            "decode: ldg was 5 and is 6",
        ),
        ((("decode", {"tma": (0.0, 0.0)}), BOTH[1]), "ldg was 5 and is not counted, or does not"),
        (
            (("decode", {"ldg": (5.0, 6.0), "tma": (0.0, 0.0)}), BOTH[1]),
            "is not counted, or does not",
        ),
        (
            (("decode", {"ldg": (5.0, None), "tma": (0.0, 0.0)}), BOTH[1]),
            "is not counted, or does not",
        ),
        ((BOTH[0],), "merge: no longer runs"),
        ((*BOTH, BOTH[1]), "merge #2: not in the baseline"),
    ],
)
def test_whatever_a_baseline_holds_must_be_there_again(now: Any, change: str) -> None:
    kept = baseline.counts_of(counted_kernels(*BOTH))
    assert baseline.changes(kept, counted_kernels(*BOTH)) == []
    (line,) = baseline.changes(kept, counted_kernels(*now))
    assert change in line


def test_cells_of_a_baseline_that_were_not_counted_now_are_no_change() -> None:
    kept = baseline.counts_of(counted_kernels(*BOTH)) | {"gh100 other decode": {"ldg": 1.0}}
    assert baseline.changes(kept, counted_kernels(*BOTH)) == []


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "5",
        '{"schema":1}',
        '{"schema":99,"counts":{}}',
        '{"counts":{}}',
        '{"schema":1,"counts":5}',
        '{"schema":1,"counts":null}',
        '{"schema":1,"counts":[]}',
        '{"schema":1,"counts":{"k":5}}',
        '{"schema":1,"counts":{"k":{"ldg":"x"}}}',
        '{"schema":1,"counts":{"k":{"ldg":null}}}',
        "no JSON",
        pytest.param("[" * 100_000, id="nested beyond reading"),
    ],
)
def test_a_malformed_baseline_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(UserError, match=rf"b\.json is not a baseline.*{REMEDY}"):
        baseline.load(tmp_path / "b.json")


def test_a_baseline_holds_counts_alone_and_no_empty_one_is_written_or_passes(
    tmp_path: Path,
) -> None:
    values = {"ldg": (5.0, 5.0), "dram_read_bytes": (9.0, 9.0), "issue_pct": (50.0, 50.0)}
    records = counted_kernels(("decode", values))
    assert list(baseline.counts_of(records).values()) == [{"ldg": 5.0}]
    once = counted_kernels(("decode", {"ldg": (5.0,)}))
    path = tmp_path / "b.json"
    path.write_text("kept")
    with pytest.raises(UserError, match="no counter had the same value"):
        baseline.save(path, once)
    assert path.read_text() == "kept"
    with pytest.raises(UserError, match="holds no count"):
        baseline.changes(baseline.counts_of(once), once)


def test_a_baseline_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "b.json"
    baseline.save(path, counted_kernels(*BOTH))
    before = path.read_text()

    def on_a_full_disk(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", on_a_full_disk)
    with pytest.raises(UserError, match="No space left"):
        baseline.save(path, counted_kernels(BOTH[0]))
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_that_a_baseline_could_not_take_its_place_is_known_before_counting(tmp_path: Path) -> None:
    (tmp_path / "b.json.part").mkdir()
    with pytest.raises(UserError, match="Is a directory"):
        baseline.check_place(tmp_path / "b.json")
    (tmp_path / "b.json.part").rmdir()
    baseline.check_place(tmp_path / "b.json")
    assert list(tmp_path.iterdir()) == []


def test_a_baseline_that_an_editor_gave_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    baseline.save(path, counted_kernels(*BOTH))
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert baseline.load(path).counts == baseline.counts_of(counted_kernels(*BOTH))


def test_a_baseline_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"none\.json: No such file .*{REMEDY}"):
        baseline.load(tmp_path / "none.json")
    with pytest.raises(UserError, match="is not a baseline"):
        baseline.load(H200 / "pages.jsonl")


# --- counters that were recorded before -----------------------------------------------------------


def test_the_newest_counters_of_each_cell_are_taken(tmp_path: Path) -> None:
    """An older record's kernels, which the call no longer runs, are not in the baseline."""
    file = tmp_path / "c.jsonl"
    old, new = counted_kernels(*BOTH)[0], counted_kernels(("decode", {"ldg": (7.0, 7.0)}))[0]
    store.append(file, replace(new, written="2026-02-01"), replace(old, written="2026-01-01"))
    (found,) = baseline.counted_before([file])
    assert list(baseline.counts_of([found]).values()) == [{"ldg": 7.0}]


def test_recorded_counters_may_be_those_of_some_cells_alone() -> None:
    file = H200 / "counters.jsonl"
    cells = [Cell.parse("xqa_shared_p16"), Cell.parse("xqa_shared_p128_d64")]
    (found,) = baseline.counted_before([file], cells)
    assert found.cell == "xqa_shared_p16"
    with pytest.raises(UserError, match=r"no counters of xqa_shared_p128_d64 in .*counters\.jsonl"):
        baseline.counted_before([file], cells, all_of=cells)
    with pytest.raises(UserError, match=r"no counters in .*pages\.jsonl"):
        baseline.counted_before([H200 / "pages.jsonl"])
