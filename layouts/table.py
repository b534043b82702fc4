"""The page table: the physical pages that hold each request's tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pagebench.layouts.placement import Placed, Placement, place
from pagebench.layouts.shape import Shape
from pagebench.layouts.sharing import Streams

if TYPE_CHECKING:
    from torch import Tensor


class LayoutError(Exception):
    """A page table that breaks a promise of its cell."""


@dataclass(frozen=True, slots=True, eq=False)
class PageTable:
    """Physical pages of each request. Entries after a request's last page are `poison_page`."""

    shape: Shape
    streams: Streams
    placed: Placed
    pages: Tensor  # int32 [batch, table_width]
    lengths: np.ndarray  # int64 [batch], tokens

    @property
    def poison_page(self) -> int:
        """The pool's last page, which no request owns."""
        return self.placed.pool_pages

    @property
    def pool_pages(self) -> int:
        return self.placed.pool_pages + 1

    @property
    def request_pages(self) -> np.ndarray:  # int64 [batch]
        return -(-self.lengths // self.shape.page_size)

    def shortened(self, lengths: np.ndarray) -> PageTable:
        """The same table for shorter contexts, `lengths` int64 [batch] in tokens.

        ValueError where one is longer. Replanning for it shows whether a plan follows the lengths.
        """
        if (lengths > self.lengths).any():
            raise ValueError("a table can only be shortened")
        kept = _mask(self.shape, -(-lengths // self.shape.page_size), self.pages.device)
        pages = self.pages.masked_fill(~kept, self.poison_page)
        return PageTable(self.shape, self.streams, self.placed, pages, lengths)

    def borrowed(self, rows: np.ndarray) -> PageTable:
        """The table where request i has the pages and the length of request `rows[i]`.

        ValueError where that one is longer.
        """
        import torch

        lengths = self.lengths[rows]
        if (lengths > self.lengths).any():
            raise ValueError("a request can only borrow a context that is no longer than its own")
        pages = self.pages[torch.from_numpy(rows).to(self.pages.device)]
        return PageTable(self.shape, self.streams, self.placed, pages, lengths)

    def reordered(self) -> PageTable:
        """The table with the full pages of each request from last to first, apart for those that
        all share: attention takes tokens in any order, so every answer stays what it was."""
        import torch

        shared, device = self.streams.shared_pages, self.pages.device
        full = self.lengths // self.shape.page_size
        common = min(shared, int(full.min()))
        column = torch.arange(self.pages.shape[1], device=device)[None]
        end = torch.from_numpy(full).to(device)[:, None]
        own = (column >= shared) & (column < end)
        taken = torch.where(own, shared + end - 1 - column, column)
        taken = torch.where(column < common, common - 1 - column, taken)
        pages = self.pages.gather(1, taken)
        return PageTable(self.shape, self.streams, self.placed, pages, self.lengths)


def page_table(shape: Shape, streams: Streams, placement: Placement, device: Any) -> PageTable:
    """Build the table of a cell on `device`; the same arguments give the same table everywhere.

    `streams` must be those of `shape`. SizeError where the placement does not fit the page size.
    """
    placed = place(placement, streams, shape.seed, device)
    lengths = shape.lengths()
    stored = stored_pages(shape, streams, lengths, device)
    pages = placed.pages[stored.clamp(min=0)]
    pages.masked_fill_(stored < 0, placed.pool_pages)
    return PageTable(shape, streams, placed, pages, lengths)


def stored_pages(
    shape: Shape, streams: Streams, lengths: np.ndarray, device: Any
) -> Tensor:  # int32 [batch, table_width]
    """The stored page behind every table entry, -1 where the entry is unused."""
    import torch

    column = torch.arange(shape.table_width, dtype=torch.int32, device=device)
    first_private = torch.from_numpy(streams.first_page[1:] - streams.shared_pages)
    private = column + first_private.to(device, torch.int32)[:, None]
    stored = torch.where(column < streams.shared_pages, column, private)
    used = _mask(shape, -(-lengths // shape.page_size), device)
    return stored.masked_fill_(~used, -1)


def _mask(shape: Shape, request_pages: np.ndarray, device: Any) -> Tensor:
    import torch

    column = torch.arange(shape.table_width, dtype=torch.int32, device=device)
    counts = torch.from_numpy(request_pages).to(device, torch.int32)
    return column < counts[:, None]  # bool [batch, table_width]


def check(table: PageTable) -> dict[str, int]:
    """Check the table independently of how it was built, and count its parts; else LayoutError.

    Each stored page's number is written into the pool and read back through the table. This shows
    both aliased pages (one number overwrote another) and wrong entries.
    """
    import torch

    placed, device = table.placed, table.pages.device
    stored_count = table.streams.stored_pages
    for pages, end in ((placed.pages, placed.pool_pages), (table.pages, table.pool_pages)):
        if not bool(((pages >= 0) & (pages < end)).all()):
            raise LayoutError("a page lies outside the pool")
    owner = torch.full((table.pool_pages,), -1, dtype=torch.int32, device=device)
    owner[placed.pages.long()] = torch.arange(stored_count, dtype=torch.int32, device=device)
    if int((owner >= 0).sum()) != stored_count:
        raise LayoutError("two stored pages have the same physical page")
    read = owner[table.pages.long()]
    expected = torch.from_numpy(_own_pages(table)).to(device)
    if not torch.equal(read, expected):
        raise LayoutError("a request would read other tokens than its own")
    unused = table.pages[expected < 0]
    if not bool((unused == table.poison_page).all()):
        raise LayoutError("an unused entry does not point to the poisoned page")
    return {
        "distinct_pages": stored_count,
        "distinct_tokens": int(table.streams.tokens.sum()),
        "pool_pages": table.pool_pages,
        "unused_entries": int(unused.numel()),
    }


def _own_pages(table: PageTable) -> np.ndarray:  # int32 [batch, table_width]
    """What `stored_pages` should have returned, request by request; -1 where unused."""
    expected = np.full((table.shape.batch, table.shape.table_width), -1, dtype=np.int32)
    shared = -(-table.streams.shared_tokens // table.shape.page_size)
    end = shared
    for row, private, used in zip(
        expected, table.streams.private_tokens, table.request_pages, strict=True
    ):
        first, end = end, end + -(-int(private) // table.shape.page_size)
        row[:used] = np.r_[:shared, first:end][:used]
    return expected
