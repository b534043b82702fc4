"""The errors that a check keeps, each with its limit, and how a wrong answer ends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from pagebench.harness.records.timing import ASKED_AT, Check
from pagebench.harness.timing.findings import Failure, Findings
from pagebench.harness.timing.oracle import Answers
from pagebench.kernels.adapter import Tolerance

if TYPE_CHECKING:
    from torch import Tensor

MANY_HEADS = 8  # a median of fewer says little


@dataclass(slots=True)
class Kept:
    """What was found so far; Failure with it where an error is above its limit."""

    tolerance: Tolerance
    answers: Answers
    so_far: Check

    @classmethod
    def nothing(cls, tolerance: Tolerance, answers: Answers) -> Kept:
        """Nothing was found yet."""
        so_far = Check(
            tolerance=tolerance.random,
            tolerance_zero=tolerance.zero,
            tolerance_typical=tolerance.typical,
            requests=len(answers.requests),
            of_requests=answers.batch.shape.batch,
        )
        return cls(tolerance, answers, so_far)

    def note(self, moment: str, when: str, found: Tensor | float, limit: float = 0.0) -> None:
        """Keep the largest error of a moment; Failure where it is above its limit."""
        limit = limit or self.tolerance.random
        worst = found if isinstance(found, float) else float(found.max())
        where = "" if isinstance(found, float) else self.answers.place(found)
        self.keep(moment, worst)
        if not worst <= limit:
            wrong = f"the output{where} has a relative error of {worst:.3g} (at most {limit:g})"
            self.fail(ASKED_AT[moment], f"{when}, {wrong}")

    def note_typical(self, when: str, found: Tensor) -> None:
        """The same of the median head: a softmax that is off a little is off in every head."""
        limit, heads = self.tolerance.typical, found.numel()
        if limit is None or heads < MANY_HEADS:
            return
        middle = float(found.median())
        self.keep("error_typical", middle)
        if not middle <= limit:
            wrong = f"half of {heads} heads have a relative error of {middle:.3g} or more"
            self.fail("typical", f"{when}, {wrong} (at most {limit:g})")

    def keep(self, moment: str, worst: float) -> None:
        before = getattr(self.so_far, moment)
        error = round(worst if before is None else max(worst, before), 6)
        self.so_far = replace(self.so_far, **{moment: error})

    def fail(self, question: str, reason: str, status: str = "wrong") -> NoReturn:
        found = replace(self.so_far, failed=question)
        raise Failure(status, reason, Findings(check=found))
