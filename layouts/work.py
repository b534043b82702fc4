"""The work that a cell must do, predicted from its layout before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from pagebench.layouts.shape import DTYPE_BYTES, Shape
from pagebench.layouts.sharing import Streams

INDEX_BYTES = 4  # int32
SECTOR_BYTES, WARP_BYTES = 32, 512


@dataclass(frozen=True, slots=True)
class Work:
    """The least work of one call. Distinct bytes count once, except in `read_kv_bytes`."""

    index_entries: int
    distinct_kv_bytes: int
    read_kv_bytes: int  # read by all requests together, shared tokens once per reader
    read_bytes: int  # distinct KV, index entries and queries: read from DRAM when cold
    compulsory_bytes: int  # read_bytes and the outputs
    flop: int
    sectors_per_request: float  # of KV loads with 16 bytes per lane


def predict(shape: Shape, streams: Streams, kind: str) -> Work:
    """The work of decoding one token per request (2 FLOP per multiply-add, for QK and for PV).

    `streams` must be those of `shape`; `kind` is the lowering that the kernel takes.
    """
    lengths = shape.lengths()
    tokens = int(lengths.sum())
    pages = int((-(-lengths // shape.page_size)).sum())
    entries = tokens if kind == "token_indices" else pages
    distinct = int(streams.tokens.sum()) * shape.token_kv_bytes
    q_bytes = shape.batch * shape.q_heads * shape.head_dim * DTYPE_BYTES[shape.q_dtype]
    read = distinct + entries * INDEX_BYTES + q_bytes
    return Work(
        index_entries=entries,
        distinct_kv_bytes=distinct,
        read_kv_bytes=tokens * shape.token_kv_bytes,
        read_bytes=read,
        compulsory_bytes=read + q_bytes,
        flop=4 * tokens * shape.q_heads * shape.head_dim,
        sectors_per_request=_sectors_per_request(shape),
    )


def _sectors_per_request(shape: Shape) -> float:
    """32-byte sectors of a warp's 16-byte loads of KV rows.

    A head's row is contiguous in every placement and page size, so neither changes this. Rows of
    whole sectors give 32 x 16 / 32; other rows straddle one more.
    """
    row_bytes = shape.head_dim * DTYPE_BYTES[shape.dtype]
    rows = WARP_BYTES / row_bytes
    return rows * -(-row_bytes // SECTOR_BYTES)
