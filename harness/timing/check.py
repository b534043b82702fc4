"""Is the output right? Asks a call what is known, before, while and after it is timed.

`docs/measuring.md` lists the questions and what they were shown to find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from pagebench.harness.records.timing import Check
from pagebench.harness.timing.findings import Failure
from pagebench.harness.timing.guards import Inputs, canaries
from pagebench.harness.timing.kept import Kept
from pagebench.harness.timing.needles import Needles, Targets, aim
from pagebench.harness.timing.oracle import (
    Answers,
    Question,
    borrowed,
    drawn_requests,
    errors,
    mixed,
    shorter_lengths,
)
from pagebench.harness.timing.watch import Watch
from pagebench.kernels.adapter import Call, Tolerance
from pagebench.layouts.tensors import Batch, queries

if TYPE_CHECKING:
    from torch import Tensor

OTHER_Q_STREAM = 9
ROUNDS_AFTER = 2  # rounds of random needles after timing, and for shorter contexts
EXTREME = 6.0  # times a needle's score, at least 204: e to that is no float32
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
    _kept: Kept = field(init=False)
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
        self._kept = Kept.nothing(self.tolerance, self._answers)

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
        self._kept.note("error_after", "after timing", answered)
        if self.watch.worst is not None:
            self._kept.note("error_timed", "while it was timed", float(self.watch.worst))
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
        return self._kept.so_far

    def _compare(self, run: Callable[[], object], when: str) -> None:
        """Random, other and zero queries against the reference."""
        asked = [Question(name, self._q[name]) for name in ("random", "other", "zero")]
        got = {each.name: self._ask(run, each.q, when) for each in asked}
        shorter = Question("shorter", self._q["other"], shorter_lengths(self.batch))
        unread = self._answers.work_out([*asked, shorter], got["zero"])
        moment = "error_after" if when.startswith("after") else "error_before"
        for name in ("random", "other"):
            found = errors(got[name], self._answers.expected[name])
            self._kept.note(moment, when, found)
            self._kept.note_typical(when, found)
        zero = errors(got["zero"], self._answers.expected["zero"])
        self._kept.note("error_zero", f"{when}, with a zero query", zero, limit=self.tolerance.zero)
        if unread:
            self._kept.fail("weights", f"{when}, {unread}")
        self._ask_mixed(run, when, moment)
        self._ask_borrowed(run, when)

    def _ask_mixed(self, run: Callable[[], object], when: str, moment: str) -> None:
        """Every second request, then every second head, has the other query: the answer is known,
        and what is remembered by a part of the query is wrong."""
        for axis in (0, 1):
            q = mixed(self._q["random"], self._q["other"], axis, self._answers.every)
            got, known = self._ask(run, q, when), self._answers.expected
            expected = mixed(known["random"], known["other"], axis, self._answers.index)
            self._kept.note(moment, f"{when}, with two queries mixed", errors(got, expected))

    def _ask_borrowed(self, run: Callable[[], object], when: str) -> None:
        """Each request answers in the place of another: also those that are not compared."""
        answers, lengths = self._answers, self.batch.table.lengths
        if len(answers.requests) == len(lengths):
            return
        at = borrowed(lengths, answers.requests)
        rows = np.asarray(answers.requests)[at]
        self.call.replan(self.batch.borrowing(rows))
        out = self._ask(run, self._q["random"][rows], when, every=True)
        self.call.replan(self.batch)
        found = errors(out, answers.expected["random"][at])
        request, head = np.unravel_index(int(found.argmax()), found.shape)
        place = f"request {request}, head {head}, in the place of request {rows[request]}"
        self._kept.note("error_replanned", f"{when}, {place}", float(found.max()))

    def _ask_shorter(self, run: Callable[[], object], when: str) -> None:
        """Other lengths through the same plan: another query, needles, and tokens past the end."""
        batch = self.batch.with_lengths(shorter_lengths(self.batch))
        self.call.replan(batch)
        got = self._ask(run, self._q["other"], when)
        moment = f"{when}, planned for other lengths"
        self._kept.note("error_replanned", moment, errors(got, self._answers.expected["shorter"]))
        targets = Targets(batch, self._targets.splits)
        self._find(run, when, targets, ROUNDS_AFTER, edges=True)
        self._miss(run, when, batch, targets)

    def _ask_one_token(self, run: Callable[[], object], when: str) -> None:
        """One token, with a query that points away from it: any other weight would show. Then far
        away and far towards it: a maximum that is not taken off would show."""
        shape = self.batch.shape
        one = self.batch.with_lengths(np.ones(shape.batch, np.int64))
        self.call.replan(one)
        owner = np.repeat(np.arange(shape.batch)[:, None], shape.q_heads, axis=1)
        for times in (-1.0, -EXTREME, EXTREME):
            asked = aim(one, owner, 0 * owner, times)
            try:
                self._hit(run, f"{when}, with one token", asked, question="one token")
            except Failure as failure:
                if failure.status == "poisoned" and times != -1.0:
                    nan = f"with one token and a query of {times:g} needles the output has NaN"
                    self._kept.fail("one token", f"{when}, {nan}: a number overflowed")
                raise

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
        self._kept.keep("error_needles", worst)
        if worst <= limit:
            return
        at = np.unravel_index(int(error.argmax()), error.shape)
        token = 0 if position is None else int(position[at])
        missed = (
            f"{when}, head {at[1]} of request {at[0]} does not read token {token}, or not alone: a "
            f"query that only it answers gives an error of {worst:.3g} (at most {limit:g})"
        )
        self._kept.fail(question, missed)

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
            self._kept.fail("beyond", f"{what} is read by head {head} of request {request}")

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
        self._refuse_unreal(self.watch.standing, when)
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
            self._kept.fail("written", f"{when}, some of the output was not written")
        if not finite:
            poison = "the output has NaN: the kernel read memory that no request owns"
            self._kept.fail("poison", f"{when}, {poison}", "poisoned")
        if not same:
            self._kept.fail("inputs", f"{when}, the call changed its inputs: query")

    # --- Planning ---

    def after_planning(self) -> Check:
        """The last timed plan must be the cell's: compare a call by it, then ask again."""
        got = self._ask(self.call.run, self._q["random"], "after planning")
        self._kept.note(
            "error_after", "after planning", errors(got, self._answers.expected["random"])
        )
        return self._asked(self.call.run, "after planning", ROUNDS_AFTER)

    def _refuse_damage(self, when: str) -> None:
        changed = self._inputs.changed()
        if changed:
            self._kept.fail("inputs", f"{when}, the call changed its inputs: {', '.join(changed)}")
        whole = canaries(self.call)
        self._kept.so_far = replace(self._kept.so_far, canaries=whole)
        if whole is False:
            self._kept.fail("canaries", f"{when}, the call wrote beside its output")
