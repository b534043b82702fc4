"""Odd values of every option and argument, as the command line's own parser knows them.

Nothing is measured: workers answer that they are lost, so no time may stand anywhere.
PAGEBENCH_FUZZ_SEED picks the values; a failure prints it.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from fakes import H200, pagebench_here
from fakes.fuzzing import MANY, ODD_TEXTS, SEED, ends_well, every_command, numbers
from pagebench.harness.errors import UserError
from pagebench.harness.workers import patience, worker

CASES = 500 * MANY
WORDS = {
    "device": ("cpu", "cpu", "cpu", "auto", "cuda", "cuda:0", "cuda:99", "cuda:-1", "cuda:x"),
    "clock": ("wall", "events", "graph", "cupti", "eager"),
    "l2": ("cold", "warm"),
    "boundary": ("run", "plan"),
    "suite": ("smoke", "pages", "plan"),
    "how": ("context", "kernel"),
    "with_": ("gather", "reference"),
}
CELLS = (
    *("gather_distinct_p16_b2_l64", "reference_shared_p1_b1_l16", "xqa_shared_p16", "smoke"),
    *("negative", "all", "shared", "gather_distinct_p16_b65536_l16777216", "mine_shared_p16"),
    *("gather_distinct_p16_b1_l1_x3", "gather_prefix50_p16_b3_l300", "distinct", "p64"),
)
PATHS = (
    *("r.jsonl", "r.jsonl", "counters.jsonl", "new.jsonl", "new/deep/er.jsonl", "folder"),
    *("absent.jsonl", "kept.jsonl/below", "/proc/self/nothing", "/dev/null", "text"),
    *("loop", "bytes", "kernel.py", "x" * 300, "", ".", "/", "\x1b[2J", "a\nb.jsonl", "\udcff"),
)


@pytest.fixture(autouse=True)
def _nothing_is_measured(in_tmp: Path) -> Iterator[None]:
    def lost(*_: Any) -> Any:
        raise worker.WorkerLost("this test measures nothing")

    def unmeasured(*_: Any, **__: Any) -> Any:
        raise UserError("this test measures nothing")

    with (
        patch.object(worker.Worker, "ask", lost),
        patch("pagebench.harness.timing.once.call_once", lambda *_: iter(())),
        patch("pagebench.harness.study.measure.measure_study", unmeasured),
        patch("pagebench.harness.instruments.speed.speeds", lambda *_: []),
        patch.dict(patience.PATIENCE_S),
    ):
        yield


@pytest.fixture(autouse=True)
def _files(in_tmp: Path) -> None:
    for name in ("r.jsonl", "kept.jsonl"):
        (in_tmp / name).write_text("")
    lines = (H200 / "counters.jsonl").read_text().splitlines(keepends=True)
    (in_tmp / "counters.jsonl").write_text("".join(lines[:3]))
    (in_tmp / "folder").mkdir()
    (in_tmp / "text").write_text("not a record\n")
    (in_tmp / "bytes").write_bytes(b"\xff\xfe\0")
    (in_tmp / "loop").symlink_to("loop")
    (in_tmp / "kernel.py").write_text(
        "from pagebench.kernels.gather import Gather\n"
        "class Mine(Gather):\n    name = 'mine'\nADAPTER = Mine()\n"
    )


def is_argument(param: Any) -> bool:
    return "Argument" in type(param).__name__


def value_of(param: Any, dice: random.Random) -> str:
    """A value for a parameter: one that it takes, or an odd one."""
    if dice.random() < 0.3:
        return dice.choice((*ODD_TEXTS, numbers(dice)))
    of = getattr(param, "type_descriptor", None)  # newer typer; older has click's type
    kind = f"{getattr(param, 'type', '')} {getattr(of, 'annotation', '')}".lower()
    if "path" in kind:
        return dice.choice(PATHS)
    if "int" in kind or "float" in kind:
        return numbers(dice)
    return dice.choice(WORDS.get(param.name, CELLS))


def command_line(dice: random.Random) -> list[str]:
    """A command with some of its options and arguments, in any order."""
    commands = every_command()
    name = dice.choice(list(commands))
    parts: list[list[str]] = []
    for param in commands[name]:
        if is_argument(param):
            many = dice.choice((1, 1, 2, 3)) if param.nargs == -1 else 1
            for _ in range(many if dice.random() < 0.9 else 0):
                parts.append([value_of(param, dice)])
            continue
        for _ in range(dice.choice((0, 0, 0, 1, 1, 2) if param.multiple else (0, 0, 1))):
            flag = dice.choice(param.opts)
            value = value_of(param, dice) if not param.is_flag else ""
            parts.append(
                [flag] if param.is_flag else dice.choice([[flag, value], [f"{flag}={value}"]])
            )
    if dice.random() < 0.05:
        parts.append([dice.choice(("--nothing", "--device", "-x", "--json=1", "--out"))])
    dice.shuffle(parts)
    if dice.random() < 0.02:
        return ["".join(dice.choice(ODD_TEXTS)), *name]
    return [*name, *(word for part in parts for word in part)]


def no_number(told: str) -> None:
    """No file holds a time that somebody could take for measured."""
    for path in Path().rglob("*.jsonl"):
        if path.is_file() and path.name != "counters.jsonl":
            for line in path.read_text(errors="replace").splitlines():
                record = json.loads(line)
                assert not record.get("samples"), told
                assert record.get("status") != "measured" or record["kind"] != "timing", told


def test_odd_options_end_in_a_line() -> None:
    """3acd176 measured with --seconds inf and lost the record; other options were not tried."""
    dice = random.Random(SEED)
    writable = os.geteuid() == 0  # root writes everywhere
    for number in range(CASES):
        words = [word.replace("\0", "") for word in command_line(dice)]
        if writable and any(word.endswith(("/", "..")) for word in words):
            continue
        told = f"PAGEBENCH_FUZZ_SEED={SEED}, case {number}: {words}"
        done = pagebench_here(*words)
        ends_well(done, told[:3000], None if words[0] in ("run", "judge", "attack") else 1)
        no_number(told[:3000])


def test_every_option_is_tried() -> None:
    """3acd176 had no fuzzer: an option of a new command is covered without a line here."""
    dice = random.Random(SEED)
    lines = [command_line(dice) for _ in range(6000)]
    flags = {word.partition("=")[0] for line in lines for word in line}
    missing = [
        (name, param.opts)
        for name, params in every_command().items()
        for param in params
        if not is_argument(param) and not set(param.opts) & flags
    ]
    assert missing == []
