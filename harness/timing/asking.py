"""One question: a query is put, the call is made, and what it wrote is read in stream order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from pagebench.harness.timing.kept import Kept
from pagebench.harness.timing.needles import Needles
from pagebench.harness.timing.oracle import errors
from pagebench.kernels.adapter import Call
from pagebench.layouts.tensors import Batch

if TYPE_CHECKING:
    from torch import Tensor

MISSED = 0.5  # a head this close to a value that it must not find has found it
HELD_TIMES = 3.0  # a stream is held longer than the host last took to queue a question
LEAST_HELD_US, MOST_HELD_US = 100.0, 20_000.0
CYCLES_PER_US = 2_000  # of a clock that no GPU exceeds by half


@dataclass(slots=True)
class Asker:
    """Asks a planned call of a batch; Failure, through `kept`, where an answer cannot be true."""

    batch: Batch
    call: Call
    synchronise: Callable[[], None]
    kept: Kept
    _queued_us: float = 0.0

    def ask(
        self,
        run: Callable[[], object],
        q: Tensor,
        when: str,
        *,
        held: bool = False,
        overflow: str | None = None,
    ) -> Tensor:  # float32 [batch, q_heads, head_dim]
        """The output for a query. `overflow` is the question that a NaN fails where scores are so
        far apart that it comes from them.

        Query, output and answer are in the order of the current stream. `held` keeps that stream
        busy until all is queued: then work on another stream that does not wait for it finds the
        earlier query, and work that it does not wait for is not in the answer yet.
        """
        assert self.batch.q is not None
        assert self.call.out is not None
        if held:
            self._hold()
        began = perf_counter()
        self.batch.q.copy_(q)
        self.call.out.fill_(float("inf"))
        run()
        self._queued_us = 1e6 * (perf_counter() - began)
        answer = self.call.out.float()
        self.refuse_unreal(q, when, overflow)
        self.synchronise()
        return answer

    def _hold(self) -> None:
        import torch

        if self.batch.device.type == "cuda":
            held_us = min(max(HELD_TIMES * self._queued_us, LEAST_HELD_US), MOST_HELD_US)
            cuda: Any = torch.cuda
            cuda._sleep(int(held_us * CYCLES_PER_US))

    def refuse_unreal(self, q: Tensor, when: str, overflow: str | None = None) -> None:
        """Failure for an output that is not written or is NaN, and for a query that is no longer
        `q`: the next question would hide that. All in one wait for the stream."""
        import torch

        assert self.batch.q is not None
        assert self.call.out is not None
        out = self.call.out
        flags = (out.isfinite().all(), out.isinf().any(), (self.batch.q == q).all())
        finite, infinite, same = torch.stack(flags).tolist()
        if infinite:
            self.kept.fail("written", f"{when}, some of the output was not written")
        if not finite and overflow:
            self.kept.fail(overflow, f"{when}, the output has NaN: a number overflowed")
        if not finite:
            poison = "the output has NaN: the kernel read memory that no request owns"
            self.kept.fail("poison", f"{when}, {poison}", "poisoned")
        if not same:
            self.kept.fail("inputs", f"{when}, the call changed its inputs: query")

    def hit(self, run: Callable[[], object], when: str, needles: Needles) -> None:
        """Each needle must find its token."""
        self._find(run, when, needles, "needle")

    def only(self, run: Callable[[], object], when: str, needles: Needles) -> None:
        """The one token that each request has is found, whatever its score."""
        times = float(np.abs(needles.aim.times).max())
        what = f"{when}, with one token and queries of {times:g} needles"
        self._find(run, what, needles, "one token", "one token" if times > 1 else None)

    def _find(
        self,
        run: Callable[[], object],
        when: str,
        needles: Needles,
        question: str,
        overflow: str | None = None,
    ) -> None:
        answer = self.ask(run, needles.q, when, overflow=overflow)
        error = errors(answer, needles.value, needles.sure)
        worst, limit = float(error.max()), self.kept.tolerance.random
        self.kept.keep("error_needles", worst)
        if worst <= limit:
            return
        request, head = np.unravel_index(int(error.argmax()), error.shape)
        token = needles.aim.position[request, head]
        missed = (
            f"{when}, head {head} of request {request} does not read token {token}, or not alone: "
            f"a query that only it answers gives an error of {worst:.3g} (at most {limit:g})"
        )
        self.kept.fail(question, missed)

    def miss(self, run: Callable[[], object], what: str, needles: Needles) -> None:
        """No needle may find its token: the request does not have it."""
        answer = self.ask(run, needles.q, what)
        near = errors(answer, needles.value).masked_fill(~needles.sure, 1.0)
        if bool((near < MISSED).any()):
            request, head = np.unravel_index(int(near.argmin()), near.shape)
            self.kept.fail("beyond", f"{what} is read by head {head} of request {request}")
