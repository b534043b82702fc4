"""Sweeps: which measurements, in which order, into which file, and how it ended."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pagebench.harness.cell import Cell
from pagebench.harness.environment import commit
from pagebench.harness.records import store
from pagebench.harness.records.identity import Identity
from pagebench.harness.records.timing import FAILURES, Timing
from pagebench.harness.timing.clocks.sampling import l2_under
from pagebench.harness.timing.measure import unmeasured
from pagebench.harness.timing.options import Options
from pagebench.harness.timing.refuse import refusal
from pagebench.harness.workers.resume import Why, why_again
from pagebench.harness.workers.worker import Pool
from pagebench.kernels.adapter import Refusal
from pagebench.kernels.device import Device

EXIT_DONE, EXIT_FAILED, EXIT_NOTHING = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement to make; `refused` says why it cannot be made here."""

    cell: Cell
    options: Options
    refused: Refusal | None = None

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """The key of its record."""
        options = self.options
        return (self.cell.name, options.boundary, options.clock, options.l2, options.process)


def jobs(
    cells: Iterable[Cell],
    options: Options,
    clocks: Sequence[str],
    l2: Sequence[str],
    processes: int,
    device: Device,
) -> list[Job]:
    """Every cell with every clock and L2 state, for one process after the other.

    Each cell is checked once for whether the device can run it.
    """
    refused = {cell: refusal(cell, device, options.boundary) for cell in cells}
    every = (
        Job(
            cell,
            replace(options, clock=clock, l2=l2_under(clock, state), process=process),
            refused[cell],
        )
        for process in range(processes)
        for cell in refused
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


def recorded(wanted: list[Job], path: Path) -> list[Timing]:
    """The newest record that `path` has of each wanted job, in the order of the jobs.

    StoreError for a file that cannot be read.
    """
    if not path.exists():
        return []
    newest = {timing.key: timing for timing in store.read([path], Timing).of(Timing)}
    return [newest[job.key] for job in wanted if job.key in newest]


def pending(wanted: list[Job], before: Iterable[Timing], now: Identity) -> list[tuple[Job, Why]]:
    """Jobs without a record, and with the reason those whose record is not what would be made now:
    that crashed, were measured otherwise, or were refused then but not now."""
    found = {timing.key: timing for timing in before}
    every = [(job, _again(job, found.get(job.key), now)) for job in wanted]
    return [(job, why) for job, why in every if why is not None]


def _again(job: Job, timing: Timing | None, now: Identity) -> Why | None:
    """Why it is to be measured; None if it is done, empty if it was never measured."""
    if timing is None:
        return ()
    if timing.status == "refused":
        return None if job.refused else ("it was refused",)
    return why_again(timing, job.options, now) or None


def sweep(
    todo: Iterable[Job], path: Path, pool: Pool, progress: Callable[[Job, str], None]
) -> Iterator[Timing]:
    """Measure all jobs; each record is on disk before it is yielded."""
    process = 0
    for job in todo:
        if job.options.process != process:
            pool.renew()
            process = job.options.process
        timing = _measure(job, pool, progress)
        store.append(path, timing)
        yield timing


def _measure(job: Job, pool: Pool, progress: Callable[[Job, str], None]) -> Timing:
    if job.refused:
        return unmeasured(job.cell, job.options, pool.device, "refused", job.refused)
    return pool.measure(job.cell, job.options, lambda stage: progress(job, stage))


def exit_code(timings: Iterable[Timing]) -> int:
    """1 if a cell failed, 2 if nothing was measured, else 0."""
    count = Counter(timing.status for timing in timings)
    if any(count[status] for status in FAILURES):
        return EXIT_FAILED
    return EXIT_DONE if count["measured"] else EXIT_NOTHING


class Remaining:
    """How many jobs are left, and their seconds by the mean of the jobs so far."""

    def __init__(self, total: int) -> None:
        self._left, self._done, self._began = total, 0, time.monotonic()

    def finish_one(self) -> None:
        self._left, self._done = self._left - 1, self._done + 1

    def __str__(self) -> str:
        if not self._done:
            return f"{self._left} left"
        seconds = (time.monotonic() - self._began) / self._done * self._left
        return f"{self._left} left, about {seconds:.0f} s"
