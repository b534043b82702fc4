"""How fast the suite itself is: what a user waits for, beside the limits it promises to keep."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.environment import PAGEBENCH, environment
from pagebench.harness.records.timing import Block, Record, Samples
from pagebench.harness.show import timings as report
from pagebench.kernels.device import Device
from pagebench.layouts.lowering import lower
from pagebench.layouts.table import page_table

SPEED_SCHEMA = 1
MANY_INDICES = "b128_l16384"  # 2,097,152 tokens at page 1
TABLE_LIMIT_S = {"cuda": 0.020, "cpu": 0.300}
LIST_LIMIT_S, REPORT_LIMIT_S, REPORT_RECORDS = 0.5, 2.0, 10_000
PROFILED, PROFILE_LIMIT_S = "xqa_shared_p16", 30.0  # with its module built before
REPEATS = 5


def speeds(device: Device, progress: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Records of kind `speed`: best of five in seconds (a profile: of one), and the limit."""
    facts = environment(device)
    for placement in ("contiguous", "block128", "scatter"):
        name = f"reference_distinct_{placement}_p1_{MANY_INDICES}"
        build = _table_builder(Cell.parse(name), device)
        yield _record(f"table of 2,097,152 indices, {placement}", build,
                      TABLE_LIMIT_S[device.kind], facts)  # fmt: skip
    yield _record("pagebench list --suite pages", _list, LIST_LIMIT_S, facts)
    yield _record(f"report of {REPORT_RECORDS:,} records", _reporter(), REPORT_LIMIT_S, facts)
    if device.kind == "cuda":
        yield from _profiled(device, facts, progress)


def _record(
    what: str, action: Callable[[], object], limit_s: float, facts: dict[str, Any]
) -> dict[str, Any]:
    seconds = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        action()
        seconds.append(round(time.perf_counter() - begin, 4))
    return waited(what, seconds, limit_s, facts)


def waited(
    what: str, seconds: Sequence[float], limit_s: float, facts: dict[str, Any]
) -> dict[str, Any]:
    """A record of kind `speed`: how long something took each time, and how long it may."""
    return {
        "kind": "speed",
        "schema": SPEED_SCHEMA,
        "what": what,
        "seconds": min(seconds),
        "limit_s": limit_s,
        "all_seconds": list(seconds),
        "environment": facts,
    }


def _table_builder(cell: Cell, device: Device) -> Callable[[], object]:
    import torch

    def build() -> None:
        table = page_table(cell.shape, cell.sharing, cell.placement, device.torch_name)
        lower(table, "token_indices")
        if device.kind == "cuda":
            torch.cuda.synchronize()

    build()
    return build


def _list() -> None:
    _pagebench("list", "--suite", "pages")


def _profiled(
    device: Device, facts: dict[str, Any], progress: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """What one waits for `make ncu CELL=...`; where there is no ncu, a line with its remedy."""
    with tempfile.TemporaryDirectory() as scratch:
        out = str(Path(scratch) / "counters.jsonl")
        begin = time.perf_counter()
        try:
            _pagebench("profile", PROFILED, "--device", device.torch_name, "--out", out)
        except subprocess.CalledProcessError as error:
            said = error.stderr.strip().splitlines() or [str(error)]
            progress(f"no profile to time: {said[-1]}")
            return
        seconds = round(time.perf_counter() - begin, 2)
    yield waited(f"pagebench profile {PROFILED}", [seconds], PROFILE_LIMIT_S, facts)


def _pagebench(*words: str) -> None:
    """The command line in a process of its own; CalledProcessError if it fails."""
    subprocess.run([*PAGEBENCH, *words], check=True, capture_output=True, text=True)


def _reporter() -> Callable[[], object]:
    """Drawing records of 200 samples each, parsed from JSON as a file would be."""
    import json

    samples = Samples(tuple(100 + i % 7 * 0.1 for i in range(200)), 1.0, (Block(0),), "samples")
    cell = Cell.parse("reference_distinct_p16")
    one = Record(
        cell.name, "run", "wall", "cold", "measured", cell.axes(), "now", "cpu", samples=samples
    )
    lines = [json.dumps(replace(one, process=i).to_json()) for i in range(REPORT_RECORDS)]

    def draw() -> None:
        records = [Record.from_json(json.loads(line)) for line in lines]
        report.plain(report.HEADINGS, map(report.cells_of, map(report.row, records)))

    return draw
