"""Counters records: what follows from the values, and what no record can be made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes import H200
from fakes.ncu_pages import FILES_OF_COUNTERS, recorded
from pagebench.harness.records import codec, store
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.store import StoreError


def lines_of(*names: str) -> list[dict[str, Any]]:
    """Counters of recorded files as they stand there, of schema 1, in order."""
    texts = ((H200 / f"{name}.jsonl").read_text().splitlines() for name in names)
    lines = [json.loads(line) for text in texts for line in text]
    return [line for line in lines if line["kind"] == "counters"]


def read(path: Path, *lines: object) -> list[Counters]:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return store.read([path], Counters).of(Counters)


def with_values(counters: Counters, **values: tuple[float | None, ...]) -> Counters:
    first, *others = counters.kernels
    changed = replace(first, values={**first.values, **values})
    return replace(counters, kernels=(changed, *others))


# --- what follows from the values -----------------------------------------------------------------


def test_stability_is_worked_out_from_each_launch_when_it_is_read(tmp_path: Path) -> None:
    """Not from a rounded spread: and whoever reads it, a verdict or a table, reads the same."""
    (line,) = lines_of("counters")[:1]
    kernel = line["kernels"][0]
    close = kernel | {"values": kernel["values"] | {"ldg": [79_733_672.0, 79_733_673.0]}}
    entry = {"value": 79_733_672.5, "stable": False, "spread": 0.0}
    record = line | {"kernels": [close], "total": line["total"] | {"ldg": entry}}
    (found,) = read(tmp_path / "c.jsonl", record)
    assert not found.total["ldg"].stable
    assert "ldg" in found.kernels[0].unstable
    once = close | {"values": {name: values[:1] for name, values in close["values"].items()}}
    (found,) = read(tmp_path / "c.jsonl", record | {"kernels": [once]})
    assert not any(count.stable for count in found.total.values())


def test_what_is_read_is_as_stable_as_when_it_was_counted() -> None:
    """But for bytes written, which were allowed 2 % in records of before."""
    for line in lines_of(*FILES_OF_COUNTERS):
        found = codec.from_json(line)
        assert isinstance(found, Counters)
        assert found.total.keys() == line["total"].keys()
        for name, count in found.total.items():
            assert count.value == line["total"][name]["value"]
            if name != "dram_write_bytes":
                assert count.stable is line["total"][name]["stable"], (line["cell"], name)


def test_what_is_off_is_flagged() -> None:
    predicted = replace(recorded()[0].predicted, ldg=1000, dram_read_bytes=10**8)
    counters = replace(recorded()[0], predicted=predicted)
    near = with_values(counters, ldg=(1009.0,) * 2, dram_read_bytes=(1.01e8,) * 2)
    assert near.off == []
    far = with_values(counters, ldg=(1011.0,) * 2, dram_read_bytes=(1.03e8,) * 2)
    assert far.off == ["ldg", "dram_read_bytes"]


def test_a_kernels_own_code_and_constants_are_not_off() -> None:
    predicted = replace(recorded()[0].predicted, ldg=None, dram_read_bytes=10**6)
    counters = replace(recorded()[0], predicted=predicted)
    assert with_values(counters, dram_read_bytes=(1.1e6,) * 2).off == []
    assert with_values(counters, dram_read_bytes=(1.2e6,) * 2).off == ["dram_read_bytes"]


def test_a_counter_that_a_launch_lacks_is_not_in_the_total() -> None:
    counters = with_values(recorded()[0], ldg=(None, None), dram_read_bytes=(5.0, None))
    assert not {"ldg", "dram_read_bytes"} & counters.total.keys()
    assert counters.value("ldg") is None
    assert counters.over_predicted("ldg") is None


def test_what_is_taken_out_is_in_no_kernel_and_no_total() -> None:
    counters = recorded()[0].without(["ldg", "l1_requests"])
    assert counters.distrusted == ("ldg", "l1_requests")
    assert not {"ldg", "l1_requests"} & counters.total.keys()
    assert not any({"ldg", "l1_requests"} & kernel.values.keys() for kernel in counters.kernels)
    assert "l1_sectors_per_request" not in counters.ratios


# --- what cannot be read --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kernels", None),
        ("schema", 99),
        ("kernels", []),
        ("resolved", 5),
        ("how", {}),
        ("how", []),
        ("how", 5),
        ("cell", 5),
        ("axes", {}),
        ("kernels", ["kernel_mha"]),
        ("environment", 5),
        ("predicted", {}),
    ],
)
def test_a_record_that_cannot_be_read_is_an_error_of_one_line(
    field: str, value: object, tmp_path: Path
) -> None:
    (whole,) = lines_of("counters")[:1]
    line = {name: entry for name, entry in whole.items() if name != field}
    damaged = line if value is None else line | {field: value}
    says = rf"c\.jsonl, line 1: a counters record.*({field}|is damaged)"
    with pytest.raises(StoreError, match=says) as said:
        read(tmp_path / "c.jsonl", damaged)
    assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    ("field", "value"), [("total", None), ("ratios", []), ("total", {"ldg": 5}), ("off", "x")]
)
def test_what_is_worked_out_anyway_may_be_missing_or_damaged(
    field: str, value: object, tmp_path: Path
) -> None:
    (whole,) = lines_of("counters")[:1]
    line = {name: entry for name, entry in whole.items() if name != field}
    assert read(tmp_path / "c.jsonl", line if value is None else line | {field: value}) == (
        read(tmp_path / "w.jsonl", whole)
    )


def test_a_record_of_an_unheard_of_counter_is_an_error_that_names_it(tmp_path: Path) -> None:
    (line,) = lines_of("counters")[:1]
    kernel = line["kernels"][0]
    values = kernel["values"] | {"unheard_of": kernel["values"]["ldg"]}
    with pytest.raises(StoreError, match=r"a counters record.* unknown counters: unheard_of"):
        read(tmp_path / "c.jsonl", line | {"kernels": [kernel | {"values": values}]})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("symbol", None),
        ("launch", None),
        ("grid", 5),
        ("values", {}),
        ("values", []),
        ("values", {"ldg": []}),
        ("values", {"ldg": [5.0, 5.0], "issue_pct": [9.0]}),
        ("values", {"ldg": [5.0, 5.0], "issue_pct": ["a", "b"]}),
        ("values", {"ldg": ["a", "b"]}),
    ],
)
def test_a_kernel_that_no_card_can_be_made_of_is_an_error_of_one_line(
    field: str, value: object, tmp_path: Path
) -> None:
    (line,) = lines_of("counters")[:1]
    damaged = {"kernels": [line["kernels"][0] | {field: value}]}
    with pytest.raises(StoreError, match=r"a counters record.*(kernels|is damaged)") as said:
        read(tmp_path / "c.jsonl", line | damaged)
    assert "\n" not in str(said.value)


def test_a_line_nested_beyond_reading_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"kind":"counters","total":' + "[" * 100_000 + "\n")
    with pytest.raises(store.StoreError, match=r"c\.jsonl, line 1: .* nested too deep"):
        store.read([tmp_path / "c.jsonl"], Counters)


def test_a_line_that_a_kill_cut_off_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    whole = codec.encode(recorded()[0])
    file.write_text(f"{whole}\n{whole[:300]}\n{whole}\n")
    assert len(store.read([file], Counters).of(Counters)) == 2
