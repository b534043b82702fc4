"""Sections of a study that conclude: verdicts, doses, attacks, planted effects.

Words of verdicts and attacks stand as they were recorded; what binds and what a dose follows are
worked out when the page is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from pagebench.harness.contrasts import CONTRASTS, Contrast, planted_contrasts
from pagebench.harness.judging.attack import SCALING_BESIDES, scaling_sentence
from pagebench.harness.judging.dose import Explanation, Step, candidates, explanations
from pagebench.harness.judging.ladder import follows, signed
from pagebench.harness.judging.verdict import BINDS
from pagebench.harness.study import figures
from pagebench.harness.study import original as seed
from pagebench.harness.study.figures import Figure
from pagebench.harness.study.read import Line, Recorded, gpus_of
from pagebench.harness.study.section import ANEW, Section, Table, table_of
from pagebench.harness.timing.stats import Summary

SHAPES = {
    "absent": "○",
    "hidden": "◐",
    "exposed": "●",
    "unexplained": "▲",
    "confounded": "✕",
    "floor": "▁",
    "unclear": "?",
}

# --- Verdicts -------------------------------------------------------------------------------------

NO_VERDICTS = (
    "No verdict in these files: `pagebench judge NAME` makes one; `pagebench judge` lists the "
    "contrasts."
)
MATRIX = ("contrast (knob)", "A", "B", "predicted", "what came", "time B over A", "would be found",
          "processes", "work that moved", "what binds B")  # fmt: skip
# Sentences of a verdict that its row shows in columns.
SHOWN = ("time x ", "no stable counter moved", "work moved: ", "as predicted from ", BINDS)


def newest_verdicts(recorded: Recorded) -> dict[tuple[str, str], Line]:
    """The newest verdict of each two cells."""
    return {(line["cells"][0], line["cells"][1]): line for line in recorded.verdicts}


def verdicts(recorded: Recorded) -> Section:
    """One row a contrast, those shipped first, judged or not; why those not as predicted came."""
    found = newest_verdicts(recorded)
    shipped = {contrast: found.pop((contrast.one, contrast.other), None) for contrast in CONTRASTS}
    rows = [*shipped.items(), *((_of_record(line), line) for line in found.values())]
    judged = [line for _, line in rows if line]
    if not judged:
        return Section("verdicts", "What came out", missing=NO_VERDICTS)
    failed = [line for line in judged if _failed(line)]
    commands = tuple(dict.fromkeys(map(_judging, judged)))
    return Section("verdicts", "What came out", (_counts(judged, failed),),
                   (_matrix(rows), *_paths(judged)), commands=commands,
                   after=tuple(map(_headline, failed)))  # fmt: skip


def _failed(line: Line) -> bool:
    return line["predicted"] not in (None, line["verdict"])


def _counts(judged: list[Line], failed: list[Line]) -> str:
    predicted = sum(line["predicted"] is not None for line in judged)
    below = "; the latter (≠) are explained under the tables" if failed else ""
    return (
        f"{len(judged)} verdicts: {predicted - len(failed)} as predicted, {len(failed)} not{below}."
    )


def _matrix(rows: list[tuple[Contrast, Line | None]]) -> Table:
    lines = [line for _, line in rows]
    shapes = ", ".join(f"{shape}\u00a0{word}" for word, shape in SHAPES.items())
    return table_of(
        f"{_error(lines)} Would be found: the smallest effect found with 80 % power. What binds: "
        f"the largest term of the critical path T, and how much of B's time T explains. {shapes}; "
        "≠ not as predicted.",
        MATRIX, [_matrix_row(contrast, line) for contrast, line in rows],
        tuple(map(_row_class, lines)), [gpus_of(line, *_also(line)) for line in lines],
    )  # fmt: skip


def _also(line: Line | None) -> tuple[Line, ...]:
    return tuple(line.get("bound_by", ())) if line else ()


def _judging(line: Line) -> str:
    """What makes the verdict again, with those that it was judged together with."""
    together = {c.name: "pagebench judge all" for c in CONTRASTS}
    together |= {c.name: "pagebench selftest" for c in planted_contrasts()}
    return together.get(line["contrast"], f"pagebench judge {' '.join(line['cells'])}")


def _of_record(line: Line) -> Contrast:
    one, other = line["cells"]
    return Contrast(line["contrast"], line["knob"], one, other, line["predicted"])


def _matrix_row(contrast: Contrast, line: Line | None) -> tuple[str, ...]:
    named = f"{contrast.name} ({contrast.knob})" if contrast.name else contrast.knob
    asked = (named, contrast.one, contrast.other)
    if line is None:
        left = f"not judged: pagebench judge {contrast.name}"
        return (*asked, contrast.predicts or "", left, *[""] * (len(MATRIX) - 5))
    time = line["time"]
    return (
        *asked,
        line["predicted"] or "",
        _came(line),
        *(_time(time) if time is not None else ("no time", "", "")),
        _moved(line["work"]),
        _binding(line),
    )


def _came(line: Line) -> str:
    """The word; what else is to be said of a verdict stands here, or in prose where it failed."""
    word = f"{SHAPES.get(line['verdict'], '')} {line['verdict']}"
    if _failed(line):
        return f"{word} ≠"
    return "; ".join([word, *_not_shown(line)])


def _not_shown(line: Line) -> list[str]:
    return [text for text in line["because"] if not text.startswith(SHOWN)]


def _time(time: Line) -> tuple[str, str, str]:
    return (
        f"{time['ratio']:.4f} [{time['low']:.4f}, {time['high']:.4f}]",
        f"{time['detectable']:.2%}",
        str(time["processes"]),
    )


def _error(lines: Iterable[Line | None]) -> str:
    """At which error the verdicts were judged: at 5 % before records held it."""
    levels = sorted({line["time"].get("error", 0.05) for line in lines if line and line["time"]})
    text = " and ".join(f"{100 * level:g} %" for level in levels)
    return f"Judged at an error of {text} for all that were judged together."


def _row_class(line: Line | None) -> str:
    if line is None:
        return "not-judged"
    return f"{line['verdict']}{' failed' if _failed(line) else ''}"


def _moved(work: Mapping[str, Any] | None) -> str:
    if work is None:
        return "no counters"
    moved = (
        f"{name} {'from none' if value is None else f'× {value:.4g}'}"
        for name, value in work["changed"].items()
    )
    return ", ".join(moved) or "none"


def _binding(line: Line) -> str:
    """The binding term, and how much of the time the critical path explains."""
    path = line.get("path")
    anew = f" {ANEW}" if line.get("anew") else ""
    return f"{path['binding']}, T {path['share']:.1%}{anew}" if path else ""


PATH = (
    "Critical paths of B, us: what the counted work would take alone at each measured ceiling. T "
    "is the launch plus the longest of the others; where it explains less than 90 % of the time, "
    "latency binds. * by a counter that did not repeat, ^ under a ceiling that may be higher, "
    "‡ the share of the time, less launches, that the unit was busy."
)
MARKS = {"unstable": " *", "unsaturated": " ^", "by_share": " ‡"}


def _paths(judged: list[Line]) -> tuple[Table, ...]:
    """What B's counted work takes at each ceiling, a row a B; none where none is known."""
    found = {line["cells"][1]: line for line in judged if "terms_us" in (line.get("path") or {})}
    if not found:
        return ()
    terms = dict.fromkeys(name for line in found.values() for name in line["path"]["terms_us"])
    rows = [(cell, *_path_row(line, terms)) for cell, line in found.items()]
    headings = ("B", *terms, "T", "measured", "T of it", "what binds")
    gpus = [gpus_of(line, *_also(line)) for line in found.values()]
    return (table_of(PATH, headings, rows, gpus=gpus),)


def _path_row(line: Line, terms: Iterable[str]) -> tuple[str, ...]:
    path, us = line["path"], line["path"]["terms_us"]
    longest = us["launch"] + max(value for name, value in us.items() if name != "launch")
    anew = f" {ANEW}" if line.get("anew") else ""
    return (
        *(f"{us[name]:.1f}{_marks(path, name)}" if name in us else "unknown" for name in terms),
        f"{longest:.1f}", f"{path['time_us']:.1f}", f"{path['share']:.1%}",
        f"{path['binding']}{anew}",
    )  # fmt: skip


def _marks(path: Mapping[str, Any], name: str) -> str:
    return "".join(mark for doubt, mark in MARKS.items() if name in path.get(doubt, ()))


def _headline(line: Line) -> str:
    """Why a verdict is not the one predicted, where it differs from the seed's: no table twice."""
    seen = seed.VERDICTS.get(line["contrast"], line["verdict"])
    time = line["time"]
    parts = [
        f"predicted for: {line['why']}" if line.get("why") else "",
        f"on the seed's {seed.GPU} it was `{seen}`" if seen != line["verdict"] else "",
        f"time × {time['ratio']:.4f} [{time['low']:.4f}, {time['high']:.4f}]" if time else "",
        f"work that moved: {_moved(line['work'])}",
        _from_knob(line["work"]),
        *_not_shown(line),
        f"what binds: {_binding(line)}" if line.get("path") else "",
    ]
    name = line["contrast"] or line["knob"]
    said = "; ".join(filter(None, parts))
    head = f"{_arrow(line['cells'])} ({name}): **{line['headline']}**."
    return f"{head} {said[:1].upper()}{said[1:]}."


def _from_knob(work: Mapping[str, Any] | None) -> str:
    names = ", ".join((work or {}).get("from_knob", ()))
    return f"as predicted from layout or source: {names}" if names else ""


def _arrow(cells: Iterable[str]) -> str:
    return " → ".join(f"`{cell}`" for cell in cells)


# --- Dose and response ----------------------------------------------------------------------------

STEP_BY_STEP = ("from step to step", "time moves by")  # said in the tables


def dose(recorded: Recorded) -> Section:
    """What the time follows when the page shrinks; the newest of each regime."""
    newest = {line["regime"]: line for line in recorded.doses}
    if not newest:
        return Section("dose", "Dose and response",
                       missing="No dose records: `make study` measures them.")  # fmt: skip
    drawn = tuple(_dose_figure(number, line) for number, line in enumerate(newest.values()))
    tables = tuple(table for line in newest.values() for table in _dose_tables(line))
    return Section("dose", "Dose and response", tuple(map(_followed, newest.values())), tables,
                   drawn, (f"pagebench dose {' '.join(newest)}",))  # fmt: skip


def _followed(line: Line) -> str:
    said = [
        text for text in (*line["because"], *line["notes"])
        if not text.startswith(STEP_BY_STEP) and " a count gives " not in text
    ]  # fmt: skip
    ends = _arrow((line["cells"][0], line["cells"][-1]))
    return f"{ends} ({line['regime']}): the time follows **{follows(line)}** {ANEW}" + "".join(
        f"; {text}" for text in said) + "."  # fmt: skip


def _dose_figure(number: int, line: Line) -> Figure:
    times = {
        value: Summary(middle, low, high, 0)
        for value, (low, middle, high) in zip(line["values"], line["time_us"], strict=True)
    }
    counted = {
        ", ".join((name, *alike)): dict(zip(line["values"], line["counters"][name], strict=True))
        for name, alike in candidates(line["counters"]).items()
    }
    alt = (
        f"{line['cells'][0]} to {line['cells'][-1]} ({line['regime']}): time, and every counter "
        "that may explain it; numbers are in the table."
    )
    drawn = figures.ladder(f"dose-{number}", alt, times, counted, _knob(line))
    return replace(drawn, gpus=(gpus_of(line),))


def _knob(line: Line) -> str:
    return str({"page size": "tokens a page"}.get(line["knob"], line["knob"]))


def _dose_tables(line: Line) -> Iterator[Table]:
    yield _dose_table(line)
    tried = explanations([Step(*step) for step in line["steps_us"]], line["counters"])
    if tried:
        yield _candidates_table(line, tried)


def _dose_table(line: Line) -> Table:
    counters = {name: values for name, values in line["counters"].items() if any(values)}
    steps = [("", ""), *((signed(m), f"{signed(low)} to {signed(high)}")
                         for low, m, high in line["steps_us"])]  # fmt: skip
    rows = tuple(
        (knob, f"{time[1]:.2f}", f"{time[0]:.2f} to {time[2]:.2f}", *step,
         *("" if value is None else f"{value:,.0f}" for value in values))
        for knob, time, step, *values in zip(line["values"], line["time_us"], steps,
                                             *counters.values(), strict=True)
    )  # fmt: skip
    headings = (_knob(line), "time us", "range of processes", "step to here us",
                "interval of the step", *counters)  # fmt: skip
    caption = (
        f"{_arrow((line['cells'][0], line['cells'][-1]))} ({line['regime']}). Times are medians "
        "over processes; steps are of interleaved samples."
    )
    return table_of(caption, headings, rows, gpus=(gpus_of(line),))


def _candidates_table(line: Line, tried: Iterable[Explanation]) -> Table:
    alike = candidates(line["counters"])
    values, steps = line["values"], [Step(*step) for step in line["steps_us"]]
    measured = (f"{signed(s.middle_us)} [{signed(s.low_us)}, {signed(s.high_us)}]" for s in steps)
    rows = [("measured", "", *measured, ""), *(_candidate(each, steps, alike) for each in tried)]
    moves = (f"{one} to {other}, us" for one, other in pairwise(values))
    caption = (
        f"What each candidate gives at each step ({line['regime']}) {ANEW}, at its best cost. "
        "✕ lies outside the measured interval."
    )
    headings = ("counters", "ns a count", *moves, "fits")
    return table_of(caption, headings, rows, gpus=(gpus_of(line),))


def _candidate(
    each: Explanation, steps: Iterable[Step], alike: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    names = (f"{name} (alike: {', '.join(alike[name])})" if alike[name] else name
             for name in each.counters)  # fmt: skip
    given = (f"{signed(us)}{'' if step.holds(us) else ' ✕'}"
             for us, step in zip(each.steps_us, steps, strict=True))  # fmt: skip
    costs = ", ".join(f"{1e3 * cost:.3g}" for cost in each.us_per_count)
    untested = "" if each.tested else ", as many costs as steps where they move: not tested"
    return " + ".join(names), costs, *given, f"yes{untested}" if each.fits else "no"


# --- Attacks --------------------------------------------------------------------------------------

VARIANTS = ("A", "B", "B over A", "us", "interval", "time", "work predicted")


def attacks(recorded: Recorded) -> Section:
    """What became of an effect with another context or another kernel."""
    newest = {(line["attack"], *line["cells"]): line for line in recorded.attacks}.values()
    if not newest:
        return Section("attacks", "Attacks on the mechanism",
                       missing="No attack in these files: `pagebench attack HOW A B`.")  # fmt: skip
    tables = tuple(
        table_of(f"{_arrow(line['cells'])}, another {line['attack']}", VARIANTS,
                 tuple(map(_variant, line["variants"])), gpus=(gpus_of(line),))
        for line in newest
    )  # fmt: skip
    return Section("attacks", "Attacks on the mechanism", tuple(map(_attacked, newest)), tables,
                   commands=tuple(map(_attacking, newest)))  # fmt: skip


def _attacked(line: Line) -> str:
    head = f"{_arrow(line['cells'])}, another {line['attack']}: **{line['word']}**."
    if (line["attack"], line["word"]) == ("context", "scales"):
        work = next(iter(line["variants"][0]["work"]))
        said = [scaling_sentence("scales", work), SCALING_BESIDES]
    else:
        said = line["because"][len(line["variants"]) :]  # beyond the variants, which the table has
    return " ".join([head, *(f"{text[0].upper()}{text[1:]}." for text in said)])


def _attacking(line: Line) -> str:
    other = line["variants"][-1]["cells"][0].partition("_")[0]
    which = f" --with {other}" if line["attack"] == "kernel" else ""
    return f"pagebench attack {line['attack']} {' '.join(line['cells'])}{which}"


def _variant(variant: Mapping[str, Any]) -> tuple[str, ...]:
    low, middle, high = variant["delta_us"]
    work = ", ".join(f"{name} {value:+,.0f}" for name, value in variant["work"].items())
    return (*variant["cells"], f"{variant['time']['ratio']:.4f}", f"{middle:+.2f}",
            f"{low:+.2f} to {high:+.2f}", variant["time"]["word"], work)  # fmt: skip


# --- Planted effects ------------------------------------------------------------------------------

PLANTED_HEADINGS = ("cell", "instrument", "planted", "found", "low", "high", "right")


def planted(recorded: Recorded) -> Section:
    """Effects put in on purpose, and whether the instruments found them; the newest of them."""
    newest = recorded.planted[-1:]
    rows = [(line, row) for line in newest for row in line["rows"]]
    if not rows:
        return Section("planted", "Planted effects",
                       missing="No planted effects: `make study` measures them.")  # fmt: skip
    text = tuple(
        f"The smallest effect that would be found in this call is {line['detectable']:.2%}."
        for line in newest if line["detectable"]
    )  # fmt: skip
    shown = [tuple(_planted(row.get(name)) for name in PLANTED_HEADINGS) for _, row in rows]
    table = table_of("Known work put into our own kernels", PLANTED_HEADINGS, shown,
                     gpus=[gpus_of(line) for line, _ in rows])  # fmt: skip
    return Section("planted", "Planted effects", text, (table,), commands=("pagebench selftest",))


def _planted(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "", True: "yes", False: "NO"}[value]
    return str(value) if isinstance(value, str) else f"{value:,}"
