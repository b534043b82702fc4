"""Ceilings of a GPU as measured: DRAM read bandwidth as a curve over bytes, the others as rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2
from typing import Any

CEILINGS_SCHEMA = 2
# Twice the bytes or warps in flight may add this much; more, and the probe does not saturate.
SATURATED = 0.01
# FLOP of one warp instruction: 32 lanes of FFMA; m16n8k16 of mma.sync (PTX ISA, 9.7.14).
FLOP_AN_FFMA = 2 * 32
FLOP_AN_MMA = 2 * 16 * 8 * 16


@dataclass(frozen=True, slots=True)
class Point:
    """Bandwidth reached when reading `bytes_read` once from a cold cache, launch included."""

    bytes_read: int
    gbps: float
    saturated: bool


@dataclass(frozen=True, slots=True)
class Rate:
    """The best value over parallelism, in G per second, and whether the last doubling gained."""

    value: float
    saturated: bool


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What one GPU reaches. `rates` has the keys of RATES; empty in a record of schema 1.

    `launch_us` is the first launch's time and each further one's in the same call.
    """

    dram_read: tuple[Point, ...]
    rates: Mapping[str, Rate]
    launch_us: tuple[float, float] | None


RATES = ("l2_read_gbps", "issue_ginst", "fma_gflops", "matrix_gflops")


def read_ceilings(record: Mapping[str, Any]) -> Ceilings:
    """A ceilings record of schema 1 or 2; ValueError for any other."""
    if record["schema"] not in range(1, CEILINGS_SCHEMA + 1):
        raise ValueError(
            f"a ceilings record of schema {record['schema']}; this pagebench reads 1 to "
            f"{CEILINGS_SCHEMA}"
        )
    launch = record.get("launch_us")
    return Ceilings(
        tuple(Point(**point) for point in record["dram_read"]),
        {
            name: Rate(record[name]["value"], record[name]["saturated"])
            for name in RATES
            if name in record
        },
        launch and (launch["first"], launch["further"]),
    )


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


def is_saturated(values: Sequence[float]) -> bool:
    """Whether the last doubling of tile, warps or launches gains nothing over the one before.

    `values` are rates in order of growing parallelism, each twice the one before.
    """
    return len(values) > 1 and values[-1] <= values[-2] * (1 + SATURATED)


def rate_entry(by_parallelism: Mapping[int, float]) -> dict[str, Any]:
    """A rate for a record: the best, all of them, and whether the probe saturates."""
    values = [by_parallelism[count] for count in sorted(by_parallelism)]
    return {
        "value": round(max(values), 1),
        "by_warps": {str(count): round(by_parallelism[count], 1) for count in by_parallelism},
        "saturated": is_saturated(values),
    }


def launch_entry(us_by_launches: Mapping[int, float]) -> dict[str, Any]:
    """Launch cost for a record: `first` in a call, each `further` one by the last doubling.

    Saturated: the doubling before gave the same cost of a further launch within 1 %.
    """
    steps = [
        (us_by_launches[high] - us_by_launches[low]) / (high - low)
        for low, high in pairwise(sorted(us_by_launches))
    ]
    return {
        "first": round(us_by_launches[min(us_by_launches)], 3),
        "further": round(steps[-1], 3),
        "by_launches": {str(count): round(us, 3) for count, us in us_by_launches.items()},
        "saturated": steps[-1] > 0 and is_saturated([1 / max(step, 1e-9) for step in steps]),
    }
