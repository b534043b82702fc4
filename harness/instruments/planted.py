"""Plant known work in our own kernels, and require the instruments to find it."""

from __future__ import annotations

from collections.abc import Sequence

from pagebench.harness.cell import Cell
from pagebench.harness.contrasts import Contrast, planted_contrasts
from pagebench.harness.counting.predict import predicted_of
from pagebench.harness.counting.trust import counted_and_trusted
from pagebench.harness.environment import bandwidth_of
from pagebench.harness.judging.verdict import groups_of, verdict_of
from pagebench.harness.records import store
from pagebench.harness.records.caveats import TimingCaveat
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.planted import Planted, PlantedLoads, PlantedWait, PlantedWord
from pagebench.harness.records.select import Evidence, read_evidence
from pagebench.harness.records.verdict import Change, Verdict
from pagebench.harness.workers.bench import Bench
from pagebench.harness.workers.interleave import interleave

Row = PlantedWord | PlantedLoads | PlantedWait


def selftest(bench: Bench) -> Planted:
    """Count and judge the planted cells; append all records to `out`, the planted record last.

    UserError where nothing can be counted.
    """
    contrasts = planted_contrasts(bandwidth_of(bench.device))
    counted = counted_and_trusted(planted_cells(contrasts), bench.device, bench.progress)
    store.append(bench.out, *counted)
    evidence = read_evidence([bench.out])
    groups = groups_of(contrasts)
    interleave(groups, bench)
    verdicts = [
        verdict_of(contrast, group, bench.options.l2, evidence)
        for contrast, group in zip(contrasts, groups, strict=True)
    ]
    planted = planted_of(verdicts, evidence)
    store.append(bench.out, *verdicts, planted)
    return planted


def planted_cells(contrasts: Sequence[Contrast]) -> tuple[Cell, ...]:
    """The cells of the contrasts, once each."""
    return tuple(dict.fromkeys(cell for contrast in contrasts for cell in contrast.cells))


def planted_of(verdicts: Sequence[Verdict], evidence: Evidence) -> Planted:
    """What was planted, what each instrument found, and the smallest detectable effect."""
    quiet = next(verdict for verdict in verdicts if verdict.predicts == "absent")
    return Planted(
        rows=tuple(row for verdict in verdicts for row in _rows(verdict, evidence)),
        detectable=quiet.time.detectable if quiet.time else None,
        caveats=tuple(dict.fromkeys(each for verdict in verdicts for each in _of_time(verdict))),
        environment=quiet.environment,
    )


def _of_time(verdict: Verdict) -> list[TimingCaveat]:
    return [each for each in verdict.caveats if isinstance(each, TimingCaveat)]


def _rows(verdict: Verdict, evidence: Evidence) -> list[Row]:
    """The verdict's word, and the planted amount where there is one."""
    one, other = map(Cell.parse, verdict.cells)
    rows: list[Row] = [PlantedWord(other.name, verdict.predicts or "", verdict.word)]
    if other.shape.planted_loads != one.shape.planted_loads:
        rows.append(_loads(one, other, evidence))
    planted_us = (other.shape.planted_ns - one.shape.planted_ns) / 1e3
    if planted_us and verdict.time and verdict.time_us:
        rows.append(_wait(other, planted_us, verdict.time, verdict.time_us[0]))
    return rows


def _loads(one: Cell, other: Cell, evidence: Evidence) -> PlantedLoads:
    """The LDG planted by construction, and the difference that the counter shows.

    Without both where a cell was not counted or the calibration found the counter wrong.
    """
    counters = evidence.newest_counters((one, other))
    if counters is None:
        return PlantedLoads(other.name)
    planted = _more(
        *(_predicted(cell, each) for cell, each in zip((one, other), counters, strict=True))
    )
    found = _more(*(each.value("ldg") for each in counters))
    if planted is None or found is None:
        return PlantedLoads(other.name)
    return PlantedLoads(other.name, planted, found)


def _predicted(cell: Cell, counters: Counters) -> float | None:
    return predicted_of(cell, counters).ldg


def _more(before: float | None, after: float | None) -> int | None:
    """How much larger the second number is; None where either is unknown."""
    return None if before is None or after is None else int(after) - int(before)


def _wait(cell: Cell, planted_us: float, time: Change, before_us: float) -> PlantedWait:
    """The planted microseconds, and the difference that the clock shows, with its interval."""
    low, found, high = (round(us, 3) for us in time.delta_us(before_us))
    return PlantedWait(cell.name, planted_us, found, low, high)
