"""Cells interleaved in one process, over fresh processes, until each difference is decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.records import store
from pagebench.harness.records.timing import FAILURES
from pagebench.harness.show.timings import moved_clock, others_on_the_gpu
from pagebench.harness.timing.change import LOOKS, Change, change, may_stop, process_effect
from pagebench.harness.timing.measure import Options
from pagebench.harness.timing.rounds import unmeasured_group
from pagebench.harness.workers.worker import Worker, WorkerLost
from pagebench.kernels.device import Device

Progress = Callable[[str], None]


class GroupFailed(ValueError):
    """Cells without times; `crashed` if one crashed or was wrong, rather than was refused."""

    def __init__(self, reason: str, crashed: bool) -> None:
        super().__init__(reason)
        self.crashed = crashed


LIMIT_S = 1800
LEAST_FLOOR_US = 1e-3  # a clock that reads less has no floor to speak of


@dataclass(slots=True)
class Interleaved:
    """Cells that are timed together, with what their processes have said so far.

    A step is the change from one cell to the next; `among` differences are judged together. A
    process that fails is the last: enough processes before it decide all the same.
    """

    cells: tuple[Cell, ...]
    among: int
    effects: list[tuple[float, ...]] = field(default_factory=list)  # [process][step], log ratios
    times_us: list[tuple[float, ...]] = field(default_factory=list)  # [process][cell], medians
    floors_us: list[float] = field(default_factory=list)
    throttle: set[str] = field(default_factory=set)  # reasons seen while timing
    spin_mhz: list[int] = field(default_factory=list)  # [process], SM clock right before the calls
    others: int = 0  # most processes of others that were seen on the GPU
    resolved: list[dict[str, Any]] = field(default_factory=list)  # [cell]
    environment: dict[str, Any] = field(default_factory=dict)  # of the newest process
    status: str = "measured"
    lost: str | None = None  # why the last process has no times

    def add(self, record: dict[str, Any]) -> None:
        """Take in a group record of one process."""
        self.status = record["status"]
        if self.status != "measured":
            self.lost = f"{self.status}: {record['reason']}"
            return
        self.environment, self.resolved = record["environment"], record["resolved"]
        rounds, count = record["rounds"], len(self.cells)
        self.effects.append(tuple(process_effect(rounds, step) for step in range(count - 1)))
        both_ways = [[(r[cell], r[-1 - cell]) for r in rounds] for cell in range(count)]
        self.times_us.append(tuple(median(us for pair in pairs for us in pair)
                                   for pairs in both_ways))  # fmt: skip
        self.floors_us.append(max(record["floor_us"], LEAST_FLOOR_US))
        self.throttle.update(record.get("throttle", ()))
        self.spin_mhz += [clock for clock in (record.get("spin_mhz"),) if clock]
        self.others = max(self.others, record["environment"].get("other_processes") or 0)

    @property
    def failed(self) -> str | None:
        """Why there is no conclusion: a lost process, and too few before it."""
        return self.lost if len(self.effects) < LOOKS[0] else None

    @property
    def crashed(self) -> bool:
        return self.status in FAILURES

    def refuse_failed(self, name: str) -> None:
        """GroupFailed, under that name, where there is no conclusion."""
        if self.failed:
            raise GroupFailed(f"{name}: {self.failed}", self.crashed)

    @property
    def decided(self) -> bool:
        return self.lost is not None or all(
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

    @property
    def notes(self) -> list[str]:
        """What a reader of the times must know."""
        said = (
            self.lost and f"a process was lost: {self.lost}",
            self.throttle and f"throttled: {', '.join(sorted(self.throttle))}",
            moved_clock(self.spin_mhz),
            self.others and others_on_the_gpu(self.others),
        )
        return [note for note in said if note]


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
            record = _ask(worker, group.cells, options)
            store.append_line(out, record)
            group.add(record)
    finally:
        worker.close()


def _ask(worker: Worker, cells: tuple[Cell, ...], options: Options) -> dict[str, Any]:
    """The group's record, one of status `crashed` if the worker is lost on it."""
    try:
        record: dict[str, Any] = worker.ask(cells, options, lambda stage: None)
    except WorkerLost as loss:
        return unmeasured_group(cells, options, "crashed", str(loss))
    return record
