"""What the fuzzers share: the seed, and how any command must end."""

from __future__ import annotations

import os
import random
import unicodedata
from collections.abc import Sequence
from datetime import date
from subprocess import CompletedProcess
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.cli.main import ROOMS, commands_of
from pagebench.harness.progress import Progress
from pagebench.harness.records.rounds import Rounds
from pagebench.harness.records.timing import Timing
from pagebench.harness.timing.measure import measure_cell
from pagebench.harness.timing.options import Options
from pagebench.harness.timing.rounds import measure_rounds
from pagebench.harness.timing.session import Session
from pagebench.kernels.device import Device

SEED = int(os.environ.get("PAGEBENCH_FUZZ_SEED") or date.today().toordinal())
MANY = int(os.environ.get("PAGEBENCH_FUZZ_TIMES") or 1)  # times as many cases as in a usual run
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
ODD_TEXTS = (
    *("", " ", "\x1b[2J", "a\u202eb", "\n", "$(x)", "-", "--", "-1", "nan", "NaN", "inf", "-inf"),
    *("1e999", "9" * 30, "0x10", "٣", "1_0", "0", "1.5", "x" * 3000, "a,b", "../..", "\udcff"),
)


def ends_well(done: CompletedProcess[str], told: str, lines: int | None = 1) -> None:
    """An exit code of ours; with 2 so many lines of error (None: any); nothing hidden printed."""
    assert done.returncode in (0, 1, 2), f"{told}\n{done.stderr}"
    assert "Traceback" not in done.stderr, f"{told}\n{done.stderr}"
    errors = [line for line in done.stderr.splitlines() if "cut off, so it" not in line]
    if done.returncode == 2:
        assert errors, told
        assert lines in (None, len(errors)), f"{told}\n{done.stderr}"
    kinds = {unicodedata.category(char) for char in (done.stdout + done.stderr).replace("\n", "")}
    assert not kinds & HIDDEN, f"{told}\n{done.stdout!r}\n{done.stderr!r}"


def every_command() -> dict[tuple[str, ...], Sequence[Any]]:
    """Each command, and each of a group, with its parameters, as the command line reads them."""
    found: dict[tuple[str, ...], Sequence[Any]] = {}
    for room, names in ROOMS.items():
        for name in names:
            command = commands_of(room)[name]
            for each, part in vars(command).get("commands", {"": command}).items():
                found[(name, each) if each else (name,)] = part.params
    return found


def numbers(dice: random.Random) -> str:
    """A number, more or less."""
    big = 10 ** dice.choice((3, 18, 40, 400))
    return str(dice.choice((0, 1, -1, 2, 0.05, 0.049, big, -big, 1e308, 5e-324, "nan", "inf")))


class WorkerHere:
    """A worker that measures in this process: as little time as each cell needs."""

    def __init__(self, device: Device, kernel_file: object = None) -> None:
        self._session = Session(device)

    def ask(self, cells: tuple[Cell, ...], options: Options, progress: Progress) -> Timing | Rounds:
        if len(cells) > 1:
            return measure_rounds(cells, options, self._session, progress)
        return measure_cell(cells[0], options, self._session, progress)

    def measure(self, cell: Cell, options: Options, progress: Progress) -> Timing:
        record = self.ask((cell,), options, progress)
        assert isinstance(record, Timing)
        return record

    def close(self, *, kill: bool = False) -> None:
        """There is no process to end."""
