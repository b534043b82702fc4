"""Conclusions in words; `show.caveats` has the words of their caveats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pagebench.harness.judging.explain import Explanation, candidates, conclude, moves
from pagebench.harness.records.attack import Attack, Variant
from pagebench.harness.records.calibration import Calibration, Disagreement
from pagebench.harness.records.caveats import ShortCall
from pagebench.harness.records.dose import Dose
from pagebench.harness.records.planted import PlantedLoads, PlantedWait, PlantedWord
from pagebench.harness.records.verdict import Change, Verdict, Work
from pagebench.harness.show.caveats import caveats
from pagebench.harness.show.text import signed
from pagebench.harness.show.timings import WIDE
from pagebench.profiles.ceilings import LATENCY, REACHED, CriticalPath

# --- Verdicts -------------------------------------------------------------------------------------

NO_SIZE = ": it changed, but by how much is no measurement"


def headline(verdict: Verdict) -> str:
    """The effect, whether it was predicted, and whether the knob is its cause."""
    found = verdict.word
    if verdict.failed:
        found += f", but {verdict.predicts} was predicted"
    elif verdict.predicts is not None:
        found += ", as predicted"
    return f"{found}, its cause in doubt" if verdict.cause == "in doubt" else found


def verdict_lines(verdict: Verdict) -> list[str]:
    """The grounds of a verdict: a short call first, then time, work, what binds, caveats."""
    short = [each for each in verdict.caveats if isinstance(each, ShortCall)]
    others = [each for each in verdict.caveats if not isinstance(each, ShortCall)]
    time = [time_line(verdict.time, verdict.among)] if verdict.time else []
    work = [] if short or not verdict.time else [*_expected(verdict), *_work_and_path(verdict)]
    return [*caveats(short), *time, *work, *caveats(others)]


def _expected(verdict: Verdict) -> list[str]:
    """What layout and source predict of work that was not counted."""
    if not verdict.expected:
        return []
    moved = [f"{name} x {ratio:.4g}" for name, ratio in verdict.expected.items() if ratio != 1]
    said = ", ".join(moved) or f"no change ({', '.join(verdict.expected)})"
    return [f"work predicted and not counted: {said}"]


def time_line(found: Change, among: int) -> str:
    """B over A with its interval, the processes, the decision and the detectable effect."""
    together = f", one of {among} judged together" if among > 1 else ""
    return (
        f"time x {found.ratio:.4f} [{found.low:.4f}, {found.high:.4f}] over {found.processes} "
        f"processes{together}: {found.word} (detectable effect {found.detectable:.2%})"
        f"{_size(found)}"
    )


def _size(found: Change) -> str:
    """That a change is certain and its size is not measured."""
    if found.word != "changed" or found.high - found.low <= WIDE * found.ratio:
        return ""
    return NO_SIZE


def _work_and_path(verdict: Verdict) -> list[str]:
    if verdict.work is None or not verdict.work.compared:
        return []
    binds = [f"what binds: {binding_line(verdict.path)}"] if verdict.path else []
    return [*work_lines(verdict.work), *binds]


def work_lines(work: Work) -> list[str]:
    """Which stable counters changed, and which of those changes were predicted."""
    if not work.changed:
        return [f"no stable counter changed ({', '.join(work.compared)})"]
    moved = ", ".join(
        f"{name} from zero" if ratio is None else f"{name} x {ratio:.4g}"
        for name, ratio in work.changed.items()
    )
    coded = ", ".join(work.from_code)
    code = f"as the machine code of both says: {coded}" if coded else ""
    return [f"work changed: {moved}", *filter(None, [from_knob_line(work), code])]


def from_knob_line(work: Work) -> str:
    """Counters whose ratio was predicted; empty if there are none."""
    names = ", ".join(work.from_knob)
    return f"as predicted from layout or source: {names}" if names else ""


# --- Critical paths -------------------------------------------------------------------------------


def binding(path: CriticalPath) -> str:
    """The term that binds, or several that tie."""
    return " or ".join(path.binding)


def binding_line(path: CriticalPath) -> str:
    """The terms, largest first, T against the measured time, and what binds."""
    ordered = sorted(path.terms_us.items(), key=lambda item: -item[1])
    terms = ", ".join(f"{name} {us:.1f} us{_doubts(path, name)}" for name, us in ordered)
    text = f"{terms}; T {path.path_us:.1f} us"
    if path.share is not None:
        text += f", {path.share:.1%} of the {path.time_us:.1f} measured by events"
    text += f": {binding(path)} binds"
    if path.binding == (LATENCY,):
        text += f" (no counted work explains {REACHED:.0%} of the time; the rest is waiting)"
    return text + (f"; unknown: {', '.join(path.unknown)}" if path.unknown else "")


def _doubts(path: CriticalPath, name: str) -> str:
    of_terms = {
        "from its busy share of the time": path.by_share,
        "unstable": path.unstable,
        "unsaturated": path.unsaturated,
    }
    doubts = [word for word, names in of_terms.items() if name in names]
    return f" ({', '.join(doubts)})" if doubts else ""


# --- Doses ----------------------------------------------------------------------------------------


def follows(dose: Dose) -> str:
    """What the time follows, to stand after `the time follows:`."""
    if not dose.counters:
        return "unknown: some cells have no counters"
    found = conclude(dose)
    tested, untested = (
        " or ".join(" with ".join(names) for names in which)
        for which in (found.follows, found.untested)
    )
    return tested or (f"possibly {untested} (not tested)" if untested else "no counter")


def dose_lines(dose: Dose) -> list[str]:
    """All lines under a dose: its grounds, then its caveats."""
    return [*dose_reasons(dose), *caveats(dose.caveats)]


def dose_reasons(dose: Dose) -> list[str]:
    """The measured change of each step, and what each candidate gives for it."""
    steps = ", ".join(
        f"{signed(s.middle_us)} [{signed(s.low_us)}, {signed(s.high_us)}]" for s in dose.steps
    )
    moved = f"time changes step by step (interleaved samples): {steps} us"
    alike = candidates(dose.counters)
    tried = [_candidate_line(each, alike) for each in conclude(dose).tried]
    return [moved, *tried, *dose_ends(dose)]


def dose_ends(dose: Dose) -> list[str]:
    """What the tables of a dose's steps and candidates do not say."""
    if not dose.counters:
        return ["no stable counter changes between these cells"]
    if not moves(dose.steps):
        return ["every step's interval contains zero: the time does not change"]
    fitting = [each for each in conclude(dose).tried if each.fits]
    if not fitting:
        return ["no counter and no pair of counters explains every step"]
    return (
        ["no single counter explains every step"]
        if all(len(each.counters) > 1 for each in fitting)
        else []
    )


def candidate(names: Iterable[str], alike: Mapping[str, tuple[str, ...]]) -> str:
    """The counters of an explanation, each with those that change in proportion."""
    return " + ".join(
        f"{name} (alike: {', '.join(alike[name])})" if alike[name] else name for name in names
    )


def _candidate_line(each: Explanation, alike: Mapping[str, tuple[str, ...]]) -> str:
    costs = ", ".join(f"{1e3 * cost:.3g} ns" for cost in each.us_per_count)
    given = ", ".join(map(signed, each.steps_us))
    verdict = "fits every step" if each.fits else "does not fit"
    if each.fits and not each.tested:
        verdict += (
            ", but has one free cost for each step at which its counters change: "
            "the cost is not tested"
        )
    return f"{candidate(each.counters, alike)} at {costs} a count gives {given} us: {verdict}"


# --- Attacks --------------------------------------------------------------------------------------

SCALING = {
    "scales": "one cost per extra {work} predicted for B fits all three contexts",
    "constant": "one added time fits all three contexts: a fixed cost",
    "neither": "neither a fixed cost nor a cost per extra {work} of B fits",
    "unclear": "both a fixed cost and a cost per extra {work} of B fit: the intervals are wide",
}
SCALING_BESIDES = (
    "the cost of any other work that a tile does would fit too, because all of it grows with the "
    "context: this does not single out a counter"
)
WORK_NAMES = {"ldg": "global load (LDG)", "index_entries": "index entry"}


def attack_lines(attack: Attack) -> list[str]:
    """The effect in each variant, and what it says about the mechanism."""
    return [*map(_effect, attack.variants), *attack_ends(attack), *caveats(attack.caveats)]


def attack_ends(attack: Attack) -> list[str]:
    """What the table of an attack's variants does not say."""
    given = attack.variants[1 if attack.how == "context" else 0]
    if given.time.word == "unclear":
        return ["it is not known whether the given cells differ"]
    if given.time.word == "same":
        return ["the given cells do not differ: there is nothing to attack"]
    if attack.how == "kernel":
        return []
    besides = [SCALING_BESIDES] if attack.word == "scales" else []
    return [scaling_line(attack.word, given.work.name), *besides]


def scaling_line(word: str, work: str) -> str:
    """What a word of SCALING means, with the name of the predicted work."""
    return SCALING[word].format(work=WORK_NAMES.get(work, work))


def _effect(variant: Variant) -> str:
    delta, work = variant.delta, variant.work
    return (
        f"{' to '.join(variant.cells)}: {delta.middle_us:+.2f} us [{delta.low_us:+.2f}, "
        f"{delta.high_us:+.2f}] ({variant.time.word}), {work.name} {work.amount:+,.0f} predicted"
    )


# --- Instruments ----------------------------------------------------------------------------------


def instrument(row: PlantedWord | PlantedLoads | PlantedWait) -> str:
    """The instrument that should find what was planted."""
    names = {PlantedWord: "verdict", PlantedLoads: "counter (LDG)", PlantedWait: "clock (us)"}
    return names[type(row)]


def disagreement(found: Disagreement) -> str:
    """A counter that does not show what a kernel does, with both numbers."""
    seen = list(found.seen)
    return f"{found.counter}: {seen} in {found.kernel}, which executes {found.expected}"


def calibration_lines(calibration: Calibration) -> list[str]:
    return [disagreement(each) for each in calibration.disagreements]
