"""Scratch memory that a check takes beside the cell's own tensors.

Nothing here imports numpy or torch: `pagebench list` asks it about every cell.
"""

from __future__ import annotations

from pagebench.layouts.shape import Shape

ORACLE_BYTES = 24  # scratch bytes per KV element: a hash, its temporaries, fp32 keys and values
SCORE_BYTES = 64  # per token and query head: fp32 scores of four questions, and their copies
FILL_BYTES = {"cuda": 2 << 30, "cpu": 160 << 20}  # scratch while a pool is filled in chunks


def oracle_bytes(shape: Shape) -> int:
    """Scratch bytes that the oracle takes for a token."""
    return ORACLE_BYTES * shape.kv_heads * shape.head_dim + SCORE_BYTES * shape.q_heads
