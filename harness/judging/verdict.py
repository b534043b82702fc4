"""What follows from whether the work changed and whether the time did.

| | time same | time changed |
|---|---|---|
| work same | absent | unexplained |
| work changed | hidden | exposed |

and three ways of not knowing: floor, confounded, unclear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pagebench.harness.cell import Cell
from pagebench.harness.counting.predict import predict_counters
from pagebench.harness.judging.binary import same_binary
from pagebench.harness.judging.binds import path_of
from pagebench.harness.records.caveats import (
    Caveat,
    NoCounters,
    NothingRepeats,
    OppositeWays,
    OtherBinary,
    ShortCall,
    WideInterval,
)
from pagebench.harness.records.select import Evidence, State
from pagebench.harness.records.verdict import Change, SameBinary, Verdict, Work
from pagebench.harness.timing.interleaved import Interleaved
from pagebench.profiles.ceilings import CriticalPath
from pagebench.profiles.counters import Count, ratio_repeats, ratios

if TYPE_CHECKING:  # importing it parses all shipped cells
    from pagebench.harness.contrasts import Contrast

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
SHORT_FLOORS = 10

Judgement = tuple[str, tuple[Caveat, ...]]  # one of records.verdict.WORDS, and its caveats


# --- Two cells, timed -----------------------------------------------------------------------------


def groups_of(contrasts: Sequence[Contrast]) -> list[Interleaved]:
    """The groups to interleave; all contrasts are judged together."""
    return [Interleaved(contrast.cells, len(contrasts)) for contrast in contrasts]


def verdict_of(contrast: Contrast, group: Interleaved, l2: str, evidence: Evidence) -> Verdict:
    """The verdict on one contrast, with its evidence; `unclear` where its cells have no times.

    Counters of another GPU model, or of another state of the cache than `l2`, are not used.
    """
    state = State(group.environment, l2)
    work = work_between(contrast.cells, evidence, state)
    unjudged = Verdict(
        contrast=contrast.name,
        knob=contrast.knob,
        cells=(contrast.one.name, contrast.other.name),
        word="unclear",
        among=group.among,
        predicts=contrast.predicts,
        why=contrast.why,
        work=work,
        status=group.status,
        environment=group.environment,
    )
    if group.failed:
        return replace(unjudged, caveats=(group.failed,))
    word, caveats = judge(group.step(), work, group.floors)
    return replace(
        unjudged,
        word=word,
        caveats=(*caveats, *group.caveats),
        time=group.step(),
        time_us=(round(group.time_us(0), 3), round(group.time_us(1), 3)),
        floors=round(group.floors, 1),
        path=binding_of(group, state, evidence),
    )


def binding_of(group: Interleaved, state: State, evidence: Evidence) -> CriticalPath | None:
    """The critical path of the group's last cell; None where counters or ceilings are missing."""
    counters = evidence.newest_counters(group.cells[-1:], state)
    time_us = group.time_us(len(group.cells) - 1)
    return path_of(counters[0], state, time_us, evidence) if counters else None


def judge(time: Change, work: Work | None, floors: float) -> Judgement:
    """The word, from whether the time and the work changed and how many floors the call lasts.

    `work` is None where one of the cells has no counters.
    """
    if floors < SHORT_FLOORS:
        return "floor", (ShortCall(round(floors, 1)),)
    if work is None:
        return "unclear", (NoCounters(),)
    if not work.compared:
        return "unclear", (NothingRepeats(),)
    if not time.is_decided:
        return "unclear", (WideInterval(),)
    return _decided(time.word == "changed", work, slower=time.ratio > 1)


def _decided(changed: bool, work: Work, *, slower: bool) -> Judgement:
    """The word where the change of the time is decided, with its caveats."""
    if not work.changed:
        return "unexplained" if changed else "absent", ()
    other = work.same.differs
    if other and not work.from_knob:
        return "confounded", (OtherBinary(other),)
    if changed and not follows(work, slower):
        word = "confounded" if other else "unexplained"
        return word, (OppositeWays(predicted=bool(work.from_knob)),)
    return "exposed" if changed else "hidden", ()


def follows(work: Work, slower: bool) -> bool:
    """Whether the time changed as the predicted work did, or as any work where none was predicted.

    More work is never faster: if a kernel with more work is faster, something else is the cause.
    """
    names = work.from_knob or tuple(work.changed)
    return any(_grew(name, work.changed[name]) == slower for name in names)


def _grew(name: str, ratio: float | None) -> bool:
    return (ratio is None or ratio > 1) != (name in LESS_IS_MORE)


# --- Two cells, counted ---------------------------------------------------------------------------


def work_between(
    cells: tuple[Cell, Cell], evidence: Evidence, state: State | None = None
) -> Work | None:
    """How the work differs by the newest counters of both cells; None where one has none."""
    counters = evidence.newest_counters(cells, state)
    if counters is None:
        return None
    one, other = counters
    first, second = (
        predict_counters(cell, each.resolved, each.environment, each.how)
        for cell, each in zip(cells, counters, strict=True)
    )
    pairs = {
        "ldg": (first.ldg, second.ldg),
        "dram_read_bytes": (first.dram_read_bytes, second.dram_read_bytes),
    }
    predicted = {name: b / a for name, (a, b) in pairs.items() if a and b}
    return work_of(one.total, other.total, predicted, same_binary(one, other))


def work_of(
    one: Mapping[str, Count],
    other: Mapping[str, Count],
    predicted: Mapping[str, float],
    same: SameBinary,
) -> Work:
    """Compare two cells' totals. `predicted` holds the ratios B/A that layout or source predict."""
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
    return Work(changed, compared, from_knob, same)


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
