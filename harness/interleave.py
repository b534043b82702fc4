"""Cells interleaved in one process, over fresh processes, until each difference is decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

from pagebench.harness import store
from pagebench.harness.cell import Cell
from pagebench.harness.change import LOOKS, Change, change, may_stop, process_effect
from pagebench.harness.run import Options
from pagebench.harness.worker import Worker, WorkerLost
from pagebench.kernels.device import Device

Progress = Callable[[str], None]
LIMIT_S = 1800


@dataclass(slots=True)
class Interleaved:
    """Cells that are timed together, with what their processes have said so far.

    A step is the change from one cell to the next; `among` differences are judged together.
    """

    cells: tuple[Cell, ...]
    among: int
    effects: list[tuple[float, ...]] = field(default_factory=list)  # [process][step], log ratios
    times_us: list[tuple[float, ...]] = field(default_factory=list)  # [process][cell], medians
    floors_us: list[float] = field(default_factory=list)
    resolved: list[dict[str, Any]] = field(default_factory=list)  # [cell]
    environment: dict[str, Any] = field(default_factory=dict)  # of the newest process
    failed: str | None = None

    def add(self, record: dict[str, Any]) -> None:
        """Take in a group record of one process."""
        self.environment, self.resolved = record["environment"], record["resolved"]
        if record["status"] != "measured":
            self.failed = f"{record['status']}: {record['reason']}"
            return
        rounds, count = record["rounds"], len(self.cells)
        self.effects.append(tuple(process_effect(rounds, step) for step in range(count - 1)))
        both_ways = [[(r[cell], r[-1 - cell]) for r in rounds] for cell in range(count)]
        self.times_us.append(
            tuple(median(us for pair in pairs for us in pair) for pairs in both_ways)
        )
        self.floors_us.append(record["floor_us"])

    @property
    def decided(self) -> bool:
        return self.failed is not None or all(
            may_stop(self._of_step(step), self.among) for step in range(len(self.cells) - 1)
        )

    def step(self, step: int = 0) -> Change:
        return change(self._of_step(step), self.among)

    def _of_step(self, step: int) -> list[float]:
        return [effects[step] for effects in self.effects]

    def time_us(self, cell: int) -> float:
        """The median over processes of the cell's medians."""
        return median(times[cell] for times in self.times_us)

    @property
    def floors(self) -> float:
        """How many floors of its clock the shortest call lasts, in the worst process."""
        return min(
            min(times) / floor for times, floor in zip(self.times_us, self.floors_us, strict=True)
        )


def interleave(
    groups: Sequence[Interleaved],
    options: Options,
    device: Device,
    out: Path,
    progress: Progress,
    limit_s: float = LIMIT_S,
) -> None:
    """Measure the groups in fresh processes until all are decided; each record goes to `out`.

    After `limit_s` no further process is begun, unless it is one of the first two.
    """
    ends = monotonic() + limit_s
    for process in range(LOOKS[-1]):
        waiting = [group for group in groups if not group.decided]
        if not waiting or (process > 1 and monotonic() > ends):
            return
        progress(f"process {process + 1} of {LOOKS[-1]} at most: {len(waiting)} to decide")
        _one_process(waiting, replace(options, process=process), device, out, progress)


def _one_process(
    groups: Sequence[Interleaved], options: Options, device: Device, out: Path, progress: Progress
) -> None:
    kernel_file = Path(options.kernel_file) if options.kernel_file else None
    worker = Worker(device, kernel_file)
    try:
        for group in groups:
            progress(f"  {' '.join(cell.name for cell in group.cells)}")
            _ask(worker, group, options, out)
    finally:
        worker.close()


def _ask(worker: Worker, group: Interleaved, options: Options, out: Path) -> None:
    try:
        record = worker.ask(group.cells, options, lambda stage: None)
    except WorkerLost as loss:
        group.failed = str(loss)
        return
    store.append_line(out, record)
    group.add(record)
