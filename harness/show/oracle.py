"""Records of the oracle as rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pagebench.harness.records.base import Json
from pagebench.harness.records.codec import to_json
from pagebench.harness.records.oracle import Oracle
from pagebench.harness.records.timing import QUESTIONS

HEADINGS = ("cell", "must be", "found", "as it must", "ended", "by which question")


def rows(found: Iterable[Oracle]) -> list[tuple[str, ...]]:
    """One row for each record: how many of its runs were found wrong, and by which question."""
    return [_row(each) for each in found]


def _row(each: Oracle) -> tuple[str, ...]:
    verdict = {True: "yes", False: "NO", None: ""}[each.is_as_expected]
    return (
        each.cell,
        each.expected or "",
        f"{each.found} of {len(each.runs)}",
        verdict,
        _counted(run.status for run in each.runs),
        _counted(_asked(run.failed) for run in each.runs if run.failed),
    )


def _asked(question: str) -> str:
    return QUESTIONS.get(question, question)


def _counted(words: Iterable[str]) -> str:
    """`random query 17, zero query 3`, the most frequent first."""
    return ", ".join(f"{word} {count}" for word, count in Counter(words).most_common())


def oracle_json(each: Oracle) -> Json:
    """The record, with how many runs were found wrong, and whether that is as it must be."""
    return to_json(each) | {"found": each.found, "as_expected": each.is_as_expected}
