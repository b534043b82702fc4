"""Plug-in kernels whose members return and raise what they should not, on the CPU.

Most run in this process, where cells are measured too; what closes streams or ends processes runs
in one of its own. PAGEBENCH_FUZZ_SEED picks the cases; a failure prints it and the file.
"""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any
from unittest.mock import patch

import pytest
import torch

from fakes import pagebench, pagebench_here
from fakes.fuzzing import MANY, SEED, WorkerHere, ends_well
from pagebench.kernels.foreign import Interrupted

IN_PROCESS, WITH_PROCESSES = 50 * MANY, 3 * MANY
CELL = "odd_distinct_p16_b2_l48_h4x2_d64"
OTHER = "gather_distinct_p16_b2_l48_h4x2_d64"
STATUSES = {"measured", "refused", "wrong", "poisoned", "rejected", "crashed"}

HEAD = """
import os, sys, time, warnings
from dataclasses import replace
import numpy as np, torch
from pagebench.kernels.gather import Gather
from pagebench.kernels.adapter import Call, Loads, Refusal, Tolerance

class Own(BaseException): pass
class Unprintable(Exception):
    def __str__(self): raise ValueError("no text")
class UnprintableOwn(BaseException):
    def __str__(self): raise UnprintableOwn()
class Touchy:
    def _no(self, *a, **k): raise RuntimeError("do not touch\\x1b[2J")
    __str__ = __repr__ = __bool__ = __eq__ = __hash__ = __len__ = __format__ = __iter__ = _no
    __getattr__ = __call__ = __lt__ = __le__ = __gt__ = __index__ = __float__ = _no
class Word(str):
    def __str__(self): raise RuntimeError("no str")
class Many(dict):
    def items(self): raise KeyError("items\\n\\n")
def fail(error):
    raise error
calls = 0
def count():
    global calls
    calls += 1
    return calls
"""
VALUES = (
    *("None", "0", "-1", "1.5", "True", "float('nan')", "float('inf')", "10**400", "2**63", "1j"),
    *(
        "''",
        "'a\\x1b[2J\\u202e\\n'",
        "'\\ud800'",
        "'x' * 100000",
        "b'x'",
        "[]",
        "()",
        "{}",
        "[None]",
    ),
    *("np.int64(3)", "np.float64('nan')", "np.bool_(True)", "np.zeros(3)", "np.str_('slots')"),
    *("torch.tensor(1)", "torch.tensor(float('nan'))", "torch.zeros(2, 4, 64)", "torch.bfloat16"),
    *("object()", "Touchy()", "Touchy", "Word('x')", "Many(a=1)", "lambda *a: None", "Loads()"),
    *("Loads(ldg=float('nan'))", "Loads(ldg=-1)", "Loads(ldg=np.int64(4))", "Loads(Touchy())"),
    *("Refusal('no', 'x\\n')", "Refusal('', 7)", "{'bf16': 1}", "{'bf16': Tolerance(1e9, 1e9)}"),
    *("{'bf16': Tolerance(float('nan'), 0)}", "{'bf16': Tolerance(Touchy(), 'x')}", "Tolerance()"),
)
ERRORS = (
    *("ValueError('x\\x1b[2J\\ny')", "KeyboardInterrupt()", "SystemExit(0)", "SystemExit('bye')"),
    *("GeneratorExit()", "StopIteration()", "Own('x')", "Unprintable()", "UnprintableOwn()"),
    *("MemoryError()", "RecursionError()", "OSError(28, 'full')", "BrokenPipeError()"),
    *("EOFError()", "AssertionError()", "UnicodeDecodeError('utf-8', b'x', 0, 1, '\\x07')"),
    *("KeyError('\\x1b')", "torch.OutOfMemoryError('x' * 9999)", "ExceptionGroup('g', [Own])"),
    *("ImportError('x', name='pagebench.nothing')", "SyntaxError('s')", "TimeoutError()"),
)
HARMLESS = ("pass", "print('\\x1b[31mhello')", "os.write(1, b'raw\\x07')", "time.sleep(0.02)")
MEMBERS = (
    *("lowering", "refuses", "workspace_bytes", "plan", "loads"),
    *("tolerance", "plants", "has_plan", "name"),
)
FIELDS = ("run", "out", "replan", "resolved", "symbols", "code")
# What a call does after its work: never with a time.
SPOILS = (
    *("out.zero_()", "out.add_(1)", "out.neg_()", "out.mul_(1.1)", "out[-1].zero_()"),
    *("out[0, -1].zero_()", "out.resize_(0)", "out.fill_(float('nan'))", "out.set_(out[:1])"),
    *("out.copy_(out.flip(0))", "fail({error})", "count() % 3 or out.zero_()"),
    *("count() > 9 and out.zero_()", "batch.k.zero_()", "batch.q.zero_()", "batch.v.mul_(2)"),
)
ON_IMPORT = (
    *("fail({error})", "ADAPTER = {value}", "del Odd, ADAPTER", "ADAPTER = Odd", "def ("),
    *("Odd.plan = {value}", "Odd.name = {value}", "sys.modules.pop(__name__)", "\\x00"),
    *("Odd.name = property(lambda self: fail({error}))", "raise SystemExit({value})"),
)
CLOSING = (
    *("sys.stdout.close()", "sys.stderr.close()", "os.close(1)", "os.close(2)", "os.close(0)"),
    *("sys.__stdout__.close()", "sys.stdout = None", "sys.stderr = None", "os.chdir('/')"),
    *("os.closerange(0, 3)", "sys.exit(0)", "raise KeyboardInterrupt", "raise Own", "os.abort()"),
)


@pytest.fixture(autouse=True)
def _here(in_tmp: Path) -> Iterator[None]:
    """Cells are measured in this process, which tells a plug-in's KeyboardInterrupt from ours."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    before, threads = signal.signal(signal.SIGINT, interrupt), torch.get_num_threads()
    torch.set_num_threads(1)  # cells are small, and another worker of pytest runs beside
    with (
        patch("pagebench.harness.workers.worker.Worker", WorkerHere),
        patch("pagebench.harness.workers.interleave.Worker", WorkerHere),
        patch("pagebench.harness.workers.interleave.LOOKS", (2,)),
        patch("pagebench.harness.timing.rounds.LEAST_ROUNDS", 2),
        patch("pagebench.harness.timing.rounds.ROUNDS_S", 0.0),
        patch("pagebench.harness.timing.clocks.sampling.FLOOR_SAMPLES", 3),
        patch("pagebench.harness.timing.clocks.sampling._flat", lambda readings: True),
    ):
        yield
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, before)


def odd_kernel(dice: random.Random) -> tuple[str, bool | None]:
    """A plug-in's file, and whether its cell may be measured (None: it may or may not)."""
    value, error = dice.choice(VALUES), dice.choice(ERRORS)
    does = dice.choice([f"return {value}", f"raise {error}"])
    how = dice.choice(["member", "member", "member", "field", "field", "spoil", "spoil", "import"])
    if how == "member":
        member = dice.choice(MEMBERS)
        if member in ("tolerance", "plants", "has_plan", "name"):
            members = f"    @property\n    def {member}(self):\n        {does}\n"
        else:
            members = f"    def {member}(self, *a, **k):\n        {does}\n"
        return _file(members), None
    if how == "field":
        name = dice.choice(FIELDS)
        into = dice.choice([value, f"lambda *a: {value}", f"lambda *a: fail({error})"])
        into = dice.choice([into, f"{{'splits': {value}, 'a': 1}}", f"({value},)"])
        return _file(_plan(f"replace(call, {name}={into})")), None
    if how == "spoil":
        spoil = dice.choice(SPOILS).format(error=error)
        run = f"replace(call, run=lambda: (call.run(), {spoil}))"
        return _file(_plan(f"(call, out := call.out) and {run}")), False
    line = dice.choice(ON_IMPORT).format(value=value, error=error)
    return f"{_file('')}{line}\n", None


def _file(members: str, first: str = "pass") -> str:
    return (
        f"{HEAD}\nclass Odd(Gather):\n    name = 'odd'\n{members}\n    def __init__(self):\n"
        f"        {first}\nADAPTER = Odd()\n"
    )


def _plan(planned: str) -> str:
    return (
        "    def plan(self, batch, *, graph):\n"
        f"        call = super().plan(batch, graph=graph)\n        return {planned}\n"
    )


def commands(dice: random.Random) -> tuple[str, ...]:
    run = ("run", CELL, OTHER, "--seconds", "0.05", "--out", "r.jsonl")
    return dice.choice(
        [
            *[(*run, "--device", "cpu")] * 4,
            (*run, "--device", "cpu", "--json"),
            (*run, "--device", "cpu", "--boundary", "plan"),
            ("once", CELL, "--device", "cpu"),
            ("list", CELL),
            ("show", CELL, "r.jsonl"),
            ("judge", CELL, OTHER, "--device", "cpu", "--out", "r.jsonl"),
            ("judge", CELL, CELL, "--device", "cpu", "--out", "r.jsonl", "--json"),
        ]
    )


def numbers_are_measured(path: Path, seconds: float, may: bool | None, told: str) -> None:
    """Every record can be read, and times stand only where they can have been taken."""
    for line in path.read_text().splitlines() if path.exists() else ():
        record: dict[str, Any] = json.loads(line)
        if record["kind"] == "timing":
            assert record["status"] in STATUSES, told
            times = (record.get("samples") or {}).get("time_us", [])
            assert bool(times) == (record["status"] == "measured"), told
            assert sum(times) / 1e6 <= seconds, told
            assert all(time > 0 for time in times), told
            odd = record["cell"] == CELL
            assert not (odd and may is False and times), f"{told}\n{line[:3000]}"
            assert odd or record["status"] == "measured", f"{told}\n{line[:3000]}"
        if record["kind"] in ("rounds", "verdict") and may is False:
            assert record["status"] != "measured", f"{told}\n{line[:3000]}"


def tried(source: str, words: tuple[str, ...], may: bool | None, told: str) -> None:
    Path("r.jsonl").unlink(missing_ok=True)
    Path("odd.py").write_bytes(source.encode("utf-8", "surrogatepass").replace(b"\\x00", b"\0"))
    began = monotonic()
    done = pagebench_here(*words, "--kernel", "odd.py")
    lines = None if words[0] in ("run", "judge") else 1
    ends_well(done, told, lines)
    numbers_are_measured(Path("r.jsonl"), monotonic() - began, may, told)
    if "--json" in words and done.stdout:
        list(map(json.loads, done.stdout.splitlines()))


def test_odd_plugins_end_in_order() -> None:
    """3acd176 lost the whole sweep where `resolved` held a NumPy scalar, printed tracebacks where a
    member was of another type, and measured an fp32 output of a bf16 query."""
    dice = random.Random(SEED)
    for number in range(IN_PROCESS):
        source, may = odd_kernel(dice)
        words = commands(dice)
        told = f"PAGEBENCH_FUZZ_SEED={SEED}, case {number}: {words}:\n{source[len(HEAD) :]}"
        tried(source, words, may, told)


def test_plugins_that_close_streams_or_end_processes() -> None:
    """3acd176 printed what was left of its results elsewhere, or nothing, and exited 0."""
    dice = random.Random(SEED)
    for number in range(WITH_PROCESSES):
        does, moment = dice.choice(CLOSING), dice.choice(["import", "__init__", "refuses", "run"])
        members = first = ""
        if moment == "refuses":
            members = f"    def refuses(self, *a):\n        {does}\n"
        if moment == "run":
            members = f"    def workspace_bytes(self, *a):\n        {does}\n        return 0\n"
        first = does if moment == "__init__" else "pass"
        last = does if moment == "import" else ""
        if does == "os.abort()" and moment != "run":
            continue  # nothing can end such a process in order
        Path("odd.py").write_text(f"{_file(members, first)}{last}\n")
        told = f"PAGEBENCH_FUZZ_SEED={SEED}, case {number}: {does} in {moment}"
        Path("r.jsonl").unlink(missing_ok=True)
        words = ["--device", "cpu", "--seconds", "0.05", "--out", "r.jsonl", "--kernel", "odd.py"]
        began = monotonic()
        done = pagebench("run", CELL, OTHER, "--json", *words)
        ends_well(done, told, None)
        list(map(json.loads, done.stdout.splitlines()))
        numbers_are_measured(Path("r.jsonl"), monotonic() - began, None, told)
