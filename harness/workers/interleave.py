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
from pagebench.harness.timing.rounds import (
    LEAST_ROUNDS,
    ROUNDS,
    ROUNDS_S,
    unmeasured_rounds,
)
from pagebench.harness.workers.bench import Bench
from pagebench.harness.workers.worker import Worker, WorkerLost

LIMIT_S = 1800
START_S, CHECK_S = 6.0, 2.0  # of a process, and of a cell's checks: a guess, better after the first


def interleave(groups: Sequence[Interleaved], bench: Bench, limit_s: float = LIMIT_S) -> None:
    """Measure groups in fresh processes until all are decided; append each record to `bench.out`.

    A group that holds processes of an earlier run goes on after them. After `limit_s` seconds no
    process begins, except one of the first two.
    """
    began = monotonic()
    bench.progress(beforehand(groups, limit_s))
    for done in range(LOOKS[-1]):
        waiting = [group for group in groups if not group.decided]
        process = max(done, min((len(group.measured) for group in waiting), default=0))
        if not waiting or (process > 1 and monotonic() > began + limit_s):
            return
        left = _left(process, done, monotonic() - began) if done else ""
        at = f"process {process + 1} of at most {LOOKS[-1]}"
        bench.progress(f"{at}: {len(waiting)} to decide{left}")
        those = [group for group in waiting if len(group.measured) <= process]
        _one_process(those, replace(bench, options=replace(bench.options, process=process)))


def beforehand(groups: Sequence[Interleaved], limit_s: float) -> str:
    """How long it may take: of fast calls little more than the start of the processes, of slow ones
    the least rounds, however long they are."""
    waiting = [group for group in groups if not group.decided]
    if not waiting:
        return "all is decided: no process is needed"
    cells = sum(len(group.cells) for group in waiting)
    looks = [[look - len(group.measured) for group in waiting] for look in (LOOKS[0], LOOKS[-1])]
    least, most = (max(0, *left) for left in looks)
    low, high = START_S + cells * CHECK_S, START_S + cells * CHECK_S + len(waiting) * ROUNDS_S
    shortest, longest = least * low, min(most * high, max(limit_s, 0) + 2 * high)
    return (
        f"{len(waiting)} to decide, {least} to {most} processes of {cells} cells, {ROUNDS} rounds "
        f"each or {ROUNDS_S:g} s (but {LEAST_ROUNDS} rounds): about {minutes(shortest)} to "
        f"{minutes(longest)}, and more where a call takes over a second"
    )


def _left(process: int, done: int, passed_s: float) -> str:
    """What those done so far say of those to come."""
    each = passed_s / done
    least = max(1, next((look for look in LOOKS if look > process), LOOKS[-1]) - process)
    return f", about {minutes(least * each)} to {minutes((LOOKS[-1] - process) * each)} left"


def minutes(seconds: float) -> str:
    """`40 s`, `12 min`."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


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
