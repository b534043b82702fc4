"""Attention in fp32, two ways.

`reference` is a kernel that reads the pool through its indices. `expected_output` is an oracle that
makes a request's keys and values without them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from pagebench.kernels.adapter import Call, Refusal
from pagebench.kernels.device import Device
from pagebench.layouts.shape import Shape
from pagebench.layouts.tensors import Batch, request_kv

if TYPE_CHECKING:
    from torch import Tensor


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # float32 [q_heads, head_dim]
    """One query token, one context: q [q_heads, head_dim], k and v [length, kv_heads, head_dim].

    softmax(q k^T / sqrt(head_dim)) v in fp32; consecutive query heads share a KV head (arXiv
    2305.13245).
    """
    import torch

    kv_heads, head_dim = k.shape[1], k.shape[2]
    grouped = q.float().view(kv_heads, -1, head_dim)  # [kv_heads, group, head_dim]
    scores = torch.einsum("hgd,lhd->hgl", grouped, k.float()) * head_dim**-0.5
    out = torch.einsum("hgl,lhd->hgd", scores.softmax(-1), v.float())
    return out.reshape(-1, head_dim)


def expected_output(batch: Batch, requests: Iterable[int]) -> Tensor:
    """The right output of those requests, float32 [requests, q_heads, head_dim].

    It is computed without the page table.
    """
    import torch

    assert batch.q is not None
    rows = []
    for request in requests:
        k, v = request_kv(batch.table, request, batch.device)
        rows.append(attend(batch.q[request], k, v))
    return torch.stack(rows)


def slots_of(batch: Batch, request: int, lengths: np.ndarray) -> Tensor:  # int64 [length]
    """Pool slots of one request's tokens, read from the lowered indices."""
    lowered = batch.lowered
    assert lowered.indptr is not None
    assert lowered.indices is not None
    begin, end = lowered.indptr[request : request + 2].tolist()
    return lowered.indices[begin:end].long()[: int(lengths[request])]


class Reference:
    """fp32 attention, one request at a time: slow, but with the same `attend` as the oracle."""

    name = "reference"
    has_plan = False

    def lowering(self, shape: Shape) -> str:
        return "token_indices"

    def refuses(self, shape: Shape, device: Device) -> str | None:
        if shape.kv_layout == "HND":
            flat = "reference reads a token-flat pool, which has no HND layout: leave out hnd"
            return Refusal(flat, "shape")
        return None

    def workspace_bytes(self, shape: Shape) -> int:
        return 4 * shape.kv_len * shape.token_kv_bytes + 4 * shape.kv_len * shape.q_heads

    def plan(self, batch: Batch, *, graph: bool) -> Call:
        import torch

        assert batch.q is not None
        out = torch.empty_like(batch.q)
        slots = [torch.empty(0)] * batch.shape.batch

        def replan(planned: Batch) -> None:
            lengths = planned.table.lengths
            slots[:] = [slots_of(planned, r, lengths) for r in range(planned.shape.batch)]

        def run() -> None:
            assert batch.q is not None
            assert batch.k is not None
            assert batch.v is not None
            for request, rows in enumerate(slots):
                out[request] = attend(batch.q[request], batch.k[rows], batch.v[rows])

        replan(batch)
        resolved: dict[str, str | int] = {
            "kernel": "torch einsum, fp32",
            "splits": 1,
            "page_size": 1,
        }
        return Call(run, out, replan, resolved)


ADAPTER = Reference()
