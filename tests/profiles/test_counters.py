"""Rows of kernels, launch by launch: calls, totals, what repeats, ratios."""

from __future__ import annotations

import pytest

from pagebench.profiles.counters import (
    CountError,
    KernelRow,
    by_call,
    expect,
    ratios,
    stability,
    totals,
    unstable,
)


def row(symbol: str = "k", grid: str = "(1)", **values: float) -> KernelRow:
    return KernelRow(symbol, grid, "(32)", {}, values, 1, "")


def test_a_call_of_two_kernels_gives_a_column_each() -> None:
    kernels = by_call([row("a"), row("b"), row("a"), row("b")], launches=2)
    assert [[r.symbol for r in same] for same in kernels] == [["a", "a"], ["b", "b"]]


@pytest.mark.parametrize(
    "rows", [[], [row("a")], [row("a"), row("b")], [row("a"), row("a", grid="(2)")]]
)
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
    calls = by_call([row(ldg=5, tma=0), row("b", ldg=2, tma=1)] * 2, launches=2)
    kernels = [
        {name: [each.values[name] for each in same] for name in ("ldg", "tma")} for same in calls
    ]
    assert totals(kernels)["ldg"] == [7.0, 7.0]
    assert totals(kernels)["tma"] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("kind", "values", "stable"),
    [
        ("count", [10, 10], True),
        ("count", [10, 11], False),
        ("count", [0, 0], True),
        ("traffic", [1000, 1002], True),
        ("traffic", [1000, 1003], False),
        ("rate", [50.0, 50.9], True),
        ("rate", [50.0, 51.5], False),
    ],
)
def test_counts_repeat_exactly_and_traffic_within_two_in_a_thousand(
    kind: str, values: list[float], stable: bool
) -> None:
    assert stability(kind, values).stable is stable


def test_a_kernels_rates_are_marked_where_they_do_not_repeat() -> None:
    rows = [row(issue_pct=40.0, ldg=5), row(issue_pct=42.0, ldg=5)]
    values = {name: [row.values[name] for row in rows] for name in ("issue_pct", "ldg")}
    assert unstable(values) == ["issue_pct"]


def test_sectors_a_request_are_undefined_for_tma() -> None:
    plain = {"l1_requests": 2.0, "l1_sectors": 32.0, "ldg": 2.0, "ldgsts": 0.0, "tma": 0.0}
    assert ratios(plain)["l1_sectors_per_request"] == 16.0
    assert ratios(plain | {"tma": 9.0})["l1_sectors_per_request"] == "n/a (TMA)"
    assert ratios({"l2_hits": 3.0, "l2_misses": 1.0})["l2_hit_pct"] == 75.0
