"""Measure what a study draws on this GPU: ceilings, timings, counters, verdicts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TypeVar

from pagebench.harness.cell import Cell
from pagebench.harness.contrasts import CONTRASTS, LADDERS, planted_contrasts
from pagebench.harness.counting.trust import CALIBRATIONS, counted_and_trusted
from pagebench.harness.environment import bandwidth_of, environment
from pagebench.harness.errors import UserError
from pagebench.harness.instruments.calibrate import calibrate
from pagebench.harness.instruments.ceilings import measure_ceilings
from pagebench.harness.instruments.planted import planted_of
from pagebench.harness.judging import attack, dose, verdict
from pagebench.harness.progress import Progress
from pagebench.harness.records import store
from pagebench.harness.records.base import Record
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.select import Evidence
from pagebench.harness.records.speed import Speed
from pagebench.harness.suites import Suite, find_suite
from pagebench.harness.timing.interleaved import Interleaved
from pagebench.harness.timing.options import default_options
from pagebench.harness.timing.refuse import refusal
from pagebench.harness.workers.bench import Bench
from pagebench.harness.workers.interleave import interleave
from pagebench.harness.workers.sweep import jobs, sweep
from pagebench.harness.workers.worker import Pool
from pagebench.kernels.device import Device

SomeRecord = TypeVar("SomeRecord", bound=Record)
SUITES = ("plan", "placements")
LIMIT_S = 600
INTERLEAVING_S = 300  # start no process after this: the study should end within ten minutes
# The Nsight comparison's footprints: 0.13, 1.07 and 4.3 GB.
COUNTED = tuple(
    f"fidecode_distinct{where}_p1_b{batch}_l8192"
    for batch in (4, 32, 128)
    for where in ("", "_block128", "_scatter")
)


def measure_study(device: Device, out: Path, progress: Progress) -> None:
    """Append everything to `out`, part by part.

    UserError if there is no GPU to measure, or `out` cannot be written.
    """
    if device.kind != "cuda":
        raise UserError(
            "--measure needs a GPU; without one draw from records: pagebench study FILE..., "
            "or make study RUN=FILE"
        )
    store.check_appendable(out)
    began = monotonic()

    def tell(text: str) -> None:
        progress(f"{monotonic() - began:4.0f} s  {text}")

    bench = Bench(device, default_options(device), out, tell)
    ceilings = _try(partial(measure_ceilings, device, tell), bench)
    for suite in (*map(find_suite, SUITES), Suite("ladders", "", _ladder_cells())):
        _time(suite, bench)
    _conclude(bench, Evidence(_count(bench), ceilings))
    took = round(monotonic() - began, 1)
    store.append(out, _waited(took, device))


def _try(make: Callable[[], SomeRecord], bench: Bench) -> tuple[SomeRecord, ...]:
    """The record as a tuple; empty on a UserError, which loses only this conclusion."""
    try:
        record = make()
    except UserError as error:
        bench.progress(f"no conclusion: {error}")
        return ()
    store.append(bench.out, record)
    return (record,)


def _waited(seconds: float, device: Device) -> Speed:
    return Speed(
        what="make study",
        all_seconds=(seconds,),
        limit_s=LIMIT_S,
        statistic="best",
        environment=environment(device),
    )


def _time(suite: Suite, bench: Bench) -> None:
    options = default_options(bench.device, suite.boundary)
    todo = jobs(suite.cells, options, [options.clock], [options.l2], 1, bench.device)
    with Pool(bench.device) as pool:
        swept = sweep(todo, bench.out, pool, lambda job, stage: None)
        for number, timing in enumerate(swept, 1):
            done = f"{suite.name} {number} of {len(todo)}"
            bench.progress(f"{done}: {timing.cell} {timing.status}")


def _ladder_cells() -> tuple[Cell, ...]:
    return tuple(cell for ladder in LADDERS for cell in ladder.cells)


def counted_cells(device: Device) -> list[Cell]:
    """Cells of contrasts and ladders, and of the Nsight comparison, that this device can run."""
    contrasts = (*CONTRASTS, *planted_contrasts(bandwidth_of(device)))
    pairs = [cell for contrast in contrasts for cell in contrast.cells]
    cells = dict.fromkeys((*pairs, *map(Cell.parse, COUNTED), *_ladder_cells()))
    return [cell for cell in cells if refusal(cell, device) is None]


def _count(bench: Bench) -> tuple[Counters, ...]:
    """Counters, with their calibration; if counting fails, say so and go on with none."""
    try:
        calibration = calibrate(bench.device, bench.progress)
        store.append(CALIBRATIONS, calibration)
        counted = counted_and_trusted(counted_cells(bench.device), bench.device, bench.progress)
    except UserError as error:
        bench.progress(f"no counters: {error}")
        return ()
    store.append(bench.out, calibration, *counted)
    return tuple(counted)


# --- Conclusions ----------------------------------------------------------------------------------


def _conclude(bench: Bench, evidence: Evidence) -> None:
    """Interleave contrasts, planted effects, ladders and attacks in the same fresh processes."""
    planted = planted_contrasts(bandwidth_of(bench.device))
    positive = next(contrast for contrast in CONTRASTS if contrast.name == "positive").cells
    contrasts = [*verdict.groups_of(CONTRASTS), *verdict.groups_of(planted)]
    ladders = dose.groups_of(LADDERS)
    scaled = attack.groups_of(attack.scaled(positive))
    switched = _switched(positive, bench)
    interleave([*contrasts, *ladders, *scaled, *switched], bench, INTERLEAVING_S)
    l2 = bench.options.l2
    verdicts = [
        verdict.verdict_of(contrast, group, l2, evidence)
        for contrast, group in zip((*CONTRASTS, *planted), contrasts, strict=True)
    ]
    store.append(bench.out, *verdicts)
    _try(partial(planted_of, verdicts[len(CONTRASTS) :], evidence), bench)
    for ladder, group in zip(LADDERS, ladders, strict=True):
        _try(partial(dose.dose_of, ladder, group, l2, evidence), bench)
    _try(partial(attack.attack_of, "context", scaled), bench)
    if switched:
        _try(partial(attack.attack_of, "kernel", switched), bench)


def _switched(cells: attack.Pair, bench: Bench) -> list[Interleaved]:
    try:
        return attack.groups_of(attack.switched(cells, bench.device, None))
    except UserError as error:
        bench.progress(f"no other kernel to try: {error}")
        return []
