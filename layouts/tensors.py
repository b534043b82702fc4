"""Tensors of a cell on a device: query, KV pool and indices, with poison in unused places.

Values depend on the token, not on its place: a counter-based hash of stream and position makes
them. So every placement and page size holds the same tokens on every device, and `request_kv`
returns a request's keys and values without the page table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from pagebench.layouts.counter_hash import hash_torch
from pagebench.layouts.lowering import Lowered, lower
from pagebench.layouts.shape import DTYPE_BYTES, Shape
from pagebench.layouts.table import PageTable

if TYPE_CHECKING:
    import torch
    from torch import Tensor

K_STREAM, V_STREAM, Q_STREAM = 4, 5, 6
TOKEN_KEYS = 2**24  # keys per stream; longer contexts do not fit any GPU
CHUNK_ELEMENTS = {"cuda": 2**26, "cpu": 2**22}
E4M3_NAN = 0x7F  # OCP 8-bit floating point: the only NaN magnitude of E4M3


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The inputs of a kernel. Query and pools are None where only planning is measured.

    NHD pools are [pages, page_size, kv_heads, head_dim], HND pools [pages, kv_heads, page_size,
    head_dim], token-flat pools [slots, kv_heads, head_dim]. K and V have equal strides.
    """

    shape: Shape
    table: PageTable
    lowered: Lowered
    q: Tensor | None  # q_dtype [batch, q_heads, head_dim]
    k: Tensor | None
    v: Tensor | None

    @property
    def device(self) -> torch.device:
        return self.table.pages.device

    def with_lengths(self, lengths: np.ndarray) -> Batch:
        """The same pool and queries with shorter contexts; ValueError where one is longer."""
        return self._with_table(self.table.shortened(lengths))

    def borrowing(self, rows: np.ndarray) -> Batch:
        """The same pool and queries; request i reads the context of request `rows[i]`, with the
        pages in another order."""
        return self._with_table(self.table.borrowed(rows).reordered())

    def _with_table(self, table: PageTable) -> Batch:
        lowered = lower(table, self.lowered.kind)
        return Batch(self.shape, table, lowered, self.q, self.k, self.v)


def torch_dtype(name: str) -> torch.dtype:
    import torch

    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16, "e4m3": torch.float8_e4m3fn}
    return kinds[name]


def materialise(table: PageTable, kind: str, *, with_kv: bool = True) -> Batch:
    """The batch of a table, lowered to `kind`; with `with_kv` also queries and filled pools.

    ValueError for an unknown kind, or a token-flat pool in HND.
    """
    lowered = lower(table, kind)
    if not with_kv:
        return Batch(table.shape, table, lowered, None, None, None)
    q = queries(table.shape, table.pages.device)
    k, v = _pool(table, K_STREAM, kind), _pool(table, V_STREAM, kind)
    return Batch(table.shape, table, lowered, q, k, v)


def queries(
    shape: Shape, device: Any, stream: int = Q_STREAM
) -> Tensor:  # q_dtype [batch, q_heads, head_dim]
    import torch

    keys = torch.arange(shape.batch, device=device)
    values = _values(keys, shape.q_heads, shape.head_dim, shape.seed, stream)
    return values.to(torch_dtype(shape.q_dtype))


def request_kv(
    table: PageTable, request: int, device: Any
) -> tuple[Tensor, Tensor]:  # kv dtype [length, kv_heads, head_dim] each
    """Keys and values of one request in logical order, computed without the page table."""
    k, v = contexts(table, [request], device)
    return k[0], v[0]


def contexts(
    table: PageTable, requests: Sequence[int], device: Any
) -> tuple[Tensor, Tensor]:  # kv dtype [requests, longest, kv_heads, head_dim] each
    """The same of several requests. After the end of a shorter one stand finite values that are
    nobody's."""
    import torch

    shape, shared = table.shape, table.streams.shared_tokens
    longest = int(table.lengths[list(requests)].max())
    position = torch.arange(longest, device=device)
    own = (torch.tensor(requests, device=device)[:, None] + 1) * TOKEN_KEYS + position - shared
    keys = torch.where(position < shared, position, own).view(-1)
    dims = (len(requests), longest, shape.kv_heads, shape.head_dim)
    k, v = (
        _values(keys, shape.kv_heads, shape.head_dim, shape.seed, stream)
        .to(torch_dtype(shape.dtype))
        .view(dims)
        for stream in (K_STREAM, V_STREAM)
    )
    return k, v


def token_kv(
    table: PageTable, tokens: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[Tensor, Tensor]:  # kv dtype [n, head_dim] each
    """K and V of `tokens`: request, position and KV head, int64 [n] each.

    Computed without the page table, and only for the heads asked for.
    """
    import torch

    shape, shared, device = table.shape, table.streams.shared_tokens, table.pages.device
    request, position, head = tokens
    keys = np.where(position < shared, position, (request + 1) * TOKEN_KEYS + position - shared)
    words = -(-shape.kv_heads * shape.head_dim // 4)
    begin = torch.from_numpy(np.stack((keys * words, head * shape.head_dim))).to(device)
    element = begin[1][:, None] + torch.arange(shape.head_dim, device=device)
    counters, shift = begin[0][:, None] + element // 4, 16 * (element % 4)

    def rows(stream: int) -> Tensor:
        bits = (hash_torch(shape.seed, stream, counters) >> shift) & 0xFFFF
        lanes = torch.where(bits >= 2**15, bits - 2**16, bits)  # int16, as `_values` views them
        return _scaled(lanes.to(torch.float32)).to(torch_dtype(shape.dtype))

    return rows(K_STREAM), rows(V_STREAM)


def pool_bytes(shape: Shape, pool_pages: int) -> int:
    """Device bytes of the K and V pools together."""
    return pool_pages * shape.page_size * shape.token_kv_bytes


def _values(
    keys: Tensor, heads: int, head_dim: int, seed: int, stream: int
) -> Tensor:  # float32 [len(keys), heads, head_dim]
    """Uniform in (-sqrt 3, sqrt 3) with variance 1; one 64-bit hash gives four values."""
    import torch

    words = -(-heads * head_dim // 4)
    counters = keys[:, None] * words + torch.arange(words, device=keys.device)
    lanes = hash_torch(seed, stream, counters).view(torch.int16)[:, : heads * head_dim]
    return _scaled(lanes.to(torch.float32)).view(-1, heads, head_dim)


def _scaled(lanes: Tensor) -> Tensor:
    """16-bit integers as values of variance 1, in place."""
    return lanes.add_(0.5).mul_(sqrt(3) / 2**15)


def _pool(table: PageTable, stream: int, kind: str) -> Tensor:
    """One pool: all pages are poisoned, then the stored pages are filled."""
    import torch

    shape, page = table.shape, table.shape.page_size
    dims = [table.pool_pages, page, shape.kv_heads, shape.head_dim]
    pool = torch.empty(dims, dtype=torch_dtype(shape.dtype), device=table.pages.device)
    if shape.kv_layout == "HND":
        pool = pool.view(dims[0], dims[2], dims[1], dims[3])
    _poison(pool)
    by_token = pool.transpose(1, 2) if shape.kv_layout == "HND" else pool
    for first, keys, live in _stored_chunks(table):
        values = _values(keys, shape.kv_heads, shape.head_dim, shape.seed, stream)
        stored = values.to(pool.dtype)
        _bits(stored)[~live] = _bits(_nan_like(pool))
        physical = table.placed.pages[first : first + len(keys) // page].long()
        _bits(by_token)[physical] = _bits(stored).view(-1, page, shape.kv_heads, shape.head_dim)
    if kind == "token_indices":
        if shape.kv_layout == "HND":
            raise ValueError("a token-flat pool has no HND layout; leave out hnd")
        return pool.view(-1, shape.kv_heads, shape.head_dim)
    return pool


def _stored_chunks(table: PageTable) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(first stored page, token keys, which keys are live), in chunks that bound scratch memory."""
    import torch

    shape, streams, device = table.shape, table.streams, table.pages.device
    page_elements = shape.page_size * shape.kv_heads * shape.head_dim
    step = max(1, CHUNK_ELEMENTS[device.type] // page_elements)
    owner_first = torch.from_numpy(streams.first_page).to(device)
    owner_tokens = torch.from_numpy(streams.tokens).to(device)
    owner_end = torch.from_numpy(streams.first_page + streams.pages).to(device)
    offset = torch.arange(shape.page_size, device=device)
    for first in range(0, streams.stored_pages, step):
        stored = torch.arange(first, min(first + step, streams.stored_pages), device=device)
        owner = torch.searchsorted(owner_end, stored, right=True)
        position = ((stored - owner_first[owner]) * shape.page_size)[:, None] + offset
        live = (position < owner_tokens[owner][:, None]).reshape(-1)
        keys = (owner[:, None] * TOKEN_KEYS + position).reshape(-1)
        yield first, keys, live


def _bits(tensor: Tensor) -> Tensor:
    """An integer view, because float8 tensors support neither masks nor indexed writes."""
    import torch

    return tensor.view(torch.uint8 if tensor.element_size() == 1 else torch.int16)


def _nan_like(pool: Tensor) -> Tensor:
    import torch

    nan = torch.empty(1, dtype=pool.dtype, device=pool.device)
    _poison(nan)
    return nan


def _poison(pool: Tensor) -> None:
    import torch

    if pool.element_size() == DTYPE_BYTES["e4m3"]:
        pool.view(torch.uint8).fill_(E4M3_NAN)
    else:
        pool.fill_(float("nan"))
