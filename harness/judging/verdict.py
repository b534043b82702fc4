"""What follows from whether the work changed and whether the time did.

| | time same | time changed |
|---|---|---|
| work same | absent | unexplained |
| work changed | hidden | exposed |

The same words with `likely` before them where the work is predicted and not counted, and two ways
of not knowing: floor, unclear. Beside a word that names work stands whether the knob is its cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pagebench.harness.judging.beside import beside
from pagebench.harness.judging.binds import path_of
from pagebench.harness.judging.work import expected_work, grew, work_between
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
from pagebench.harness.records.verdict import LIKELY, Change, Verdict, Work
from pagebench.harness.timing.interleaved import Interleaved
from pagebench.profiles.ceilings import CriticalPath

if TYPE_CHECKING:  # importing it parses all shipped cells
    from pagebench.harness.contrasts import Contrast

SHORT_FLOORS = 10
ESTABLISHED, IN_DOUBT = "established", "in doubt"
NOTHING: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Judgement:
    """One of records.verdict.WORDS, one of its CAUSES where the word names work, and caveats."""

    word: str
    cause: str | None = None
    caveats: tuple[Caveat, ...] = ()


# --- Two cells, timed -----------------------------------------------------------------------------


def groups_of(contrasts: Sequence[Contrast]) -> list[Interleaved]:
    """The groups to interleave; all contrasts are judged together."""
    return [Interleaved(contrast.cells, len(contrasts)) for contrast in contrasts]


def verdict_of(contrast: Contrast, group: Interleaved, l2: str, evidence: Evidence) -> Verdict:
    """The verdict on one contrast, with its evidence; `unclear` where its cells have no times.

    Counters of another GPU model, or of another state of the cache than `l2`, are not used.
    """
    state = State(group.environment, l2, group.calls)
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
        resolved=group.resolved,
        binary=group.binary,
        status=group.status,
        environment=group.environment,
        kernel_sha=group.kernel_sha,
    )
    if group.failed:
        return replace(unjudged, caveats=(group.failed,))
    is_counted = work is not None and bool(work.compared)
    expected = NOTHING if is_counted else _expected(contrast, group)
    found = _with_cells(
        judge(group.step(), work, group.floors, expected), contrast, evidence, state
    )
    if group.one_sided or group.apart:  # the second is among the group's caveats
        found = Judgement("unclear", caveats=group.one_sided)
    return replace(
        unjudged,
        word=found.word,
        cause=found.cause,
        expected=expected,
        caveats=(*found.caveats, *group.caveats, *beside(contrast.cells, evidence, state)),
        time=group.step(),
        time_us=(round(group.time_us(0), 3), round(group.time_us(1), 3)),
        floors=round(group.floors, 1),
        path=binding_of(group, state, evidence),
    )


def _expected(contrast: Contrast, group: Interleaved) -> Mapping[str, float]:
    ratios = expected_work(contrast.cells, group.resolved, group.environment)
    return {name: round(ratio, 6) for name, ratio in ratios.items()}


def _with_cells(
    found: Judgement, contrast: Contrast, evidence: Evidence, state: State
) -> Judgement:
    """The judgement, naming the cells without counters."""
    missing = tuple(
        dict.fromkeys(
            cell.name for cell in contrast.cells if not evidence.newest_counters([cell], state)
        )
    )
    named = (NoCounters(missing) if each == NoCounters() else each for each in found.caveats)
    return Judgement(found.word, found.cause, tuple(named))


def binding_of(group: Interleaved, state: State, evidence: Evidence) -> CriticalPath | None:
    """The critical path of the group's last cell; None where counters or ceilings are missing."""
    counters = evidence.newest_counters(group.cells[-1:], state)
    time_us = group.time_us(len(group.cells) - 1)
    return path_of(counters[0], state, time_us, evidence) if counters else None


def judge(
    time: Change, work: Work | None, floors: float, expected: Mapping[str, float] = NOTHING
) -> Judgement:
    """The word, from whether the time and the work changed and how many floors the call lasts.

    `work` is None where one of the cells has no counters. Then, and where no counter repeats, the
    `expected` work decides, B over A.
    """
    if floors < SHORT_FLOORS:
        return Judgement("floor", caveats=(ShortCall(round(floors, 1)),))
    missing = NoCounters() if work is None else None if work.compared else NothingRepeats()
    if not time.is_decided:
        return Judgement("unclear", caveats=(WideInterval(), *([missing] if missing else [])))
    changed, slower = time.word == "changed", time.ratio > 1
    if work is None or missing:
        return _likely(changed, expected, missing or NoCounters(), slower=slower)
    return _decided(changed, work, slower=slower)


def _decided(changed: bool, work: Work, *, slower: bool) -> Judgement:
    """The judgement where the change of the time is decided, and work was counted."""
    if not work.changed:
        return Judgement("unexplained" if changed else "absent")
    differs, unpredicted = work.same.differs, work.unpredicted
    doubts = (OtherBinary(differs, unpredicted),) if differs and unpredicted else ()
    if changed and not follows(work, slower):
        opposite = OppositeWays(predicted=bool(work.from_knob))
        return Judgement("unexplained", caveats=(opposite, *doubts))
    word = "exposed" if changed else "hidden"
    return Judgement(word, IN_DOUBT if doubts else ESTABLISHED, doubts)


def _likely(
    changed: bool, expected: Mapping[str, float], missing: Caveat, *, slower: bool
) -> Judgement:
    """The judgement by work that is predicted and was not counted: no cause is established."""
    moved = {name: ratio for name, ratio in expected.items() if ratio != 1}
    if not moved:
        return Judgement(LIKELY + ("unexplained" if changed else "absent"), caveats=(missing,))
    if changed and not any(grew(name, ratio) == slower for name, ratio in moved.items()):
        opposite = OppositeWays(predicted=True)
        return Judgement(f"{LIKELY}unexplained", caveats=(opposite, missing))
    return Judgement(LIKELY + ("exposed" if changed else "hidden"), IN_DOUBT, (missing,))


def follows(work: Work, slower: bool) -> bool:
    """Whether the time changed as the predicted work did, or as any work where none was predicted.

    More work is never faster: if a kernel with more work is faster, something else is the cause.
    """
    names = work.from_knob or tuple(work.changed)
    return any(grew(name, work.changed[name]) == slower for name in names)
