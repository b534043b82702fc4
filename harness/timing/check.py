"""Is the output right? Compares a call's output with the oracle's, before and after timing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from pagebench.harness.records.timing import Check
from pagebench.harness.timing.findings import Failure, Findings
from pagebench.kernels.adapter import Call
from pagebench.kernels.reference import expected_output
from pagebench.layouts.counter_hash import hash_numpy
from pagebench.layouts.tensors import Batch

if TYPE_CHECKING:
    from torch import Tensor

# Largest relative error, |out - ref| / |ref| over one request's output, that rounding explains.
# A 16-bit output is off by 0.2 to 0.4 %; XQA and fa2 also round probabilities to the KV type.
TOLERANCE = {"bf16": 0.01, "fp16": 0.005, "e4m3": 0.05}
CHECKED_TOKENS = {"cuda": 2**20, "cpu": 2**16}  # tokens whose requests the oracle recomputes
FRESHNESS_STREAM = 7
FRESHNESS_REQUESTS = 4


class Checker:
    """Compares a call's output with the oracle's, on requests drawn once.

    Each check returns the errors found so far; on a wrong output it raises Failure with them.
    """

    def __init__(self, batch: Batch, call: Call, synchronise: Callable[[], None]) -> None:
        self._batch, self._call, self._synchronise = batch, call, synchronise
        self._requests = _draw_requests(batch)
        self._expected: Tensor | None = None
        self._so_far = Check(
            tolerance=TOLERANCE[batch.shape.dtype],
            requests=len(self._requests),
            of_requests=batch.shape.batch,
        )

    def planner(self) -> Callable[[], object]:
        """A function that plans the call again for the same lengths."""
        return lambda: self._call.replan(self._batch)

    def forget_output(self) -> None:
        """Fill the output with infinity: what the call does not write stays infinite."""
        assert self._call.out is not None
        self._call.out.fill_(float("inf"))

    def before(self) -> Check:
        """Run the call once and compare."""
        self.forget_output()
        self._call.run()
        error, wrong = self._compared("before")
        return self._with(replace(self._so_far, error_before=error), wrong)

    def after(self) -> Check:
        """Compare the output of the last timed call."""
        error, wrong = self._compared("after")
        return self._with(replace(self._so_far, error_after=error), wrong)

    def fresh(self, replay: Callable[[], object]) -> Check:
        """A captured graph must answer for the newest plan: new lengths, plan, replay, compare."""
        batch = self._batch
        shorter = batch.with_lengths(_shorter(batch))
        requests = self._requests[:FRESHNESS_REQUESTS]
        self._call.replan(shorter)
        self.forget_output()
        replay()
        self._synchronise()
        error, _ = self._error(requests, expected_output(shorter, requests))
        self._call.replan(batch)
        stale = not error <= self._so_far.tolerance
        wrong = "the captured graph does not follow a newer plan" if stale else None
        return self._with(replace(self._so_far, error_replanned=round(error, 6)), wrong)

    def _with(self, check: Check, wrong: str | None) -> Check:
        self._so_far = check
        if wrong:
            raise Failure("wrong", wrong, Findings(check=check))
        return check

    def _compared(self, when: str) -> tuple[float, str | None]:
        """The largest relative error, and what is wrong; None if it is within the tolerance."""
        self._synchronise()
        self._refuse_unreal(when)
        if self._expected is None:
            self._expected = expected_output(self._batch, self._requests)
        error, request = self._error(self._requests, self._expected)
        if error <= self._so_far.tolerance:
            return round(error, 6), None
        return round(error, 6), (
            f"{when} timing, the output of request {request} has a relative error of {error:.3g} "
            f"(at most {self._so_far.tolerance:g})"
        )

    def _refuse_unreal(self, when: str) -> None:
        out, found = self._call.out, Findings(check=self._so_far)
        assert out is not None
        if bool(out.isinf().any()):
            raise Failure("wrong", f"{when} timing, some of the output was not written", found)
        if bool(out.isnan().any()):
            poison = "the output has NaN: the kernel read memory that no request owns"
            raise Failure("poisoned", f"{when} timing, {poison}", found)

    def _error(self, requests: list[int], expected: Tensor) -> tuple[float, int]:
        """The largest relative error, and the number of its request."""
        assert self._call.out is not None
        difference = self._call.out[requests].float() - expected
        worst, at = (difference.norm(dim=(1, 2)) / expected.norm(dim=(1, 2))).max(0)
        return float(worst), requests[int(at)]


def _draw_requests(batch: Batch) -> list[int]:
    """Whole requests in random order until the oracle's budget of tokens is spent; at least one."""
    budget = CHECKED_TOKENS[batch.device.type]
    order = np.random.default_rng().permutation(batch.shape.batch)
    spent = np.cumsum(batch.table.lengths[order])
    return [int(request) for request in order[: max(1, int((spent <= budget).sum()))]]


def _shorter(batch: Batch) -> np.ndarray:  # int64 [batch]
    """Lengths from half of each request's up to one token less than its own; at least 1."""
    lengths = batch.table.lengths
    draws = hash_numpy(batch.shape.seed, FRESHNESS_STREAM, np.arange(len(lengths)))
    less = 1 + (draws % np.maximum(lengths // 2, 1).astype(np.uint64)).astype(np.int64)
    shorter: np.ndarray = np.maximum(lengths - less, 1)
    return shorter
