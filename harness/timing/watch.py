"""Questions inside the timed loop, where no clock looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pagebench.harness.timing.oracle import Answers, errors
from pagebench.kernels.adapter import Call
from pagebench.layouts.counter_hash import hash_numpy
from pagebench.layouts.tensors import Batch

if TYPE_CHECKING:
    from torch import Tensor

MOMENT_STREAM = 10
MOMENTS = 1024  # then they repeat
ONE_IN = 8  # samples in which the query is another, and ones that are compared
STIRRED = 12  # elements of a head whose last bits count the samples: the smallest, which move least


@dataclass(slots=True)
class Watch:
    """Disturbs a call before samples and looks at its output after them.

    `queries` and the answers have the same names; `asked` is the query that stands in the batch.
    While it is timed no sample has a query that was asked before, so an answer that is remembered
    serves none: last bits of `asked` differ, which moves the answer by less than rounding does.
    `worst` is the largest error seen, a float32 scalar on the device.
    """

    call: Call
    batch: Batch
    queries: Mapping[str, Tensor]
    answers: Answers
    synchronise: Callable[[], None]
    asked: str = "random"
    worst: Tensor | None = None
    _samples: int = field(init=False, default=0)
    _stirs: int = field(init=False, default=0)  # 0: the query stands as it is
    _digits: dict[str, Tensor] = field(init=False)  # int16, as the queries
    _flips: Tensor = field(init=False)  # int16, as a query: the last bits that are turned
    _moments: np.ndarray = field(init=False)  # bool [moments, 2]

    def __post_init__(self) -> None:
        draws = hash_numpy(self.batch.shape.seed, MOMENT_STREAM, np.arange(2 * MOMENTS))
        self._moments = (draws % np.uint64(ONE_IN) == 0).reshape(MOMENTS, 2)
        self._digits = {name: _digits(self.queries[name]) for name in ("random", "other")}
        self._flips = self._digits["random"].clone()

    def forget_output(self) -> None:
        """Fill the output with infinity: what the call does not write stays infinite."""
        assert self.call.out is not None
        self.call.out.fill_(float("inf"))

    def put(self, name: str) -> None:
        """Make that query the batch's."""
        assert self.batch.q is not None
        self.asked, self._stirs = name, 0
        self._write(self.batch.q)

    @property
    def standing(self) -> Tensor:
        """What the batch's query must be now."""
        q = self.queries[self.asked].clone()
        self._write(q)
        return q

    def _write(self, q: Tensor) -> None:
        """The query that is asked, as often stirred as counted, into `q`."""
        import torch

        asked, into = (each.view(torch.int16) for each in (self.queries[self.asked], q))
        if self._stirs == 0:
            into.copy_(asked)
            return
        torch.bitwise_and(self._digits[self.asked], self._stirs, out=self._flips)
        torch.bitwise_xor(asked, self._flips.clamp_(max=1), out=into)

    def _stir(self) -> None:
        """Make the batch's query one that was never asked, and whose answer is that of `asked`."""
        assert self.batch.q is not None
        self._stirs = self._stirs % (2**STIRRED - 1) + 1
        self._write(self.batch.q)

    def prepared(self, prepare: Callable[[], object], l2: str) -> Callable[[], object]:
        """`prepare`, with the output forgotten and, at random moments, another query.

        A warm cache is prepared by the call itself, which answers and writes its output: then the
        output is forgotten afterwards, and the query is again a new one.
        """

        def forget_and_prepare() -> None:
            self._disturb()
            prepare()
            if l2 == "warm":
                self._stir()
                self.forget_output()

        return forget_and_prepare

    def look(self) -> None:
        """After a sample: note, without waiting, how far the output is off."""
        self._samples += 1
        if self._samples > 1 and not self._draw(1) and self.asked == "random":
            return
        assert self.call.out is not None
        out, expected = self.call.out, self.answers.expected[self.asked]
        worst = errors(out[self.answers.index].float(), expected).max()
        self.worst = worst if self.worst is None else worst.maximum(self.worst)

    def look_and_forget(self) -> None:
        """The same under a clock that prepares nothing: it also disturbs, at random moments."""
        self.look()
        if self._draw(0):
            self._disturb()
            self.synchronise()

    def _disturb(self) -> None:
        self.asked = "other" if self._draw(0) else "random"
        self._stir()
        self.forget_output()

    def _draw(self, stream: int) -> bool:
        """True at one moment in ONE_IN; which ones, the cell's seed decides."""
        return bool(self._moments[self._samples % MOMENTS, stream])


def _digits(q: Tensor) -> Tensor:  # int16 [batch, q_heads, head_dim]
    """A binary digit for each of a head's smallest elements, 0 for the others."""
    import torch

    rank = q.float().abs().argsort(-1).argsort(-1)
    return torch.where(rank < STIRRED, 2 ** rank.clamp(max=STIRRED), 0).to(torch.int16)
