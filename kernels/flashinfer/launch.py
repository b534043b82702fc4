"""What FlashInfer's plans need and cannot exceed.

Source: include/flashinfer/attention/scheduler.cuh (PrefillPlanImpl, PrefillSM90Plan), 0.7.2.post1.
"""

from __future__ import annotations

from pagebench.kernels.adapter import first
from pagebench.kernels.limits import MOST_INT32, at_most
from pagebench.layouts.shape import Shape

WORKSPACE_BYTES = 128 << 20  # the size FlashInfer's documentation recommends
INT_WORKSPACE_BYTES = 8 << 20  # what the wrapper itself allocates on the device
BLOCKS_AN_SM = 2  # that a plan of the tensor-core kernel counts on
MOST_SMS = 192  # of the largest GPUs, rounded up: an RTX PRO 6000 has 188
# fa3 keeps seven int32 a (request, head) in the integer workspace, unless one head's plan is all's.
FA3_ARRAYS, FA3_ONE_PLAN = 7, 4096
FA3_SLACK = 4096  # bytes: the alignment of the arrays, and where each SM's work begins


def refuses_launch(name: str, backend: str, shape: Shape) -> str | None:
    """Offsets in a page are counted in 32 bits, and fa3's plan fills a workspace of fixed size."""
    page = shape.page_size * shape.kv_heads * shape.head_dim
    most = (INT_WORKSPACE_BYTES - FA3_SLACK) // (4 * FA3_ARRAYS)
    return first(
        at_most(MOST_INT32, page, name, "elements in a page", "use smaller pages or fewer heads"),
        at_most(
            *(most, _works(shape), name, "(request, query head) pairs in its plan's workspace"),
            "use a smaller batch, fewer heads or fitc",
        )
        if backend == "fa3"
        else None,
    )


def _works(shape: Shape) -> int:
    """The most pairs that fa3 plans: those of one head where it has many."""
    one_head = shape.batch + -(-shape.batch // (192 if shape.head_dim == 64 else 128)) - 1
    return one_head if one_head > FA3_ONE_PLAN else one_head * shape.q_heads


def float_workspace_bytes(shape: Shape, *, padded: bool) -> int:
    """Bytes for float32 partials: what is recommended, or what `fitc`'s plan needs.

    It pads a group's query heads to a tile (`padded`), and under a graph it always splits.
    """
    if not padded:
        return WORKSPACE_BYTES
    tile = 16 if shape.group <= 16 else 64 if shape.group <= 64 or shape.head_dim == 256 else 128
    tiles = -(-shape.batch * shape.group // tile) + shape.batch
    rows = max(BLOCKS_AN_SM * MOST_SMS // shape.kv_heads, tiles) * tile
    return max(WORKSPACE_BYTES, 4 * shape.q_heads * rows * (shape.head_dim + 1) + FA3_SLACK)
