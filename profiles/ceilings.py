"""Ceilings of a GPU as measured, and which of them binds a call of known work.

DRAM read bandwidth is a curve over bytes, the others are rates. The critical path diagnoses a time
that was measured; it is a lower bound from work and ceilings, and predicts no latency.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import log2
from typing import Any

CEILINGS_SCHEMA = 2
# Twice the bytes or warps in flight may add this much; more, and the probe does not saturate.
SATURATED = 0.01
LAUNCHES_AGREE = 0.05
# FLOP of one warp instruction: 32 lanes of FFMA; m16n8k16 of mma.sync (PTX ISA, mma).
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
    """A ceilings record of schema 1 or 2; ValueError for any other, and for one that is damaged."""
    schema = record.get("schema")
    if schema not in range(1, CEILINGS_SCHEMA + 1):
        raise ValueError(
            f"a ceilings record of schema {schema}; this pagebench reads 1 to {CEILINGS_SCHEMA}"
        )
    try:
        return _ceilings(record)
    except (KeyError, TypeError) as error:
        raise ValueError(f"a ceilings record is damaged: {type(error).__name__} {error}") from error


def _ceilings(record: Mapping[str, Any]) -> Ceilings:
    launch = record.get("launch_us")
    points = tuple(Point(**point) for point in record["dram_read"])
    rates = {
        name: Rate(record[name]["value"], record[name]["saturated"])
        for name in RATES
        if name in record
    }
    reached = [*(point.gbps for point in points), *(rate.value for rate in rates.values())]
    sizes = [point.bytes_read for point in points]
    if not all(value > 0 for value in (*reached, *sizes)):
        raise ValueError("a ceilings record is damaged: it reaches nothing")
    return Ceilings(points, rates, launch and (launch["first"], launch["further"]))


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

    Saturated: the doubling before gave the same cost of a further launch within 5 %; four launches
    cost some 5 us, and events tick in steps of 0.03 us or more.
    """
    steps = [
        (us_by_launches[high] - us_by_launches[low]) / (high - low)
        for low, high in pairwise(sorted(us_by_launches))
    ]
    return {
        "first": round(us_by_launches[min(us_by_launches)], 3),
        "further": round(steps[-1], 3),
        "by_launches": {str(count): round(us, 3) for count, us in us_by_launches.items()},
        "saturated": steps[-1] > 0 and abs(steps[-1] - steps[-2]) <= LAUNCHES_AGREE * steps[-1],
    }


# Term, counter, ceiling, and what one count is in the ceiling's unit.
TERMS = (
    ("L2", "l2_sectors", "l2_read_gbps", 32),
    ("issue", "instructions", "issue_ginst", 1),
    ("tensor", "tensor_instructions", "matrix_gflops", FLOP_AN_MMA),
    ("FMA", "fma_instructions", "fma_gflops", FLOP_AN_FFMA),
)
REACHED = 0.9  # of the measured time that T must explain before a ceiling is said to bind
TIE = 0.02  # terms this near to the largest bind as well as it: busy shares repeat no better


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """T = launch + the largest other term; each is the time its work takes alone at its ceiling.

    `binding` is a key of `terms_us`, or several that tie ("DRAM or L2"), or `latency`. `unstable`
    terms have a counter that did not repeat, `unsaturated` ones a ceiling that may be higher,
    `unknown` ones no counter or ceiling; those `by_share` are the share of the measured time, less
    launches, that the unit was busy, which is no time of its own.
    """

    terms_us: Mapping[str, float]
    binding: str
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
        """T over the measured time."""
        return self.path_us / self.time_us if self.time_us else None

    def entry(self) -> dict[str, Any]:
        """For a record, with what follows from it."""
        derived = {"path_us": self.path_us, "share": self.share, "sentence": binding_sentence(self)}
        return asdict(self) | derived


def critical_path(
    total: Mapping[str, Mapping[str, Any]],
    kernels: int,
    ceilings: Ceilings,
    time_us: float | None = None,
    l2_slice: Mapping[str, Any] | None = None,
) -> CriticalPath | None:
    """`total` maps counters of the whole call to value and `stable`; `kernels` are its launches.

    `l2_slice` is the share of cycles, in per cent, that the busiest stage of the L2 slices was
    busy, and whether it repeated. A sector that misses occupies a slice longer than the L2
    ceiling's hits do, and there is more than reads: where the share gives more, it is the term.
    None where the ceilings are of schema 1, or the counters give no term.
    """
    if ceilings.launch_us is None:
        return None
    first, further = ceilings.launch_us
    terms, launch_us = _terms(total, ceilings, first), first + further * (kernels - 1)
    if l2_slice and time_us:  # the share is of the kernel's own time, which launches are no part of
        busy_us = l2_slice["value"] / 100 * max(0.0, time_us - launch_us)
        busy = _Term(busy_us, l2_slice["stable"], by_share=True)
        terms["L2"] = max(terms.get("L2", busy), busy, key=lambda term: term.us)
    if not terms:
        return None

    def names(holds: Callable[[_Term], bool]) -> tuple[str, ...]:
        return tuple(name for name, term in terms.items() if holds(term))

    terms_us = {"launch": launch_us}
    terms_us |= {name: term.us for name, term in terms.items()}
    return CriticalPath(
        terms_us,
        _binding(terms_us, time_us),
        unstable=names(lambda term: not term.stable),
        unsaturated=names(lambda term: not term.saturated),
        unknown=tuple(name for name in ("DRAM", *(term[0] for term in TERMS)) if name not in terms),
        time_us=time_us,
        by_share=names(lambda term: term.by_share),
    )


@dataclass(frozen=True, slots=True)
class _Term:
    us: float
    stable: bool
    saturated: bool = True
    by_share: bool = False


def _terms(
    total: Mapping[str, Mapping[str, Any]], ceilings: Ceilings, one_launch_us: float
) -> dict[str, _Term]:
    """All but launch. The DRAM curve was timed with one launch, which is taken off again."""
    found = {}
    read = total.get("dram_read_bytes")
    gbps = bandwidth_at(ceilings.dram_read, int(read["value"])) if read else None
    if read and gbps:
        us = max(0.0, read["value"] / gbps / 1e3 - one_launch_us)
        found["DRAM"] = _Term(us, read["stable"], _is_saturated_at(read["value"], ceilings))
    for name, counter, ceiling, unit in TERMS:
        if counter in total and ceiling in ceilings.rates:
            entry, rate = total[counter], ceilings.rates[ceiling]
            us = entry["value"] * unit / rate.value / 1e3
            found[name] = _Term(us, entry["stable"], rate.saturated)
    return found


def _is_saturated_at(bytes_read: float, ceilings: Ceilings) -> bool:
    ordered = sorted(ceilings.dram_read, key=lambda point: point.bytes_read)
    return next((p for p in ordered if p.bytes_read >= bytes_read), ordered[-1]).saturated


def _path_us(terms: Mapping[str, float]) -> float:
    return terms["launch"] + max(us for name, us in terms.items() if name != "launch")


def _binding(terms: Mapping[str, float], time_us: float | None) -> str:
    if time_us is not None and _path_us(terms) < REACHED * time_us:
        return "latency"
    largest = max(terms.values())
    tied = [name for name, us in terms.items() if us >= (1 - TIE) * largest]
    return " or ".join(sorted(tied, key=lambda name: -terms[name]))


def binding_sentence(path: CriticalPath) -> str:
    """The terms, largest first, T against the measured time, and what binds: to be checked."""
    ordered = sorted(path.terms_us.items(), key=lambda item: -item[1])
    terms = ", ".join(f"{name} {us:.1f} us{_doubts(path, name)}" for name, us in ordered)
    text = f"{terms}; T {path.path_us:.1f} us"
    if path.share is not None:
        text += f", {path.share:.1%} of the {path.time_us:.1f} measured by events"
    text += f": {path.binding} binds"
    if path.binding == "latency":
        text += f" (no counted work gives {REACHED:.0%} of the time; the rest is waiting)"
    return text + (f"; not known: {', '.join(path.unknown)}" if path.unknown else "")


def _doubts(path: CriticalPath, name: str) -> str:
    doubts = [
        word
        for word, names in (
            ("its busy share of the time", path.by_share),
            ("unstable", path.unstable),
            ("unsaturated", path.unsaturated),
        )
        if name in names
    ]
    return f" ({', '.join(doubts)})" if doubts else ""
