"""Bugs that stand in some places only: a page, a head, a request, a length."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pagebench.kernels.probes.seen import Bug, Seen, attention

if TYPE_CHECKING:
    from torch import Tensor

LONG = 512  # tokens of a window that shorter contexts do not fill
PAGE_BITS, FEW_PAGE_BITS = 15, 7  # of a page's number, and of that in a smaller pool


def otherkey(seen: Seen) -> Tensor:
    """One token's key is read as that of the next; its value is its own."""
    at, k = seen.draw(len(seen.k)), seen.k.clone()
    k[at] = seen.k[(at + 1) % len(k)]
    return attention(replace(seen, k=k))


def keyheads(seen: Seen) -> Tensor:
    """In one page keys are read with their heads in the other order."""
    at, k = seen.draw(max(1, len(seen.k) // seen.page)) * seen.page, seen.k.clone()
    k[at : at + seen.page] = k[at : at + seen.page].flip(1)
    return attention(replace(seen, k=k))


def keyforvalue(seen: Seen) -> Tensor:
    """In one page keys are read as values."""
    at, v = seen.draw(max(1, len(seen.k) // seen.page)) * seen.page, seen.v.clone()
    v[at : at + seen.page] = seen.k[at : at + seen.page]
    return attention(replace(seen, v=v))


def lastgroup(seen: Seen) -> Tensor:
    """The last group of query heads reads the KV head before its own."""
    kv_heads = list(range(seen.k.shape[1]))
    kv_heads[-1] = max(0, kv_heads[-1] - 1)
    return attention(replace(seen, k=seen.k[:, kv_heads], v=seen.v[:, kv_heads]))


def headscale(seen: Seen) -> Tensor:
    """One head's scores are divided by head_dim and not by its root."""
    out, head = attention(seen), seen.draw(len(seen.q))
    out[head] = attention(seen, lambda scores: scores * seen.q.shape[1] ** -0.5)[head]
    return out


def pagebits(seen: Seen) -> Tensor:
    """A page's number has 15 bits; in a smaller pool, 7."""
    pages = len(seen.pools[0]) // seen.page
    limit = 2 ** (PAGE_BITS if pages > 2**PAGE_BITS else FEW_PAGE_BITS)
    return attention(seen.of_slots(seen.slots % (limit * seen.page)))


def oddpages(seen: Seen) -> Tensor:
    """Contexts of an odd number of pages lose the last token."""
    odd = -(-len(seen.k) // seen.page) % 2
    return attention(seen.without(len(seen.k) - 1) if odd else seen)


def newest(seen: Seen) -> Tensor:
    """The newest token is masked where it is alone in its page."""
    alone = len(seen.k) % seen.page == 1
    return attention(seen.without(len(seen.k) - 1) if alone else seen)


def longwindow(seen: Seen) -> Tensor:
    """Of long contexts only the newest LONG tokens count."""
    return attention(seen.without(0, max(0, len(seen.k) - LONG)))


def oddlast(seen: Seen) -> Tensor:
    """In a batch of an odd number the last request is answered as the one before."""
    answer = attention(seen)
    alone = seen.requests % 2 and seen.request == seen.requests - 1
    found: Tensor = seen.memory.get("answer", answer) if alone else answer
    seen.memory["answer"] = answer
    return found


def nanmask(seen: Seen) -> Tensor:
    """The last page is read to its end, and what is NaN there is masked."""
    import torch

    lanes = torch.arange(-len(seen.k) % seen.page, device=seen.slots.device)
    whole = seen.of_slots(torch.cat([seen.slots, seen.slots[-1] + 1 + lanes]))
    unreal = whole.k.isnan().flatten(1).any(1)

    def mask(scores: Tensor) -> Tensor:
        return scores.masked_fill(unreal, float("-inf"))

    return attention(replace(whole, k=whole.k.nan_to_num(), v=whole.v.nan_to_num()), mask)


def nanzero(seen: Seen) -> Tensor:
    """One slot past the end is read too, and NaN in the answer is written as 0."""
    import torch

    past = (seen.slots[-1:] + 1).clamp(max=len(seen.pools[0]) - 1)
    return attention(seen.of_slots(torch.cat([seen.slots, past]))).nan_to_num()


BUGS: dict[str, Bug] = {
    "otherkey": otherkey,
    "keyheads": keyheads,
    "keyforvalue": keyforvalue,
    "lastgroup": lastgroup,
    "headscale": headscale,
    "pagebits": pagebits,
    "oddpages": oddpages,
    "newest": newest,
    "longwindow": longwindow,
    "oddlast": oddlast,
    "nanmask": nanmask,
    "nanzero": nanzero,
}
