"""A free list after rounds of allocating and freeing, in the order in which an engine reuses units.

The reuse order of plain `churned` is SGLang's (srt/mem_cache/allocator.py at 02e29cb). Its token
allocator appends freed slots to the tail of the list (first in, first out). Its paged allocator
puts freed pages, sorted, at the head (last in, first out). `churnedfifo` and `churnedlifo` use one
of the two for every allocation unit.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from pagebench.layouts.counter_hash import hash_numpy

if TYPE_CHECKING:
    import numpy as np

CHURN_STREAM = 3
ROUNDS = 8  # in the first two all requests leave, in the others half of them
SLACK = 1.5  # pool capacity over live units: an engine that is two thirds full
DECODED_SHARE = 1 / 8  # share of a request's units that grow in lock-step after its prefill


def churned_slots(
    units: np.ndarray, kind: str, unit_tokens: int, seed: int
) -> tuple[np.ndarray, int]:
    """Slots of every stream's units, int64 [units.sum()] in stream order; pool capacity in units.

    `units` is int64 [streams]. Stream 0, the shared one, is allocated first and never freed.
    """
    import numpy as np

    fifo = kind == "churnedfifo" or (kind == "churned" and unit_tokens == 1)
    capacity = churned_capacity(int(units.sum()))
    free = np.arange(capacity)
    held: list[np.ndarray] = [np.empty(0, np.int64) for _ in units]
    held[0], free = free[: units[0]], free[units[0] :]
    requests = np.arange(1, len(units))
    free = _admit(requests, units, held, free)
    for turn in range(ROUNDS):
        leaving = _draw_half(requests, seed, turn)
        for request in leaving:
            free = _release(held[request], free, fifo)
        free = _admit(leaving, units, held, free)
    return np.concatenate(held), capacity


def churned_capacity(live_units: int) -> int:
    """The capacity, in units, of a pool that holds `live_units`."""
    return ceil(live_units * SLACK)


def _draw_half(requests: np.ndarray, seed: int, turn: int) -> np.ndarray:
    """Half of the requests (at least one), in random order; all of them in the first two rounds."""
    import numpy as np

    draws = hash_numpy(seed, CHURN_STREAM, turn * 2**20 + requests)
    order = requests[np.argsort(draws, kind="stable")]
    return order if turn < 2 else order[: -(-len(order) // 2)]


def _release(units: np.ndarray, free: np.ndarray, fifo: bool) -> np.ndarray:
    import numpy as np

    return np.concatenate([free, units] if fifo else [np.sort(units), free])


def _admit(
    requests: np.ndarray, units: np.ndarray, held: list[np.ndarray], free: np.ndarray
) -> np.ndarray:
    """Prefill each request in one run from the head of the list, then decode all in lock-step."""
    import numpy as np

    decoded = (units[requests] * DECODED_SHARE).astype(np.int64)
    for request, tail in zip(requests, decoded, strict=True):
        count = units[request] - tail
        held[request], free = free[:count], free[count:]
    turn = np.concatenate([np.arange(count) for count in decoded]).astype(np.int64)
    owner = np.repeat(np.arange(len(requests)), decoded)
    order = np.lexsort((owner, turn))
    grown, free = free[: len(order)], free[len(order) :]
    for position, request in enumerate(requests):
        mine = grown[owner[order] == position]
        held[request] = np.concatenate([held[request], mine])
    return free
