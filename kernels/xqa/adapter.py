"""FlashInfer's XQA called directly: page-aware decode, one compiled module for each page size.

Sources: flashinfer/xqa.py, flashinfer/jit/xqa.py and data/csrc/xqa/{mha.cu, mha_sm90.cu},
0.7.2.post1. The table's row stride is its width, and the width sets the number of splits.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pagebench.kernels.adapter import (
    Call,
    Loads,
    Tolerance,
    first,
    needs_gpu,
    needs_package,
    of_kind,
    takes,
)
from pagebench.kernels.device import Device
from pagebench.kernels.limits import MOST_GRID_YZ, MOST_INT32, at_most
from pagebench.kernels.loaded import loaded_libraries
from pagebench.kernels.xqa.loads import xqa_loads
from pagebench.layouts.shape import Shape

if TYPE_CHECKING:
    from pagebench.layouts.tensors import Batch

PAGE_SIZES = (16, 32, 64, 128)
MAJORS = (9, 10, 12)
SCRATCH_BYTES = 256 << 20  # split partials; the size FlashInfer's own test allocates
MAX_HEAD_BYTES = 16 << 10  # static_assert in mha.h on padded head bytes x group
CTA_TOKENS, CTA_TOKENS_SM90_FP8 = 256, 64  # context tokens per thread block and step


class Xqa:
    """Multi-query attention that reads the page table itself (TensorRT-LLM's XQA).

    With e4m3 KV it also rounds its probabilities to e4m3, so a random query is off by up to 6.8 %.
    Those of a zero query are all 1, which e4m3 holds.
    """

    name = "xqa"
    has_plan = False
    source: Mapping[str, str] = {"flashinfer": "0.7.2.post1"}  # that `loads` was read from
    # Largest errors measured on an H200, with a third to spare (docs/log.md).
    tolerance: Mapping[str, Tolerance] = {
        "bf16": Tolerance(0.0075, 0.007),
        "fp16": Tolerance(0.001, 0.001),
        "e4m3": Tolerance(0.09, 0.01),
    }

    def lowering(self, shape: Shape) -> str:
        return "page_table"

    def refuses(self, shape: Shape, device: Device) -> str | None:
        return first(
            takes(self.name, "page sizes", shape.page_size, PAGE_SIZES),
            of_kind("shape", _refuses_heads(shape)),
            self._refuses_launch(shape),
            needs_gpu(self.name, device, (9, 0)),
            of_kind("device", _refuses_device(device)),
            needs_package(self.name, "flashinfer", "flashinfer-python"),
        )

    def _refuses_launch(self, shape: Shape) -> str | None:
        """Requests are the grid's z axis, and table entries are counted in 32 bits."""
        entries = shape.batch * shape.table_width
        return first(
            at_most(
                *(MOST_GRID_YZ, shape.batch, self.name, "requests (its grid's z axis)"),
                "use a smaller batch, or fidecode, fitc or fifa3",
            ),
            at_most(
                *(MOST_INT32, entries, self.name, "entries in its page table"),
                "use larger pages, a smaller batch or a shorter context",
            ),
        )

    def loads(
        self, shape: Shape, resolved: Mapping[str, Any], capability: tuple[int, int] | None
    ) -> Loads:
        return xqa_loads(shape, resolved, capability)

    def workspace_bytes(self, shape: Shape) -> int:
        return SCRATCH_BYTES + 4 * _semaphores(shape)

    def plan(self, batch: Batch, *, graph: bool) -> Call:
        import torch
        from flashinfer.xqa import xqa

        assert batch.q is not None
        out = torch.empty_like(batch.q)
        arguments = _arguments(batch, out)
        table, seq_lens = arguments["page_table"], arguments["seq_lens"]

        def replan(planned: Batch) -> None:
            table.copy_(planned.lowered.table)
            seq_lens.copy_(planned.lowered.lengths[:, None])

        def run() -> None:
            xqa(**arguments)

        replan(batch)
        module = _module(batch)
        resolved = _resolved(batch, arguments["sm_count"]) | {"module": module}
        code = partial(loaded_libraries, module)
        return Call(run, out, replan, resolved, ("kernel_mha",), code)


def _refuses_heads(shape: Shape) -> str | None:
    if shape.head_dim % 16 or not 16 <= shape.head_dim <= 256:
        return f"xqa takes head dims that are multiples of 16 up to 256, not {shape.head_dim}"
    padded = 2 * next(dim for dim in (64, 128, 256) if dim >= shape.head_dim)
    most = MAX_HEAD_BYTES // padded
    if -(-shape.group // 16) * 16 > most:
        return f"xqa takes at most {most} query heads per KV head at d{shape.head_dim}"
    return None


def _refuses_device(device: Device) -> str | None:
    if device.capability is not None and device.capability[0] not in MAJORS:
        return f"xqa needs compute capability 9.x, 10.x or 12.x; this is {device}"
    return None


def _semaphores(shape: Shape) -> int:
    """The uint32 entries that FlashInfer's own test allocates for kv_heads x batch blocks."""
    blocks = shape.kv_heads * shape.batch
    return -(-blocks // 2) * 2 + 2 + blocks + 2


def _arguments(batch: Batch, out: Any) -> dict[str, Any]:
    import torch

    from pagebench.kernels.device import multiprocessors

    assert batch.q is not None
    assert batch.lowered.table is not None
    shape, device = batch.shape, batch.device
    return {
        "q": batch.q[:, None],  # [batch, beam 1, q_heads, head_dim]
        "k_cache": batch.k,
        "v_cache": batch.v,
        "page_table": batch.lowered.table.clone(),
        "seq_lens": batch.lowered.lengths[:, None].clone(),
        "output": out[:, None],
        "workspace_buffer": torch.zeros(SCRATCH_BYTES, dtype=torch.uint8, device=device),
        # Must be zero before the first launch; a complete launch resets them to zero.
        "semaphores": torch.zeros(_semaphores(shape), dtype=torch.int32, device=device),
        "num_kv_heads": shape.kv_heads,
        "page_size": shape.page_size,
        # Floats, because an int is taken for a tensor (isinstance(x, float) in xqa.py).
        "q_scale": 1.0,
        "kv_scale": 1.0,
        "kv_layout": shape.kv_layout,
        "sm_count": multiprocessors(device),
    }


def _module(batch: Batch) -> str:
    """The compiled module, one per page size, type and group: their kernels share one name."""
    from flashinfer.jit.xqa import gen_xqa_module

    assert batch.q is not None
    assert batch.k is not None
    shape, q = batch.shape, batch.q.dtype
    return str(
        gen_xqa_module(
            q, batch.k.dtype, shape.page_size, shape.head_dim, shape.group, False, q
        ).name
    )


def _resolved(batch: Batch, sm_count: int) -> dict[str, str | int]:
    """Splits are those that launchMHAFlashInfer and launchHopperF8MHAFlashInfer compute."""
    import torch

    shape = batch.shape
    heads = shape.batch * shape.kv_heads
    table_tokens = shape.table_width * shape.page_size
    hopper = batch.device.type == "cuda" and torch.cuda.get_device_capability(batch.device)[0] == 9
    if hopper and shape.dtype == "e4m3":
        # C rounds halves away from zero.
        wanted = int(sm_count * 3 // heads * 0.25 + 0.5)
        kernel, tile = "kernel_mha (mha_sm90.cu)", CTA_TOKENS_SM90_FP8
    else:
        wanted, kernel, tile = sm_count // heads, "kernel_mha (mha.cu)", CTA_TOKENS
    splits = min(max(1, wanted), -(-table_tokens // tile))
    return {"kernel": kernel, "splits": splits, "page_size": shape.page_size}


ADAPTER = Xqa()
