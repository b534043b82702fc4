"""The records that a study draws: read once, and picked so that they compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagebench.harness.counting.predict import anew
from pagebench.harness.environment import Environment
from pagebench.harness.errors import UserError
from pagebench.harness.judging.binds import path_of
from pagebench.harness.records import store
from pagebench.harness.records.attack import Attack
from pagebench.harness.records.base import Record
from pagebench.harness.records.caveats import Apart
from pagebench.harness.records.ceilings import MeasuredCeilings
from pagebench.harness.records.codec import kind_name
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.dose import Dose
from pagebench.harness.records.planted import Planted
from pagebench.harness.records.select import Evidence, State, of_gpu, state_of_verdict, usual_state
from pagebench.harness.records.store import Stored
from pagebench.harness.records.timing import Predicted, Samples, Timing
from pagebench.harness.records.verdict import Verdict
from pagebench.harness.show.timings import of_nominal
from pagebench.harness.study.joins import Beside, beside, of_ceilings
from pagebench.harness.timing.stats import Summary, summarise
from pagebench.profiles.ceilings import CriticalPath


@dataclass(frozen=True, slots=True)
class Timed:
    """A measured timing with its samples and predicted work, their summary, and its file's name."""

    timing: Timing
    samples: Samples
    work: Predicted
    summary: Summary
    file: str

    @property
    def environment(self) -> Environment:
        return self.timing.environment

    @property
    def gbps(self) -> float:
        """Each distinct KV byte counted once, over the median."""
        return self.work.distinct_kv_bytes / self.summary.median_us / 1e3

    @property
    def of_nominal(self) -> float | None:
        return of_nominal(self.timing, self.gbps)


def timed(timing: Timing | None, file: str) -> Timed | None:
    """None if it has no time or no predicted work."""
    if timing is None or timing.samples is None or timing.predicted is None:
        return None
    summary = summarise(timing.samples.time_us)
    return Timed(timing, timing.samples, timing.predicted, summary, file)


@dataclass(frozen=True, slots=True)
class Run:
    """One file's timings on one GPU by boundary and cell: the usual clock, the newest of each."""

    file: str
    timings: Mapping[tuple[str, str], Timing]

    def timed(self, cells: Iterable[str], boundary: str) -> dict[str, Timed]:
        found = {cell: timed(self.timings.get((boundary, cell)), self.file) for cell in cells}
        return {cell: each for cell, each in found.items() if each}


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, and what binds its cell B: as recorded, or recomputed (`anew`) from `rests_on`.

    `apart` says in what the newest counters and ceilings differ from what was judged.
    """

    verdict: Verdict
    path: CriticalPath | None
    rests_on: tuple[Counters, MeasuredCeilings] | None = None
    apart: tuple[Apart, ...] = ()

    @property
    def anew(self) -> bool:
        return self.rests_on is not None

    @property
    def records(self) -> tuple[Record, ...]:
        """The verdict, and the records from which its path was recomputed."""
        return (self.verdict, *(self.rests_on or ()))


@dataclass(frozen=True, slots=True)
class Recorded:
    """All usable records, each kind with its newest last; `left_out` counts other timings.

    Predictions of counters are recomputed.
    """

    runs: tuple[Run, ...]
    left_out: Mapping[str, int]
    counters: tuple[Counters, ...]
    ceilings: tuple[MeasuredCeilings, ...]
    doses: tuple[Dose, ...]
    planted: tuple[Planted, ...]
    verdicts: tuple[Verdict, ...]
    attacks: tuple[Attack, ...]

    def timed(self, cells: Sequence[str], boundary: str = "run") -> dict[str, Timed]:
        """The cells in one run: the run that has most of them, the newest if several do."""
        found: dict[str, Timed] = {}
        for run in self.runs:
            here = run.timed(cells, boundary)
            found = here if len(here) >= len(found) else found
        return found

    def counted(
        self, cells: Sequence[str], environment: Environment | None = None
    ) -> dict[str, Counters]:
        """The newest cold counters of each cell that hold loads, in the order of `cells`.

        With an environment: of that GPU if it has any, else of its model.
        """
        lines = of_gpu(self.counters, environment) if environment else self.counters
        newest = {line.cell: line for line in lines if "ldg" in line.total and _is_cold(line)}
        return {cell: newest[cell] for cell in cells if cell in newest}

    def beside(self, cell: str, state: State) -> Beside:
        """The newest such counters of what was timed in that state, and what differs."""
        lines = [each for each in self.counters if each.cell == cell]
        lines = [each for each in lines if "ldg" in each.total and _is_cold(each)]
        return beside(lines, state) if lines else Beside()

    def judged(self) -> tuple[Judged, ...]:
        """Every verdict, and what binds by today's rule if that can be computed."""
        return tuple(map(self._judged, self.verdicts))

    def _judged(self, verdict: Verdict) -> Judged:
        state, evidence = state_of_verdict(verdict), Evidence(ceilings=self.ceilings)
        found = self.beside(verdict.cells[1], state)
        ceilings = evidence.newest_ceilings(state.environment)
        if found.counters is None or ceilings is None or verdict.time_us is None:
            return Judged(verdict, verdict.path, apart=found.apart)
        path = path_of(found.counters, state, verdict.time_us[1], evidence)
        if path is None:
            return Judged(verdict, verdict.path, apart=found.apart)
        apart = (*found.apart, *of_ceilings(ceilings, state))
        return Judged(verdict, path, (found.counters, ceilings), apart)

    def timings(self) -> Iterator[tuple[str, Timing]]:
        """Every timing with the name of its file."""
        for run in self.runs:
            yield from ((run.file, timing) for timing in run.timings.values())

    def concluded(self) -> Iterator[Record]:
        """Every record that is not a timing."""
        for records in (self.counters, self.ceilings, self.doses, self.planted, self.verdicts):
            yield from records
        yield from self.attacks

    def environments(self) -> Iterator[tuple[str, Environment]]:
        """Source and environment of every record that has an environment."""
        for file, timing in self.timings():
            yield file, timing.environment
        for record in self.concluded():
            if record.environment != Environment():
                yield f"{kind_name(record)} records", record.environment


def _is_cold(counters: Counters) -> bool:
    return counters.how.l2 in (None, "cold")


# --- Reading --------------------------------------------------------------------------------------


def read(paths: Sequence[Path]) -> Recorded:
    """Records of the files. UserError if a study draws none of them, or they have several models.

    A record without a date counts as new as the newest timing in its file.
    """
    found = _by_age(
        store.read(paths, Timing, Counters, MeasuredCeilings, Dose, Planted, Verdict, Attack)
    )
    runs, left_out = _runs(found)
    recorded = Recorded(
        runs=runs,
        left_out=left_out,
        counters=tuple(map(anew, found.of(Counters))),
        ceilings=tuple(found.of(MeasuredCeilings)),
        doses=tuple(found.of(Dose)),
        planted=tuple(found.of(Planted)),
        verdicts=tuple(found.of(Verdict)),
        attacks=tuple(found.of(Attack)),
    )
    if not runs and not any(recorded.concluded()):
        raise UserError(f"no record that a study draws in {', '.join(map(str, paths))}")
    device_name(recorded)
    return recorded


def _by_age(stored: Stored) -> Stored:
    """The same records, file by file, sorted by the newest timing of each file."""
    newest: dict[Path, str] = {}
    for path, record in stored.lines:
        started = record.started if isinstance(record, Timing) else ""
        newest[path] = max(newest.get(path, ""), started)
    place = {path: index for index, path in enumerate(sorted(newest, key=newest.__getitem__))}
    lines = sorted(stored.lines, key=lambda line: place[line[0]])
    return Stored(tuple(lines), stored.kinds)


def _runs(stored: Stored) -> tuple[tuple[Run, ...], dict[str, int]]:
    """Runs with usable timings, and how many timings are not drawn, by reason."""
    found: dict[tuple[Path, str], dict[tuple[str, str], Timing]] = {}
    left_out: Counter[str] = Counter()
    for path, timing in _timings(stored):
        reason = _why_not(timing)
        if reason:
            left_out[reason] += 1
            continue
        run = found.setdefault((path, timing.environment.uuid or timing.device), {})
        left_out["older of the same cell"] += (timing.boundary, timing.cell) in run
        run[timing.boundary, timing.cell] = timing
    runs = [Run(path.name, run) for (path, _), run in found.items()]
    return tuple(sorted(runs, key=_last_started)), dict(+left_out)


def _timings(stored: Stored) -> list[tuple[Path, Timing]]:
    """File by file, the newest of each last."""
    paths = dict.fromkeys(path for path, _ in stored.lines)
    return [
        (path, timing)
        for path in paths
        for timing in sorted(stored.timings_of(path), key=lambda each: each.started)
    ]


def _last_started(run: Run) -> str:
    return max(timing.started for timing in run.timings.values())


def _why_not(timing: Timing) -> str:
    if timing.samples is None:
        return timing.status
    if timing.predicted is None:
        return "without predicted work"
    usual = (timing.clock, timing.l2) == usual_state(timing)
    return "" if usual else "by another clock or L2 state"


# --- Devices --------------------------------------------------------------------------------------


def device_name(recorded: Recorded) -> str:
    """The GPU model, or the CPU, of all records; UserError if there are several."""
    names = {each.gpu for each in recorded.ceilings}
    names |= {facts.gpu or facts.cpu or "" for _, facts in recorded.environments()}
    known = sorted(filter(None, names))
    if len(known) > 1:
        raise UserError(f"records of several devices ({', '.join(known)}): draw a page for each")
    return known[0] if known else "a device that no record names"


def gpus_of(*found: Record | Timed | None) -> str:
    """The GPUs of a row's records, in order, each once."""
    names = [each.environment.gpu_name for each in found if each]
    return ", ".join(dict.fromkeys(filter(None, names)))


def all_gpus(recorded: Recorded) -> tuple[str, ...]:
    """The GPUs of all records, sorted by name."""
    names = {environment.gpu_name for _, environment in recorded.environments()}
    return tuple(sorted(filter(None, names)))
