"""A verdict on two cells: interleaved times over fresh processes, and counters where recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from math import exp
from pathlib import Path
from statistics import median
from typing import Any

from pagebench.harness import store
from pagebench.harness.card import same_binary
from pagebench.harness.ceilings import diagnose
from pagebench.harness.cell import Cell
from pagebench.harness.change import LOOKS, Change, change, may_stop, process_effect
from pagebench.harness.profile import predict_counters
from pagebench.harness.run import Options
from pagebench.harness.worker import Worker, WorkerLost
from pagebench.kernels.device import Device
from pagebench.profiles.ceilings import binding_sentence
from pagebench.profiles.verdict import Verdict, Work, judge, work_of

VERDICT_SCHEMA = 1


def measure_change(
    cells: tuple[Cell, Cell],
    options: Options,
    device: Device,
    out: Path,
    progress: Callable[[str], None],
) -> tuple[Change, float]:
    """Interleave both cells in fresh processes until the difference is decided.

    Returns the change of B over A, and how many floors of its clock the shorter call lasts. Each
    process is a pair record in `out`. ValueError where a process has no times.
    """
    effects, floors = list[float](), list[float]()
    while not may_stop(effects):
        record = _one_process(cells, replace(options, process=len(effects)), device, progress)
        store.append_line(out, record)
        if record["status"] != "measured":
            raise ValueError(f"{record['status']}: {record['reason']}")
        quads = record["quads"]
        effects.append(process_effect(quads))
        shortest = min(median(q[0] for q in quads), median(q[1] for q in quads))
        floors.append(shortest / record["floor_us"])
        progress(f"process {len(effects)} of {LOOKS[-1]} at most: x {exp(effects[-1]):.4f}")
    return change(effects), min(floors)


def _one_process(
    cells: tuple[Cell, Cell], options: Options, device: Device, progress: Callable[[str], None]
) -> dict[str, Any]:
    kernel_file = Path(options.kernel_file) if options.kernel_file else None
    worker = Worker(device, kernel_file)
    try:
        record: dict[str, Any] = worker.ask(cells, options, lambda stage: None)
    except WorkerLost as loss:
        raise ValueError(str(loss)) from loss
    finally:
        worker.close()
    return record


def work_between(cells: tuple[Cell, Cell], files: Sequence[Path]) -> Work | None:
    """What the newest counters of both cells say of the work; None where one has none."""
    newest: dict[str, dict[str, Any]] = {}
    for line in store.read_kind(files, "counters"):
        newest[line["cell"]] = line
    if not all(cell.name in newest for cell in cells):
        return None
    one, other = (newest[cell.name] for cell in cells)
    return work_of(one["total"], other["total"], _predicted(cells, one, other),
                   same_binary(one, other))  # fmt: skip


def _predicted(
    cells: tuple[Cell, Cell], one: dict[str, Any], other: dict[str, Any]
) -> dict[str, float]:
    """Ratios B over A that layout and kernel source predict, by counter."""
    capability = tuple(one["environment"].get("capability") or ())
    first, second = (
        predict_counters(cell, line["resolved"], capability)
        for cell, line in zip(cells, (one, other), strict=True)
    )
    return {
        name: second[name] / first[name]
        for name in ("ldg", "dram_read_bytes")
        if first.get(name) and second.get(name)
    }


def binding_of(cells: tuple[Cell, Cell], files: Sequence[Path], pairs: Path) -> str | None:
    """What binds cell B in the newest pair of `pairs`, by counters and ceilings in `files`."""
    counters = timed = None
    for line in store.read_kind(files, "counters"):
        counters = line if line["cell"] == cells[1].name else counters
    for line in store.read_kind([pairs], "pair"):
        mine = line["cells"] == [cell.name for cell in cells] and line["status"] == "measured"
        timed = line if mine else timed
    if counters is None or timed is None:
        return None
    time_us = median(time for quad in timed["quads"] for time in quad[1:3])
    path = diagnose(counters, timed["environment"].get("gpu", ""), timed["l2"], time_us, files)
    return binding_sentence(path) if path else None


def verdict_record(
    cells: tuple[Cell, Cell],
    found: Change,
    floors: float,
    work: Work | None,
    predicts: str | None,
    binding: str | None = None,
) -> dict[str, Any]:
    """The verdict with all it rests on; a failed prediction is said first."""
    text = time_sentence(found)
    verdict = judge(found.word, text, work, floors, binding)
    return {
        "kind": "verdict",
        "schema": VERDICT_SCHEMA,
        "cells": [cell.name for cell in cells],
        "verdict": verdict.word,
        "headline": headline(verdict, predicts),
        "predicted": predicts,
        "because": list(verdict.because),
        "time": asdict(found),
        "floors": round(floors, 1),
        "work": None if work is None else asdict(work),
    }


def time_sentence(found: Change) -> str:
    return (
        f"time x {found.ratio:.4f} [{found.low:.4f}, {found.high:.4f}] over {found.processes} "
        f"processes: {found.word} (an effect of {found.detectable:.2%} would be found)"
    )


def headline(verdict: Verdict, predicts: str | None) -> str:
    if predicts is None or predicts == verdict.word:
        return verdict.word if predicts is None else f"{verdict.word}, as predicted"
    return f"{verdict.word}, but {predicts} was predicted"


__all__ = ["Options", "binding_of", "measure_change", "verdict_record", "work_between"]
