"""Kernels that are wrong on purpose, and innocent ones: the oracle is held against both.

`find_kernel` knows them by name, `faultylast` or `innocentorder`; no list or suite shows them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pagebench.kernels.adapter import Adapter, Call
from pagebench.kernels.device import Device
from pagebench.kernels.probes import bugs, online, places, seen, stale
from pagebench.kernels.probes.seen import Bug, Seen
from pagebench.kernels.probes.streams import on_streams
from pagebench.layouts.shape import Shape
from pagebench.layouts.tensors import Batch

if TYPE_CHECKING:
    from torch import Tensor

BUGS: dict[str, Bug] = {
    "last": bugs.last,
    "first": bugs.first,
    "one": bugs.loses(1),
    "two": bugs.loses(2),
    "four": bugs.loses(4),
    "sixteen": bugs.loses(16),
    "replaced": bugs.replaced(1),
    "replacedfour": bugs.replaced(4),
    "othervalue": bugs.othervalue,
    "page": bugs.page,
    "lastpage": bugs.lastpage,
    "otherpage": bugs.otherpage,
    "tilestart": bugs.tilestart,
    "twice": bugs.twice,
    "window": bugs.window,
    "pastend": bugs.pastend,
    "wraps": bugs.wraps,
    "onehead": bugs.onehead,
    "scaledhead": bugs.scaledhead,
    "swappedheads": bugs.swappedheads,
    "interleaved": bugs.interleaved,
    "request": bugs.otherrequest,
    "sameanswer": bugs.sameanswer,
    "padding16": bugs.padding(16),
    "padding64": bugs.padding(64),
    "padding256": bugs.padding(256),
    "faintmask": bugs.faintmask,
    "scale": bugs.scale,
    "softcap": bugs.softcap,
    "evenmerge": bugs.evenmerge,
    "remembers": bugs.remembers,
    "thirdcall": bugs.thirdcall,
    "callbefore": bugs.callbefore,
    "oldplan": bugs.oldplan,
    "late": bugs.late,
    "rarely": bugs.rarely,
    "writespool": bugs.writespool,
    "writesquery": bugs.writesquery,
    "writesbeside": bugs.writesbeside,
    **places.BUGS,
    **online.BUGS,
    **stale.BUGS,
}
INNOCENT: dict[str, Bug] = {
    "plain": seen.attention,
    "order": seen.reversed_order,
    "bf16": seen.in_bf16,
    "splits": seen.in_splits,
    **online.INNOCENT,
}
FAULTY_PREFIX, INNOCENT_PREFIX = "faulty", "innocent"


@dataclass(slots=True)
class Planted:
    """A bug as an adapter: plain torch, one request after the other."""

    name: str
    bug: Bug
    has_plan: bool = False

    def lowering(self, shape: Shape) -> str:
        return "page_table"

    def refuses(self, shape: Shape, device: Device) -> str | None:
        return None if shape.kv_layout == "NHD" else f"{self.name} takes kv_layout NHD"

    def workspace_bytes(self, shape: Shape) -> int:
        """Keys, values and their copies in float32, of one request."""
        return 24 * shape.kv_len * shape.kv_heads * shape.head_dim

    def plan(self, batch: Batch, *, graph: bool) -> Call:
        import torch

        assert batch.q is not None
        out, plan, memory = torch.empty_like(batch.q), [batch], dict[str, Any]()
        calls = [0]

        def run() -> None:
            for request in range(len(out)):
                answer = self.bug(_seen(plan[0], out, request, calls[0], memory))
                if answer is not None:
                    out[request] = answer
            calls[0] += 1

        return Call(run, out, lambda newer: plan.__setitem__(0, newer), {"kernel": self.name})


def _seen(batch: Batch, out: Tensor, request: int, call: int, memory: dict[str, Any]) -> Seen:
    import torch

    table, page = batch.lowered.table, batch.shape.page_size
    assert table is not None
    assert batch.q is not None
    assert batch.k is not None
    assert batch.v is not None
    pools = (batch.k.flatten(0, 1), batch.v.flatten(0, 1))
    token = torch.arange(int(batch.table.lengths[request]), device=out.device)
    slots = table[request, token // page].long() * page + token % page
    k, v = (pool[slots].float() for pool in pools)
    return Seen(
        *(batch.q[request], k, v, slots, pools, out),
        request=request,
        requests=len(out),
        page=page,
        call=call,
        seed=batch.shape.seed,
        memory=memory,
    )


def named(prefix: str, found: dict[str, Bug]) -> dict[str, Planted]:
    return {f"{prefix}{name}": Planted(f"{prefix}{name}", bug) for name, bug in found.items()}


PLANTED = named(FAULTY_PREFIX, BUGS) | named(INNOCENT_PREFIX, INNOCENT)
ON_STREAMS = on_streams(PLANTED["innocentplain"], FAULTY_PREFIX, INNOCENT_PREFIX)  # need a GPU


def __getattr__(name: str) -> Adapter:
    """The adapter of that name, as the registry asks for it."""
    if name in PLANTED:
        return PLANTED[name]
    if name in ON_STREAMS:
        return ON_STREAMS[name]
    raise AttributeError(name)
