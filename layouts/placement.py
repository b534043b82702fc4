"""Where stored pages lie in the pool: ideal, adversarial and churned placements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pagebench.layouts.churn import churned_capacity, churned_slots
from pagebench.layouts.counter_hash import permutation
from pagebench.layouts.shape import SizeError
from pagebench.layouts.sharing import Streams

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

PLACEMENT_STREAM = 2  # which of a seed's random streams shuffles pages
UNIT_KINDS = ("block", "grown", "churned", "churnedfifo", "churnedlifo")


@dataclass(frozen=True, slots=True)
class Placement:
    """`contiguous`, `scatter`, or one of UNIT_KINDS with an allocation unit of `unit_tokens`.

    SizeError where the unit is missing.
    """

    kind: str = "contiguous"
    unit_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.kind in UNIT_KINDS and not self.unit_tokens:
            raise SizeError(f"{self.word}: give the allocation unit in tokens, as {self.kind}128")

    @property
    def word(self) -> str:
        return self.kind if self.unit_tokens is None else f"{self.kind}{self.unit_tokens}"

    def unit_pages(self, page_size: int) -> int:
        """Pages in an allocation unit; SizeError where a unit is not a whole number of pages."""
        unit = self.unit_tokens or page_size
        if unit % page_size:
            raise SizeError(
                f"{self.word}: the allocation unit must be a multiple of the page size {page_size}"
            )
        return unit // page_size


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """The physical page of every stored page, and the size of their pool in pages."""

    pages: Tensor  # int32 [stored_pages]
    pool_pages: int


def place(placement: Placement, streams: Streams, seed: int, device: Any) -> Placed:
    """Give every stored page a physical page; the same arguments give the same pages everywhere.

    SizeError where an allocation unit is not a whole number of pages.
    """
    import torch

    stored = streams.stored_pages
    unit_pages = placement.unit_pages(streams.page_size)
    if placement.kind == "contiguous":
        return Placed(torch.arange(stored, dtype=torch.int32, device=device), stored)
    if placement.kind == "scatter":
        order = permutation(seed, PLACEMENT_STREAM, stored, device)
        return Placed(order.to(torch.int32), stored)
    if placement.kind == "block":
        return _place_blocks(unit_pages, stored, seed, device)
    units = -(-streams.pages // unit_pages)
    if placement.kind == "grown":
        slots, capacity = _lock_step(units), int(units.sum())
    else:
        slots, capacity = churned_slots(units, placement.kind, placement.unit_tokens or 1, seed)
    return _place_units(streams.pages, units, slots, unit_pages, capacity, device)


def pool_pages(placement: Placement, streams: Streams) -> int:
    """Pages of the pool that `place` would use, without placing anything; SizeError as there."""
    unit_pages = placement.unit_pages(streams.page_size)
    if placement.kind == "block":
        return -(-streams.stored_pages // unit_pages) * unit_pages
    units = int((-(-streams.pages // unit_pages)).sum())
    if placement.kind.startswith("churned"):
        return churned_capacity(units) * unit_pages
    return units * unit_pages


def _place_blocks(unit_pages: int, stored: int, seed: int, device: Any) -> Placed:
    """Runs of `unit_pages` in shuffled order; a shorter last run leaves part of its unit unused."""
    import torch

    num_units = -(-stored // unit_pages)
    order = permutation(seed, PLACEMENT_STREAM, num_units, device)
    page = torch.arange(stored, device=device)
    physical = order[page // unit_pages] * unit_pages + page % unit_pages
    return Placed(physical.to(torch.int32), num_units * unit_pages)


def _lock_step(units: np.ndarray) -> np.ndarray:  # int64 [units.sum()]
    """Slots when all streams take one unit a turn from one ascending free list."""
    import numpy as np

    turn = np.concatenate([np.arange(count) for count in units])
    owner = np.repeat(np.arange(len(units)), units)
    slots = np.empty(len(turn), np.int64)
    slots[np.lexsort((owner, turn))] = np.arange(len(turn))
    return slots


def _place_units(
    pages: np.ndarray,
    units: np.ndarray,
    slots: np.ndarray,
    unit_pages: int,
    capacity: int,
    device: Any,
) -> Placed:
    """Fill each stream's units with its pages in order; unit u lies at `slots[u]`."""
    import numpy as np
    import torch

    first_unit = np.cumsum(units) - units
    local = np.arange(pages.sum()) - np.repeat(np.cumsum(pages) - pages, pages)
    unit = np.repeat(first_unit, pages) + local // unit_pages
    physical = slots[unit] * unit_pages + local % unit_pages
    on_device = torch.from_numpy(physical.astype(np.int32)).to(device)
    return Placed(on_device, capacity * unit_pages)
