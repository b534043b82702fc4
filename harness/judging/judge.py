"""A verdict on two cells: interleaved times over fresh processes, and counters where recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.contrasts import Contrast
from pagebench.harness.counting.predict import State, newest_counters, predict_counters, same_binary
from pagebench.harness.instruments.ceilings import diagnose
from pagebench.harness.judging.verdict import Verdict, Work, judge, work_of
from pagebench.harness.records import store
from pagebench.harness.timing.change import Change
from pagebench.harness.timing.measure import Options
from pagebench.harness.workers.interleave import Interleaved, interleave
from pagebench.kernels.device import Device
from pagebench.profiles.ceilings import CriticalPath, binding_sentence

VERDICT_SCHEMA = 1


def judge_contrasts(
    contrasts: Sequence[Contrast],
    options: Options,
    device: Device,
    files: Sequence[Path],
    out: Path,
    progress: Callable[[str], None],
) -> list[dict[str, Any]]:
    """A verdict record for each contrast; `files` hold counters and ceilings.

    Group records of each process and then the verdicts are appended to `out`. A contrast whose
    cells fail has a record of verdict `unclear` that says why.
    """
    groups = groups_of(contrasts)
    interleave(groups, options, device, out, progress)
    records = [
        verdict_of(contrast, group, options, files)
        for contrast, group in zip(contrasts, groups, strict=True)
    ]
    store.append_lines(out, records)
    return records


def groups_of(contrasts: Sequence[Contrast]) -> list[Interleaved]:
    """What to interleave; all contrasts are judged together."""
    return [Interleaved(cells_of(contrast), len(contrasts)) for contrast in contrasts]


def cells_of(contrast: Contrast) -> tuple[Cell, Cell]:
    return Cell.parse(contrast.one), Cell.parse(contrast.other)


def verdict_of(
    contrast: Contrast, group: Interleaved, options: Options, files: Sequence[Path]
) -> dict[str, Any]:
    """The verdict on one contrast, with all it rests on; a failed prediction is said first."""
    found = None if group.failed else group.step()
    work = work_between((group.cells[0], group.cells[1]), files, state_of(group, options))
    path = path_of(group, options, files)
    verdict = _verdict(group, found, work, binding_sentence(path) if path else None)
    return {
        "kind": "verdict",
        "schema": VERDICT_SCHEMA,
        "contrast": contrast.name,
        "knob": contrast.knob,
        "cells": [cell.name for cell in group.cells],
        "verdict": verdict.word,
        "headline": headline(verdict, contrast.predicts),
        "predicted": contrast.predicts,
        "why": contrast.why,
        "because": [*verdict.because, *([] if group.failed else group.notes)],
        "time": found and asdict(found),
        "time_us": [round(group.time_us(cell), 3) for cell in (0, 1)] if found else None,
        "among": group.among,
        "floors": round(group.floors, 1) if found else None,
        "work": None if work is None else asdict(work),
        "path": path.entry() if path else None,
        "status": group.status,
        "environment": group.environment,
    }


def _verdict(
    group: Interleaved, found: Change | None, work: Work | None, binding: str | None
) -> Verdict:
    if found is None:
        return Verdict("unclear", (f"no time: {group.failed}",))
    text = time_sentence(found, group.among)
    slower = found.ratio > 1
    return judge(found.word, text, work, group.floors, slower=slower, binding=binding)


def time_sentence(found: Change, among: int) -> str:
    together = f", one of {among} judged together" if among > 1 else ""
    return (
        f"time x {found.ratio:.4f} [{found.low:.4f}, {found.high:.4f}] over {found.processes} "
        f"processes{together}: {found.word} (an effect of {found.detectable:.2%} would be found)"
    )


def headline(verdict: Verdict, predicts: str | None) -> str:
    if predicts is None or predicts == verdict.word:
        return verdict.word if predicts is None else f"{verdict.word}, as predicted"
    return f"{verdict.word}, but {predicts} was predicted"


def state_of(group: Interleaved, options: Options) -> State:
    """GPU and cache state of its times: counters of others say nothing of them."""
    return State(group.environment, options.l2)


def work_between(
    cells: tuple[Cell, Cell], files: Sequence[Path], state: State | None = None
) -> Work | None:
    """What the newest counters of both cells say of the work; None where one has none."""
    counters = newest_counters(cells, files, state)
    if counters is None:
        return None
    one, other = counters
    predicted = _predicted(cells, one, other)
    return work_of(one["total"], other["total"], predicted, same_binary(one, other))


def _predicted(
    cells: tuple[Cell, Cell], one: dict[str, Any], other: dict[str, Any]
) -> dict[str, float]:
    """Ratios B over A that layout and kernel source predict, by counter."""
    first, second = (
        predict_counters(cell, line["resolved"], line["environment"], line["how"])
        for cell, line in zip(cells, (one, other), strict=True)
    )
    return {
        name: second[name] / first[name]
        for name in ("ldg", "dram_read_bytes")
        if first.get(name) and second.get(name)
    }


def path_of(group: Interleaved, options: Options, files: Sequence[Path]) -> CriticalPath | None:
    """The critical path of the group's last cell, by counters and ceilings in `files`."""
    counters = newest_counters(group.cells[-1:], files, state_of(group, options))
    if counters is None or group.failed:
        return None
    time_us = group.time_us(len(group.cells) - 1)
    ceilings = store.read_kind(files, "ceilings")
    return diagnose(counters[0], state_of(group, options), time_us, ceilings)
