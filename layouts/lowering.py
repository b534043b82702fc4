"""Lowering: from a page table to the index representation that a kernel takes.

`token_indices`  CSR of one slot per token over a token-flat pool (SGLang's FlashInfer and Triton)
`csr_pages`      CSR of pages over a paged pool (vLLM's native FlashInfer)
`page_table`     dense int32 table over a paged pool (XQA, FlashAttention, vLLM's Triton)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pagebench.layouts.table import PageTable

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("token_indices", "csr_pages", "page_table")


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """Index tensors of one kind, on the table's device.

    `table` is contiguous, so its row stride is its width, as XQA assumes (mhaUtils.cuh).
    """

    kind: str
    page_size: int  # as the kernel sees it: 1 for token_indices
    entries: int  # index entries that live tokens need
    lengths: Tensor  # int32 [batch], tokens
    indptr: Tensor | None = None  # int32 [batch + 1]
    indices: Tensor | None = None  # int32 [entries]
    last_page_len: Tensor | None = None  # int32 [batch], 1..page_size
    table: Tensor | None = None  # int32 [batch, table_width]


def lower(table: PageTable, kind: str) -> Lowered:
    """Represent `table` as `kind`, one of KINDS; ValueError for another kind."""
    if kind not in KINDS:
        raise ValueError(f"no lowering {kind}; there are {', '.join(KINDS)}")
    if kind == "page_table":
        return Lowered(
            kind,
            table.shape.page_size,
            int(table.request_pages.sum()),
            _int32(table, table.lengths),
            table=table.pages.contiguous(),
        )
    return _lower_csr(table, kind)


def _lower_csr(table: PageTable, kind: str) -> Lowered:
    page = table.shape.page_size
    pages = _live_entries(table)
    counts, kernel_page = table.request_pages, page
    if kind == "token_indices":
        pages, counts, kernel_page = _tokens(table, pages), table.lengths, 1
    last = table.lengths - (counts - 1) * kernel_page
    return Lowered(
        kind,
        kernel_page,
        int(counts.sum()),
        _int32(table, table.lengths),
        indptr=_int32(table, np.concatenate([[0], np.cumsum(counts)])),
        indices=pages,
        last_page_len=_int32(table, last),
    )


def _live_entries(table: PageTable) -> Tensor:  # int32 [sum of request pages]
    counts = table.request_pages
    if (counts == table.shape.table_width).all():
        return table.pages.reshape(-1)
    return table.pages[table.pages != table.poison_page]


def _tokens(table: PageTable, pages: Tensor) -> Tensor:  # int32 [sum of lengths]
    """Slots of all live tokens, page * page_size + offset: unused ends of last pages left out."""
    import torch

    page = table.shape.page_size
    if page == 1:
        return pages
    offset = torch.arange(page, dtype=torch.int32, device=pages.device)
    slots = (pages[:, None] * page + offset).reshape(-1)
    position = torch.cat([torch.arange(n * page) for n in table.request_pages.tolist()])
    length = np.repeat(table.lengths, table.request_pages * page)
    live = position < torch.from_numpy(length)
    return slots[live.to(slots.device)]


def _int32(table: PageTable, values: np.ndarray) -> Tensor:
    import torch

    return torch.from_numpy(values.astype(np.int32)).to(table.pages.device)
