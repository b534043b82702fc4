"""What the check costs: each operation on a device costs its launch, so they are counted."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from pagebench.harness.cell import Cell
from pagebench.harness.timing.check import Checker
from pagebench.kernels.adapter import Call, Tolerance
from pagebench.kernels.probes.faulty import PLANTED
from pagebench.layouts.table import page_table
from pagebench.layouts.tensors import Batch, materialise


class Counted(TorchDispatchMode):
    """Counts operations, but for those inside the call itself."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.count, self._inside, self._run = 0, False, call.run

    def run(self) -> None:
        self._inside = True
        self._run()
        self._inside = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not self._inside
        return func(*args, **(kwargs or {}))


def operations(batch_size: int) -> int:
    """Of a whole check, before and after timing."""
    cell = Cell.parse(f"innocentplain_distinct_p16_b{batch_size}_l40_h4x2_d64")
    batch: Batch = materialise(
        page_table(cell.shape, cell.streams, cell.placement, "cpu"), "page_table"
    )
    call = PLANTED["innocentplain"].plan(batch, graph=False)
    counted = Counted(call)
    own = Call(counted.run, call.out, call.replan, call.resolved)
    with counted:
        checker = Checker(batch, own, lambda: None, Tolerance())
        checker.before()
        counted.run()
        checker.after()
    return counted.count


def test_more_requests_cost_no_more_operations() -> None:
    """Where each request was worked out by itself, each cost 144 more."""
    assert operations(9) == operations(6) < 2000
