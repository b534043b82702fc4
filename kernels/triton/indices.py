"""Device copies of a plan's indices, which our Triton kernels read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagebench.layouts.lowering import Lowered

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Indices:
    """Device copies of a plan's indices: a captured graph reads them, replanning refills them."""

    lengths: Tensor  # int32 [batch]
    entries: Tensor  # int32: rows of the page table, or slots of the CSR
    first_entry: Tensor  # int32 [batch]

    def refill(self, lowered: Lowered) -> None:
        entries, first_entry = _entries(lowered)
        self.lengths.copy_(lowered.lengths)
        self.entries[: len(entries)].copy_(entries)
        self.first_entry.copy_(first_entry)


def copied(lowered: Lowered) -> Indices:
    entries, first_entry = _entries(lowered)
    return Indices(lowered.lengths.clone(), entries.clone(), first_entry.clone())


def _entries(lowered: Lowered) -> tuple[Tensor, Tensor]:
    """All entries in one row, and where each request's entries begin, for tables and CSR alike."""
    import torch

    if lowered.table is None:
        assert lowered.indices is not None
        assert lowered.indptr is not None
        return lowered.indices, lowered.indptr[:-1]
    batch, width = lowered.table.shape
    begin = torch.arange(batch, dtype=torch.int32, device=lowered.table.device) * width
    return lowered.table.view(-1), begin
