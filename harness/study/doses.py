"""What the time follows when a knob changes: times, steps, and what each candidate gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from pagebench.harness.escape import shell
from pagebench.harness.judging.explain import Explanation, candidates, conclude
from pagebench.harness.records.dose import Dose, Step
from pagebench.harness.show import sentences
from pagebench.harness.show.caveats import caveats
from pagebench.harness.show.text import signed
from pagebench.harness.study import figures
from pagebench.harness.study.figures import Figure
from pagebench.harness.study.read import Recorded, gpus_of
from pagebench.harness.study.section import ANEW, Section, Table, arrow, table_of
from pagebench.harness.timing.stats import Summary

KNOBS = {"page size": "tokens per page"}  # as an axis


def doses(recorded: Recorded) -> Section:
    """What the time follows over the page size; the newest dose of each regime."""
    newest = {dose.regime: dose for dose in recorded.doses}
    if not newest:
        missing = "No dose records: `make study` measures them."
        return Section("dose", "Dose and response", missing=missing)
    return Section(
        "dose",
        "Dose and response",
        text=tuple(map(_followed, newest.values())),
        tables=tuple(table for dose in newest.values() for table in _tables(dose)),
        figures=tuple(_figure(number, dose) for number, dose in enumerate(newest.values())),
        commands=(shell("pagebench", "dose", *newest),),
    )


def _ends(dose: Dose) -> str:
    return f"{arrow((dose.cells[0], dose.cells[-1]))} ({dose.regime})"


def _followed(dose: Dose) -> str:
    said = (*sentences.dose_ends(dose), *caveats(dose.caveats))
    head = f"{_ends(dose)}: the time follows: **{sentences.follows(dose)}** {ANEW}"
    return f"{'; '.join([head, *said])}."


def _figure(number: int, dose: Dose) -> Figure:
    times = {
        value: Summary(us.middle_us, us.least_us, us.most_us, 0)
        for value, us in zip(dose.values, dose.times, strict=True)
    }
    counted = {
        ", ".join((name, *alike)): dict(zip(dose.values, dose.counters[name], strict=True))
        for name, alike in candidates(dose.counters).items()
    }
    alt = (
        f"{dose.cells[0]} to {dose.cells[-1]} ({dose.regime}): time, and every counter that "
        "may explain it; numbers are in the table."
    )
    drawn = figures.ladder(f"dose-{number}", alt, times, counted, _knob(dose))
    return replace(drawn, gpus=(gpus_of(dose),))


def _knob(dose: Dose) -> str:
    return KNOBS.get(dose.knob, dose.knob)


def _tables(dose: Dose) -> Iterator[Table]:
    yield _steps_table(dose)
    tried = conclude(dose).tried
    if tried:
        yield _candidates_table(dose, tried)


# --- Steps ----------------------------------------------------------------------------------------


def _steps_table(dose: Dose) -> Table:
    counters = [name for name, values in dose.counters.items() if any(values)]
    headings = (
        _knob(dose),
        "time us",
        "range over processes",
        "step us",
        "step interval",
        *counters,
    )
    caption = (
        f"{_ends(dose)}. Times are medians over processes. A step is the change from the row "
        "above, from interleaved samples."
    )
    rows = [_steps_row(dose, index, counters) for index in range(len(dose.cells))]
    return table_of(caption, headings, rows, gpus=(gpus_of(dose),))


def _steps_row(dose: Dose, index: int, counters: Sequence[str]) -> tuple[str, ...]:
    time = dose.times[index]
    return (
        dose.values[index],
        f"{time.middle_us:.2f}",
        f"{time.least_us:.2f} to {time.most_us:.2f}",
        *(_step(dose.steps[index - 1]) if index else ("", "")),
        *(f"{dose.counters[name][index]:,.0f}" for name in counters),
    )


def _step(step: Step) -> tuple[str, str]:
    return signed(step.middle_us), f"{signed(step.low_us)} to {signed(step.high_us)}"


# --- Candidates -----------------------------------------------------------------------------------


def _candidates_table(dose: Dose, tried: Sequence[Explanation]) -> Table:
    alike = candidates(dose.counters)
    measured = (
        f"{signed(s.middle_us)} [{signed(s.low_us)}, {signed(s.high_us)}]" for s in dose.steps
    )
    rows = [("measured", "", *measured, ""), *(_candidate(each, dose, alike) for each in tried)]
    moves = (f"{one} to {other}, us" for one, other in pairwise(dose.values))
    caption = (
        f"What each candidate gives for each step ({dose.regime}) {ANEW}, at its best-fitting "
        "cost. ✕: outside the measured interval."
    )
    headings = ("counters", "ns per count", *moves, "fits")
    return table_of(caption, headings, rows, gpus=(gpus_of(dose),))


def _candidate(
    each: Explanation, dose: Dose, alike: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    given = (
        f"{signed(us)}{'' if step.holds(us) else ' ✕'}"
        for us, step in zip(each.steps_us, dose.steps, strict=True)
    )
    costs = ", ".join(f"{1e3 * cost:.3g}" for cost in each.us_per_count)
    untested = (
        "" if each.tested else ", not tested: as many costs as steps at which the counters change"
    )
    fits = f"yes{untested}" if each.fits else "no"
    return sentences.candidate(each.counters, alike), costs, *given, fits
