"""Conclusions are data: each text in one is a word of a vocabulary, a name, or why it was asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import asdict

from fakes import H200, RESULTS
from pagebench.harness.cell import Cell
from pagebench.harness.judging.work import OF_LAYOUT, WORK
from pagebench.harness.records import store
from pagebench.harness.records.attack import SCALING_WORDS, SWITCHING_WORDS, Attack
from pagebench.harness.records.caveats import LostProcess, NoTime, Throttled
from pagebench.harness.records.dose import Dose
from pagebench.harness.records.planted import Planted
from pagebench.harness.records.timing import STATUSES
from pagebench.harness.records.verdict import CAUSES, WORDS, SameBinary, Verdict
from pagebench.profiles.ceilings import LATENCY, TERMS

SAID_BY_OTHERS = (LostProcess, NoTime, Throttled)  # reasons of a machine, whatever they are
FREE = ("environment", "written", "why")
TERM_NAMES = {"launch", "DRAM", LATENCY, *(term for term, *_ in TERMS)}
VOCABULARY = {
    *WORDS,
    *CAUSES,
    *STATUSES,
    *SCALING_WORDS,
    *SWITCHING_WORDS,
    *("changed", "same", "context", "kernel"),
    *WORK,
    *OF_LAYOUT,
    *SameBinary.__struct_fields__,
    *TERM_NAMES,
}
CONCLUSIONS = (Verdict, Dose, Attack, Planted)


def texts(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a conclusion, with the field that it stands in."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from texts(key, name)
            yield from texts(each, name)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from texts(each, name)
    elif hasattr(value, "__struct_fields__") and not isinstance(value, SAID_BY_OTHERS):
        for field in value.__struct_fields__:
            yield from texts(getattr(value, field), field)
    elif hasattr(value, "__dataclass_fields__"):
        for field in value.__dataclass_fields__:
            yield from texts(getattr(value, field), field)


def is_knob(name: str) -> bool:
    """Axes of a cell in words, or the axis that a placement is of."""
    axes = {axis.replace("_", " ") for axis in asdict(Cell.parse("xqa_shared_p16").axes())}
    return set(name.split(", ")) <= axes | {"nothing", "allocation unit"}


@pytest.mark.skipif(not H200.exists(), reason="the records are not installed")
@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.jsonl")), ids=lambda path: path.name)
def test_a_conclusion_holds_no_sentence(path: Path) -> None:
    for record in (each for _, each in store.read([path], *CONCLUSIONS).lines):
        for field in record.__struct_fields__:
            for name, text in texts(getattr(record, field), field) if field not in FREE else ():
                check(name, text)


def check(name: str, text: str) -> None:
    if name in ("cell", "cells"):
        assert Cell.parse(text).name == text
    elif name == "knob":
        assert is_knob(text), text
    elif name in ("contrast", "regime", "values"):
        assert len(text.split()) <= 4, text  # a name, and a value of the knob
    else:
        assert text in VOCABULARY, (name, text)
