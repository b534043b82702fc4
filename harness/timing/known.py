"""Questions whose answers are known without a reference: pools that change after planning, scores
that are far apart, and a token that has a known share of the weights."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from pagebench.harness.timing.kept import Kept
from pagebench.harness.timing.needles import EXTREME, LARGEST, Aim, Needles, make_needles
from pagebench.harness.timing.oracle import errors
from pagebench.layouts.tensors import Batch, token_kv, torch_dtype

if TYPE_CHECKING:
    from torch import Tensor

LEAST_OTHERS = 64  # tokens whose weights together are near their expectation
OTHERS_SHARE = 3.0  # a token is aimed to weigh this many times what all others do
LEAST_LIMIT, MOST_LIMIT = 0.05, 0.08  # of a share's error: what rounded scores need, what finds
DEVIATIONS = 6.0  # of what chance does to the others' weight


@dataclass(frozen=True, slots=True, eq=False)
class Posed:
    """A query of every request, and how far an output is off, [batch, q_heads], with its limit.

    `overflow` is the question that a NaN fails where it comes from scores that overflowed.
    """

    question: str  # of records.timing.QUESTIONS
    what: str
    q: Tensor
    errors: Callable[[Tensor], Tensor]
    limit: Tensor | float
    overflow: str | None = None


def pose(asked: Generator[Posed], when: str, ask: Callable[..., Tensor], kept: Kept) -> None:
    """`ask` them in turn, as `Asker.ask` does, and close them. Failure where an error is above its
    limit."""
    with closing(asked):
        for each in asked:
            what = f"{when}, {each.what}"
            error = each.errors(ask(each.q, what, overflow=each.overflow))
            if each.question != "share":
                kept.keep("error_needles", float(error.max()))
            request, head = np.unravel_index(int((error / each.limit).argmax()), error.shape)
            if bool((error > each.limit).any()):
                worst = f"head {head} of request {request} is off by {error[request, head]:.3g}"
                kept.fail(each.question, f"{what}, {worst}")


def _needles(question: str, what: str, asked: Needles, limit: float) -> Posed:
    """Needles that must find their value."""
    overflow = question if question == "far" else None
    off = partial(errors, expected=asked.value, sure=asked.sure)
    return Posed(question, what, asked.q, off, limit, overflow)


def questions(batch: Batch, aimed: Aim, limit: float) -> Generator[Posed]:
    """All of them, at the tokens that are aimed at where pools do not change; `limit` is that of
    the kernel's rounding. Exhaust it, or close it: then the pools are as they were."""
    two = Two.at(batch, int(aimed.position.max()))
    aims = [replace(aimed, times=EXTREME), *(two.aims() if two else ())]
    far, *pair = make_needles(batch, aims)
    yield _needles("far", f"with a query of {EXTREME:g} needles", far, limit)
    shares = Shares.of(batch, aimed, limit)
    what = "with a token of three quarters of the weights"
    yield Posed("share", what, shares.q, shares.errors, shares.limit)
    if two:
        yield from _changed_pools(two, pair[0], pair[1], limit)


def _changed_pools(two: Two, first: Needles, other: Needles, limit: float) -> Generator[Posed]:
    """Two tokens of each request change places in the key pool: a needle at the first finds the
    value of the other. They do so in the value pool too: it finds its own again.

    What copied the pools, or remembers an answer by the query, answers otherwise.
    """
    with two.exchanged(two.batch.k):
        what = "with two keys exchanged in the pool"
        yield _needles("pools", what, replace(first, value=other.value), limit)
        with two.exchanged(two.batch.v):
            yield _needles("pools", "with two keys and values exchanged", first, limit)


@dataclass(frozen=True, slots=True, eq=False)
class Two:
    """Two neighbouring tokens of each request, at the same position of all: where requests share
    tokens, they share these. Requests of one token have none."""

    batch: Batch
    position: int
    has: np.ndarray  # bool [batch]

    @classmethod
    def at(cls, batch: Batch, draw: int) -> Two | None:
        """Those at a position by `draw`; None where all requests have one token."""
        has = batch.table.lengths > 1
        if not has.any():
            return None
        return cls(batch, draw % (int(batch.table.lengths[has].min()) - 1), has)

    def aims(self) -> tuple[Aim, Aim]:
        """Every head at the first, and at the other."""
        shape, lengths = self.batch.shape, self.batch.table.lengths
        owner = np.repeat(np.arange(shape.batch)[:, None], shape.q_heads, axis=1)
        at, use = self.position + 0 * owner, np.broadcast_to(self.has[:, None], owner.shape)
        return Aim(owner, at, lengths, use=use), Aim(owner, at + 1, lengths, use=use)

    @contextmanager
    def exchanged(self, pool: Tensor | None) -> Iterator[None]:
        """While it lasts, the two have changed places in that pool."""
        assert pool is not None
        self._exchange(pool)
        try:
            yield
        finally:
            self._exchange(pool)

    def _exchange(self, pool: Tensor) -> None:
        tokens = _by_token(self.batch, pool)
        (one, there), (other, here) = (self._slots(self.position + at) for at in (0, 1))
        first, second = tokens[one, there], tokens[other, here]
        tokens[one, there], tokens[other, here] = second, first

    def _slots(self, position: int) -> tuple[Tensor, int]:
        """Pages and the place in them of a position of each request that has the two."""
        import torch

        table, page = self.batch.table, self.batch.shape.page_size
        rows = torch.from_numpy(np.flatnonzero(self.has)).to(table.pages.device)
        return table.pages[rows, position // page].long(), position % page


def _by_token(batch: Batch, pool: Tensor) -> Tensor:  # words [pages, page_size, kv_heads, head_dim]
    import torch

    words = pool.view(torch.uint8 if pool.element_size() == 1 else torch.int16)
    if batch.lowered.kind == "token_indices":
        return words.view(-1, batch.shape.page_size, *words.shape[1:])
    return words.transpose(1, 2) if batch.shape.kv_layout == "HND" else words


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """Queries for which one token has a known share of a head's weights, all others the rest.

    The others' weights together are a sum over independent keys, whose elements are uniform: its
    expectation and deviation are known. `limit` is what chance and rounding do to the share.
    """

    q: Tensor  # q_dtype [batch, q_heads, head_dim]
    value: Tensor  # float32 [batch, q_heads, head_dim]
    share: Tensor  # float64 [batch, q_heads]
    limit: Tensor  # float64 [batch, q_heads]; infinite where nothing follows

    @classmethod
    def of(cls, batch: Batch, aimed: Aim, rounding: float) -> Shares:
        """Of the tokens that are aimed at; `rounding` is the kernel's own relative error."""
        import torch

        shape, owner = batch.shape, aimed.owner
        head = np.broadcast_to(np.arange(shape.q_heads) // shape.group, owner.shape)
        tokens = (owner.reshape(-1), aimed.position.reshape(-1), head.reshape(-1))
        key, value = (
            each.float().view(*owner.shape, shape.head_dim)
            for each in token_kv(batch.table, tokens)
        )
        others = torch.from_numpy(batch.table.lengths - 1.0).to(key.device)[:, None]
        size = key.double().square().sum(-1)
        wanted = (OTHERS_SHARE * others.clamp(min=1)).log()
        score = size * (1 - (1 - 2 * wanted / size).clamp(min=0).sqrt())
        q = key * (score * shape.head_dim**0.5 / size)[..., None].float()
        q = q.clamp(-LARGEST, LARGEST).to(torch_dtype(shape.q_dtype))
        per_key = q.double() * shape.head_dim**-0.5
        expected = _log_mean_weight(per_key)
        ratio = others * (expected - (per_key * key).sum(-1)).exp()
        share = 1 / (1 + ratio)
        spread = (_log_mean_weight(2 * per_key) - 2 * expected).expm1().clamp(min=0)
        chance = (1 - share) * (spread / others.clamp(min=1)).sqrt()
        limit = (rounding + DEVIATIONS * chance).clamp(min=LEAST_LIMIT)
        open_ = (others < LEAST_OTHERS) | (limit > MOST_LIMIT) | (2 * wanted > size)
        return cls(q, value, share, limit.masked_fill(open_, torch.inf))

    def errors(self, out: Tensor) -> Tensor:  # float64 [batch, q_heads]
        """How far the token's share of each head is off, relative to it."""
        found = (out * self.value).sum(-1) / self.value.square().sum(-1).clamp(min=1e-30)
        return (found.double() / self.share - 1).abs()


def _log_mean_weight(per_key: Tensor) -> Tensor:
    """log of the expected exp(per_key . k) of a key with elements uniform in (-sqrt 3, sqrt 3)."""
    x = (sqrt(3) * per_key).abs().clamp(min=1e-4)
    found: Tensor = (x.sinh() / x).log().sum(-1)
    return found
