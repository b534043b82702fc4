"""Run in a process of its own with one FlashInfer release on the path: binds our adapters' calls.

Every call goes to a stand-in that binds its arguments to the real function's signature, so a
misspelt, missing or extra argument fails here as it would on a GPU. Prints one line a call.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import flashinfer

from pagebench.harness.cell import Cell
from pagebench.kernels.registry import find_kernel
from pagebench.layouts.table import page_table
from pagebench.layouts.tensors import materialise

CELLS = (
    "fidecode_distinct_p1_b2_l64",
    "fidecode_distinct_p16_b2_l64_hnd",
    "fitc_shared_p1_b2_l64_e4m3",
    "fifa3_distinct_p64_b2_l64",
    "xqa_shared_p16_b2_l64",
    "xqa_distinct_p64_b2_l64_hnd_e4m3",
)


def receiver(function: Callable[..., Any]) -> inspect.Signature:
    """The signature that arguments end in: `plan` of 0.7 hands its keywords on to `_plan_impl`."""
    signature = inspect.signature(inspect.unwrap(function))
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds, f"{function} takes any keyword"
    return signature


def stand_in(name: str, function: Callable[..., Any]) -> Callable[..., None]:
    signature = receiver(function)

    def bind(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        print(name, *sorted(bound.arguments))

    return bind


def main() -> None:
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper
    plan = getattr(wrapper, "_plan_impl", wrapper.plan)
    stands = {"__init__": wrapper.__init__, "plan": plan, "run": wrapper.run}
    for name, function in stands.items():
        setattr(wrapper, name, stand_in(name, function))
    xqa = import_module("flashinfer.xqa")  # the package's attribute of that name is the function
    xqa.xqa = stand_in("xqa", xqa.xqa)  # type: ignore[attr-defined]
    for name in sys.argv[1:] or CELLS:
        cell = Cell.parse(name)
        adapter = find_kernel(cell.kernel)
        table = page_table(cell.shape, cell.streams, cell.placement, "cpu")
        batch = materialise(table, adapter.lowering(cell.shape))
        for graph in (False, True):
            call = adapter.plan(batch, graph=graph)
            call.run()
            call.replan(batch)
            if "module" in call.resolved:
                print("module", call.resolved["module"])


if __name__ == "__main__":
    main()
