"""Sentences that schema 1 of verdicts and doses held, read into data. No other code reads prose."""

from __future__ import annotations

import re
from collections.abc import Callable

from pagebench.harness.records.base import Json

# Sentences that repeat other fields of the same record.
REPEATED = re.compile(
    r"time x |no stable counter moved|work moved: |as predicted from layout|what binds: "
)
OPPOSITE = r"(?P<predicted>the predicted work|work) and the time moved in opposite directions"
CAVEATS = {
    r"a process was lost: (?P<status>\w+): (?P<reason>.*)": "lost process",
    r"throttled: (?P<reasons>.*)": "throttled",
    r"SM clock moved (?P<low_mhz>\d+) to (?P<high_mhz>\d+) MHz": "clock moved",
    r"(?P<processes>\d+) other process(es)? on the GPU": "others on the GPU",
    r"no time: (?P<status>\w+): (?P<reason>.*)": "no time",
    r"the call lasts (?P<floors>[\d.]+) floors of its clock": "short call",
    r"no counters of both cells.*": "no counters",
    r"no counter of both cells repeated": "nothing repeats",
    r"the interval of the time ratio is too wide": "wide interval",
    r"(?P<differs>.*) differ, and no prediction gives the work's ratio": "other binary",
    r"another (?P<differs>.*), and no prediction gives the work's ratio": "other binary",
    OPPOSITE: "opposite ways",
}
READ: dict[str, Callable[[str], object]] = {
    "reasons": lambda text: text.split(", "),
    "differs": lambda text: text.split(", "),
    "predicted": lambda text: text == "the predicted work",
    "floors": float,
    "low_mhz": int,
    "high_mhz": int,
    "processes": int,
}
OF_TIMING = ("lost process", "throttled", "clock moved", "others on the GPU")


def caveats_of(sentences: list[str]) -> list[Json]:
    """Caveats for a record; ValueError for a sentence that schema 1 never had."""
    return [_caveat(text) for text in sentences if not REPEATED.match(text)]


def timing_caveats(sentences: list[str]) -> list[Json]:
    """Caveats about the timing only; ValueError as from `caveats_of`."""
    return [found for found in caveats_of(sentences) if found["caveat"] in OF_TIMING]


def _caveat(text: str) -> Json:
    for pattern, tag in CAVEATS.items():
        if match := re.fullmatch(pattern, text, re.DOTALL):
            fields = {name: READ.get(name, str)(value) for name, value in match.groupdict().items()}
            return {"caveat": tag} | fields
    raise ValueError(f"schema 1 has no such sentence: {text}")
