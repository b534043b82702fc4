"""What the check costs: each operation on a device costs its launch, so they are counted."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from pagebench.harness.cell import Cell
from pagebench.harness.timing.check import Checker
from pagebench.harness.workers.patience import CALLS
from pagebench.kernels.adapter import Call, Tolerance
from pagebench.kernels.probes.faulty import PLANTED
from pagebench.layouts.table import page_table
from pagebench.layouts.tensors import Batch, materialise


class Counted(TorchDispatchMode):
    """Counts operations, but for those inside the call itself."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.before = 0  # calls before timing
        self.count, self.calls, self._inside, self._run = 0, 0, False, call.run

    def run(self) -> None:
        self.calls += 1
        self._inside = True
        self._run()
        self._inside = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not self._inside
        return func(*args, **(kwargs or {}))


def checked(layout: str) -> Counted:
    """A whole check, before and after timing."""
    cell = Cell.parse(f"innocentplain_distinct_p16_{layout}_d64")
    batch: Batch = materialise(
        page_table(cell.shape, cell.streams, cell.placement, "cpu"), "page_table"
    )
    call = PLANTED["innocentplain"].plan(batch, graph=False)
    counted = Counted(call)
    own = Call(counted.run, call.out, call.replan, call.resolved)
    with counted:
        checker = Checker(batch, own, lambda: None, Tolerance())
        checker.before()
        counted.before = counted.calls
        counted.run()
        checker.after()
    return counted


def test_more_requests_cost_no_more_operations() -> None:
    """Where each request was worked out by itself, each cost 144 more."""
    assert checked("b9_l40_h4x2").count == checked("b6_l40_h4x2").count < 2000


def test_a_worker_may_be_silent_for_the_calls_of_a_check() -> None:
    """With as many KV heads as query heads it makes most, since each edge takes a round."""
    assert 10 < checked("b3_l40_h2x2").before < CALLS
