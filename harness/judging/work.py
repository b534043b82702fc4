"""How the work of two cells differs: as counted, and as layout, source and machine code predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pagebench.harness.cell import Cell
from pagebench.harness.counting.predict import predict_counters, predicted_of
from pagebench.harness.environment import Environment
from pagebench.harness.judging.binary import same_binary
from pagebench.harness.records.base import Resolved
from pagebench.harness.records.counters import PredictedCounters
from pagebench.harness.records.select import Evidence, State
from pagebench.harness.records.verdict import SameBinary, Work
from pagebench.profiles.counters import Count, ratio_repeats, ratios

# Counters of device work. Neither the time nor busy shares are among them: those follow the time.
WORK = (
    "instructions",
    *("ldg", "ldgsts", "tma", "local_loads", "local_stores", "l1_requests", "l1_sectors"),
    *("l2_requests", "l2_sectors", "l2_hit_pct", "dram_read_bytes"),
)
HIT_MARGIN = 1.0  # percentage points: hit rates of 0.1 and 0.3 % are not distinguished
# Stable traffic may differ by this much between two layouts of the same work.
TRAFFIC_MARGIN = 0.01
TRAFFIC = ("l1_sectors", "l2_requests", "l2_sectors", "l2_hit_pct", "dram_read_bytes")
EXACT = 1e-9  # rounding of a ratio of two integer counts
LESS_IS_MORE = ("l2_hit_pct",)  # a higher value means less work
# Instructions of local memory in a kernel's machine code, by the names that `resolved` has.
LOCAL = {"local_loads": "ldl", "local_stores": "stl"}
# Work that a layout gives without a kernel's source.
OF_LAYOUT = ("index_entries", "read_kv_bytes", "distinct_kv_bytes", "flop")


# --- Counted --------------------------------------------------------------------------------------


def work_between(
    cells: tuple[Cell, Cell], evidence: Evidence, state: State | None = None
) -> Work | None:
    """How the work differs by the newest counters of both cells; None where one has none."""
    counters = evidence.newest_counters(cells, state)
    if counters is None:
        return None
    one, other = counters
    first, second = (predicted_of(cell, each) for cell, each in zip(cells, counters, strict=True))
    pairs = {
        "ldg": (first.ldg_of_source, second.ldg_of_source),
        "dram_read_bytes": (first.dram_read_bytes, second.dram_read_bytes),
    }
    predicted = {name: b / a for name, (a, b) in pairs.items() if a and b}
    same = same_binary(one, other)
    return work_of(one.total, other.total, predicted, same, from_code(one.resolved, other.resolved))


def from_code(one: Resolved, other: Resolved) -> dict[str, float | None]:
    """What the machine code of two cells says of local memory: B over A, None from zero.

    Code says whether a kernel has such instructions, and not how often they run: only what one of
    the cells lacks is known.
    """
    found: dict[str, float | None] = {}
    for counter, name in LOCAL.items():
        before, after = one.get(name), other.get(name)
        if isinstance(before, int) and isinstance(after, int) and bool(before) != bool(after):
            found[counter] = None if after else 0.0
    return found


def work_of(
    one: Mapping[str, Count],
    other: Mapping[str, Count],
    predicted: Mapping[str, float],
    same: SameBinary,
    code: Mapping[str, float | None] | None = None,
) -> Work:
    """Compare two cells' totals. `predicted` holds the ratios B/A that layout or source predict,
    `code` what the machine code of both says."""
    one, other = _with_hit_rate(one), _with_hit_rate(other)
    both = [name for name in WORK if name in one and name in other]
    compared = tuple(name for name in both if one[name].stable and other[name].stable)
    changed = {
        name: other[name].value / one[name].value if one[name].value else None
        for name in compared
        if differs(name, one[name].value, other[name].value)
    }
    from_knob = tuple(
        name for name, ratio in changed.items() if _is_as(name, ratio, predicted.get(name))
    )
    coded = tuple(name for name, ratio in changed.items() if code and code.get(name, -1) == ratio)
    return Work(changed, compared, from_knob, same, coded)


def _is_as(name: str, ratio: float | None, predicted: float | None) -> bool:
    if ratio is None or predicted is None:
        return False
    return abs(ratio / predicted - 1) <= max(_margin(name), EXACT)


def _with_hit_rate(total: Mapping[str, Count]) -> Mapping[str, Count]:
    """The totals with the L2 hit rate, which is stable if both of its counts are."""
    rate = ratios({name: count.value for name, count in total.items()}).get("l2_hit_pct")
    if not isinstance(rate, float):
        return total
    return {**total, "l2_hit_pct": Count(rate, ratio_repeats(total, "l2_hit_pct"), 0.0)}


def differs(name: str, one: float, other: float) -> bool:
    """Whether a counter changed: counts at all, traffic and rates by more than a margin."""
    if name == "l2_hit_pct":
        return abs(other - one) > HIT_MARGIN
    return abs(other - one) > _margin(name) * max(abs(one), abs(other))


def _margin(name: str) -> float:
    return TRAFFIC_MARGIN if name in TRAFFIC else 0.0


def grew(name: str, ratio: float | None) -> bool:
    """Whether that ratio of a counter, None from zero, is more work."""
    return (ratio is None or ratio > 1) != (name in LESS_IS_MORE)


# --- Predicted ------------------------------------------------------------------------------------


def expected_work(
    cells: Sequence[Cell], resolved: Sequence[Resolved], environment: Environment
) -> dict[str, float]:
    """Work that layout and source predict before anything is counted, B over A.

    Loads by the kernels' sources stand for index entries where both are known.
    """
    one, other = (
        predict_counters(cell, each, environment)
        for cell, each in zip(cells, resolved, strict=True)
    )
    is_known = one.ldg_of_source and other.ldg_of_source
    names = ["ldg" if is_known else "index_entries", *OF_LAYOUT[1:]]
    values = {name: (_amount(one, name), _amount(other, name)) for name in names}
    return {name: after / before for name, (before, after) in values.items() if before}


def _amount(predicted: PredictedCounters, name: str) -> float:
    return float(getattr(predicted, name) or 0)
