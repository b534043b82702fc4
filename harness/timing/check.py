"""Is the output right? Asks a call what is known, before, while and after it is timed.

`docs/measuring.md` lists the questions and what they were shown to find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from pagebench.harness.records.timing import Check
from pagebench.harness.timing import known
from pagebench.harness.timing.asking import Asker
from pagebench.harness.timing.guards import Inputs, canaries
from pagebench.harness.timing.kept import Kept
from pagebench.harness.timing.needles import Aim, Needles, Targets, make_needles
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

Run = Callable[[], object]
Aimed = tuple[Callable[[Run, str, Needles], None], str, Aim]

OTHER_Q_STREAM = 9
ROUNDS_AFTER = 2  # rounds of random needles after timing, and for shorter contexts


@dataclass(frozen=True, slots=True)
class Plans:
    """The other plans that a call is asked for, in the cell's own pool."""

    shorter: Batch
    one: Batch  # one token a request

    @classmethod
    def of(cls, batch: Batch) -> Plans:
        one = np.ones(batch.shape.batch, np.int64)
        return cls(batch.with_lengths(shorter_lengths(batch)), batch.with_lengths(one))


@dataclass(frozen=True, slots=True)
class Step:
    """A plan, what is compared by it, and then the needles: how each is asked, when, and where."""

    plan: Batch
    compare: Callable[[Run, str], None]
    aimed: Sequence[Aimed]


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
    _asker: Asker = field(init=False)
    _plans: Plans = field(init=False)
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
        self._asker = Asker(batch, self.call, self.synchronise, self._kept)
        self._plans = Plans.of(batch)

    # --- Before and after timing ---

    def before(self) -> Check:
        """Everything that can be asked, by plain calls."""
        return self._asked(self.call.run, "before timing", edges=True)

    def again(self, replay: Run) -> Check:
        """The same of a captured graph, which must answer for the newest plan and query."""
        return self._asked(replay, "by the captured graph", edges=True)

    def after(self, run: Run | None = None) -> Check:
        """The output of the last timed call, what was seen while timing, and questions again."""
        self.synchronise()
        self._asker.refuse_unreal(self.watch.standing, "after timing")
        assert self.call.out is not None
        expected = self._answers.expected[self.watch.asked]
        found = errors(self.call.out[self._answers.index].float(), expected)
        self._kept.note("error_after", "after timing", found)
        if self.watch.worst is not None:
            self._kept.note("error_timed", "while it was timed", float(self.watch.worst))
        return self._asked(run or self.call.run, "after timing", edges=False)

    def after_planning(self) -> Check:
        """The last timed plan must be the cell's: compare a call by it, then ask again."""
        got = self._ask(self.call.run, self._q["random"], "after planning")
        self._kept.note(
            "error_after", "after planning", errors(got, self._answers.expected["random"])
        )
        return self._asked(self.call.run, "after planning", edges=False)

    def plan_otherwise(self) -> None:
        """Plan for other lengths: before each sample of planning, so that the timed plan plans."""
        self.call.replan(self._plans.shorter)

    def _asked(self, run: Run, when: str, *, edges: bool) -> Check:
        steps = self._steps(when, edges=edges)
        aims = [aim for step in steps for _, _, aim in step.aimed]
        needles = make_needles(self.batch, aims)
        try:
            for step in steps:
                if step.plan is not self.batch:
                    self.call.replan(step.plan)
                step.compare(run, when)
                for ask, words, _ in step.aimed:
                    ask(run, words, next(needles))
        finally:
            self.call.replan(self.batch)
            self.watch.put("random")
        self._refuse_damage(when)
        return self._kept.so_far

    def _steps(self, when: str, *, edges: bool) -> tuple[Step, Step, Step]:
        """The cell's own plan, shorter contexts through it, and a single token a request: edges
        first, then tokens that were not aimed at before."""
        hit, miss, only = self._asker.hit, self._asker.miss, self._asker.only
        short, one = self._plans.shorter, self._plans.one
        whole, cut = self._targets(self.batch), self._targets(short)
        rounds = range(whole.rounds) if edges else self._next(ROUNDS_AFTER)
        own = [(hit, when, whole.own(number, edges=edges)) for number in rounds]
        near: list[Aimed] = [(hit, when, cut.own(n, edges=True)) for n in range(ROUNDS_AFTER)]
        past: list[Aimed] = [(miss, f"{when}, a token past its end", cut.beyond(self.batch))]
        if self.batch.shape.batch > 1:
            others = cut.others(self._next(1)[0])
            past.append((miss, f"{when}, a token of another request", others))
        alone = [(only, when, aim) for aim in self._targets(one).only()]
        return (
            Step(self.batch, self._compare_all if edges else self._compare, own),
            Step(short, self._compare_shorter, near + past),
            Step(one, lambda run, when: None, alone),
        )

    def _targets(self, batch: Batch) -> Targets:
        splits = self.call.resolved.get("splits", 1)
        return Targets(batch, splits if isinstance(splits, int) and splits > 0 else 1)

    def _next(self, count: int) -> Sequence[int]:
        """Numbers of random needles that were not used before."""
        self._round += count
        return range(1001 + self._round - count, 1001 + self._round)

    # --- Against the reference ---

    def _compare(self, run: Run, when: str) -> None:
        """Random, other and zero queries against the reference."""
        asked = [Question(name, self._q[name]) for name in ("random", "other", "zero")]
        got = {each.name: self._ask(run, each.q, when, held=each is not asked[0]) for each in asked}
        shorter = Question("shorter", self._q["other"], self._plans.shorter.table.lengths)
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

    def _compare_all(self, run: Run, when: str) -> None:
        """The same, and what is known besides: of scores far apart, and of pools that change."""
        self._compare(run, when)
        aimed = self._targets(self.batch).own(self._next(1)[0], edges=False)
        asked = known.questions(self.batch, aimed, self.tolerance.random)
        known.pose(asked, when, partial(self._asker.ask, run), self._kept)

    def _ask_mixed(self, run: Run, when: str, moment: str) -> None:
        """Every second request, then every second head, has the other query: the answer is known,
        and what is remembered by a part of the query is wrong."""
        for axis in (0, 1):
            q = mixed(self._q["random"], self._q["other"], axis, self._answers.every)
            got, right = self._ask(run, q, when), self._answers.expected
            expected = mixed(right["random"], right["other"], axis, self._answers.index)
            self._kept.note(moment, f"{when}, with two queries mixed", errors(got, expected))

    def _ask_borrowed(self, run: Run, when: str) -> None:
        """Each request answers in the place of another, from pages in another order: also those
        that are not compared."""
        answers, lengths = self._answers, self.batch.table.lengths
        at = borrowed(lengths, answers.requests)
        rows = np.asarray(answers.requests)[at]
        self.call.replan(self.batch.borrowing(rows))
        out = self._asker.ask(run, self._q["random"][rows], when)
        self.call.replan(self.batch)
        found = errors(out, answers.expected["random"][at])
        request, head = np.unravel_index(int(found.argmax()), found.shape)
        place = f"request {request}, head {head}, in the place of request {rows[request]}"
        self._kept.note("error_replanned", f"{when}, {place}", float(found.max()))

    def _compare_shorter(self, run: Run, when: str) -> None:
        """Other lengths through the same plan, and another query."""
        got = self._ask(run, self._q["other"], when)
        moment = f"{when}, planned for other lengths"
        self._kept.note("error_replanned", moment, errors(got, self._answers.expected["shorter"]))

    def _ask(self, run: Run, q: Tensor, when: str, *, held: bool = False) -> Tensor:
        """The output of the requests that are compared, for a query of all."""
        return self._asker.ask(run, q, when, held=held)[self._answers.index]

    def _refuse_damage(self, when: str) -> None:
        changed = self._inputs.changed()
        if changed:
            self._kept.fail("inputs", f"{when}, the call changed its inputs: {', '.join(changed)}")
        whole = canaries(self.call)
        self._kept.so_far = replace(self._kept.so_far, canaries=whole)
        if whole is False:
            self._kept.fail("canaries", f"{when}, the call wrote beside its output")
