"""Needles: queries that put the whole softmax on one token, so that the answer is its value.

A query along a token's key scores S = q . k / sqrt(head_dim) there. Elsewhere scores are normal
with deviation S / |k|, so the largest of n others is near S sqrt(2 ln n) / |k|. S is chosen so that
this stays GAP below: all other tokens together then weigh less than the output's last place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pagebench.layouts.counter_hash import hash_numpy
from pagebench.layouts.tensors import K_STREAM, V_STREAM, Batch, token_rows, torch_dtype

if TYPE_CHECKING:
    from torch import Tensor

NEEDLE_STREAM = 8
GAP = 20.0  # e^-20 is 2e-9; half a unit of bf16's last place is 2e-3
SPARE = 1.0  # deviations above the expected largest of the other scores
LEAST_SCORE, MOST_SCORE = 34.0, 400.0  # 34 is a query of three times the key at head_dim 128
LARGEST = 60_000.0  # of a query's elements, in any type
ROWS = 2**16  # needles made at a time: this bounds scratch memory
EDGES = ("last", "first", "page end", "page begin", "split end", "split begin", "lowest", "highest")


@dataclass(frozen=True, slots=True, eq=False)
class Needles:
    """A query for each head, and the value that it must find, or must not.

    `sure` is false where the key is too short to stand out, so that nothing follows.
    """

    q: Tensor  # q_dtype [rounds x batch, q_heads, head_dim]
    value: Tensor  # float32 [rounds x batch, q_heads, head_dim]
    sure: Tensor  # bool [rounds x batch, q_heads]

    def rounds(self, batch: int) -> Iterator[Needles]:
        """Those of each round."""
        for first in range(0, len(self.q), batch):
            at = slice(first, first + batch)
            yield Needles(self.q[at], self.value[at], self.sure[at])


def aim(batch: Batch, owner: np.ndarray, position: np.ndarray, times: float = 1.0) -> Needles:
    """Needles at tokens: owning request and position, int64 [rounds x batch, q_heads].

    The score is so many `times` a needle's; below 0 the queries point away from the keys.
    """
    import torch

    shape = batch.shape
    head = np.broadcast_to(np.arange(shape.q_heads) // shape.group, owner.shape)
    tokens = tuple(each.reshape(-1) for each in (owner, position, head))
    others = np.repeat(np.resize(batch.table.lengths, len(owner)), shape.q_heads)
    parts = [
        _aimed(batch, (tokens[0][at], tokens[1][at], tokens[2][at]), others[at], times)
        for at in _slices(len(others))
    ]
    q, value, sure = (torch.cat(each) for each in zip(*parts, strict=True))
    dims = (len(owner), shape.q_heads, shape.head_dim)
    return Needles(q.view(dims), value.view(dims), sure.view(dims[:2]))


def _slices(count: int) -> Iterator[slice]:
    return (slice(first, first + ROWS) for first in range(0, count, ROWS))


def _aimed(
    batch: Batch,
    tokens: tuple[np.ndarray, np.ndarray, np.ndarray],
    others: np.ndarray,
    times: float,
) -> tuple[Tensor, Tensor, Tensor]:
    import torch

    shape = batch.shape
    key = token_rows(batch.table, K_STREAM, tokens).float()
    value = token_rows(batch.table, V_STREAM, tokens).float()
    norm = key.norm(dim=1)
    largest = torch.from_numpy(np.sqrt(2 * np.log(np.maximum(others, 1)))).to(norm) + SPARE
    room = 1 - largest / norm
    score = (GAP / room.clamp(min=1e-3)).clamp(min=LEAST_SCORE)
    sure = (room > 0) & (score <= MOST_SCORE)
    scale = times * score.clamp(max=MOST_SCORE) * shape.head_dim**0.5 / norm**2
    q = (key * scale[:, None]).clamp(-LARGEST, LARGEST)
    return q.to(torch_dtype(shape.q_dtype)), value, sure


@dataclass(frozen=True, slots=True)
class Targets:
    """Positions to aim at, for a batch whose call splits contexts into `splits`."""

    batch: Batch
    splits: int

    @property
    def rounds(self) -> int:
        """Rounds after which every KV head was aimed at every edge, at least four."""
        return max(4, -(-len(EDGES) // self.batch.shape.group))

    def own(self, number: int, *, edges: bool) -> tuple[np.ndarray, np.ndarray]:
        """Owner and position, int64 [batch, q_heads], of round `number`.

        Query heads of a KV head take the edges one after the other over the rounds, then random
        tokens; without `edges` all are random.
        """
        shape = self.batch.shape
        position = self._random(number)
        for head in range(shape.q_heads if edges else 0):
            kind = number * shape.group + head % shape.group
            if kind < len(EDGES):
                position[:, head] = self._edge(EDGES[kind], position[:, head])
        return self._owners(0), position

    def others(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Owner, position and use, [batch, q_heads]: tokens that another request owns alone.

        Even heads aim at the next request's first one, odd heads at a random one of any other.
        """
        shape, lengths = self.batch.shape, self.batch.table.lengths
        shared = self.batch.table.streams.shared_tokens
        draws = self._draws(number)
        any_other = 1 + (draws >> np.uint64(32)).astype(np.int64) % max(1, shape.batch - 1)
        even = np.arange(shape.q_heads) % 2 == 0
        owner = (self._owners(0) + np.where(even, 1, any_other)) % shape.batch
        own = lengths[owner] - shared
        within = np.where(even, 0, draws.astype(np.int64) % np.maximum(own, 1))
        return owner, shared + within, (own > 0) & (owner != self._owners(0))

    def _owners(self, shift: int) -> np.ndarray:
        shape = self.batch.shape
        every = (np.arange(shape.batch) + shift) % shape.batch
        return np.repeat(every[:, None], shape.q_heads, axis=1)

    def _draws(self, number: int) -> np.ndarray:  # uint64 [batch, q_heads], below 2^62
        shape = self.batch.shape
        count = shape.batch * shape.q_heads
        draws = hash_numpy(shape.seed, NEEDLE_STREAM, np.arange(count) + number * count)
        shifted: np.ndarray = (draws >> np.uint64(2)).reshape(shape.batch, shape.q_heads)
        return shifted

    def _random(self, number: int) -> np.ndarray:
        drawn = self._draws(number).astype(np.int64)
        within: np.ndarray = drawn % self.batch.table.lengths[:, None]
        return within

    def _edge(self, kind: str, drawn: np.ndarray) -> np.ndarray:  # int64 [batch]
        lengths, page = self.batch.table.lengths, self.batch.shape.page_size
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
        at = found[kind] if kind in found else self._extreme(kind == "highest")
        within: np.ndarray = np.clip(at, 0, lengths - 1)
        return within

    def _extreme(self, highest: bool) -> np.ndarray:
        """Position in each request of its token in the pool's lowest or highest slot."""
        table, page = self.batch.table, self.batch.shape.page_size
        unused = table.pages == table.poison_page
        if not highest:
            column = table.pages.argmin(1)  # unused entries are the pool's last page
            return page * np.asarray(column.cpu())
        column = table.pages.masked_fill(unused, -1).argmax(1)
        return page * np.asarray(column.cpu()) + page - 1
