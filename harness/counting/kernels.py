"""From rows of an ncu page to a cell's counters: its kernels, their launches, the prediction."""

from __future__ import annotations

from collections.abc import Sequence

from pagebench.harness.cell import Cell
from pagebench.harness.counting.predict import predict_counters
from pagebench.harness.environment import Environment
from pagebench.harness.records.counters import Counters, How, Kernel
from pagebench.harness.timing.once import Called
from pagebench.profiles.counters import KernelRow, by_call, expect
from pagebench.profiles.metrics import METRICS
from pagebench.profiles.ncu_page import rows_of


def counters_of(
    cell: Cell, rows: Sequence[KernelRow], said: Called, how: How, environment: Environment
) -> Counters:
    """The counters of one cell, from rows of a page that may hold other cells too.

    CountError where its calls differ, or ran other kernels than its process promised in `said`.
    UserError where the kernel does not load.
    """
    calls = by_call(rows_of(rows, cell.name), how.launches)
    expect(calls, said.symbols)
    kernels = tuple(map(kernel_of, calls))
    grids = [kernel.grid for kernel in kernels]
    return Counters(
        cell=cell.name,
        axes=cell.axes(),
        resolved=said.resolved,
        predicted=predict_counters(cell, said.resolved, environment, how, grids),
        kernels=kernels,
        how=how,
        environment=environment,
        binary=said.binary,
        no_binary=said.no_binary,
    )


def kernel_of(launches: Sequence[KernelRow]) -> Kernel:
    """One kernel of the call: what its launches share, and one value per launch of each counter."""
    first = launches[0]
    return Kernel(
        symbol=first.symbol,
        grid=first.grid,
        block=first.block,
        passes=first.passes,
        launch=first.launch,
        values={
            metric.name: tuple(row.values.get(metric.name) for row in launches)
            for metric in METRICS
            if metric.name in first.values
        },
    )
