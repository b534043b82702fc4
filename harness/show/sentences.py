"""Caveats and conclusions in words: the only place that makes sentences of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pagebench.harness.judging.explain import Explanation, candidates, conclude, moves
from pagebench.harness.records.attack import Attack, Variant
from pagebench.harness.records.calibration import Calibration, Disagreement
from pagebench.harness.records.caveats import (
    Caveat,
    ClockMoved,
    JudgingCaveat,
    LostProcess,
    NoCounters,
    NothingRepeats,
    NoTime,
    OppositeWays,
    OtherBinary,
    OthersOnGpu,
    ShortCall,
    Throttled,
    TimingCaveat,
    WideInterval,
)
from pagebench.harness.records.dose import Dose
from pagebench.harness.records.planted import PlantedLoads, PlantedWait, PlantedWord
from pagebench.harness.records.verdict import Change, Verdict, Work
from pagebench.harness.show.text import plural, signed
from pagebench.profiles.ceilings import LATENCY, REACHED, CriticalPath

# --- Caveats --------------------------------------------------------------------------------------


def caveat(found: Caveat) -> str:
    """What a reader must know, as a sentence without its full stop."""
    return _of_timing(found) if isinstance(found, TimingCaveat) else _of_judging(found)


def _of_timing(found: TimingCaveat) -> str:
    match found:
        case LostProcess(status, reason):
            return f"a process was lost: {status}: {reason}"
        case Throttled(reasons):
            return f"throttled: {', '.join(reasons)}"
        case ClockMoved(low, high):
            return f"SM clock moved {low} to {high} MHz"
        case OthersOnGpu(processes):
            return f"{plural(processes, 'other process', 'es')} on the GPU"


def _of_judging(found: JudgingCaveat) -> str:
    match found:
        case NoTime(status, reason):
            return f"no time: {status}: {reason}"
        case ShortCall(floors):
            return f"the call lasts {floors:.1f} floors of its clock"
        case NoCounters():
            return "no counters of both cells: pagebench profile A B counts them on a GPU"
        case NothingRepeats():
            return "no counter of both cells repeated"
        case WideInterval():
            return "the interval of the time ratio is too wide"
        case OtherBinary(differs):
            return f"{', '.join(differs)} differ, and no prediction gives the work's ratio"
        case OppositeWays(predicted):
            which = "the predicted work" if predicted else "work"
            return f"{which} and the time moved in opposite directions"


def caveats(found: Iterable[Caveat]) -> list[str]:
    return [caveat(each) for each in found]


# --- Verdicts -------------------------------------------------------------------------------------


def headline(verdict: Verdict) -> str:
    """The word, and whether it was predicted."""
    if verdict.predicts is None:
        return verdict.word
    if verdict.failed:
        return f"{verdict.word}, but {verdict.predicts} was predicted"
    return f"{verdict.word}, as predicted"


def verdict_lines(verdict: Verdict) -> list[str]:
    """All that a verdict rests on: a short call first, then time, work, what binds, caveats."""
    short = [each for each in verdict.caveats if isinstance(each, ShortCall)]
    others = [each for each in verdict.caveats if not isinstance(each, ShortCall)]
    time = [time_line(verdict.time, verdict.among)] if verdict.time else []
    work = [] if short or not verdict.time else _work_and_path(verdict)
    return [*caveats(short), *time, *work, *caveats(others)]


def time_line(found: Change, among: int) -> str:
    """B over A with its interval, and how that was decided."""
    together = f", one of {among} judged together" if among > 1 else ""
    return (
        f"time x {found.ratio:.4f} [{found.low:.4f}, {found.high:.4f}] over {found.processes} "
        f"processes{together}: {found.word} (an effect of {found.detectable:.2%} would be found)"
    )


def _work_and_path(verdict: Verdict) -> list[str]:
    if verdict.work is None or not verdict.work.compared:
        return []
    binds = [f"what binds: {binding_line(verdict.path)}"] if verdict.path else []
    return [*work_lines(verdict.work), *binds]


def work_lines(work: Work) -> list[str]:
    """Which stable counters moved, and which of them a prediction gives."""
    if not work.changed:
        return [f"no stable counter moved ({', '.join(work.compared)})"]
    moved = ", ".join(
        f"{name} from none" if ratio is None else f"{name} x {ratio:.4g}"
        for name, ratio in work.changed.items()
    )
    return [f"work moved: {moved}", *filter(None, [from_knob_line(work)])]


def from_knob_line(work: Work) -> str:
    """Counters whose ratio a prediction gives; empty where there are none."""
    names = ", ".join(work.from_knob)
    return f"as predicted from layout or source: {names}" if names else ""


# --- Critical paths -------------------------------------------------------------------------------


def binding(path: CriticalPath) -> str:
    """The term that binds, or several that tie."""
    return " or ".join(path.binding)


def binding_line(path: CriticalPath) -> str:
    """The terms, largest first, T against the measured time, and what binds: to be checked."""
    ordered = sorted(path.terms_us.items(), key=lambda item: -item[1])
    terms = ", ".join(f"{name} {us:.1f} us{_doubts(path, name)}" for name, us in ordered)
    text = f"{terms}; T {path.path_us:.1f} us"
    if path.share is not None:
        text += f", {path.share:.1%} of the {path.time_us:.1f} measured by events"
    text += f": {binding(path)} binds"
    if path.binding == (LATENCY,):
        text += f" (no counted work gives {REACHED:.0%} of the time; the rest is waiting)"
    return text + (f"; not known: {', '.join(path.unknown)}" if path.unknown else "")


def _doubts(path: CriticalPath, name: str) -> str:
    of_terms = {
        "its busy share of the time": path.by_share,
        "unstable": path.unstable,
        "unsaturated": path.unsaturated,
    }
    doubts = [word for word, names in of_terms.items() if name in names]
    return f" ({', '.join(doubts)})" if doubts else ""


# --- Doses ----------------------------------------------------------------------------------------


def follows(dose: Dose) -> str:
    """What the time follows, after `the time follows`."""
    if not dose.counters:
        return "unknown, for there are no counters of all cells"
    found = conclude(dose)
    tested, untested = (
        " or ".join(" with ".join(names) for names in which)
        for which in (found.follows, found.untested)
    )
    return tested or (f"perhaps {untested}" if untested else "no counter")


def dose_lines(dose: Dose) -> list[str]:
    """All that is said under a dose: what it rests on, and then its caveats."""
    return [*dose_reasons(dose), *caveats(dose.caveats)]


def dose_reasons(dose: Dose) -> list[str]:
    """What was measured at each step, and what each candidate would give there."""
    steps = ", ".join(
        f"{signed(s.middle_us)} [{signed(s.low_us)}, {signed(s.high_us)}]" for s in dose.steps
    )
    moved = f"from step to step, of interleaved samples, time moves by {steps} us"
    alike = candidates(dose.counters)
    tried = [_candidate_line(each, alike) for each in conclude(dose).tried]
    return [moved, *tried, *dose_ends(dose)]


def dose_ends(dose: Dose) -> list[str]:
    """What a table of its steps and candidates does not say of a dose."""
    if not dose.counters:
        return ["no stable counter is known to move over these cells"]
    if not moves(dose.steps):
        return ["no step's interval leaves out zero: time follows nothing"]
    fitting = [each for each in conclude(dose).tried if each.fits]
    if not fitting:
        return ["no counter, and no two of them, give every step: the time is unexplained"]
    return ["no single counter does"] if all(len(each.counters) > 1 for each in fitting) else []


def candidate(names: Iterable[str], alike: Mapping[str, tuple[str, ...]]) -> str:
    """The counters of an explanation, each with those that move as it does."""
    return " + ".join(
        f"{name} (alike: {', '.join(alike[name])})" if alike[name] else name for name in names
    )


def _candidate_line(each: Explanation, alike: Mapping[str, tuple[str, ...]]) -> str:
    costs = ", ".join(f"{1e3 * cost:.3g} ns" for cost in each.us_per_count)
    given = ", ".join(map(signed, each.steps_us))
    verdict = "fits every step" if each.fits else "does not fit"
    if each.fits and not each.tested:
        verdict += ", with as many costs as steps where they move: where is tested, the cost is not"
    return f"{candidate(each.counters, alike)} at {costs} a count gives {given} us: {verdict}"


# --- Attacks --------------------------------------------------------------------------------------

SCALING = {
    "scales": "one cost for each {work} that B is predicted to do beyond A fits all three contexts",
    "constant": "one time fits all three contexts: a fixed cost",
    "neither": "neither a fixed cost nor one for each {work} that B does beyond A fits",
    "unclear": "both a fixed cost and one for each {work} that B does beyond A fit: the intervals "
    "are wide",
}
SCALING_BESIDES = (
    "so would a cost of anything else that a tile does, for all of it grows with the context: "
    "this singles out no counter"
)
WORK_NAMES = {"ldg": "global load (LDG)", "index_entries": "index entry"}


def attack_lines(attack: Attack) -> list[str]:
    """The effect in every variant, and what that says of the mechanism."""
    return [*map(_effect, attack.variants), *attack_ends(attack)]


def attack_ends(attack: Attack) -> list[str]:
    """What a table of the variants does not say of an attack."""
    given = attack.variants[1 if attack.how == "context" else 0]
    if given.time.word == "unclear":
        return ["whether the cells as given differ is not known"]
    if given.time.word == "same":
        return ["the cells as given do not differ: nothing to attack"]
    if attack.how == "kernel":
        return []
    besides = [SCALING_BESIDES] if attack.word == "scales" else []
    return [scaling_line(attack.word, given.work.name), *besides]


def scaling_line(word: str, work: str) -> str:
    """What a word of SCALING means, with the name of the work that was predicted."""
    return SCALING[word].format(work=WORK_NAMES.get(work, work))


def _effect(variant: Variant) -> str:
    delta, work = variant.delta, variant.work
    return (
        f"{' to '.join(variant.cells)}: {delta.middle_us:+.2f} us [{delta.low_us:+.2f}, "
        f"{delta.high_us:+.2f}] ({variant.time.word}), {work.name} {work.amount:+,.0f} predicted"
    )


# --- Instruments ----------------------------------------------------------------------------------


def instrument(row: PlantedWord | PlantedLoads | PlantedWait) -> str:
    """Which instrument was to find what was planted."""
    names = {PlantedWord: "verdict", PlantedLoads: "counter (LDG)", PlantedWait: "clock (us)"}
    return names[type(row)]


def disagreement(found: Disagreement) -> str:
    """A counter that does not show what a kernel does, with both numbers."""
    seen = list(found.seen)
    return f"{found.counter}: {seen} in {found.kernel}, which executes {found.expected}"


def calibration_lines(calibration: Calibration) -> list[str]:
    return [disagreement(each) for each in calibration.disagreements]
