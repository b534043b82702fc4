"""What one file says of each measurement: its processes in time order, and how others ended.

A timing is one process, rounds are one process of cells that were interleaved. A line that stands
there twice is one process, and so are rounds of one process number: an attack times a contrast's
pair again in the same process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import log
from statistics import median

from pagebench.harness.axes import Axes
from pagebench.harness.gate.outcome import BASE, Ended, Key, Times, TwoModes
from pagebench.harness.records import identity
from pagebench.harness.records.base import Resolved
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.identity import Difference, Identity
from pagebench.harness.records.rounds import Rounds
from pagebench.harness.records.select import State
from pagebench.harness.records.store import Stored
from pagebench.harness.records.timing import Timing
from pagebench.harness.timing.interleaved import WITHDRAWS
from pagebench.harness.timing.stats import summarise


@dataclass(frozen=True, slots=True)
class Process:
    """One process that has times of a measurement.

    `mhz` is the SM clock right before its calls, `method` what identity leaves out of how it was
    measured.
    """

    time_us: tuple[float, ...]
    floor_us: float
    date: str
    number: int
    identity: Identity
    method: Mapping[str, str]
    resolved: Resolved
    state: State
    kernels: tuple[str, ...] = ()
    axes: Axes | None = None
    mhz: float | None = None
    throttle: tuple[str, ...] = ()
    others: int = 0
    busy: bool = False

    @property
    def mark(self) -> tuple[object, ...]:
        """Equal for two copies of one line."""
        return (self.date, self.number, self.time_us)

    @property
    def level(self) -> float:
        """The log of its median: what a process says of the time."""
        return log(median(self.time_us))


@dataclass(frozen=True)
class Side:
    """One measurement in one file. `ended` are its processes without times, `refusal` why it cannot
    run where nothing else is known of it."""

    processes: tuple[Process, ...] = ()
    ended: tuple[Ended, ...] = ()
    refusal: str | None = None
    counters: tuple[Counters, ...] = field(default=(), repr=False)

    @property
    def is_there(self) -> bool:
        return bool(self.processes or self.ended)

    @property
    def withdrawn(self) -> Ended | None:
        """The process whose output or time was wrong: no time of this side stands."""
        return next((each for each in self.ended if each.status in WITHDRAWS), None)

    @property
    def first(self) -> Process:
        return self.processes[0]

    @property
    def mixed(self) -> tuple[Difference, ...]:
        """In what its processes were not made alike."""
        found = {
            each.field: each
            for other in self.processes[1:]
            for each in identity.differences(self.first.identity, other.identity)
        }
        return tuple(found.values())

    @cached_property
    def levels(self) -> list[float]:
        """What its processes say of the time: the log of each one's median."""
        return [each.level for each in self.processes]

    @cached_property
    def step(self) -> float:
        """The step of the clock in log time, where most samples lie within two of them: finer noise
        would make a median of them exact."""
        times = sorted(us for each in self.processes for us in each.time_us)
        steps = [b - a for a, b in pairwise(times) if b > a]
        middle_half = times[3 * len(times) // 4] - times[len(times) // 4] if times else 0.0
        return min(steps) / median(times) if steps and middle_half <= 2 * min(steps) else 0.0

    @cached_property
    def times(self) -> Times | None:
        if not self.processes:
            return None
        pooled = summarise([us for each in self.processes for us in each.time_us]).modes
        middle = median(median(each.time_us) for each in self.processes)
        modes = TwoModes(pooled.fast_us, pooled.slow_us, pooled.slow_share) if pooled else None
        return Times(processes=len(self.processes), time_us=middle, modes=modes)

    @property
    def counted(self) -> Counters | None:
        """The newest counters of the timed call."""
        if not self.processes:
            return None
        found = [each for each in self.counters if self.first.state.holds(each)]
        return found[-1] if found else None

    @property
    def mhz(self) -> float | None:
        """The median SM clock; None where a process does not say."""
        clocks = [each.mhz for each in self.processes if each.mhz]
        return median(clocks) if clocks and len(clocks) == len(self.processes) else None


def sides(stored: Stored, name: str = BASE) -> dict[Key, Side]:
    """Every measurement of a file, in the order of its first line."""
    processes, ended = _by_key(stored), _ended(stored, name)
    counters = defaultdict(list)
    for each in stored.of(Counters):
        counters[each.cell].append(each)
    refused = _refusals(stored)
    return {
        key: Side(
            tuple(sorted(processes.get(key, ()), key=lambda each: each.date)),
            tuple(ended.get(key, ())),
            refused.get(key),
            tuple(counters[key.cell]),
        )
        for key in dict.fromkeys((*processes, *ended, *refused))
    }


# --- Processes ------------------------------------------------------------------------------------


def _by_key(stored: Stored) -> dict[Key, list[Process]]:
    found = defaultdict[Key, dict[object, Process]](dict)
    for timing in stored.of(Timing):
        if timing.samples:
            process = _of_timing(timing)
            found[_key(timing)].setdefault(process.mark, process)
    for rounds in stored.of(Rounds):
        for cell in dict.fromkeys(rounds.cells) if rounds.rounds else ():
            process = _of_rounds(rounds, cell)
            found[_key_among(rounds, cell)].setdefault(process.number, process)
    return {key: list(processes.values()) for key, processes in found.items()}


def _key(timing: Timing) -> Key:
    return Key(timing.cell, timing.boundary, timing.clock, timing.l2)


def _key_among(rounds: Rounds, cell: str) -> Key:
    return Key(cell, "run", rounds.clock, rounds.l2, rounds.cells)


def _of_timing(timing: Timing) -> Process:
    samples, facts = timing.samples, timing.environment
    assert samples is not None
    clocks = [block.spin_mhz for block in samples.blocks if block.spin_mhz]
    call = identity.of_call(timing.resolved, timing.binary)
    return Process(
        time_us=samples.time_us,
        floor_us=samples.floor_us,
        date=timing.started,
        number=timing.process,
        identity=identity.of_timing(timing),
        method=_method(timing, f"{timing.asked.seconds:g}"),
        resolved=timing.resolved,
        state=State(facts, timing.l2, {timing.cell: call}),
        kernels=samples.kernels,
        axes=timing.axes,
        mhz=median(clocks) if clocks else None,
        throttle=samples.throttle,
        others=facts.other_processes or 0,
        busy=facts.is_busy,
    )


def _of_rounds(rounds: Rounds, cell: str) -> Process:
    """The cell's times there and back, in the order in which they were taken."""
    at, places = rounds.cells.index(cell), (*rounds.cells, *reversed(rounds.cells))
    resolved = rounds.resolved[at] if at < len(rounds.resolved) else {}
    binary = rounds.binary[at] if at < len(rounds.binary) else None
    facts, side = rounds.environment, rounds.sides[at] if rounds.sides else None
    each_round = (zip(places, times, strict=True) for times in rounds.rounds)
    return Process(
        time_us=tuple(us for times in each_round for place, us in times if place == cell),
        floor_us=rounds.floor_us or 0.0,
        date=rounds.date,
        number=rounds.process,
        identity=identity.of_rounds(rounds, at),
        method=_method(rounds),
        resolved=resolved,
        state=State(facts, rounds.l2, {cell: identity.of_call(resolved, binary)}),
        mhz=rounds.spin_mhz,
        throttle=side.throttle if side else rounds.throttle,
        others=max(facts.other_processes or 0, (side and side.other_processes) or 0),
        busy=facts.is_busy,
    )


def _method(record: Timing | Rounds, seconds: str | None = None) -> dict[str, str]:
    """How it was measured, as far as an identity does not say it."""
    facts = record.environment
    told = {"seconds": seconds, "flush bytes": facts.flush_bytes, "commit": facts.commit}
    return {name: str(value) for name, value in told.items() if value is not None}


# --- Those without times --------------------------------------------------------------------------


def _ended(stored: Stored, side: str) -> dict[Key, list[Ended]]:
    """Processes that ended without times, but for crashes that were measured again."""
    found = defaultdict[Key, list[Ended]](list)
    again = {timing.key: timing.started for timing in stored.of(Timing) if timing.samples}
    for timing in stored.of(Timing):
        is_over = timing.status == "crashed" and again.get(timing.key, "") >= timing.started
        if timing.status not in ("measured", "refused") and not is_over:
            found[_key(timing)].append(Ended(side, timing.status, timing.reason or ""))
    for rounds in stored.of(Rounds):
        for cell in rounds.cells if rounds.status not in ("measured", "refused") else ():
            found[_key_among(rounds, cell)].append(Ended(side, rounds.status, rounds.reason or ""))
    return found


def _refusals(stored: Stored) -> dict[Key, str]:
    found = {_key(t): t.reason or "" for t in stored.of(Timing) if t.status == "refused"}
    for rounds in stored.of(Rounds):
        if rounds.status == "refused":
            found |= {_key_among(rounds, cell): rounds.reason or "" for cell in rounds.cells}
    return found


def without_copies(head: Side, base: Side) -> Side:
    """The head without processes that are copies of the base's."""
    known = {each.mark for each in base.processes}
    return replace(head, processes=tuple(each for each in head.processes if each.mark not in known))
