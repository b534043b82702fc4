"""The axes of a cell, as records hold them: nothing here needs a kernel or a layout."""

from __future__ import annotations

from msgspec import Struct


class Axes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every axis of a cell as records hold it: words for sharing and placement, sizes for the rest.

    `table_tokens` is the padded context in tokens, `planted_ns` nanoseconds.
    """

    kernel: str
    sharing: str
    placement: str
    page_size: int
    batch: int
    kv_len: int
    ragged_percent: int
    seed: int
    table_tokens: int
    q_heads: int
    kv_heads: int
    head_dim: int
    dtype: str
    kv_layout: str
    planted_loads: int
    planted_ns: int
