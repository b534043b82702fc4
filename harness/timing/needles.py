"""Needles: queries that put the whole softmax on one token, so that the answer is its value.

A query along a token's key scores S = q . k / sqrt(head_dim) there. Elsewhere scores are normal
with deviation S / |k|, so the largest of n others is near S sqrt(2 ln n) / |k|. S is chosen so that
this stays GAP below: all other tokens together then weigh less than the output's last place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pagebench.layouts.counter_hash import hash_numpy
from pagebench.layouts.shape import Shape
from pagebench.layouts.tensors import Batch, token_kv, torch_dtype

if TYPE_CHECKING:
    from torch import Tensor

NEEDLE_STREAM, SIGN_STREAM = 8, 13
GAP = 20.0  # e^-20 is 2e-9; half a unit of bf16's last place is 2e-3
SPARE = 1.0  # deviations above the expected largest of the other scores
LEAST_SCORE, MOST_SCORE = 34.0, 400.0  # 34 is a query of three times the key at head_dim 128
EXTREME = 6.0  # times a needle's score, at least 204: e to that is no float32
LARGEST = 60_000.0  # of a query's elements, in any type
ROWS = 2**16  # needles made at a time: this bounds scratch memory
EDGES = ("last", "first", "page end", "page begin", "split end", "split begin", "lowest", "highest")


@dataclass(frozen=True, slots=True, eq=False)
class Aim:
    """A token for each head: owning request and position, int64 [batch, q_heads].

    Each request has so many `tokens` to tell it from, int64 [batch]. The score is so many `times` a
    needle's; below 0 the queries point away from the keys. Where `use` is false nothing is asked.
    """

    owner: np.ndarray
    position: np.ndarray
    tokens: np.ndarray
    times: float | np.ndarray = 1.0  # of all, or float64 [batch, q_heads]
    use: np.ndarray | None = None  # bool [batch, q_heads]


@dataclass(frozen=True, slots=True, eq=False)
class Needles:
    """A query for each head, and the value that it must find, or must not.

    `sure` is false where the key is too short to stand out, so that nothing follows.
    """

    aim: Aim
    q: Tensor  # q_dtype [batch, q_heads, head_dim]
    value: Tensor  # float32 [batch, q_heads, head_dim]
    sure: Tensor  # bool [batch, q_heads]


def make_needles(batch: Batch, aims: Sequence[Aim]) -> Iterator[Needles]:
    """The needles of each aim in turn; made many at a time, since each step on a device costs its
    launch."""
    together = max(1, ROWS // (batch.shape.batch * batch.shape.q_heads))
    for first in range(0, len(aims), together):
        yield from _made(batch, aims[first : first + together])


def _made(batch: Batch, aims: Sequence[Aim]) -> Iterator[Needles]:
    import torch

    shape = batch.shape
    parts = [_aimed(batch, *each) for each in _slices(_flat(shape, aims))]
    q, value, sure = (torch.cat(each) for each in zip(*parts, strict=True))
    dims = (len(aims), shape.batch, shape.q_heads, shape.head_dim)
    made = zip(aims, q.view(dims), value.view(dims), sure.view(dims[:3]), strict=True)
    return (Needles(*each) for each in made)


def _flat(shape: Shape, aims: Sequence[Aim]) -> tuple[np.ndarray, np.ndarray]:
    """Request, position, KV head and use, int64 [4, n]; tokens and times, float64 [2, n]."""
    dims = (shape.batch, shape.q_heads)
    head = np.broadcast_to(np.arange(shape.q_heads) // shape.group, dims)
    whole, real = [], []
    for aim in aims:
        use = np.ones(dims, bool) if aim.use is None else aim.use
        position = np.where(use, aim.position, 0)
        whole.append(np.stack((aim.owner, position, head, use)).reshape(4, -1))
        tokens = np.broadcast_to(aim.tokens[:, None], dims)
        real.append(np.stack((tokens, np.broadcast_to(aim.times, dims))).reshape(2, -1))
    return np.concatenate(whole, 1), np.concatenate(real, 1)


def _slices(flat: tuple[np.ndarray, np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    whole, real = flat
    for first in range(0, whole.shape[1], ROWS):
        yield whole[:, first : first + ROWS], real[:, first : first + ROWS]


def _aimed(batch: Batch, whole: np.ndarray, real: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    import torch

    request, position, head, use = whole
    key, value = (each.float() for each in token_kv(batch.table, (request, position, head)))
    norm = key.norm(dim=1)
    largest = np.sqrt(2 * np.log(np.maximum(real[0], 1))) + SPARE
    largest, times, asked = torch.from_numpy(np.stack((largest, real[1], use))).to(norm)
    room = 1 - largest / norm
    score = (GAP / room.clamp(min=1e-3)).clamp(min=LEAST_SCORE)
    sure = (room > 0) & (score <= MOST_SCORE) & (asked > 0)
    scale = times * score.clamp(max=MOST_SCORE) * batch.shape.head_dim**0.5 / norm**2
    q = (key * scale[:, None]).clamp(-LARGEST, LARGEST)
    return q.to(torch_dtype(batch.shape.q_dtype)), value, sure


@dataclass(frozen=True, slots=True)
class Targets:
    """Positions to aim at, for a batch whose call splits contexts into `splits`."""

    batch: Batch
    splits: int

    @property
    def rounds(self) -> int:
        """Rounds after which every KV head was aimed at every edge, at least four."""
        return max(4, -(-len(EDGES) // self.batch.shape.group))

    def own(self, number: int, *, edges: bool) -> Aim:
        """At each request's own tokens, in round `number`.

        Query heads of a KV head take the edges one after the other over the rounds, then random
        tokens; without `edges` all are random.
        """
        group, position = self.batch.shape.group, self._random(number)
        kinds = EDGES[number * group : (number + 1) * group] if edges else ()
        for first, kind in enumerate(kinds):
            heads = slice(first, None, group)
            position[:, heads] = self._edge(kind, position[:, heads])
        return Aim(self._owners, position, self._lengths)

    def only(self) -> tuple[Aim, Aim, Aim]:
        """At the only token of each request, with queries that point away from it: any other weight
        would show. Then far away in half of the heads and far towards it in the others, and the
        other way round: a maximum that is not taken off would show, or one of another head or
        request."""
        shape = self.batch.shape
        request = np.arange(shape.batch)  # of each two, one is turned; which one, the seed decides
        drawn = hash_numpy(shape.seed, SIGN_STREAM, request // 2) % np.uint64(2)
        turned = request + drawn.astype(np.int64)
        odd = (np.arange(shape.q_heads) + turned[:, None]) % 2
        far = EXTREME * (1.0 - 2.0 * odd)
        aimed = Aim(self._owners, 0 * self._owners, np.ones_like(self._lengths), -1.0)
        return aimed, replace(aimed, times=far), replace(aimed, times=-far)

    def beyond(self, whole: Batch) -> Aim:
        """At the token after the end of each request, where it has one in the `whole` batch."""
        after = 0 * self._owners + self._lengths[:, None]
        exists = after < whole.table.lengths[:, None]
        return Aim(self._owners, after, self._lengths, use=exists)

    def others(self, number: int) -> Aim:
        """At tokens that another request owns alone.

        Even heads aim at the next request's first one, odd heads at a random one of any other.
        """
        shape, lengths = self.batch.shape, self._lengths
        shared = self.batch.table.streams.shared_tokens
        draws = self._draws(number)
        any_other = 1 + (draws >> np.uint64(32)).astype(np.int64) % max(1, shape.batch - 1)
        even = np.arange(shape.q_heads) % 2 == 0
        owner = (self._owners + np.where(even, 1, any_other)) % shape.batch
        own = lengths[owner] - shared
        within = np.where(even, 0, draws.astype(np.int64) % np.maximum(own, 1))
        use = (own > 0) & (owner != self._owners)
        return Aim(owner, shared + within, lengths, use=use)

    @property
    def _lengths(self) -> np.ndarray:
        return self.batch.table.lengths

    @property
    def _owners(self) -> np.ndarray:
        shape = self.batch.shape
        return np.repeat(np.arange(shape.batch)[:, None], shape.q_heads, axis=1)

    def _draws(self, number: int) -> np.ndarray:  # uint64 [batch, q_heads], below 2^62
        shape = self.batch.shape
        count = shape.batch * shape.q_heads
        draws = hash_numpy(shape.seed, NEEDLE_STREAM, np.arange(count) + number * count)
        shifted: np.ndarray = (draws >> np.uint64(2)).reshape(shape.batch, shape.q_heads)
        return shifted

    def _random(self, number: int) -> np.ndarray:
        drawn = self._draws(number).astype(np.int64)
        within: np.ndarray = drawn % self._lengths[:, None]
        return within

    def _edge(self, kind: str, drawn: np.ndarray) -> np.ndarray:  # int64, as `drawn`
        lengths, page = self._lengths[:, None], self.batch.shape.page_size
        last_page = (lengths - 1) // page * page
        chunk = -(-lengths // self.splits)
        split = np.maximum(drawn // chunk, 1) * chunk if self.splits > 1 else drawn
        found = {
            "last": lengths - 1,
            "first": 0 * lengths,
            "page end": last_page - 1,
            "page begin": last_page,
            "split end": split - 1,
            "split begin": split,
        }
        at = found[kind] if kind in found else self._extreme(kind == "highest")[:, None]
        within: np.ndarray = np.clip(at, 0, lengths - 1)
        return within

    def _extreme(self, highest: bool) -> np.ndarray:  # int64 [batch]
        """Position in each request of its token in the pool's lowest or highest slot."""
        table, page = self.batch.table, self.batch.shape.page_size
        unused = table.pages == table.poison_page
        if not highest:
            column = table.pages.argmin(1)  # unused entries are the pool's last page
            return page * np.asarray(column.cpu())
        column = table.pages.masked_fill(unused, -1).argmax(1)
        return page * np.asarray(column.cpu()) + page - 1
