"""`tritontoken`, `tritonrow`, `tritontile`: our own split-KV decode, three ways to read indices.

The kernels are in `kernels.py`. The three differ only in their index loads, so a difference in time
between them is the cost of those loads. No vendor's kernels offer this comparison.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
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
from pagebench.kernels.triton.indices import Indices, copied
from pagebench.kernels.triton.launch import Tuning, block_h, power_of_two, refuses_launch
from pagebench.kernels.triton.loads import triton_loads
from pagebench.layouts.shape import Shape
from pagebench.layouts.tensors import Batch

if TYPE_CHECKING:
    from torch import Tensor

# One wave of merge_splits on an RTX 4090 (128 SMs of 12 programs), an A100 (108 of 16) and larger.
WAVE_PROGRAMS = 1536
SYMBOLS = ("split_decode", "merge_splits")


def _strides(pool: Tensor, kv_layout: str) -> tuple[int, int, int]:
    """Elements from one page to the next, one token to the next and one head to the next."""
    if pool.dim() == 3:  # token-flat: a slot is a page of one token
        return pool.stride(0), pool.stride(0), pool.stride(1)
    if kv_layout == "HND":
        return pool.stride(0), pool.stride(2), pool.stride(1)
    return pool.stride(0), pool.stride(1), pool.stride(2)


def _is_interpreted() -> bool:
    """Whether Triton runs kernels on the CPU; its decorators read the variable at import."""
    return os.environ.get("TRITON_INTERPRET") == "1"


class TritonDecode:
    """One of the three modes: `token` reads CSR slots, `row` and `tile` read a page table.

    Only these kernels do planted work. `planted_loads` are read in the loop over tiles.
    `planted_ns` is a wait at the start of `merge_splits`: the decode kernel has ended by then, and
    all programs of the merge wait at once, so the call lasts that much longer. A GPU that holds
    fewer than WAVE_PROGRAMS at once could need a second wave for a large merge, and wait twice.
    """

    has_plan = False
    plants = True
    # Partials are fp32. Largest errors measured on an H200, with a third to spare (docs/log.md).
    tolerance: Mapping[str, Tolerance] = {
        "bf16": Tolerance(0.006, 0.002),
        "e4m3": Tolerance(0.006, 0.002),
    }

    def __init__(self, name: str, mode: str, tuning: Tuning | None = None) -> None:
        self.name = name
        self.mode = mode
        self.tuning = tuning or Tuning()

    def lowering(self, shape: Shape) -> str:
        return "token_indices" if self.mode == "token" else "page_table"

    def refuses(self, shape: Shape, device: Device) -> str | None:
        least = (8, 9) if shape.dtype == "e4m3" else (8, 0)  # the first with e4m3 conversions
        return first(
            of_kind("shape", self._refuses_pages(shape)),
            takes(self.name, "head_dim", shape.head_dim, (64, 128, 256)),
            refuses_launch(self.name, shape, self.tuning, device),
            None if _is_interpreted() else needs_gpu(self.name, device, least),
            needs_package(self.name, "triton", "triton"),
            of_kind("shape", self._refuses_loads(shape)) if shape.planted_loads else None,
            of_kind("shape", self._refuses_spin(shape)) if shape.planted_ns else None,
        )

    def _refuses_pages(self, shape: Shape) -> str | None:
        if self.mode == "token":
            flat = f"{self.name} reads a token-flat pool, which has no HND layout: leave out hnd"
            return first(
                takes(self.name, "page size", shape.page_size, (1,)),
                flat if shape.kv_layout == "HND" else None,
            )
        if shape.page_size & (shape.page_size - 1):
            return f"{self.name} takes page sizes that are powers of two, not {shape.page_size}"
        return None

    def _refuses_loads(self, shape: Shape) -> str | None:
        least = shape.pages(int(shape.lengths().min()))
        if least < shape.planted_loads:
            return (
                f"x{shape.planted_loads} reads {shape.planted_loads} entries of each request, and "
                f"the shortest has {least}: use up to x{least}, smaller pages or a longer context"
            )
        return None

    def _refuses_spin(self, shape: Shape) -> str | None:
        word, tuning = f"y{shape.planted_ns}", self.tuning
        programs = shape.batch * shape.q_heads
        if _is_interpreted():
            return f"{word} reads a GPU's global timer, which Triton's interpreter lacks: use a GPU"
        if tuning.splits(shape) == 1:
            return (
                f"{word} waits in the merge kernel, and one split has none: use a smaller batch, "
                f"so that batch x KV heads is below {tuning.programs}, and a context above "
                f"{tuning.least_tiles * tuning.block_n} tokens"
            )
        if programs > WAVE_PROGRAMS:
            return (
                f"{word} needs a merge kernel of one wave, up to {WAVE_PROGRAMS} (request, query "
                f"head) pairs, not {programs}: use a smaller batch"
            )
        return None

    def loads(
        self, shape: Shape, resolved: Mapping[str, Any], capability: tuple[int, int] | None
    ) -> Loads:
        return triton_loads(self.mode, shape, resolved)

    def workspace_bytes(self, shape: Shape) -> int:
        """The output, each split's float32 partial and LSE, and copies of the indices."""
        rows = shape.batch * shape.q_heads
        partials = 4 * rows * self.tuning.splits(shape) * (shape.head_dim + 1)
        indices = 4 * shape.batch * (shape.table_width + 2)
        return 2 * rows * shape.head_dim + partials + indices

    def plan(self, batch: Batch, *, graph: bool) -> Call:
        import torch

        assert batch.q is not None
        shape, splits = batch.shape, self.tuning.splits(batch.shape)
        out = torch.empty_like(batch.q)
        partial = out.new_empty(
            shape.batch, shape.q_heads, splits, shape.head_dim, dtype=torch.float32
        )
        lse = torch.empty_like(partial[..., 0])
        indices = copied(batch.lowered)

        def run() -> None:
            self._decode(batch, indices, out, partial, lse)
            if splits > 1:
                _merge(partial, lse, out, shape.planted_ns)

        def code() -> list[bytes]:
            """A launch returns what Triton compiled, and nothing where it interprets."""
            ran = [self._decode(batch, indices, out, partial, lse)]
            if splits > 1:
                ran.append(_merge(partial, lse, out, shape.planted_ns))
            return [kernel.asm["cubin"] for kernel in ran if kernel is not None]

        return Call(
            run,
            out,
            lambda planned: indices.refill(planned.lowered),
            self._resolved(shape),
            SYMBOLS if splits > 1 else SYMBOLS[:1],
            code,
        )

    def _resolved(self, shape: Shape) -> dict[str, str | int]:
        splits, tuning = self.tuning.splits(shape), self.tuning
        planted = {"planted_loads": shape.planted_loads, "planted_ns": shape.planted_ns}
        return {
            "kernel": " + ".join(SYMBOLS if splits > 1 else SYMBOLS[:1]),
            "splits": splits,
            "page_size": shape.page_size,
            "block_n": tuning.block_n,
            "num_warps": tuning.num_warps,
            "num_stages": tuning.num_stages,
            "module": self._module(shape),
            **{name: amount for name, amount in planted.items() if amount},
        }

    def _module(self, shape: Shape) -> str:
        """Both kernels' compile-time arguments, which their names do not show."""
        constants = self.constants(shape) | {"SPIN_NS": shape.planted_ns}
        return ", ".join(f"{name}={value}" for name, value in constants.items())

    def _decode(
        self, batch: Batch, indices: Indices, out: Tensor, partial: Tensor, lse: Tensor
    ) -> Any:
        from pagebench.kernels.triton.kernels import split_decode

        assert batch.k is not None
        assert batch.v is not None
        shape, splits = batch.shape, partial.shape[2]
        return split_decode[shape.kv_heads, splits, shape.batch](
            batch.q,
            batch.k,
            batch.v,
            out,
            partial,
            lse,
            indices.lengths,
            indices.entries,
            indices.first_entry,
            *_strides(batch.k, shape.kv_layout),
            self.tuning.tiles_per_split(shape),
            **self.constants(shape),
            num_warps=self.tuning.num_warps,
            num_stages=self.tuning.num_stages,
        )

    def constants(self, shape: Shape) -> dict[str, str | int | bool]:
        """The compile-time arguments of `split_decode`."""
        return {
            "MODE": self.mode,
            "PAGE_SIZE": shape.page_size,
            "GROUP": shape.group,
            "HEAD_DIM": shape.head_dim,
            "BLOCK_H": block_h(shape),
            "BLOCK_N": self.tuning.block_n,
            "IS_WHOLE": self.tuning.splits(shape) == 1,
            "EXTRA_LOADS": shape.planted_loads,
            "UPCAST": _is_interpreted(),
        }


def _merge(partial: Tensor, lse: Tensor, out: Tensor, spin_ns: int) -> Any:
    from pagebench.kernels.triton.kernels import merge_splits

    batch, q_heads, splits, head_dim = partial.shape
    return merge_splits[batch, q_heads](
        partial,
        lse,
        out,
        splits,
        HEAD_DIM=head_dim,
        BLOCK_S=power_of_two(splits),
        SPIN_NS=spin_ns,
    )


TRITONTOKEN = TritonDecode("tritontoken", "token")
TRITONROW = TritonDecode("tritonrow", "row")
TRITONTILE = TritonDecode("tritontile", "tile")
