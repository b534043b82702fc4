"""One request as a planted kernel sees it, the right answer to it, and other ways to the same.

A planted kernel is a function of one request that returns float32 [q_heads, head_dim], or None
where it writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pagebench.layouts.counter_hash import hash_numpy

if TYPE_CHECKING:
    from torch import Tensor

BUG_STREAM = 12


@dataclass(slots=True, eq=False)
class Seen:
    """What a bug is given for one request. `memory` lives as long as the plan."""

    q: Tensor  # q_dtype [q_heads, head_dim]
    k: Tensor  # float32 [length, kv_heads, head_dim]
    v: Tensor
    slots: Tensor  # int64 [length]
    pools: tuple[Tensor, Tensor]  # KV dtype [slots, kv_heads, head_dim]
    out: Tensor  # the whole output
    request: int
    requests: int
    page: int
    call: int  # calls of this plan before this one
    seed: int
    memory: dict[str, Any]

    def draw(self, below: int, stream: int = 0) -> int:
        """A number below `below`, by the cell's seed: the same in every call."""
        import numpy as np

        counter = np.array([stream])
        return int(hash_numpy(self.seed, BUG_STREAM, counter)[0] >> np.uint64(1)) % max(below, 1)

    def without(self, first: int, count: int = 1) -> Seen:
        """The same without tokens from `first` on; unchanged where none would be left."""
        import torch

        if count >= len(self.k):
            return self
        k, v = (torch.cat([x[:first], x[first + count :]]) for x in (self.k, self.v))
        return replace(self, k=k, v=v)

    def of_slots(self, slots: Tensor) -> Seen:
        """The same with the tokens of other slots."""
        k, v = (pool[slots].float() for pool in self.pools)
        return replace(self, k=k, v=v)


Bug = Callable[[Seen], "Tensor | None"]


def attention(seen: Seen, weigh: Callable[[Tensor], Tensor] = lambda scores: scores) -> Tensor:
    """[q_heads, head_dim]; `weigh` changes the scores [kv_heads, group, length]."""
    import torch

    kv_heads, dim = seen.k.shape[1:]
    q = seen.q.float().view(kv_heads, -1, dim)
    scores = weigh(torch.einsum("hgd,lhd->hgl", q, seen.k) * dim**-0.5)
    return torch.einsum("hgl,lhd->hgd", scores.softmax(-1), seen.v).reshape(-1, dim)


# --- Innocent -------------------------------------------------------------------------------------


def reversed_order(seen: Seen) -> Tensor:
    """The same tokens from last to first."""
    return attention(replace(seen, k=seen.k.flip(0), v=seen.v.flip(0)))


def in_bf16(seen: Seen) -> Tensor:
    """Scores, softmax and products in bf16, as a plain torch kernel has them."""
    k, v = (each.bfloat16().transpose(0, 1) for each in (seen.k, seen.v))
    q = seen.q.bfloat16().view(k.shape[0], -1, k.shape[2])
    found: Tensor = ((q @ k.mT * k.shape[2] ** -0.5).softmax(-1) @ v).flatten(0, 1)
    return found


def in_splits(seen: Seen) -> Tensor:
    """Eight splits, each with its answer in bf16, merged by their weights."""
    import torch

    kv_heads, dim = seen.k.shape[1:]
    q = seen.q.float().view(kv_heads, -1, dim)
    answers, weights = [], []
    for k, v in zip(seen.k.chunk(8), seen.v.chunk(8), strict=True):
        scores = torch.einsum("hgd,lhd->hgl", q, k) * dim**-0.5
        answers.append(torch.einsum("hgl,lhd->hgd", scores.softmax(-1), v).bfloat16().float())
        weights.append(scores.logsumexp(-1))
    share = torch.stack(weights).softmax(0)[..., None]
    merged: Tensor = (torch.stack(answers) * share).sum(0).reshape(-1, dim)
    return merged
