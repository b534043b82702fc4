"""Bugs of an online softmax and of merged splits, and innocent ways to do both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pagebench.kernels.probes.seen import Bug, Seen, attention

if TYPE_CHECKING:
    from torch import Tensor

TILE = 64  # tokens that a kernel takes at a time
LAZY = 8.0  # a maximum that grows by less is left
HALVES, EIGHTHS = 2, 8
LOG_2 = 0.6931472


def scores_of(seen: Seen) -> Tensor:  # float32 [kv_heads, group, length]
    import torch

    kv_heads, dim = seen.k.shape[1:]
    q = seen.q.float().view(kv_heads, -1, dim)
    found: Tensor = torch.einsum("hgd,lhd->hgl", q, seen.k) * dim**-0.5
    return found


def _weighed(weights: Tensor, total: Tensor, v: Tensor) -> Tensor:
    import torch

    found: Tensor = torch.einsum("hgl,lhd->hgd", weights, v) / total
    return found.reshape(-1, v.shape[2])


# --- The maximum ----------------------------------------------------------------------------------


def below(maximum: Callable[[Tensor], Tensor]) -> Bug:
    """Another maximum than a head's own is taken off its scores."""

    def bug(seen: Seen) -> Tensor:
        scores = scores_of(seen)
        weights = (scores - maximum(scores)).exp()
        return _weighed(weights, weights.sum(-1, keepdim=True), seen.v)

    return bug


def requestmax(seen: Seen) -> Tensor:
    """The running maximum is not reset between requests."""
    scores = scores_of(seen)
    own = scores.amax(-1, keepdim=True)
    maximum = own.maximum(seen.memory.get("maximum", own)) if seen.request else own
    seen.memory["maximum"] = own
    weights = (scores - maximum).exp()
    return _weighed(weights, weights.sum(-1, keepdim=True), seen.v)


def tiles(least: float, *, rescaled: bool = True, bf16: bool = False) -> Bug:
    """Tile by tile; the maximum follows where it grows by more than `least`. `rescaled` says
    whether what was summed follows it, `bf16` how weights are multiplied."""

    def bug(seen: Seen) -> Tensor:
        import torch

        scores = scores_of(seen)
        maximum = scores[..., :1] * 0 - 1e30
        total, out = 0 * maximum, scores.new_zeros(*scores.shape[:2], seen.k.shape[2])
        for tile, v in zip(torch.split(scores, TILE, -1), torch.split(seen.v, TILE), strict=True):
            top = maximum.maximum(tile.amax(-1, keepdim=True))
            newer = torch.where(top - maximum > least, top, maximum)
            weights, faded = (tile - newer).exp(), (maximum - newer).exp()
            total = total * faded + weights.sum(-1, keepdim=True)
            product = weights.bfloat16().float() if bf16 else weights
            kept = out * faded if rescaled else out
            out, maximum = kept + torch.einsum("hgl,lhd->hgd", product, v), newer
        return (out / total).reshape(-1, seen.k.shape[2])

    return bug


def lastpagesum(seen: Seen) -> Tensor:
    """The sum of the weights forgets a last page that is not full."""
    scores = scores_of(seen)
    end = len(seen.k) // seen.page * seen.page or len(seen.k)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    total = weights[..., :end].sum(-1, keepdim=True).clamp(min=1e-30)
    return _weighed(weights, total, seen.v)


# --- Merging --------------------------------------------------------------------------------------


def merged(share: Callable[[Tensor], Tensor]) -> Bug:
    """Two halves, with `share` of the logarithms of their sums, [halves, q_heads]."""

    def bug(seen: Seen) -> Tensor:
        import torch

        parts = split(seen, HALVES)
        answers = torch.stack([attention(part) for part in parts])
        sums = torch.stack([scores_of(part).logsumexp(-1).flatten() for part in parts])
        found: Tensor = (answers * share(sums)[..., None]).sum(0)
        return found

    return bug


def split(seen: Seen, count: int) -> list[Seen]:
    size = -(-len(seen.k) // count)
    parts = [slice(first, first + size) for first in range(0, len(seen.k), size)]
    return [replace(seen, k=seen.k[part], v=seen.v[part]) for part in parts]


def tree(seen: Seen) -> Tensor:
    """Innocent: eight splits are merged in pairs, the later one first, all in fp32."""
    found = [(attention(part), scores_of(part).flatten(0, 1)) for part in split(seen, EIGHTHS)]
    merging = [(out, scores.logsumexp(-1)) for out, scores in found]
    while len(merging) > 1:
        pairs = [merging[at : at + 2] for at in range(0, len(merging), 2)]
        merging = [_joined(*reversed(pair)) for pair in pairs]
    return merging[0][0]


def _joined(one: tuple[Tensor, Tensor], *others: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    for other in others:
        top = one[1].maximum(other[1])
        here, there = (one[1] - top).exp(), (other[1] - top).exp()
        answer = (one[0] * here[:, None] + other[0] * there[:, None]) / (here + there)[:, None]
        one = (answer, top + (here + there).log())
    return one


BUGS: dict[str, Bug] = {
    "maxzero": below(lambda scores: scores.amax(-1, keepdim=True).clamp(min=0.0)),
    "maxhundred": below(lambda scores: scores.amax(-1, keepdim=True).clamp(min=-100.0)),
    "tilemax": below(lambda scores: scores[..., :TILE].amax(-1, keepdim=True)),
    "groupmax": below(lambda scores: scores.amax((1, 2), keepdim=True)),
    "requestmax": requestmax,
    "norescale": tiles(0.0, rescaled=False),
    "lastpagesum": lastpagesum,
    "swappedsplits": merged(lambda sums: sums.softmax(0).flip(0)),
    "lsebase": merged(lambda sums: (LOG_2 * sums).softmax(0)),
    "lseheads": merged(lambda sums: sums.roll(1, 1).softmax(0)),
    "lseoverflow": merged(lambda sums: sums.exp() / sums.exp().sum(0)),
}
INNOCENT: dict[str, Bug] = {"lazy": tiles(LAZY, bf16=True), "tree": tree}
