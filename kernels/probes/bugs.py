"""Bugs of a paged decode kernel, each as small as it can be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pagebench.kernels.probes.seen import Bug, Seen, attention

if TYPE_CHECKING:
    from torch import Tensor

TILE = 64  # tokens that a kernel takes at a time
WRAP_BITS = 31  # the word that an element offset overflows in a pool that is large enough
RARELY = 300  # one call in so many
LATE = 16  # calls, more than a check before timing makes

# --- Tokens ---------------------------------------------------------------------------------------


def last(seen: Seen) -> Tensor:
    return attention(seen.without(len(seen.k) - 1))


def first(seen: Seen) -> Tensor:
    return attention(seen.without(0))


def loses(count: int) -> Bug:
    """`count` tokens in a row are not read, at a place by the seed."""
    return lambda seen: attention(seen.without(seen.draw(len(seen.k) - count + 1), count))


def replaced(count: int) -> Bug:
    """`count` tokens in a row are read as copies of the first ones."""

    def bug(seen: Seen) -> Tensor:
        at = seen.draw(len(seen.k) - count + 1)
        k, v = seen.k.clone(), seen.v.clone()
        k[at : at + count], v[at : at + count] = seen.k[:count], seen.v[:count]
        return attention(replace(seen, k=k, v=v))

    return bug


def othervalue(seen: Seen) -> Tensor:
    """One token's weight goes to the value of the next one."""
    at, v = seen.draw(len(seen.k)), seen.v.clone()
    v[at] = seen.v[(at + 1) % len(v)]
    return attention(replace(seen, v=v))


def page(seen: Seen) -> Tensor:
    """A whole page is not read, at a place by the seed."""
    at = seen.draw(max(1, len(seen.k) // seen.page)) * seen.page
    return attention(seen.without(at, seen.page))


def lastpage(seen: Seen) -> Tensor:
    """The last page counts length % page tokens: none where it is full."""
    length = len(seen.k)
    return attention(seen) if length % seen.page else attention(seen.without(length - seen.page))


def otherpage(seen: Seen) -> Tensor:
    """The page of the first request's last token, and what lies around it, is read by the last."""
    if seen.request == 0:
        seen.memory["slots"] = seen.slots
        return attention(seen)
    at = seen.draw(len(seen.slots) // seen.page) * seen.page
    slots = seen.slots.clone()
    taken = seen.memory["slots"][: len(slots[at : at + seen.page])]
    slots[at : at + len(taken)] = taken
    return attention(seen.of_slots(slots))


def tilestart(seen: Seen) -> Tensor:
    """The first token of each tile but the first is not read."""
    import torch

    k, v = (
        torch.cat([tile if at == 0 else tile[1:] for at, tile in enumerate(torch.split(x, TILE))])
        for x in (seen.k, seen.v)
    )
    return attention(replace(seen, k=k, v=v))


def twice(seen: Seen) -> Tensor:
    import torch

    k, v = (torch.cat([each, each[-1:]]) for each in (seen.k, seen.v))
    return attention(replace(seen, k=k, v=v)) if len(k) > 2 else attention(seen)


def window(seen: Seen) -> Tensor:
    """Only the last half of the context counts."""
    return attention(seen.without(0, len(seen.k) // 2))


def pastend(seen: Seen) -> Tensor:
    """One slot past the end is read too: another request's token, or poison."""
    import torch

    past = (seen.slots[-1:] + 1).clamp(max=len(seen.pools[0]) - 1)
    return attention(seen.of_slots(torch.cat([seen.slots, past])))


def wraps(seen: Seen) -> Tensor:
    """Element offsets of WRAP_BITS bits: what lies beyond in the pool is read from its beginning.

    A pool that is smaller has a smaller word, which its last eighth overflows.
    """
    row, rows = seen.pools[0][0].numel(), len(seen.pools[0])
    limit = (2**WRAP_BITS // row) if rows * row > 2**WRAP_BITS else rows * 7 // 8
    return attention(seen.of_slots(seen.slots % limit))


# --- Heads, requests and lanes --------------------------------------------------------------------


def onehead(seen: Seen) -> Tensor:
    """One head does not read one token."""
    out, head = attention(seen), seen.draw(len(seen.q), 1)
    out[head] = attention(seen.without(seen.draw(len(seen.k))))[head]
    return out


def scaledhead(seen: Seen) -> Tensor:
    out = attention(seen)
    out[seen.draw(len(out))] *= 1.03
    return out


def swappedheads(seen: Seen) -> Tensor:
    return attention(seen)[[1, 0, *range(2, len(seen.q))]]


def interleaved(seen: Seen) -> Tensor:
    """Query head h reads KV head h modulo their number, instead of neighbours sharing one."""
    heads, kv_heads = len(seen.q), seen.k.shape[1]
    order = [head for first in range(kv_heads) for head in range(first, heads, kv_heads)]
    answer = attention(replace(seen, q=seen.q[order]))
    found = answer.clone()
    found[order] = answer
    return found


def otherrequest(seen: Seen) -> Tensor | None:
    """One request is not written; which one, the seed decides."""
    return None if seen.request == seen.draw(seen.requests) else attention(seen)


def sameanswer(seen: Seen) -> Tensor:
    """The last request gets the answer of the first."""
    answer = attention(seen)
    if seen.request == 0:
        seen.memory["answer"] = answer
    return seen.memory["answer"] if seen.request == seen.requests - 1 else answer


def padding(tile: int) -> Bug:
    """Zero-filled lanes up to the tile's edge join the denominator."""

    def bug(seen: Seen) -> Tensor:
        import torch

        lanes = -len(seen.k) % tile
        k, v = (
            torch.cat([x, torch.zeros(lanes, *x.shape[1:], device=x.device)])
            for x in (seen.k, seen.v)
        )
        return attention(replace(seen, k=k, v=v))

    return bug


def faintmask(seen: Seen) -> Tensor:
    """Lanes of the last tile are masked with -30 and not with minus infinity."""
    import torch

    lanes = -len(seen.k) % TILE
    padded = replace(
        seen,
        k=torch.nn.functional.pad(seen.k, (0, 0, 0, 0, 0, lanes)),
        v=torch.nn.functional.pad(seen.v, (0, 0, 0, 0, 0, lanes)),
    )

    def mask(scores: Tensor) -> Tensor:
        scores[..., len(seen.k) :] = -30.0
        return scores

    return attention(padded, mask)


# --- Softmax --------------------------------------------------------------------------------------


def scale(seen: Seen) -> Tensor:
    return attention(seen, lambda scores: scores * 1.01)


def softcap(seen: Seen) -> Tensor:
    return attention(seen, lambda scores: 5 * (scores / 5).tanh())


def evenmerge(seen: Seen) -> Tensor:
    """Two splits are merged with equal weights."""
    half = len(seen.k) // 2
    parts = [seen.without(0, half), seen.without(half, len(seen.k) - half)]
    return (attention(parts[0]) + attention(parts[1])) / 2


# --- Time -----------------------------------------------------------------------------------------


def remembers(seen: Seen) -> Tensor:
    """The first answer is given for ever."""
    found: Tensor = seen.memory.setdefault(str(seen.request), attention(seen))
    return found


def thirdcall(seen: Seen) -> Tensor | None:
    """Each third call writes nothing."""
    return None if seen.call % 3 == 2 else attention(seen)


def callbefore(seen: Seen) -> Tensor:
    """The answer to the call before."""
    before = seen.memory.get(str(seen.request))
    now = seen.memory[str(seen.request)] = attention(seen)
    return now if before is None else before


def oldplan(seen: Seen) -> Tensor:
    """A newer plan is not taken: the first one's slots are read."""
    return attention(seen.of_slots(seen.memory.setdefault(str(seen.request), seen.slots)))


def late(seen: Seen) -> Tensor:
    """Wrong after LATE calls."""
    return attention(seen) * (1.2 if seen.call > LATE else 1.0)


def rarely(seen: Seen) -> Tensor:
    """One call in RARELY loses half its tokens."""
    return window(seen) if seen.draw(RARELY, seen.call) == 0 else attention(seen)


# --- Memory ---------------------------------------------------------------------------------------


def writespool(seen: Seen) -> Tensor:
    """A value in the pool is changed, late."""
    seen.pools[1][seen.slots[0]] = seen.pools[1][seen.slots[-1 if seen.call > LATE else 0]]
    return attention(seen)


def writesquery(seen: Seen) -> Tensor:
    """The query is scaled in place."""
    answer = attention(seen)
    seen.q.mul_(seen.q.shape[1] ** -0.5)
    return answer


def writesbeside(seen: Seen) -> Tensor:
    """The vector store of the last row is one element too long."""
    answer = attention(seen)
    if seen.request == seen.requests - 1:
        end = seen.out.storage_offset() + seen.out.numel()
        if seen.out.untyped_storage().nbytes() > end * seen.out.element_size():
            seen.out.as_strided((1,), (1,), end).fill_(1.0)
    return answer
