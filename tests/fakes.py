"""Stand-ins: a clock that is told its times, a monitor of a device that is not there; and the
command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from pagebench.harness.environment import PAGEBENCH
from pagebench.harness.records.timing import Block
from pagebench.harness.timing.clocks.sampling import Sample

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
DATA = TESTS / "data"
RESULTS = ROOT / "docs" / "results"
H200 = RESULTS / "h200"


def pagebench(
    *words: str, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, with those environment variables too."""
    return subprocess.run(
        [*PAGEBENCH, *words], cwd=cwd, env={**os.environ, **variables}, text=True,
        capture_output=True,
    )  # fmt: skip


class FakeClock:
    """Gives the times it was made with, in order, and logs what happened."""

    name = "events"

    def __init__(self, times: Iterable[float], floor: float = 1.0) -> None:
        self._times, self._floor = iter(times), floor
        self.log: list[str] = []

    def sample(self, run: Callable[[], object], prepare: Callable[[], object]) -> Sample:
        if run == self._null:
            return Sample(self._floor)
        prepare()
        run()
        return Sample(next(self._times))

    def null(self) -> Callable[[], object]:
        return self._null

    def _null(self) -> None:
        self.log.append("null")


class FakeMonitor:
    """A device whose SM clock takes the given values, one a reading, the last for ever."""

    reads = True

    def __init__(self, *sm_mhz: int) -> None:
        self._sm_mhz = list(sm_mhz)
        self.readings = 0

    def block(self, start: int) -> Block:
        self.readings += 1
        clock = self._sm_mhz.pop(0) if len(self._sm_mhz) > 1 else self._sm_mhz[0]
        return Block(start, clock, 3201, ())
