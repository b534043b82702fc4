"""Attention in fp32, and `reference`, a kernel that reads the pool through its indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pagebench.kernels.adapter import Call, Refusal
from pagebench.kernels.device import Device
from pagebench.layouts.shape import Shape
from pagebench.layouts.tensors import Batch

if TYPE_CHECKING:
    from torch import Tensor


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # float32 [q_heads, head_dim]
    """One query token, one context: q [q_heads, head_dim], k and v [length, kv_heads, head_dim].

    softmax(q k^T / sqrt(head_dim)) v in fp32; consecutive query heads share a KV head (arXiv
    2305.13245).
    """
    return attend_each(q[None, None], k.float()[None], v.float()[None])[0, 0]


def attend_each(
    q: Tensor, k: Tensor, v: Tensor, ends: Tensor | None = None
) -> Tensor:  # float32 [requests, queries, q_heads, head_dim]
    """The same of several requests and queries at once, in fp32: q [requests, queries, q_heads,
    head_dim], k and v [requests, length, kv_heads, head_dim].

    Query i of request r sees the tokens before ends[r, i], int64 [requests, queries], or all.
    """
    import torch

    kv_heads, head_dim = k.shape[2], k.shape[3]
    grouped = q.float().view(*q.shape[:2], kv_heads, -1, head_dim)
    scores = torch.einsum("rqhgd,rlhd->rhqgl", grouped, k).mul_(head_dim**-0.5)
    if ends is not None:
        unseen = torch.arange(k.shape[1], device=k.device) >= ends[..., None]
        scores.masked_fill_(unseen[:, None, :, None, :], float("-inf"))
    out = torch.einsum("rhqgl,rlhd->rqhgd", scores.softmax(-1), v)
    return out.reshape(q.shape)


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
