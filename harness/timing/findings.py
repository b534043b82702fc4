"""What is found about a cell before it is timed, and how that may end early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import cast

from pagebench.harness.errors import one_line
from pagebench.harness.records.base import Resolved
from pagebench.harness.records.timing import Check, Layout, Predicted
from pagebench.harness.timing.clocks.sampling import NotEnclosed
from pagebench.harness.timing.code import NOT_TOLD, Code


@dataclass(frozen=True, slots=True)
class Findings:
    """What a record has besides times; None or empty where the cell ended earlier.

    `resolved` is what the adapter reports that it chose; its keys are the adapter's own. `code` is
    the hash of what ran.
    """

    predicted: Predicted | None = None
    layout: Layout | None = None
    resolved: Resolved = field(default_factory=dict)
    check: Check | None = None
    code: Code = NOT_TOLD

    def with_code(self, code: Code) -> Findings:
        """With the code, and what it says of local memory where the adapter does not."""
        return replace(self, code=code, resolved={**code.local, **self.resolved})

    def over(self, earlier: Findings) -> Findings:
        """These findings; the earlier ones fill those that are missing."""
        return Findings(
            self.predicted or earlier.predicted,
            self.layout or earlier.layout,
            self.resolved or earlier.resolved,
            self.check or earlier.check,
            earlier.code if self.code == NOT_TOLD else self.code,
        )


NOTHING = Findings()


class Failure(Exception):
    """A cell that ends without a time: its status, the reason, and what was found before."""

    def __init__(self, status: str, reason: str, findings: Findings = NOTHING) -> None:
        super().__init__(reason)
        self.status, self.reason, self.findings = status, reason, findings


def failure_of(error: Exception, found: Findings) -> Failure:
    """How a cell ended, with what was found before. Any error but a Failure, or a call outside what
    its clock brackets, is a crash."""
    if isinstance(error, Failure):
        return Failure(error.status, error.reason, error.findings.over(found))
    status = "rejected" if isinstance(error, NotEnclosed) else "crashed"
    return Failure(status, one_line(error), found)


def recordable(resolved: Mapping[str, object]) -> Resolved:
    """What an adapter resolved, as a record holds it: plain numbers and words stay, anything else
    (None, a list, a tensor, a NaN) becomes its text."""
    return {str(name): _plain(value) for name, value in resolved.items()}


def _plain(value: object) -> str | int | float | bool:
    is_plain = type(value) in (str, int, float, bool)
    if is_plain and not (isinstance(value, float) and not isfinite(value)):
        return cast("str | int | float | bool", value)
    return str(value)
