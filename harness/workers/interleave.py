"""Measure cells interleaved in one process, over fresh processes, until each step is decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

from pagebench.harness.cell import Cell
from pagebench.harness.progress import silent
from pagebench.harness.records import store
from pagebench.harness.records.rounds import Rounds
from pagebench.harness.timing.effect import LOOKS
from pagebench.harness.timing.interleaved import Interleaved
from pagebench.harness.timing.options import Options
from pagebench.harness.timing.rounds import unmeasured_rounds
from pagebench.harness.workers.bench import Bench
from pagebench.harness.workers.worker import Worker, WorkerLost

LIMIT_S = 1800


def interleave(groups: Sequence[Interleaved], bench: Bench, limit_s: float = LIMIT_S) -> None:
    """Measure groups in fresh processes until all are decided; append each record to `bench.out`.

    After `limit_s` seconds no process begins, except one of the first two.
    """
    ends = monotonic() + limit_s
    for process in range(LOOKS[-1]):
        waiting = [group for group in groups if not group.decided]
        if not waiting or (process > 1 and monotonic() > ends):
            return
        bench.progress(f"process {process + 1} of at most {LOOKS[-1]}: {len(waiting)} to decide")
        _one_process(waiting, replace(bench, options=replace(bench.options, process=process)))


def _one_process(groups: Sequence[Interleaved], bench: Bench) -> None:
    kernel_file = bench.options.kernel_file
    worker = Worker(bench.device, Path(kernel_file) if kernel_file else None)
    try:
        for group in groups:
            bench.progress(f"  {' '.join(cell.name for cell in group.cells)}")
            rounds = _ask(worker, group.cells, bench.options)
            store.append(bench.out, rounds)
            group.add(rounds)
    finally:
        worker.close()


def _ask(worker: Worker, cells: tuple[Cell, ...], options: Options) -> Rounds:
    """The record of the cells; status `crashed` if the worker is lost on them."""
    try:
        rounds = worker.ask(cells, options, silent)
    except WorkerLost as loss:
        return unmeasured_rounds(cells, options, "crashed", str(loss))
    assert isinstance(rounds, Rounds)
    return rounds
