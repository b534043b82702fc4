"""Cells in one process, their samples interleaved: A B B A, or A B C D D C B A."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from time import monotonic
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.progress import Progress
from pagebench.harness.records.rounds import Rounds, Side
from pagebench.harness.timing.clocks import sampling
from pagebench.harness.timing.clocks.make import make_clock
from pagebench.harness.timing.findings import NOTHING, Failure, failure_of
from pagebench.harness.timing.measure import Prepared, from_dram, prepare, refuse_implausible
from pagebench.harness.timing.options import Options
from pagebench.harness.timing.session import Session
from pagebench.kernels.foreign import contained

ROUNDS, LEAST_ROUNDS = 25, 5  # in a process, each there and back
ROUNDS_S = 20.0  # after which the least rounds are enough


def measure_rounds(
    cells: Sequence[Cell], options: Options, session: Session, progress: Progress
) -> Rounds:
    """The record of one process. Errors of a cell are recorded, not raised.

    All outputs are checked before and after timing, as for a single cell.
    """
    built: dict[int, Prepared] = {}
    found, at = [NOTHING] * len(cells), 0
    try:
        with contained():
            for at in build_order(len(cells), options.process):
                built[at] = prepare(cells[at], options, session, progress)
                found[at] = built[at].findings
            ready = [built[i] for i in range(len(cells))]
            taken = _taken(ready, options, session, progress)
            for at, each in enumerate(ready):
                assert each.checker is not None
                found[at] = replace(each.findings, check=each.checker.after())
            _refuse_implausible(taken, ready, options, session)
        outcome = {"status": "measured", **taken.fields()}
    except Exception as error:
        failure = failure_of(error, found[at])
        found[at] = failure.findings
        outcome = {"status": failure.status, "reason": failure.reason}
    return _record(
        cells,
        options,
        resolved=tuple(each.resolved for each in found),
        check=tuple(each.check for each in found),
        binary=tuple(each.code.binary for each in found),
        environment=session.environment_now(),
        **outcome,
    )


def unmeasured_rounds(cells: Sequence[Cell], options: Options, status: str, reason: str) -> Rounds:
    """The record of cells that were lost with their worker: no times, a status and a reason."""
    return _record(cells, options, status=status, reason=reason)


def _record(cells: Sequence[Cell], options: Options, **outcome: Any) -> Rounds:
    names = tuple(cell.name for cell in cells)
    return Rounds(
        cells=names,
        clock=options.clock,
        l2=options.l2,
        process=options.process,
        kernel_sha=options.kernel_sha,
        **outcome,
    )


def build_order(count: int, process: int) -> list[int]:
    """Every second process builds in reverse: the address of a pool changes times by 0.3 %."""
    return list(range(count)) if process % 2 == 0 else list(reversed(range(count)))


@dataclass(slots=True)
class _Taken:
    """Samples of a process, and what was seen on the GPU right after each cell's."""

    floor_us: float
    cells: int
    rounds: list[tuple[float, ...]] = field(default_factory=list)
    samples: list[sampling.Sample] = field(default_factory=list)
    seen: list[tuple[int, Side]] = field(default_factory=list)  # cell, and what was seen

    def fields(self) -> dict[str, Any]:
        """The fields of the record."""
        return {
            "floor_us": round(self.floor_us, 3),
            "rounds": tuple(self.rounds),
            "discarded": sum(sample.discarded for sample in self.samples),
            "throttle": tuple(
                sorted({reason for _, each in self.seen for reason in each.throttle})
            ),
            "sides": self._sides() if any(side != Side() for _, side in self.seen) else (),
            "spin_mhz": sampling.median_clock(self.samples, self.floor_us),
        }

    def _sides(self) -> tuple[Side, ...]:
        """By cell: every reason, and the most neighbours."""
        by_cell = [[side for at, side in self.seen if at == cell] for cell in range(self.cells)]
        return tuple(
            Side(
                throttle=tuple(sorted({reason for each in sides for reason in each.throttle})),
                other_processes=max(
                    (n for each in sides if (n := each.other_processes) is not None), default=None
                ),
            )
            for sides in by_cell
        )


def _taken(
    ready: Sequence[Prepared], options: Options, session: Session, progress: Progress
) -> _Taken:
    """Rounds after a warm-up. Every output is that of the cell's last sample."""
    progress("warming up")
    for each in ready:
        sampling.warm_up(each.call.run, session.monitor, session.synchronise)
    clock = make_clock(options.clock, session.device.kind)
    null = sampling.null_samples(clock)
    taken = _Taken(sampling.floor_us(null), len(ready))
    ends = monotonic() + ROUNDS_S
    while len(taken.rounds) < ROUNDS:
        if len(taken.rounds) >= LEAST_ROUNDS and monotonic() > ends:
            break
        progress("timing")  # a sign of life: a round may take long
        samples = []
        for at in (*range(len(ready)), *reversed(range(len(ready)))):
            samples.append(_sample(clock, ready[at], options, session))
            taken.seen.append((at, _seen(session)))
        taken.rounds.append(tuple(round(sample.time_us, 3) for sample in samples))
        taken.samples += samples
    for at in range(len(ready)):
        mine = zip(taken.samples, taken.seen, strict=True)
        sampling.refuse_late([sample for sample, (cell, _) in mine if cell == at], null)
    return taken


def _seen(session: Session) -> Side:
    """The state of a GPU at this moment, right after a sample; a CPU has none."""
    if not session.monitor.reads:
        return Side()
    others = session.environment_now().other_processes
    return Side(throttle=session.monitor.block(0).throttle, other_processes=others)


def _sample(
    clock: sampling.Clock, ready: Prepared, options: Options, session: Session
) -> sampling.Sample:
    run, checker = ready.call.run, ready.checker
    assert checker is not None
    prepare_cache = session.prepare(options.l2, run)
    taken = clock.sample(run, checker.watch.prepared(prepare_cache, options.l2))
    checker.watch.look()
    return taken


def _refuse_implausible(
    taken: _Taken, ready: Sequence[Prepared], options: Options, session: Session
) -> None:
    """Failure for impossible times, as for a single cell."""
    for index, each in enumerate(ready):
        time_us = median(us for r in taken.rounds for us in (r[index], r[-1 - index]))
        distinct = from_dram(each.findings, options)
        refuse_implausible(time_us, taken.floor_us, distinct, session)
    if min(us for each in taken.rounds for us in each) <= 0:
        raise Failure("rejected", "a sample took no time")
