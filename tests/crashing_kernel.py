"""A kernel that dies of an illegal address on the GPU, for `pagebench run --kernel`.

It stands in the middle of a sweep to show that only its own cell is lost.
"""

from __future__ import annotations

from pagebench.kernels.adapter import Call
from pagebench.kernels.gather import Gather
from pagebench.layouts.tensors import Batch


class Crashing(Gather):
    """Gather, whose every call reads an address that nobody mapped."""

    name = "crashing"

    def plan(self, batch: Batch, *, graph: bool) -> Call:
        import cupy

        call = super().plan(batch, graph=graph)
        read = cupy.RawKernel(
            'extern "C" __global__ void stray(float *out)'
            "{ out[0] = *(volatile float *)0xdead0000dead0000ull; }",
            "stray",
        )
        out = cupy.zeros(1, cupy.float32)
        return Call(lambda: read((1,), (1,), (out,)), call.out, call.replan, call.resolved)


ADAPTER = Crashing()
