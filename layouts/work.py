"""Work a cell must do, predicted from its layout before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from pagebench.layouts.shape import DTYPE_BYTES, Shape
from pagebench.layouts.sharing import Sharing, share

INDEX_BYTES = 4  # int32


@dataclass(frozen=True, slots=True)
class Work:
    """Least work of one call. Bytes count every distinct byte once."""

    index_entries: int
    distinct_kv_bytes: int
    read_kv_bytes: int  # what requests read together, shared tokens once a reader
    compulsory_bytes: int  # distinct KV, index entries, queries and outputs
    flop: int


def predict(shape: Shape, sharing: Sharing, kind: str) -> Work:
    """Work of decoding one token a request (2 FLOP a multiply-add, for QK and for PV)."""
    lengths = shape.lengths()
    streams = share(sharing, shape)
    tokens = int(lengths.sum())
    pages = int((-(-lengths // shape.page_size)).sum())
    entries = tokens if kind == "token_indices" else pages
    distinct = int(streams.tokens.sum()) * shape.token_kv_bytes
    q_bytes = shape.batch * shape.q_heads * shape.head_dim * DTYPE_BYTES[shape.q_dtype]
    return Work(
        index_entries=entries,
        distinct_kv_bytes=distinct,
        read_kv_bytes=tokens * shape.token_kv_bytes,
        compulsory_bytes=distinct + entries * INDEX_BYTES + 2 * q_bytes,
        flop=4 * tokens * shape.q_heads * shape.head_dim,
    )
