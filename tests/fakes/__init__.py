"""Stand-ins: a clock that is told its times, a monitor of a device that is not there; and the
command line, in a process of its own or in this one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import chdir, redirect_stderr, redirect_stdout
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

from pagebench.harness.cli.main import main
from pagebench.harness.environment import PAGEBENCH
from pagebench.harness.records.timing import Block
from pagebench.harness.timing.clocks.sampling import Sample
from pagebench.kernels import registry

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
DATA = TESTS / "data"
RESULTS = ROOT / "docs" / "results"
H200 = RESULTS / "h200"


def script(name: str) -> ModuleType:
    """A script of this folder as a module: none is importable under its bare name."""
    known = f"pagebench_tests_{name}"
    if known not in sys.modules:
        spec = spec_from_file_location(known, TESTS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[known] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[known])
    return sys.modules[known]


def pagebench(
    *words: str, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, with those environment variables too."""
    return subprocess.run(
        [*PAGEBENCH, *words], cwd=cwd, env={**os.environ, **variables}, text=True,
        capture_output=True,
    )  # fmt: skip


def pagebench_here(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command line in this process: no start to wait for, and what a test has patched holds.

    Kernels of files are forgotten again.
    """
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        patch.object(sys, "argv", ["pagebench", *words]),
        patch.dict(registry._from_files),
        chdir(cwd or Path.cwd()),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


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
