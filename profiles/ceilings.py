"""Measured ceilings of a GPU, and which of them binds a call of known work.

DRAM read bandwidth is a curve over bytes; the other ceilings are rates. The critical path explains
a measured time. It is a lower bound from work and ceilings, and does not predict latency.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2

from pagebench.profiles.counters import Count

# A probe saturates if doubling the bytes or warps in flight gains at most this share.
SATURATED = 0.01
LAUNCHES_AGREE = 0.05
# FLOP of one warp instruction: 32 lanes of FFMA; m16n8k16 of mma.sync (PTX ISA, mma).
FLOP_AN_FFMA = 2 * 32
FLOP_AN_MMA = 2 * 16 * 8 * 16


@dataclass(frozen=True, slots=True)
class Point:
    """Bandwidth in GB/s when reading `bytes_read` once from a cold cache, launch included."""

    bytes_read: int
    gbps: float
    saturated: bool


@dataclass(frozen=True, slots=True)
class Rate:
    """The best value over all levels of parallelism, in G per second.

    It is `saturated` if the last doubling of parallelism gained nothing.
    """

    value: float
    saturated: bool


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What one GPU reaches. `rates` has the keys of RATES; it is empty in a record of schema 1.

    `launch_us` holds the time of a call's first launch and that of each further launch, in us.
    """

    dram_read: tuple[Point, ...]
    rates: Mapping[str, Rate]
    launch_us: tuple[float, float] | None


RATES = ("l2_read_gbps", "issue_ginst", "fma_gflops", "matrix_gflops")


def bandwidth_at(points: Sequence[Point], bytes_read: int) -> float | None:
    """GB/s that a read of that many bytes can reach: between points, linear in log2 of bytes.

    Below the smallest point it is unknown (None); beyond the largest point it stays constant.
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
    """Whether the last doubling of parallelism (tile, warps or programs) gained at most SATURATED.

    `values` are rates in order of parallelism, which doubles from each to the next.
    """
    return len(values) > 1 and values[-1] <= values[-2] * (1 + SATURATED)


def launches_saturated(us_by_launches: Mapping[int, float]) -> bool:
    """Whether the last two doublings of the launches agree on the cost of a further launch.

    The cost must be positive, and the two must agree within 5 %: four launches take about 5 us, and
    events tick in steps of 0.03 us or more. `us_by_launches` needs three entries or more.
    """
    *_, before, last = (
        (us_by_launches[high] - us_by_launches[low]) / (high - low)
        for low, high in pairwise(sorted(us_by_launches))
    )
    return last > 0 and abs(last - before) <= LAUNCHES_AGREE * last


# Term, counter, ceiling, and what one count is in the ceiling's unit.
TERMS = (
    ("L2", "l2_sectors", "l2_read_gbps", 32),
    ("issue", "instructions", "issue_ginst", 1),
    ("tensor", "tensor_instructions", "matrix_gflops", FLOP_AN_MMA),
    ("FMA", "fma_instructions", "fma_gflops", FLOP_AN_FFMA),
)
LATENCY = "latency"  # binds where no counted work explains the time: the rest is waiting
REACHED = 0.9  # share of the measured time that T must explain before a ceiling binds
TIE = 0.02  # terms this close to the largest bind too: busy shares repeat no better than this


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """T = launch + the largest other term, in us.

    A term is the time that its work would take alone, at its ceiling. `binding` holds one key of
    `terms_us`, or several that tie (largest first), or `latency` alone. `unstable` terms have a
    counter that did not repeat. `unsaturated` terms have a ceiling that may be higher. `unknown`
    terms lack a counter or a ceiling. Terms in `by_share` come from the share of the measured time,
    without launches, in which the unit was busy: they follow from the measured time.
    """

    terms_us: Mapping[str, float]
    binding: tuple[str, ...]
    unstable: tuple[str, ...]
    unsaturated: tuple[str, ...]
    unknown: tuple[str, ...]
    time_us: float | None
    by_share: tuple[str, ...] = ()

    @property
    def path_us(self) -> float:
        return _path_us(self.terms_us)

    @property
    def share(self) -> float | None:
        """T over the measured time; None where no time was measured."""
        return self.path_us / self.time_us if self.time_us else None


def critical_path(
    total: Mapping[str, Count],
    kernels: int,
    ceilings: Ceilings,
    time_us: float | None = None,
    l2_slice: Count | None = None,
) -> CriticalPath | None:
    """What binds a call with counters `total` and `kernels` launches that took `time_us`.

    `l2_slice` is the share of cycles, in per cent, in which the busiest stage of the L2 slices was
    busy. A miss occupies a slice longer than the hits that the L2 ceiling counts, and slices do
    more than read. So the L2 term is the larger of the time by sectors and the time by this share.
    None where the ceilings are of schema 1, or the counters give no term.
    """
    if ceilings.launch_us is None:
        return None
    first, further = ceilings.launch_us
    terms, launch_us = _terms(total, ceilings, first), first + further * (kernels - 1)
    if l2_slice and time_us:  # a share of the kernel's own time, which excludes launches
        busy_us = l2_slice.value / 100 * max(0.0, time_us - launch_us)
        busy = _Term(busy_us, l2_slice.stable, by_share=True)
        terms["L2"] = max(terms.get("L2", busy), busy, key=lambda term: term.us)
    return _path(terms, launch_us, time_us) if terms else None


def _path(terms: Mapping[str, _Term], launch_us: float, time_us: float | None) -> CriticalPath:
    terms_us = {"launch": launch_us} | {name: term.us for name, term in terms.items()}
    return CriticalPath(
        terms_us,
        _binding(terms_us, time_us),
        unstable=tuple(name for name, term in terms.items() if not term.stable),
        unsaturated=tuple(name for name, term in terms.items() if not term.saturated),
        unknown=tuple(name for name in ("DRAM", *(term[0] for term in TERMS)) if name not in terms),
        time_us=time_us,
        by_share=tuple(name for name, term in terms.items() if term.by_share),
    )


@dataclass(frozen=True, slots=True)
class _Term:
    us: float
    stable: bool
    saturated: bool = True
    by_share: bool = False


def _terms(
    total: Mapping[str, Count], ceilings: Ceilings, one_launch_us: float
) -> dict[str, _Term]:
    """All terms except launch. The DRAM curve includes one launch, which is subtracted here."""
    found = {}
    read = total.get("dram_read_bytes")
    gbps = bandwidth_at(ceilings.dram_read, int(read.value)) if read else None
    if read and gbps:
        us = max(0.0, read.value / gbps / 1e3 - one_launch_us)
        found["DRAM"] = _Term(us, read.stable, _is_saturated_at(read.value, ceilings))
    for name, counter, ceiling, unit in TERMS:
        if counter in total and ceiling in ceilings.rates:
            count, rate = total[counter], ceilings.rates[ceiling]
            us = count.value * unit / rate.value / 1e3
            found[name] = _Term(us, count.stable, rate.saturated)
    return found


def _is_saturated_at(bytes_read: float, ceilings: Ceilings) -> bool:
    ordered = sorted(ceilings.dram_read, key=lambda point: point.bytes_read)
    return next((p for p in ordered if p.bytes_read >= bytes_read), ordered[-1]).saturated


def _path_us(terms: Mapping[str, float]) -> float:
    return terms["launch"] + max(us for name, us in terms.items() if name != "launch")


def _binding(terms: Mapping[str, float], time_us: float | None) -> tuple[str, ...]:
    if time_us is not None and _path_us(terms) < REACHED * time_us:
        return (LATENCY,)
    largest = max(terms.values())
    tied = [name for name, us in terms.items() if us >= (1 - TIE) * largest]
    return tuple(sorted(tied, key=lambda name: -terms[name]))
