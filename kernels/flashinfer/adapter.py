"""FlashInfer's BatchDecodeWithPagedKVCacheWrapper, plan and run: `fidecode`, `fitc`, `fifa3`.

Page size 1 is passed as SGLang does: a token-flat pool and one index per token. Larger pages are
passed as vLLM's native FlashInfer path does: CSR of pages over a paged pool. Sources for the
wrapper: flashinfer/decode.py and include/flashinfer/attention/scheduler.cuh, 0.7.2.post1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
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
from pagebench.kernels.device import Device, multiprocessors
from pagebench.kernels.flashinfer.launch import (
    INT_WORKSPACE_BYTES,
    float_workspace_bytes,
    refuses_launch,
)
from pagebench.kernels.flashinfer.loads import fidecode_loads
from pagebench.kernels.loaded import loaded_libraries
from pagebench.layouts.shape import Shape
from pagebench.layouts.tensors import Batch, torch_dtype

if TYPE_CHECKING:
    from torch import Tensor

# Group sizes of the CUDA-core kernel: DISPATCH_GQA_GROUP_SIZE in include/flashinfer/utils.cuh.
GROUPS_0_6 = (1, 2, 3, 4, 8)
GROUPS_0_7 = (1, 2, 3, 4, 6, 8, 16)
# A block has 128 threads of 40 registers and 10.5 KiB of shared memory: an SM since sm_80 holds 9.
MERGE_BLOCKS_AN_SM = 9
# 0.7.2 compiles the paged prefill for K and V of equal strides, as ours are, apart from others.
STRIDES = ("_kv_stride_equal",)
MERGE_SYMBOL = "PersistentVariableLengthMergeStatesKernel"
# Positions of a plan's tile count and split flag: DecodePlanInfo and PrefillPlanInfo.
PLAN_TILES, PLAN_SPLITS = 0, -1


def _groups() -> tuple[int, ...]:
    try:
        major, minor = map(int, version("flashinfer-python").split(".")[:2])
    except PackageNotFoundError:
        return GROUPS_0_7
    return GROUPS_0_7 if (major, minor) >= (0, 7) else GROUPS_0_6


# Largest errors measured on an H200, with a third to spare (docs/log.md). Partials of split
# contexts are bf16, so a zero query is off as much as a random one.
TOLERANCE = {
    "bf16": Tolerance(0.007, 0.007),
    "fp16": Tolerance(0.001, 0.001),
    "e4m3": Tolerance(0.007, 0.007),
}


SOURCE = {"flashinfer": "0.7.2.post1"}  # that the formulas of loads were read from


@dataclass(frozen=True, slots=True)
class FlashInferDecode:
    """One device kernel behind the wrapper: CUDA cores, tensor cores (fa2), or Hopper's fa3."""

    name: str
    backend: str
    tensor_cores: bool
    symbol: str
    has_plan: bool = True

    @property
    def source(self) -> Mapping[str, str]:
        return SOURCE

    @property
    def tolerance(self) -> Mapping[str, Tolerance]:
        return TOLERANCE

    @property
    def _pads(self) -> bool:
        return self.tensor_cores and self.backend == "fa2"

    def lowering(self, shape: Shape) -> str:
        return "token_indices" if shape.page_size == 1 else "csr_pages"

    def refuses(self, shape: Shape, device: Device) -> str | None:
        return first(
            takes(self.name, "head dims", shape.head_dim, (64, 128, 256)),
            None if self.tensor_cores else takes(self.name, "groups", shape.group, _groups()),
            of_kind("shape", self._refuses_types(shape)),
            refuses_launch(self.name, self.backend, shape),
            needs_gpu(self.name, device),
            of_kind("device", self._refuses_device(device)),
            needs_package(self.name, "flashinfer", "flashinfer-python"),
        )

    def _refuses_types(self, shape: Shape) -> str | None:
        if shape.page_size == 1 and shape.kv_layout == "HND":
            return (
                f"{self.name} at p1 takes a token-flat pool, which has no HND layout: leave out hnd"
            )
        if self.backend == "fa3" and shape.dtype == "e4m3":
            return f"{self.name} takes e4m3 KV only with e4m3 queries; use bf16 or fp16"
        return None

    def _refuses_device(self, device: Device) -> str | None:
        if self.backend == "fa3" and device.capability != (9, 0):
            return f"{self.name} needs compute capability 9.0 (Hopper); this is {device}"
        return None

    def loads(
        self, shape: Shape, resolved: Mapping[str, Any], capability: tuple[int, int] | None
    ) -> Loads:
        return Loads() if self.tensor_cores else fidecode_loads(shape, resolved)

    def workspace_bytes(self, shape: Shape) -> int:
        return INT_WORKSPACE_BYTES + float_workspace_bytes(shape, padded=self._pads)

    def plan(self, batch: Batch, *, graph: bool) -> Call:
        import torch

        wrapper = self._wrapper(batch, graph)

        def replan(planned: Batch) -> None:
            wrapper.plan(**_plan_arguments(planned))

        replan(batch)
        plan = None if self.backend == "fa3" else _read(getattr(wrapper, "_plan_info", None), batch)
        resolved = self._resolved(batch, plan)
        symbols, code = self._symbols(plan), partial(self._code, batch)
        if batch.q is None:
            return Call(_no_kv, None, replan, resolved, symbols, code)
        out = torch.empty_like(batch.q)
        q, pools = batch.q, (_paged(batch.k), _paged(batch.v))

        def run() -> None:
            wrapper.run(q, pools, out=out)

        return Call(run, out, replan, resolved, symbols, code)

    def _code(self, batch: Batch) -> tuple[Path, ...]:
        """The library that the wrapper loaded, by the name that FlashInfer gives it."""
        return loaded_libraries(self._module(batch.shape), ("", *STRIDES))

    def _module(self, shape: Shape) -> str:
        import torch
        from flashinfer.jit.attention import modules

        q, kv = torch_dtype(shape.q_dtype), torch_dtype(shape.dtype)
        types = (q, kv, q, torch.int32, shape.head_dim, shape.head_dim, 0, False, False)
        if self.tensor_cores:
            return str(modules.get_batch_prefill_uri(self.backend, *types, False))
        return str(modules.get_batch_decode_uri(*types))

    def _wrapper(self, batch: Batch, graph: bool) -> Any:
        import torch
        from flashinfer import BatchDecodeWithPagedKVCacheWrapper

        lowered = batch.lowered
        workspace = float_workspace_bytes(batch.shape, padded=self._pads)
        buffers = {}
        if graph:
            assert lowered.indptr is not None
            assert lowered.indices is not None
            assert lowered.last_page_len is not None
            buffers = {
                "paged_kv_indptr_buffer": lowered.indptr.clone(),
                "paged_kv_indices_buffer": lowered.indices.clone(),
                "paged_kv_last_page_len_buffer": lowered.last_page_len.clone(),
            }
        return BatchDecodeWithPagedKVCacheWrapper(
            torch.zeros(workspace, dtype=torch.uint8, device=batch.device),
            batch.shape.kv_layout,
            use_cuda_graph=graph,
            use_tensor_cores=self.tensor_cores,
            backend=self.backend,
            **buffers,
        )

    def _symbols(self, plan: Plan | None) -> tuple[str, ...]:
        """A merge kernel follows where the plan splits contexts, which fa3's plan never does."""
        if plan is None:
            return (self.symbol,) if self.backend == "fa3" else ()
        return (self.symbol, MERGE_SYMBOL) if plan.splits else (self.symbol,)

    def _resolved(self, batch: Batch, plan: Plan | None) -> dict[str, str | int]:
        resolved: dict[str, str | int] = {
            "kernel": self.symbol,
            "backend": self.backend,
            "page_size": batch.lowered.page_size,
        }
        if plan:
            resolved["tiles"] = plan.tiles
            resolved["splits"] = -(-plan.tiles // batch.shape.batch) if plan.splits else 1
            resolved |= _merge_blocks(batch) if plan.splits else {}
        return resolved


@dataclass(frozen=True, slots=True)
class Plan:
    """How many tiles, (request, chunk of its context) pairs, a plan has; whether it splits any."""

    tiles: int
    splits: bool


def _read(plan: Sequence[int] | None, batch: Batch) -> Plan | None:
    """The tile count and split flag of a wrapper's private plan, which no interface guarantees.

    None where they cannot be right: fewer tiles than requests, or a flag other than 0 and 1.
    """
    if plan is None:
        return None
    tiles, splits = int(plan[PLAN_TILES]), int(plan[PLAN_SPLITS])
    return Plan(tiles, bool(splits)) if tiles >= batch.shape.batch and splits in (0, 1) else None


def _merge_blocks(batch: Batch) -> dict[str, str | int]:
    """Blocks of the merge kernel: equally many on each SM, at least one per (request, head) row.

    Empty where that is more than an SM holds. Source: VariableLengthMergeStates in cascade.cuh.
    """
    count = multiprocessors(batch.device)
    rows = batch.shape.batch * batch.shape.q_heads
    an_sm = -(-rows // count) if count else 0
    return {"merge_blocks": count * an_sm} if 0 < an_sm <= MERGE_BLOCKS_AN_SM else {}


def _plan_arguments(batch: Batch) -> dict[str, Any]:
    """All by keyword: 0.7 deprecates positional arguments after page_size."""
    shape, lowered = batch.shape, batch.lowered
    return {
        "indptr": lowered.indptr,
        "indices": lowered.indices,
        "last_page_len": lowered.last_page_len,
        "num_qo_heads": shape.q_heads,
        "num_kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "page_size": lowered.page_size,
        "q_data_type": torch_dtype(shape.q_dtype),  # the default is float16, whatever q is
        "kv_data_type": torch_dtype(shape.dtype),
    }


def _paged(pool: Tensor | None) -> Tensor:
    """A token-flat pool as pages of one token: run() takes the page size from the shape."""
    assert pool is not None
    return pool[:, None] if pool.dim() == 3 else pool


def _no_kv() -> None:
    raise RuntimeError("this call was planned without a KV pool: only its plan can be measured")


FIDECODE = FlashInferDecode("fidecode", "fa2", False, "BatchDecodeWithPagedKVCacheKernel")
FITC = FlashInferDecode("fitc", "fa2", True, "BatchPrefillWithPagedKVCacheKernel")
FIFA3 = FlashInferDecode("fifa3", "fa3", True, "PrefillWithKVCacheKernel")
