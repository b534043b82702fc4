"""Select records that belong together: from one GPU, in one state of the cache, the newest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pagebench.harness.cell import Cell
from pagebench.harness.environment import Environment
from pagebench.harness.records import identity, store
from pagebench.harness.records.base import Record
from pagebench.harness.records.ceilings import MeasuredCeilings
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.identity import Difference, Identity
from pagebench.harness.records.timing import Timing
from pagebench.harness.records.verdict import Verdict

SomeRecord = TypeVar("SomeRecord", bound=Record)


@dataclass(frozen=True, slots=True)
class State:
    """Where and how something was timed: the GPU, in its environment, and the state of the L2.

    `calls` says what ran, by cell, where that is known: the resolved call and its code.
    """

    environment: Environment
    l2: str
    calls: Mapping[str, Identity] = field(default_factory=dict)

    def holds(self, counters: Counters) -> bool:
        """Whether counters are of that GPU model in that state and of that call: only these apply
        to it."""
        return (
            (counters.environment.gpu, counters.how.l2) == (self.environment.gpu, self.l2)
            and not identity.apart(counters.environment, self.environment)
            and not self.other_call(counters)
        )

    def other_call(self, counters: Counters) -> tuple[Difference, ...]:
        """In what the counted call is not the timed one."""
        mine = identity.of_call(counters.resolved, counters.binary)
        return identity.differences(mine, self.calls.get(counters.cell, {}))


@dataclass(frozen=True, slots=True)
class Evidence:
    """Counters and ceilings that conclusions rest on, read once a command; the newest last."""

    counters: tuple[Counters, ...] = ()
    ceilings: tuple[MeasuredCeilings, ...] = ()

    def newest_counters(
        self, cells: Sequence[Cell], state: State | None = None
    ) -> list[Counters] | None:
        """The newest counters of each cell; None if a cell has no counters.

        With a state: from that GPU, else its model, in that state of the cache.
        """
        lines: Iterable[Counters] = self.counters
        if state:
            lines = filter(state.holds, of_gpu(lines, state.environment))
        newest = {line.cell: line for line in lines}
        if not all(cell.name in newest for cell in cells):
            return None
        return [newest[cell.name] for cell in cells]

    def newest_ceilings(self, environment: Environment) -> MeasuredCeilings | None:
        """The newest ceilings of that GPU, else of its model; None if there are none."""
        found = of_gpu(self.ceilings, environment)
        return found[-1] if found else None


def read_evidence(files: Iterable[Path]) -> Evidence:
    """Counters and ceilings of the files. StoreError for one that cannot be read."""
    found = store.read(files, Counters, MeasuredCeilings)
    return Evidence(tuple(found.of(Counters)), tuple(found.of(MeasuredCeilings)))


def of_gpu(records: Iterable[SomeRecord], environment: Environment) -> list[SomeRecord]:
    """Records of the same GPU model, in order; those of this very GPU come last."""
    same_model = [
        each
        for each in records
        if each.environment.gpu == environment.gpu
        and not identity.apart(each.environment, environment)
    ]
    return sorted(same_model, key=lambda each: each.environment.uuid == environment.uuid)


def usual_state(timing: Timing) -> tuple[str, str]:
    """The default clock, and the default L2 state under the record's clock."""
    on_host = timing.device == "cpu" or timing.boundary == "plan"
    warm = timing.boundary == "plan" or timing.clock == "eager"
    return "wall" if on_host else "events", "warm" if warm else "cold"


def is_usual(timing: Timing) -> bool:
    """Whether it times the run, with the usual clock, in the usual state of the L2."""
    return timing.boundary == "run" and (timing.clock, timing.l2) == usual_state(timing)


def newest_timing(timings: Iterable[Timing]) -> Timing | None:
    """The newest timing with samples, a usual one if there is one; None if there are none."""
    measured = (each for each in timings if each.samples)
    return max(measured, key=lambda each: (is_usual(each), each.started), default=None)


def by_events(timings: Iterable[Timing], counters: Counters) -> Timing | None:
    """The newest time of the counted call by events, in the state of the L2 that the counters have,
    on a GPU of that model."""
    wanted = ("run", "events", counters.how.l2)
    alike = (t for t in timings if (t.boundary, t.clock, t.l2) == wanted)
    return newest_timing(t for t in alike if state_of(t).holds(counters))


def state_of_verdict(verdict: Verdict) -> State:
    """Where its cells were timed, from a cold L2, and what ran, where it says so."""
    binaries = verdict.binary or (None,) * len(verdict.cells)
    calls = zip(verdict.cells, verdict.resolved, binaries, strict=False)
    ran = {cell: identity.of_call(resolved, code) for cell, resolved, code in calls}
    return State(verdict.environment, "cold", ran)


def state_of(timing: Timing) -> State:
    """Where and how that was timed, and what ran."""
    call = identity.of_call(timing.resolved, timing.binary)
    return State(timing.environment, timing.l2, {timing.cell: call})
