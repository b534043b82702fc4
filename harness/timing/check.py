"""Is the output right? Asks a call what is known, before, while and after it is timed.

`docs/measuring.md` lists the questions and what they were shown to find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from msgspec.structs import replace

from pagebench.harness.records.timing import ASKED_AT, Check
from pagebench.harness.timing.findings import Failure, Findings
from pagebench.harness.timing.guards import Inputs, canaries
from pagebench.harness.timing.needles import Needles, Targets, aim
from pagebench.harness.timing.oracle import (
    Answers,
    Question,
    drawn_requests,
    errors,
    shorter_lengths,
)
from pagebench.harness.timing.watch import Watch
from pagebench.kernels.adapter import Call, Tolerance
from pagebench.layouts.tensors import Batch, queries

if TYPE_CHECKING:
    from torch import Tensor

OTHER_Q_STREAM = 9
ROUNDS_AFTER = 2  # rounds of random needles after timing, and for shorter contexts
MANY_HEADS = 8  # a median of fewer says little
MISSED = 0.5  # a head this close to a value that it must not find has found it


@dataclass(slots=True)
class Checker:
    """Asks a planned call, and keeps what was found; on a wrong answer it raises Failure with it.

    After `before`, `again` and `after` the plan and the query are those of the cell.
    """

    batch: Batch
    call: Call
    synchronise: Callable[[], None]
    tolerance: Tolerance
    _answers: Answers = field(init=False)
    _inputs: Inputs = field(init=False)
    _q: dict[str, Tensor] = field(init=False)
    _so_far: Check = field(init=False)
    watch: Watch = field(init=False)
    _round: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        batch, device = self.batch, self.batch.device
        assert batch.q is not None
        requests = drawn_requests(batch)
        other = queries(batch.shape, device, OTHER_Q_STREAM)
        self._q = {"random": batch.q.clone(), "other": other, "zero": batch.q * 0}
        self._answers = Answers(batch, requests)
        self.watch = Watch(self.call, batch, self._q, self._answers, self.synchronise)
        self._inputs = Inputs(batch)
        self._so_far = Check(
            tolerance=self.tolerance.random,
            tolerance_zero=self.tolerance.zero,
            tolerance_typical=self.tolerance.typical,
            requests=len(requests),
            of_requests=batch.shape.batch,
        )

    # --- Before and after timing ---

    def before(self) -> Check:
        """Everything that can be asked, by plain calls."""
        return self._asked(self.call.run, "before timing", self._targets.rounds)

    def again(self, replay: Callable[[], object]) -> Check:
        """The same of a captured graph, which must answer for the newest plan and query."""
        return self._asked(replay, "by the captured graph", self._targets.rounds)

    def after(self, run: Callable[[], object] | None = None) -> Check:
        """The output of the last timed call, what was seen while timing, and questions again."""
        self.synchronise()
        answered = self._error(self.watch.asked, "after timing")
        self._note("error_after", "after timing", answered)
        if self.watch.worst is not None:
            self._note("error_timed", "while it was timed", float(self.watch.worst))
        return self._asked(run or self.call.run, "after timing", ROUNDS_AFTER)

    @property
    def _targets(self) -> Targets:
        splits = self.call.resolved.get("splits", 1)
        return Targets(self.batch, splits if isinstance(splits, int) and splits > 0 else 1)

    def _asked(self, run: Callable[[], object], when: str, rounds: int) -> Check:
        edges = rounds > ROUNDS_AFTER
        try:
            self._compare(run, when)
            self._find(run, when, self._targets, rounds, edges)
            self._ask_shorter(run, when)
            self._ask_one_token(run, when)
        finally:
            self.call.replan(self.batch)
            self.watch.put("random")
        self._refuse_damage(when)
        return self._so_far

    def _compare(self, run: Callable[[], object], when: str) -> None:
        """Random, other and zero queries against the reference."""
        asked = [Question(name, self._q[name]) for name in ("random", "other", "zero")]
        got = {each.name: self._ask(run, each.q, when) for each in asked}
        shorter = Question("shorter", self._q["other"], shorter_lengths(self.batch))
        unread = self._answers.work_out([*asked, shorter], got["zero"])
        moment = "error_after" if when.startswith("after") else "error_before"
        for name in ("random", "other"):
            found = errors(got[name], self._answers.expected[name])
            self._note(moment, when, found)
            self._note_typical(when, found)
        zero = errors(got["zero"], self._answers.expected["zero"])
        self._note("error_zero", f"{when}, with a zero query", zero, limit=self.tolerance.zero)
        if unread:
            self._fail("weights", f"{when}, {unread}")

    def _ask_shorter(self, run: Callable[[], object], when: str) -> None:
        """Other lengths through the same plan: another query, needles, and tokens past the end."""
        batch = self.batch.with_lengths(shorter_lengths(self.batch))
        self.call.replan(batch)
        got = self._ask(run, self._q["other"], when)
        moment = f"{when}, planned for other lengths"
        self._note("error_replanned", moment, errors(got, self._answers.expected["shorter"]))
        targets = Targets(batch, self._targets.splits)
        self._find(run, when, targets, ROUNDS_AFTER, edges=True)
        self._miss(run, when, batch, targets)

    def _ask_one_token(self, run: Callable[[], object], when: str) -> None:
        """One token, with a query that points away from it: any other weight would show."""
        shape = self.batch.shape
        one = self.batch.with_lengths(np.ones(shape.batch, np.int64))
        self.call.replan(one)
        owner = np.repeat(np.arange(shape.batch)[:, None], shape.q_heads, axis=1)
        away = aim(one, owner, 0 * owner, sign=-1.0)
        self._hit(run, f"{when}, with one token", away, question="one token")

    # --- Needles ---

    def _find(
        self, run: Callable[[], object], when: str, targets: Targets, rounds: int, edges: bool
    ) -> None:
        numbers = [number if edges else self._next() for number in range(rounds)]
        aims = [targets.own(number, edges=edges) for number in numbers]
        owner, positions = (np.concatenate(each) for each in zip(*aims, strict=True))
        needles = aim(targets.batch, owner, positions)
        for each, (_, position) in zip(needles.rounds(self.batch.shape.batch), aims, strict=True):
            self._hit(run, when, each, position)

    def _next(self) -> int:
        """A number of random needles that was not used before."""
        self._round += 1
        return 1000 + self._round

    def _hit(
        self,
        run: Callable[[], object],
        when: str,
        needles: Needles,
        position: np.ndarray | None = None,
        question: str = "needle",
    ) -> None:
        out = self._ask(run, needles.q, when, every=True)
        error = errors(out, needles.value, needles.sure)
        worst, limit = float(error.max()), self.tolerance.random
        self._keep("error_needles", worst)
        if worst <= limit:
            return
        at = np.unravel_index(int(error.argmax()), error.shape)
        token = 0 if position is None else int(position[at])
        missed = (
            f"{when}, head {at[1]} of request {at[0]} does not read token {token}, or not alone: a "
            f"query that only it answers gives an error of {worst:.3g} (at most {limit:g})"
        )
        self._fail(question, missed)

    def _miss(self, run: Callable[[], object], when: str, batch: Batch, targets: Targets) -> None:
        """Needles at tokens that a request does not have must find nothing."""
        lengths = batch.table.lengths
        beyond = np.broadcast_to(lengths[:, None], (len(lengths), batch.shape.q_heads))
        exists = (self.batch.table.lengths > lengths)[:, None] & (beyond >= 0)
        owner = np.broadcast_to(np.arange(len(lengths))[:, None], beyond.shape)
        self._miss_at(run, f"{when}, a token past its end", (owner, beyond, exists))
        if len(lengths) > 1:
            self._miss_at(run, f"{when}, a token of another request", targets.others(self._next()))

    def _miss_at(
        self,
        run: Callable[[], object],
        what: str,
        at: tuple[np.ndarray, np.ndarray, np.ndarray],
    ) -> None:
        import torch

        owner, position, exists = at
        needles = aim(self.batch, owner, np.where(exists, position, 0))
        sure = needles.sure & torch.from_numpy(exists).to(needles.sure.device)
        out = self._ask(run, needles.q, what, every=True)
        near = errors(out, needles.value).masked_fill(~sure, 1.0)
        if bool((near < MISSED).any()):
            request, head = np.unravel_index(int(near.argmin()), near.shape)
            self._fail("beyond", f"{what} is read by head {head} of request {request}")

    # --- One question ---

    def _ask(
        self, run: Callable[[], object], q: Tensor, when: str, *, every: bool = False
    ) -> Tensor:
        """The output for a query, float32: of every request, or of those that are compared."""
        assert self.batch.q is not None
        self.batch.q.copy_(q)
        self.watch.forget_output()
        run()
        self.synchronise()
        self._refuse_unreal(q, when)
        assert self.call.out is not None
        return (self.call.out if every else self.call.out[self._answers.index]).float()

    def _error(self, name: str, when: str) -> Tensor:
        """Errors of the output that stands there now."""
        self._refuse_unreal(self._q[name], when)
        assert self.call.out is not None
        return errors(self.call.out[self._answers.index].float(), self._answers.expected[name])

    def _refuse_unreal(self, q: Tensor, when: str) -> None:
        """Failure for an output that is not written or is NaN, and for a query that is no longer
        `q`: the next question would hide that. All in one wait for the device."""
        import torch

        assert self.batch.q is not None
        assert self.call.out is not None
        out = self.call.out
        flags = (out.isfinite().all(), out.isinf().any(), (self.batch.q == q).all())
        finite, infinite, same = torch.stack(flags).tolist()
        if infinite:
            self._fail("written", f"{when}, some of the output was not written")
        if not finite:
            poison = "the output has NaN: the kernel read memory that no request owns"
            self._fail("poison", f"{when}, {poison}", "poisoned")
        if not same:
            self._fail("inputs", f"{when}, the call changed its inputs: query")

    # --- Planning ---

    def after_planning(self) -> Check:
        """The last timed plan must be the cell's: compare a call by it, then ask again."""
        got = self._ask(self.call.run, self._q["random"], "after planning")
        self._note("error_after", "after planning", errors(got, self._answers.expected["random"]))
        return self._asked(self.call.run, "after planning", ROUNDS_AFTER)

    # --- What is kept ---

    def _note(self, moment: str, when: str, found: Tensor | float, limit: float = 0.0) -> None:
        """Keep the largest error of a moment; Failure where it is above its limit."""
        limit = limit or self.tolerance.random
        worst = found if isinstance(found, float) else float(found.max())
        where = "" if isinstance(found, float) else self._answers.place(found)
        self._keep(moment, worst)
        if not worst <= limit:
            wrong = f"the output{where} has a relative error of {worst:.3g} (at most {limit:g})"
            self._fail(ASKED_AT[moment], f"{when}, {wrong}")

    def _note_typical(self, when: str, found: Tensor) -> None:
        """The same of the median head: a softmax that is off a little is off in every head."""
        limit, heads = self.tolerance.typical, found.numel()
        if limit is None or heads < MANY_HEADS:
            return
        middle = float(found.median())
        self._keep("error_typical", middle)
        if not middle <= limit:
            wrong = f"half of {heads} heads have a relative error of {middle:.3g} or more"
            self._fail("typical", f"{when}, {wrong} (at most {limit:g})")

    def _keep(self, moment: str, worst: float) -> None:
        before = getattr(self._so_far, moment)
        error = round(worst if before is None else max(worst, before), 6)
        self._so_far = replace(self._so_far, **{moment: error})

    def _refuse_damage(self, when: str) -> None:
        changed = self._inputs.changed()
        if changed:
            self._fail("inputs", f"{when}, the call changed its inputs: {', '.join(changed)}")
        whole = canaries(self.call)
        self._so_far = replace(self._so_far, canaries=whole)
        if whole is False:
            self._fail("canaries", f"{when}, the call wrote beside its output")

    def _fail(self, question: str, reason: str, status: str = "wrong") -> NoReturn:
        found = replace(self._so_far, failed=question)
        raise Failure(status, reason, Findings(check=found))
