"""`gather`: copy each request's tokens out of the pool, then dense attention.

This is what one would write without a paged kernel. It moves every byte three times (read, write,
read), so its time is the one that a paged kernel must beat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pagebench.kernels.adapter import Call
from pagebench.kernels.device import Device
from pagebench.kernels.limits import MOST_GRID_YZ, at_most
from pagebench.layouts.shape import DTYPE_BYTES, Shape
from pagebench.layouts.tensors import Batch, torch_dtype

if TYPE_CHECKING:
    from torch import Tensor


class Gather:
    """index_select into [batch, kv_heads, longest, head_dim], then torch's SDPA in q's dtype."""

    name = "gather"
    has_plan = False

    def lowering(self, shape: Shape) -> str:
        return "page_table"

    def refuses(self, shape: Shape, device: Device) -> str | None:
        """On a GPU, requests are an axis of SDPA's grids (PyTorch issue 146704)."""
        if device.kind == "cpu":
            return None
        what, remedy = "requests (an axis of SDPA's grid)", "use a smaller batch or reference"
        return at_most(MOST_GRID_YZ, shape.batch, self.name, what, remedy)

    def workspace_bytes(self, shape: Shape) -> int:
        """Gathered K and V, copies in q's dtype, and what SDPA may expand per query head."""
        gathered = shape.batch * shape.table_width * shape.page_size * shape.token_kv_bytes
        widening = DTYPE_BYTES[shape.q_dtype] // DTYPE_BYTES[shape.dtype]
        return gathered * (1 + widening * (1 + shape.group))

    def plan(self, batch: Batch, *, graph: bool) -> Call:
        """With `graph` the mask is always used: a captured call must allow shorter contexts."""
        import torch

        shape = batch.shape
        assert batch.q is not None
        out = torch.empty_like(batch.q)
        width = shape.table_width * shape.page_size
        table = torch.empty_like(batch.table.pages)
        dead = torch.empty(shape.batch, 1, 1, width, dtype=torch.bool, device=batch.device)
        has_dead = [False]

        def replan(planned: Batch) -> None:
            lowered = planned.lowered
            assert lowered.table is not None
            table.copy_(lowered.table)
            position = torch.arange(width, device=batch.device)
            dead.copy_((position >= lowered.lengths[:, None])[:, None, None])
            has_dead[0] = graph or bool((planned.table.lengths < width).any())

        def run() -> None:
            out.copy_(_attend(batch, table, dead if has_dead[0] else None))

        replan(batch)
        masked = ", masked" if has_dead[0] else ""
        kernel = f"torch index_select + SDPA{masked}"
        return Call(
            run,
            out,
            replan,
            {"kernel": kernel, "splits": 1, "page_size": shape.page_size},
        )


def _attend(batch: Batch, table: Tensor, dead: Tensor | None) -> Tensor:
    """q_dtype [batch, q_heads, head_dim]; `dead` is None where every gathered token is live."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    assert batch.q is not None
    assert batch.k is not None
    assert batch.v is not None
    k, v = (_gathered(batch, pool, table, dead) for pool in (batch.k, batch.v))
    q = batch.q[:, :, None]  # one query token: [batch, q_heads, 1, head_dim]
    mask = None if dead is None else ~dead
    out: torch.Tensor = scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    return out[:, :, 0]


def _gathered(batch: Batch, pool: Tensor, table: Tensor, dead: Tensor | None) -> Tensor:
    """[batch, kv_heads, width, head_dim] in q's dtype; dead tokens are 0, since NaN x 0 is NaN."""
    import torch

    shape = batch.shape
    bits = pool.view(torch.uint8) if shape.dtype == "e4m3" else pool
    pages = bits.index_select(0, table.view(-1)).view(pool.dtype)
    if shape.kv_layout == "HND":
        pages = pages.transpose(1, 2)
    dense = pages.reshape(shape.batch, -1, shape.kv_heads, shape.head_dim).transpose(1, 2)
    dense = dense.to(torch_dtype(shape.q_dtype))
    return dense if dead is None else dense.masked_fill(dead.transpose(2, 3), 0)


ADAPTER = Gather()
