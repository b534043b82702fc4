"""The sizes of one decode step: batch, context, heads, page size and type."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from pagebench.layouts.counter_hash import hash_numpy

if TYPE_CHECKING:
    import numpy as np

DTYPE_BYTES = {"bf16": 2, "fp16": 2, "e4m3": 1}
KV_LAYOUTS = ("NHD", "HND")
# No GPU holds a pool beyond these. They refuse a mistyped number before a table is built for it.
MOST = {
    "batch": 2**16,
    "kv_len": 2**24,
    "page_size": 2**16,
    "q_heads": 2**10,
    "kv_heads": 2**10,
    "head_dim": 2**10,
    "planted_loads": 64,
    "planted_ns": 1_000_000,
}
MAY_BE_NONE = ("planted_loads", "planted_ns")
MOST_SEED = 2**63 - 1
LENGTH_STREAM = 1  # the random stream that draws the ragged lengths


class SizeError(ValueError):
    """Sizes, sharing or placement that no cell can have; the message says what to use."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of one decode step (one query token per request).

    `kv_len` is the longest context in tokens. With `ragged_percent` r each length is drawn
    uniformly from [kv_len * (1 - r/100), kv_len]. `table_tokens` pads the page table to that many
    tokens. `planted_loads` (per tile) and `planted_ns` are extra work for kernels that support it;
    they change neither the table nor the predicted bytes. SizeError for sizes that no kernel could
    take.
    """

    batch: int
    kv_len: int
    page_size: int
    q_heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    dtype: str = "bf16"
    kv_layout: str = "NHD"
    ragged_percent: int = 0
    seed: int = 0
    table_tokens: int | None = None
    planted_loads: int = 0
    planted_ns: int = 0

    def __post_init__(self) -> None:
        for axis, most in MOST.items():
            least = 0 if axis in MAY_BE_NONE else 1
            if not least <= getattr(self, axis) <= most:
                raise SizeError(f"{axis} is {getattr(self, axis)}; use {least} to {most}")
        if not 0 <= self.seed <= MOST_SEED:
            raise SizeError(f"seed {self.seed}: use 0 to {MOST_SEED}")
        if self.q_heads % self.kv_heads:
            raise SizeError(
                f"{self.q_heads} query heads: use a multiple of the {self.kv_heads} KV heads"
            )
        if self.dtype not in DTYPE_BYTES:
            raise SizeError(f"dtype {self.dtype}: use one of {', '.join(DTYPE_BYTES)}")
        if self.kv_layout not in KV_LAYOUTS:
            raise SizeError(f"KV layout {self.kv_layout}: use one of {', '.join(KV_LAYOUTS)}")
        if not 0 <= self.ragged_percent <= 99:
            raise SizeError(f"ragged percent {self.ragged_percent}: use 0 to 99")
        if self.table_tokens is not None and self.table_tokens > MOST["kv_len"]:
            raise SizeError(f"a table of {self.table_tokens} tokens: use up to {MOST['kv_len']}")
        if self.table_tokens is not None and self.table_tokens < self.kv_len:
            raise SizeError(
                f"a table of {self.table_tokens} tokens is narrower than the context of "
                f"{self.kv_len}; use w{self.kv_len} or more"
            )

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.q_heads // self.kv_heads

    @property
    def q_dtype(self) -> str:
        """Queries and outputs stay bf16 when KV is e4m3."""
        return "bf16" if self.dtype == "e4m3" else self.dtype

    @property
    def token_kv_bytes(self) -> int:
        """Bytes of one token's K and V, over all KV heads."""
        return 2 * self.kv_heads * self.head_dim * DTYPE_BYTES[self.dtype]

    @property
    def table_width(self) -> int:
        """Pages per row of the page table."""
        return self.pages(self.table_tokens or self.kv_len)

    def pages(self, tokens: int) -> int:
        return ceil(tokens / self.page_size)

    def lengths(self) -> np.ndarray:  # int64 [batch]
        """Context length of each request in tokens; the first request has the longest."""
        import numpy as np

        shortest = ceil(self.kv_len * (100 - self.ragged_percent) / 100)
        spread = self.kv_len - max(shortest, 1) + 1
        draws = hash_numpy(self.seed, LENGTH_STREAM, np.arange(self.batch)) % np.uint64(spread)
        lengths = self.kv_len - draws.astype(np.int64)
        lengths[0] = self.kv_len
        return lengths
