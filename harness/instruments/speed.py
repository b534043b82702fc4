"""How fast the suite itself is: the times that a user waits, and the limits that it promises."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from pagebench.harness.cell import Cell
from pagebench.harness.environment import PAGEBENCH, Environment, environment
from pagebench.harness.progress import Progress
from pagebench.harness.records import codec, store
from pagebench.harness.records.speed import Speed
from pagebench.harness.records.timing import Asked, Block, Samples, Timing
from pagebench.kernels.device import Device
from pagebench.layouts.lowering import lower
from pagebench.layouts.table import page_table

MANY_INDICES = "b128_l16384"  # 2,097,152 tokens at page 1
TABLE_LIMIT_S = {"cuda": 0.020, "cpu": 0.300}
LIST_LIMIT_S, REPORT_LIMIT_S, REPORT_RECORDS = 0.4, 2.0, 10_000
PROFILED, PROFILE_LIMIT_S = "xqa_shared_p16", 30.0  # the time does not include building its module
REPEATS = 5

Draw = Callable[[Sequence[Timing]], object]


def speeds(device: Device, draw: Draw, progress: Progress) -> Iterator[Speed]:
    """How long each action took, five times (a profile: once), and how long it may take, in s.

    `draw` makes the table of a report.
    """
    here = environment(device)
    for placement in ("contiguous", "block128", "scatter"):
        name = f"reference_distinct_{placement}_p1_{MANY_INDICES}"
        waited = Waited(f"table of 2,097,152 indices, {placement}", TABLE_LIMIT_S[device.kind])
        yield waited.timed(_table_builder(Cell.parse(name), device), here)
    # Each time starts a process. Its best time is luck; a user waits the median.
    listed = Waited("pagebench list --suite pages", LIST_LIMIT_S, "median")
    yield listed.timed(lambda: _pagebench("list", "--suite", "pages"), here)
    with tempfile.TemporaryDirectory() as scratch:
        report = _reporter(Path(scratch) / "many.jsonl", draw)
        drawn = Waited(f"report of {REPORT_RECORDS:,} records", REPORT_LIMIT_S)
        yield drawn.timed(report, here)
    if device.kind == "cuda":
        yield from _profiled(device, here, progress)


@dataclass(frozen=True, slots=True)
class Waited:
    """An action, its limit in seconds, and the statistic of its times that must meet the limit."""

    what: str
    limit_s: float
    statistic: str = "best"

    def timed(self, action: Callable[[], object], here: Environment) -> Speed:
        """Run the action five times and return the record of its times."""
        seconds = []
        for _ in range(REPEATS):
            begin = time.perf_counter()
            action()
            seconds.append(round(time.perf_counter() - begin, 4))
        return self.took(seconds, here)

    def took(self, seconds: list[float], here: Environment) -> Speed:
        """The record of those times."""
        return Speed(
            what=self.what,
            all_seconds=tuple(seconds),
            limit_s=self.limit_s,
            statistic=self.statistic,
            environment=here,
        )


def _table_builder(cell: Cell, device: Device) -> Callable[[], object]:
    import torch

    def build() -> None:
        table = page_table(cell.shape, cell.streams, cell.placement, device.torch_name)
        lower(table, "token_indices")
        if device.kind == "cuda":
            torch.cuda.synchronize()

    build()
    return build


def _profiled(device: Device, here: Environment, progress: Progress) -> Iterator[Speed]:
    """The time of `make ncu CELL=...`; where it fails, `progress` reports why."""
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
    yield Waited(f"pagebench profile {PROFILED}", PROFILE_LIMIT_S).took([seconds], here)


def _pagebench(*words: str) -> None:
    """Run the command line in its own process; CalledProcessError if it fails."""
    subprocess.run([*PAGEBENCH, *words], check=True, capture_output=True, text=True)


def _reporter(path: Path, draw: Draw) -> Callable[[], object]:
    """An action that reads and draws a file of records with 200 samples each."""
    cell = Cell.parse("reference_distinct_p16")
    samples = Samples(tuple(100 + i % 7 * 0.1 for i in range(200)), 1.0, (Block(0),), "samples")
    one = Timing(
        cell=cell.name,
        boundary="run",
        clock="wall",
        l2="cold",
        status="measured",
        axes=cell.axes(),
        started="now",
        device="cpu",
        asked=Asked(seconds=2.0, device="cpu"),
        samples=samples,
    )
    lines = (codec.encode(replace(one, process=i)) for i in range(REPORT_RECORDS))
    store.write_whole(path, "\n".join(lines))

    return lambda: draw(store.read([path], Timing).of(Timing))
