"""Verdicts: a row per contrast, what binds its cell B, and why a prediction failed.

Words of verdicts are shown as recorded; what binds is recomputed when the page is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pagebench.harness.contrasts import CONTRASTS, planted_contrasts
from pagebench.harness.escape import shell
from pagebench.harness.records.verdict import Change, Verdict, Work
from pagebench.harness.show import sentences
from pagebench.harness.show.caveats import caveats
from pagebench.harness.show.text import share
from pagebench.harness.study import original
from pagebench.harness.study.read import Judged, Recorded, gpus_of
from pagebench.harness.study.section import ANEW, Section, Table, arrow, table_of
from pagebench.profiles.ceilings import CriticalPath

SHAPES = {
    "absent": "○",
    "hidden": "◐",
    "exposed": "●",
    "unexplained": "▲",
    "likely absent": "◌",
    "likely hidden": "◑",
    "likely exposed": "◉",
    "likely unexplained": "△",
    "floor": "▁",
    "unclear": "?",
}
NO_VERDICTS = (
    "No verdict in these files: `pagebench judge NAME` makes one; `pagebench judge` lists the "
    "contrasts."
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A shipped contrast, or one that was judged by the names of its cells."""

    name: str
    knob: str
    cells: tuple[str, str]
    predicts: str | None


def verdicts(recorded: Recorded) -> Section:
    """One row per contrast, shipped ones first, judged or not; and why predictions failed."""
    rows = _rows(recorded)
    judged = [each for _, each in rows if each]
    if not judged:
        return Section("verdicts", "Verdicts", missing=NO_VERDICTS)
    failed = [each.verdict for each in judged if each.verdict.failed]
    commands = dict.fromkeys(_command(each.verdict) for each in judged)
    return Section(
        "verdicts",
        "Verdicts",
        text=(_counts([each.verdict for each in judged], failed),),
        tables=(_matrix(rows), *_paths(judged)),
        commands=tuple(commands),
        after=tuple(_why(each) for each in judged if each.verdict.failed),
    )


def _rows(recorded: Recorded) -> list[tuple[Asked, Judged | None]]:
    """Shipped contrasts with the newest verdict on their cells, then verdicts on other cells."""
    newest = {each.verdict.cells: each for each in recorded.judged()}
    shipped = [
        Asked(each.name, each.knob, (each.one.name, each.other.name), each.predicts)
        for each in CONTRASTS
    ]
    rows: list[tuple[Asked, Judged | None]] = [
        (asked, newest.pop(asked.cells, None)) for asked in shipped
    ]
    return [*rows, *((_asked(each.verdict), each) for each in newest.values())]


def _asked(verdict: Verdict) -> Asked:
    return Asked(verdict.contrast, verdict.knob, verdict.cells, verdict.predicts)


def _counts(judged: Sequence[Verdict], failed: Sequence[Verdict]) -> str:
    predicted = sum(verdict.predicts is not None for verdict in judged)
    below = " (≠, explained below the tables)" if failed else ""
    return (
        f"{len(judged)} verdicts: {predicted - len(failed)} as predicted, {len(failed)} not{below}."
    )


def _command(verdict: Verdict) -> str:
    """The command that makes the verdict again, with all those judged together."""
    together = {each.name: "pagebench judge all" for each in CONTRASTS}
    together |= {each.name: "pagebench selftest" for each in planted_contrasts()}
    return together.get(verdict.contrast, shell("pagebench", "judge", *verdict.cells))


# --- The matrix -----------------------------------------------------------------------------------

MATRIX = (
    "contrast (knob)",
    "A",
    "B",
    "predicted",
    "observed",
    "time B over A",
    "detectable effect",
    "processes",
    "work that changed",
    "what binds B",
)


def _matrix(rows: Sequence[tuple[Asked, Judged | None]]) -> Table:
    shapes = ", ".join(f"{shape}\u00a0{word}" for word, shape in SHAPES.items())
    judged = [each for _, each in rows]
    caption = (
        f"{_error(judged)} Detectable effect: the smallest effect found with 80 % power. What "
        f"binds: the largest term of the critical path T, and the share of B's time that T "
        f"explains. {shapes}; ≠ not as predicted."
    )
    return table_of(
        caption,
        MATRIX,
        [_matrix_row(asked, each) for asked, each in rows],
        classes=list(map(_row_class, judged)),
        gpus=list(map(_gpus, judged)),
    )


def _error(judged: Iterable[Judged | None]) -> str:
    """The error level of the verdicts."""
    levels = {each.verdict.time.error for each in judged if each and each.verdict.time}
    text = " and ".join(f"{100 * level:g} %" for level in sorted(levels))
    return f"Error level: {text} for all contrasts judged together."


def _gpus(judged: Judged | None) -> str:
    return gpus_of(*judged.records) if judged else ""


def _row_class(judged: Judged | None) -> str:
    if judged is None:
        return "not-judged"
    return f"{judged.verdict.word}{' failed' if judged.verdict.failed else ''}"


def _matrix_row(asked: Asked, judged: Judged | None) -> tuple[str, ...]:
    named = f"{asked.name} ({asked.knob})" if asked.name else asked.knob
    columns = (named, *asked.cells, asked.predicts or "")
    if judged is None:
        left = f"not judged: {shell('pagebench', 'judge', asked.name)}"
        return (*columns, left, *[""] * (len(MATRIX) - len(columns) - 1))
    verdict = judged.verdict
    return (*columns, _came(judged), *_time(verdict.time), _moved(verdict.work), _binds(judged))


def _came(judged: Judged) -> str:
    """The word and its caveats; a verdict that failed has its caveats in prose instead."""
    verdict = judged.verdict
    word = f"{SHAPES[verdict.word]} {verdict.word}"
    if verdict.failed:
        return f"{word} ≠{_cause(verdict)}"
    return "; ".join([word + _cause(verdict), *_caveats(judged)])


def _caveats(judged: Judged) -> list[str]:
    """Those of the verdict, and in what the counters of today's page differ from what was judged;
    those of the cell that it used are said once."""
    return list(dict.fromkeys(caveats((*judged.verdict.caveats, *judged.apart))))


def _cause(verdict: Verdict) -> str:
    return f", cause {verdict.cause}" if verdict.cause == "in doubt" else ""


def _time(time: Change | None) -> tuple[str, str, str]:
    if time is None:
        return "no time", "", ""
    return _interval(time), f"{time.detectable:.2%}", str(time.processes)


def _interval(time: Change) -> str:
    return f"{time.ratio:.4f} [{time.low:.4f}, {time.high:.4f}]"


def _moved(work: Work | None) -> str:
    if work is None:
        return "no counters"
    moved = (
        f"{name} {'from zero' if value is None else f'× {value:.4g}'}"
        for name, value in work.changed.items()
    )
    return ", ".join(moved) or "none"


def _binds(judged: Judged) -> str:
    """The binding term, and how much of the time the critical path explains."""
    if judged.path is None:
        return ""
    return f"{sentences.binding(judged.path)}, T {share(judged.path.share)}{_mark(judged)}"


def _mark(judged: Judged) -> str:
    return f" {ANEW}" if judged.anew else ""


# --- Critical paths -------------------------------------------------------------------------------

PATH = (
    "Critical paths of B, us: the time that the counted work alone would take at each measured "
    "ceiling. T is the launch plus the longest other term; if it explains less than 90 % of the "
    "time, latency binds. * from a counter that did not repeat, ^ with a ceiling that may be "
    "higher, ‡ from the unit's busy share of the time without launches."
)


def _paths(judged: Sequence[Judged]) -> tuple[Table, ...]:
    """The time of B's counted work at each ceiling, a row per B; empty if none is known."""
    by_cell = {each.verdict.cells[1]: (each, each.path) for each in judged if each.path}
    if not by_cell:
        return ()
    terms = tuple(dict.fromkeys(name for _, path in by_cell.values() for name in path.terms_us))
    headings = ("B", *terms, "T", "measured", "T / measured", "what binds")
    rows = [
        (cell, *_path_row(path, terms), f"{sentences.binding(path)}{_mark(each)}")
        for cell, (each, path) in by_cell.items()
    ]
    gpus = [gpus_of(*each.records) for each, _ in by_cell.values()]
    return (table_of(PATH, headings, rows, gpus=gpus),)


def _path_row(path: CriticalPath, terms: Sequence[str]) -> tuple[str, ...]:
    us = path.terms_us
    measured = "" if path.time_us is None else f"{path.time_us:.1f}"
    return (
        *(f"{us[name]:.1f}{_marks(path, name)}" if name in us else "unknown" for name in terms),
        f"{path.path_us:.1f}",
        measured,
        share(path.share),
    )


def _marks(path: CriticalPath, name: str) -> str:
    marks = ((" *", path.unstable), (" ^", path.unsaturated), (" ‡", path.by_share))
    return "".join(mark for mark, names in marks if name in names)


# --- What failed its prediction -------------------------------------------------------------------


def _why(judged: Judged) -> str:
    """Why a verdict differs from the prediction, and from the original study's if it does."""
    verdict = judged.verdict
    seen = original.VERDICTS.get(verdict.contrast, verdict.word)
    parts = [
        f"reason for the prediction: {verdict.why}" if verdict.why else "",
        f"in the original study ({original.GPU}) it was `{seen}`" if seen != verdict.word else "",
        f"time × {_interval(verdict.time)}" if verdict.time else "",
        f"work that changed: {_moved(verdict.work)}",
        sentences.from_knob_line(verdict.work) if verdict.work else "",
        *_caveats(judged),
        f"what binds: {_binds(judged)}" if judged.path else "",
    ]
    said = "; ".join(filter(None, parts))
    name = verdict.contrast or verdict.knob
    head = f"{arrow(verdict.cells)} ({name}): **{sentences.headline(verdict)}**."
    return f"{head} {said[:1].upper()}{said[1:]}."
