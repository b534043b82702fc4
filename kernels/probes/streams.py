"""Kernels whose work runs on a stream of their own: rightly, or without one of the two waits.

A clock of events brackets the stream of the call. Work that does not wait for that stream, or that
it does not wait for, is not in the bracket: the time would be that of an empty call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pagebench.kernels.adapter import Adapter, Call, Refusal
from pagebench.kernels.device import Device
from pagebench.layouts.shape import Shape
from pagebench.layouts.tensors import Batch


@dataclass(slots=True)
class Streamed:
    """The work of `inner` on another stream, which `waits` for the call's and is `joined` to it."""

    name: str
    inner: Adapter
    waits: bool
    joined: bool
    has_plan: bool = False

    def lowering(self, shape: Shape) -> str:
        return self.inner.lowering(shape)

    def refuses(self, shape: Shape, device: Device) -> Refusal | str | None:
        if device.kind != "cuda":
            return Refusal(f"{self.name} needs an NVIDIA GPU: a CPU has no streams", "device")
        return self.inner.refuses(shape, device)

    def workspace_bytes(self, shape: Shape) -> int:
        return self.inner.workspace_bytes(shape)

    def plan(self, batch: Batch, *, graph: bool) -> Call:
        import torch

        call = self.inner.plan(batch, graph=graph)
        cuda: Any = torch.cuda
        side = cuda.Stream()

        def run() -> None:
            current = torch.cuda.current_stream()
            if self.waits:
                side.wait_stream(current)
            with torch.cuda.stream(side):
                call.run()
            if self.joined:
                current.wait_stream(side)

        return replace(call, run=run)


def on_streams(right: Adapter, faulty: str, innocent: str) -> dict[str, Streamed]:
    """`right` on another stream, by name: prefix and what is wrong."""
    kinds = {
        f"{faulty}nowait": (False, True),
        f"{faulty}nojoin": (True, False),
        f"{faulty}alone": (False, False),
        f"{innocent}stream": (True, True),
    }
    return {name: Streamed(name, right, *waits) for name, waits in kinds.items()}
