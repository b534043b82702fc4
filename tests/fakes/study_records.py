"""Recorded files that a study is drawn from, and records made up to be drawn: no results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fakes import H200
from pagebench.harness.contrasts import CONTRASTS
from pagebench.harness.judging.verdict import judge
from pagebench.harness.records import store
from pagebench.harness.records.attack import Attack, ExtraWork, Variant
from pagebench.harness.records.base import Record
from pagebench.harness.records.ceilings import ByWarps, Launches, MeasuredCeilings
from pagebench.harness.records.dose import Dose, Spread, Step
from pagebench.harness.records.planted import Planted, PlantedWait
from pagebench.harness.records.verdict import Change, SameBinary, Verdict, Work
from pagebench.harness.study.section import Section, Table
from pagebench.harness.study.sections import Study
from pagebench.profiles.ceilings import Point

NAMES = ("placements", "pages", "plan", "counters", "counters_shared_dram", "kernels", "repeats")
FILES = [H200 / f"{name}.jsonl" for name in NAMES]

SAME = Change("same", 1.0012, 0.9975, 1.0049, 3, 0.0061, 0.05)
SLOWER = Change("changed", 1.2265, 1.2201, 1.2329, 3, 0.0083, 0.05)


def verdict(name: str, change: Change, changed: dict[str, float]) -> Verdict:
    contrast = next(each for each in CONTRASTS if each.name == name)
    alike = SameBinary(symbol=True, launch=True, resources=True)
    work = Work(changed, ("ldg", "dram_read_bytes"), tuple(changed), alike)
    found = judge(change, work, 80.0)
    return Verdict(
        contrast=name, knob=contrast.knob, cells=(contrast.one.name, contrast.other.name),
        word=found.word, cause=found.cause, among=1, predicts=contrast.predicts, time=change,
        time_us=(100.0, 100.0 * change.ratio), floors=80.0, work=work, caveats=found.caveats,
    )  # fmt: skip


SCATTER = verdict("scatter", SAME, {})
POSITIVE = verdict("positive", SLOWER, {"ldg": 3.9406})
VANISHING = verdict("vanishing", SLOWER, {"ldg": 3.9406})
CEILINGS = MeasuredCeilings(
    gpu="NVIDIA H200",
    launch_us=Launches(by_launches={1: 2.5, 2: 3.75}, saturated=False),
    issue_ginst=ByWarps(by_warps={16: 1000.0, 32: 1001.0}, saturated=True),
    dram_read=tuple(Point(2**power, 4000.0 + 20 * power, power > 25) for power in range(24, 34)),
)
DOSE = Dose(
    regime="shared", knob="page size",
    cells=("xqa_shared_p16", "xqa_shared_p32", "xqa_shared_p64", "xqa_shared_p128"),
    values=("16", "32", "64", "128"), processes=4,
    times=(Spread(7.0, 8.25, 9.0), Spread(5, 6, 7), Spread(4, 5, 6), Spread(4, 5, 6)),
    steps=(Step(-3, -2.25, -1), Step(-1.5, -1, -0.5), Step(-0.1, 0, 0.1)),
    counters={"ldg": (4000, 2000, 1000, 1000), "tma": (0, 0, 0, 0)},
)  # fmt: skip
PLANTED = Planted(
    rows=(PlantedWait("tritontile_distinct_p64_y1250", 1.25, 1.24, 1.23, 1.26),), detectable=0.007
)
PAIR = ("xqa_shared_p64", "xqa_shared_p16")
ATTACK = Attack(
    how="kernel", cells=PAIR, word="reverses",
    variants=(
        Variant(cells=PAIR, time=SLOWER, delta=Step(30.0, 40.5, 50.0),
                work=ExtraWork("ldg", 304_128.0)),
    ),
)  # fmt: skip
OTHER_KINDS = (SCATTER, POSITIVE, VANISHING, CEILINGS, DOSE, PLANTED, ATTACK)


def written(folder: Path, *records: Record) -> Path:
    path = folder / "other.jsonl"
    store.append(path, *records)
    return path


def section(page: Study, anchor: str) -> Section:
    return next(each for each in page.sections if each.anchor == anchor)


def column(table: Table, heading: str) -> list[str]:
    return [row[table.headings.index(heading)] for row in table.rows]


# --- Worked out here without the code that draws --------------------------------------------------


def lines_of(name: str) -> list[dict[str, Any]]:
    return list(map(json.loads, (H200 / f"{name}.jsonl").read_text().splitlines()))


def medians(name: str, boundary: str = "run") -> dict[str, float]:
    return {
        line["cell"]: float(np.median(line["samples"]["time_us"]))
        for line in lines_of(name)
        if line["samples"] and line["boundary"] == boundary and line["clock"] in ("events", "wall")
    }


def counters(cell: str) -> dict[str, Any]:
    return next(line for line in lines_of("counters") if line["cell"] == cell)
