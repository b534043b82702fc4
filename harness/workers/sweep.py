"""Sweeps: which measurements, in which order, into which file, and how it ended."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pagebench.harness.cell import Cell
from pagebench.harness.environment import commit
from pagebench.harness.records import store
from pagebench.harness.records.timing import FAILURES, Record
from pagebench.harness.timing.clocks.sampling import l2_under
from pagebench.harness.timing.measure import Options, refusal, unmeasured
from pagebench.harness.workers.worker import Pool
from pagebench.kernels.device import Device

EXIT_DONE, EXIT_FAILED, EXIT_NOTHING = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement to make."""

    cell: Cell
    options: Options

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        return (
            self.cell.name,
            self.options.boundary,
            self.options.clock,
            self.options.l2,
            self.options.process,
        )


def jobs(
    cells: Iterable[Cell],
    options: Options,
    clocks: Iterable[str],
    l2: Iterable[str],
    processes: int,
) -> list[Job]:
    """Every cell with every clock and L2 state, all of them in each process before the next."""
    cells, clocks, l2 = tuple(cells), tuple(clocks), tuple(l2)
    every = (
        Job(
            cell,
            replace(
                options,
                clock=clock,
                l2=l2_under(clock, state),
                process=process,
            ),
        )
        for process in range(processes)
        for cell in cells
        for clock in clocks
        for state in l2
    )
    return list(dict.fromkeys(every))


def default_path() -> Path:
    """runs/<UTC time>_<commit>[_dirty].jsonl"""
    state = commit()
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    dirty = "_dirty" if state["dirty"] else ""
    return Path("runs") / f"{stamp}_{(state['commit'] or 'nocommit')[:8]}{dirty}.jsonl"


def recorded(wanted: list[Job], path: Path) -> list[Record]:
    """The newest record of each wanted job that `path` has, in the order wanted."""
    if not path.exists():
        return []
    newest = {record.key: record for record in store.read([path])}
    return [newest[job.key] for job in wanted if job.key in newest]


def pending(wanted: list[Job], before: Iterable[Record], device: Device) -> list[Job]:
    """Jobs without a record, and those that were refused before and would not be now."""
    done = {record.key for record in before if record.status != "refused"}
    refused = {record.key for record in before if record.status == "refused"}
    return [
        job
        for job in wanted
        if job.key not in done
        and (job.key not in refused or refusal(job.cell, device, job.options.boundary) is None)
    ]


def sweep(
    todo: list[Job], path: Path, pool: Pool, device: Device, progress: Callable[[Job, str], None]
) -> Iterator[Record]:
    """Measure all jobs; each record is on disk before it is yielded."""
    process = 0
    for job in todo:
        if job.options.process != process:
            pool.renew()
            process = job.options.process
        record = _measure(job, pool, device, progress)
        store.append(path, record)
        yield record


def _measure(job: Job, pool: Pool, device: Device, progress: Callable[[Job, str], None]) -> Record:
    reason = refusal(job.cell, device, job.options.boundary)
    if reason:
        return unmeasured(job.cell, job.options, device, "refused", reason)
    return pool.measure(job.cell, job.options, lambda stage: progress(job, stage))


def exit_code(records: Iterable[Record]) -> int:
    """1 if a cell failed, 2 if nothing was measured, else 0."""
    count = Counter(record.status for record in records)
    if any(count[status] for status in FAILURES):
        return EXIT_FAILED
    return EXIT_DONE if count["measured"] else EXIT_NOTHING


class Remaining:
    """Seconds that a sweep will still take, from the mean of the jobs so far."""

    def __init__(self, total: int) -> None:
        self._left, self._done, self._began = total, 0, time.monotonic()

    def finish_one(self) -> None:
        self._left, self._done = self._left - 1, self._done + 1

    def __str__(self) -> str:
        if not self._done:
            return f"{self._left} left"
        seconds = (time.monotonic() - self._began) / self._done * self._left
        return f"{self._left} left, about {seconds:.0f} s"
