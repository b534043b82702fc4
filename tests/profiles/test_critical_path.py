"""What binds a call of known work: terms of the critical path, and their words.

The ceilings here are round numbers made up for arithmetic; none was measured.
"""

from __future__ import annotations

import pytest

from fakes.made import OLD_CEILINGS, ceilings, count
from pagebench.harness.show.sentences import binding, binding_line
from pagebench.profiles.ceilings import Ceilings, Point, critical_path
from pagebench.profiles.counters import Count

CEILINGS = ceilings().ceilings()


def counted(**values: float) -> dict[str, Count]:
    return {name: count(value) for name, value in values.items()}


WORK = counted(
    dram_read_bytes=4e8,
    l2_sectors=1e7,
    instructions=2e7,
    fma_instructions=1e7,
    tensor_instructions=5e5,
)


def test_each_term_is_its_work_over_its_ceiling() -> None:
    path = critical_path(WORK, 2, CEILINGS, 105.0)
    assert path is not None
    assert path.terms_us == pytest.approx(
        {"launch": 4.0, "DRAM": 97.0, "L2": 40.0, "issue": 20.0, "FMA": 10.0, "tensor": 5.0}
    )  # DRAM's 100 us were timed with one launch of 3 us
    assert path.path_us == pytest.approx(101.0)
    assert path.share == pytest.approx(101 / 105)
    assert (path.binding, path.unknown, path.unsaturated) == (("DRAM",), (), ("tensor",))


def test_the_sentence_can_be_checked() -> None:
    path = critical_path(WORK, 2, CEILINGS, 105.0)
    assert path is not None
    assert binding_line(path) == (
        "DRAM 97.0 us, L2 40.0 us, issue 20.0 us, FMA 10.0 us, tensor 5.0 us (unsaturated), "
        "launch 4.0 us; T 101.0 us, 96.2% of the 105.0 measured by events: DRAM binds"
    )


@pytest.mark.parametrize(
    ("changes", "largest"),
    [
        ({"l2_sectors": 1e8}, "L2"),
        ({"instructions": 2e8}, "issue"),
        ({"tensor_instructions": 2e7}, "tensor"),
        ({"fma_instructions": 2e8}, "FMA"),
    ],
)
def test_the_largest_term_binds(changes: dict[str, float], largest: str) -> None:
    path = critical_path(WORK | counted(**changes), 1, CEILINGS)
    assert path is not None
    assert (path.binding, path.share) == ((largest,), None)


def test_many_kernels_of_little_work_are_bound_by_their_launches() -> None:
    path = critical_path(counted(instructions=1e6), 8, CEILINGS, 11.0)
    assert path is not None
    assert (path.terms_us["launch"], path.binding) == (10.0, ("launch",))


@pytest.mark.parametrize(("time_us", "binds"), [(112.0, "DRAM"), (113.0, "latency")])
def test_latency_binds_where_the_path_explains_under_ninety_per_cent(
    time_us: float, binds: str
) -> None:
    path = critical_path(WORK, 2, CEILINGS, time_us)
    assert path is not None
    assert path.binding == (binds,)
    assert ("the rest is waiting" in binding_line(path)) is (binds == "latency")


@pytest.mark.parametrize(("share", "us", "by_share"), [(99.0, 99.99, ("L2",)), (20.0, 40.0, ())])
def test_the_l2_term_is_the_slices_busy_share_where_that_is_more(
    share: float, us: float, by_share: tuple[str, ...]
) -> None:
    path = critical_path(WORK, 2, CEILINGS, 105.0, count(share, stable=False))  # less 4 launching
    assert path is not None
    assert path.terms_us["L2"] == pytest.approx(us)
    assert path.by_share == by_share
    assert path.unstable == by_share
    assert path.binding == (("L2",) if by_share else ("DRAM",))
    assert ("from its busy share of the time" in binding_line(path)) is bool(by_share)


def test_terms_that_tie_bind_together() -> None:
    path = critical_path(WORK, 2, CEILINGS, 105.0, count(97.0))
    assert path is not None
    assert path.binding == ("L2", "DRAM")  # 98.0 and 97.0 us
    assert binding(path) == "L2 or DRAM"


def test_an_unstable_counter_diagnoses_and_is_marked() -> None:
    path = critical_path(WORK | {"l2_sectors": count(1e7, stable=False)}, 1, CEILINGS)
    assert path is not None
    assert path.unstable == ("L2",)
    assert "L2 40.0 us (unstable)" in binding_line(path)


def test_what_was_not_counted_is_not_known() -> None:
    path = critical_path(counted(dram_read_bytes=1000, instructions=1e6), 1, CEILINGS)
    assert path is not None
    assert path.unknown == ("DRAM", "L2", "tensor", "FMA")  # a thousand bytes: below the curve
    assert binding_line(path).endswith("; unknown: DRAM, L2, tensor, FMA")


def test_dram_is_as_saturated_as_the_point_above_its_bytes() -> None:
    points = (Point(2**20, 3000.0, True), Point(2**30, 4000.0, False))
    path = critical_path(WORK, 1, Ceilings(points, CEILINGS.rates, (3.0, 1.0)))
    assert path is not None
    assert "DRAM" in path.unsaturated


def test_without_launch_or_counters_nothing_is_said() -> None:
    assert critical_path(WORK, 1, OLD_CEILINGS.ceilings()) is None
    assert critical_path({}, 1, CEILINGS) is None
