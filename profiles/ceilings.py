"""Ceilings of a GPU as measured: DRAM read bandwidth is a curve over bytes, not a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2

# Twice the bytes in flight may add this much before a probe has not been shown to saturate.
SATURATED = 0.01


@dataclass(frozen=True, slots=True)
class Point:
    """Bandwidth reached when reading `bytes_read` once from a cold cache."""

    bytes_read: int
    gbps: float
    saturated: bool


def bandwidth_at(points: Sequence[Point], bytes_read: int) -> float | None:
    """GB/s that a read of that many bytes could reach: between points, linear in log2 of bytes.

    Below the smallest point it is not known (None); beyond the largest it is the largest's.
    """
    ordered = sorted(points, key=lambda point: point.bytes_read)
    if not ordered or bytes_read < ordered[0].bytes_read:
        return None
    for low, high in pairwise(ordered):
        if bytes_read <= high.bytes_read:
            share = log2(bytes_read / low.bytes_read) / log2(high.bytes_read / low.bytes_read)
            return low.gbps + share * (high.gbps - low.gbps)
    return ordered[-1].gbps


def is_saturated(gbps_by_tile: Sequence[float]) -> bool:
    """Whether the larger of the last two tile sizes gains nothing over the other.

    `gbps_by_tile` is in order of growing tiles, each twice the one before.
    """
    return len(gbps_by_tile) > 1 and gbps_by_tile[-1] <= gbps_by_tile[-2] * (1 + SATURATED)
