"""Measure what a study draws, on the GPU at hand: ceilings, timings, counters, verdicts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.contrasts import CONTRASTS, LADDERS, planted_contrasts
from pagebench.harness.counting.count import counted_and_trusted
from pagebench.harness.environment import bandwidth_of, environment
from pagebench.harness.instruments.calibrate import CALIBRATIONS, calibrate
from pagebench.harness.instruments.ceilings import measure_ceilings
from pagebench.harness.instruments.planted import planted_record
from pagebench.harness.instruments.speed import waited
from pagebench.harness.judging import attack as attacks
from pagebench.harness.judging import judge as judging
from pagebench.harness.judging import ladder as dosing
from pagebench.harness.records import store
from pagebench.harness.suites import Suite, find_suite
from pagebench.harness.timing.measure import default_options, refusal
from pagebench.harness.workers.interleave import Interleaved, interleave
from pagebench.harness.workers.sweep import jobs, sweep
from pagebench.harness.workers.worker import Pool
from pagebench.kernels.device import Device

Progress = Callable[[str], None]
SUITES = ("plan", "placements")
LIMIT_S = 600
INTERLEAVING_S = 300  # after which no further process is begun: the study is to end in ten minutes
# The Nsight comparison's footprints: 0.13, 1.07 and 4.3 GB.
COUNTED = tuple(
    f"fidecode_distinct{where}_p1_b{batch}_l8192"
    for batch in (4, 32, 128)
    for where in ("", "_block128", "_scatter")
)


def measure_study(device: Device, out: Path, progress: Progress) -> None:
    """Append everything to `out`, part by part.

    ValueError where there is no GPU to measure, or `out` cannot be written.
    """
    if device.kind != "cuda":
        raise ValueError(
            "--measure needs a GPU; without one draw from records: pagebench study FILE..., "
            "or make study RUN=FILE"
        )
    store.check_appendable(out)
    began = monotonic()

    def tell(text: str) -> None:
        progress(f"{monotonic() - began:4.0f} s  {text}")

    _try(partial(measure_ceilings, device, tell), out, tell)
    for suite in SUITES:
        _time(find_suite(suite), device, out, tell)
    _time(Suite("ladders", "", _ladder_cells()), device, out, tell)
    _count(device, out, tell)
    _conclude(device, out, tell)
    took = round(monotonic() - began, 1)
    store.append_line(out, waited("make study", [took], LIMIT_S, environment(device)))


def _time(suite: Suite, device: Device, out: Path, progress: Progress) -> None:
    options = default_options(device, suite.boundary)
    todo = jobs(suite.cells, options, [options.clock], [options.l2], 1)
    with Pool(device) as pool:
        for number, record in enumerate(sweep(todo, out, pool, device, lambda job, stage: None)):
            progress(f"{suite.name} {number + 1} of {len(todo)}: {record.cell} {record.status}")


def _ladder_cells() -> tuple[Cell, ...]:
    return tuple(Cell.parse(name) for ladder in LADDERS for name in ladder.cells)


def counted_cells(device: Device) -> list[Cell]:
    """Cells of contrasts and ladders, and of the Nsight comparison, that this device can run."""
    contrasts = (*CONTRASTS, *planted_contrasts(bandwidth_of(device)))
    pairs = [name for c in contrasts for name in (c.one, c.other)]
    cells = dict.fromkeys((*map(Cell.parse, (*pairs, *COUNTED)), *_ladder_cells()))
    return [cell for cell in cells if refusal(cell, device) is None]


def _count(device: Device, out: Path, progress: Progress) -> None:
    """Calibration and counters; where they cannot be had, the study says so and goes on."""
    try:
        calibration = calibrate(device, progress)
        store.append_line(CALIBRATIONS, calibration)
        records = counted_and_trusted(counted_cells(device), device, progress)
    except (ValueError, RuntimeError) as error:  # of ncu, or of a chip whose counters are not known
        progress(f"no counters: {error}")
        return
    store.append_lines(out, [calibration, *records])


def _conclude(device: Device, out: Path, progress: Progress) -> None:
    """Interleave contrasts, planted effects, ladders and attacks in the same fresh processes."""
    asked = (*CONTRASTS, *planted_contrasts(bandwidth_of(device)))
    contrasts = judging.groups_of(CONTRASTS)
    planted = judging.groups_of(asked[len(CONTRASTS) :])
    ladders = dosing.groups_of(LADDERS)
    positive = judging.cells_of(next(c for c in CONTRASTS if c.name == "positive"))
    scaled = attacks.groups_of(attacks.scaled(positive))
    switched = _switched(positive, device, progress)
    groups = [*contrasts, *planted, *ladders, *scaled, *switched]
    options = default_options(device)
    interleave(groups, options, device, out, progress, INTERLEAVING_S)
    found = [
        judging.verdict_of(contrast, group, options, [out])
        for contrast, group in zip(asked, (*contrasts, *planted), strict=True)
    ]
    store.append_lines(out, found)
    found = found[len(CONTRASTS) :]
    _try(partial(planted_record, found, [out]), out, progress)
    for ladder, group in zip(LADDERS, ladders, strict=True):
        _try(partial(dosing.dose_of, ladder, group, options, [out]), out, progress)
    _try(partial(attacks.attack_of, "context", scaled), out, progress)
    if switched:
        _try(partial(attacks.attack_of, "kernel", switched), out, progress)


def _switched(cells: tuple[Cell, Cell], device: Device, progress: Progress) -> list[Interleaved]:
    try:
        return attacks.groups_of(attacks.switched(cells, device, None))
    except ValueError as error:
        progress(f"no other kernel to try: {error}")
        return []


def _try(make: Callable[[], dict[str, Any]], out: Path, progress: Progress) -> None:
    """One conclusion; a group that has no times costs its own alone."""
    try:
        store.append_line(out, make())
    except ValueError as error:
        progress(f"no conclusion: {error}")
