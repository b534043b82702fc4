"""The curve of DRAM bandwidth, and when a probe saturates."""

from __future__ import annotations

import pytest

from pagebench.profiles.ceilings import Point, bandwidth_at, is_saturated


def test_the_ceiling_is_a_curve_over_bytes() -> None:
    points = [Point(2**20, 1000.0, True), Point(2**22, 3000.0, True)]
    assert bandwidth_at(points, 2**21) == 2000.0
    assert bandwidth_at(points, 2**30) == 3000.0
    assert bandwidth_at(points, 2**19) is None
    assert bandwidth_at([], 2**19) is None


@pytest.mark.parametrize(
    ("gbps", "saturated"),
    [([3000, 4000, 4030], True), ([3000, 4000, 4300], False), ([4000], False)],
)
def test_a_probe_saturates_when_larger_tiles_gain_nothing(
    gbps: list[float], saturated: bool
) -> None:
    assert is_saturated(gbps) is saturated
