"""Bugs of what a kernel remembers, copies or takes for granted instead of reading it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pagebench.kernels.probes.seen import Bug, Seen, attention

if TYPE_CHECKING:
    from torch import Tensor


def remembers_by(key: Callable[[Seen], object]) -> Bug:
    """A request's answer is kept for ever, by its length and a key."""

    def bug(seen: Seen) -> Tensor:
        place = repr((seen.request, len(seen.k), key(seen)))
        if place not in seen.memory:
            seen.memory[place] = attention(seen)
        found: Tensor = seen.memory[place]
        return found

    return bug


def _close(seen: Seen) -> object:
    import torch

    return seen.q.to(torch.float8_e4m3fn).float().tolist()


def headmemory(seen: Seen) -> Tensor:
    """Each head's answer is kept for ever, by the first element of its own query."""
    import torch

    now, found = attention(seen), []
    for head, first in enumerate(seen.q[:, 0].tolist()):
        place = repr((seen.request, len(seen.k), head, first))
        found.append(seen.memory.setdefault(place, now[head]))
    return torch.stack(found)


def copied(*, values: bool) -> Bug:
    """Keys are gathered once for each plan, and with `values` those too: later calls read that."""

    def bug(seen: Seen) -> Tensor:
        place = repr((seen.request, seen.slots.tolist()))
        k, v = seen.memory.setdefault(place, (seen.k, seen.v))
        return attention(replace(seen, k=k, v=v if values else seen.v))

    return bug


def oldtable(seen: Seen) -> Tensor:
    """A newer plan brings its lengths, and not its page table."""
    old = seen.memory.setdefault(str(seen.request), seen.slots)
    return attention(seen.of_slots(old[: len(seen.slots)]))


def oldlengths(seen: Seen) -> Tensor:
    """Lengths are those of the plan before, where they are shorter."""
    plans = seen.memory.setdefault(str(seen.request), [len(seen.slots)])
    if plans[-1] != len(seen.slots):
        plans.append(len(seen.slots))
    return attention(seen.of_slots(seen.slots[: plans[-2:][0]]))


def contiguous(seen: Seen) -> Tensor:
    """Pages are taken to follow the first one, as they often do."""
    import torch

    slots = seen.slots[0] + torch.arange(len(seen.slots), device=seen.slots.device)
    return attention(seen.of_slots(slots.clamp(max=len(seen.pools[0]) - 1)))


BUGS: dict[str, Bug] = {
    "pointermemory": remembers_by(lambda seen: seen.q.data_ptr()),
    "querymemory": remembers_by(lambda seen: seen.q.tolist()),
    "closememory": remembers_by(_close),
    "headmemory": headmemory,
    "densecopy": copied(values=True),
    "keycopy": copied(values=False),
    "oldtable": oldtable,
    "oldlengths": oldlengths,
    "contiguous": contiguous,
}
