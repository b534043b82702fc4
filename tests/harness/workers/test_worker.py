"""Workers: a crash or a hang loses one cell, an orphan ends, a killed sweep resumes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagebench.harness.cell import Cell
from pagebench.harness.environment import PAGEBENCH
from pagebench.harness.progress import silent
from pagebench.harness.records import store
from pagebench.harness.records.timing import Timing
from pagebench.harness.timing.options import Options
from pagebench.harness.workers.patience import PATIENCE_S
from pagebench.harness.workers.worker import Pool
from pagebench.kernels.device import CPU
from pagebench.kernels.registry import _from_files, add_kernel_file

QUICK = Options(clock="wall", seconds=0.05)
SMALL = "distinct_p16_b2_l64"
TROUBLE = """
import os, sys, time
from pagebench.kernels.gather import Gather

class Trouble(Gather):
    name = "trouble"

    def plan(self, batch, *, graph):
        kind = {1: "die", 2: "hang", 3: "exit"}.get(batch.shape.seed)
        if kind == "die":
            print("last words", file=sys.stderr, flush=True)
            os.kill(os.getpid(), 11)
        if kind == "hang":
            time.sleep(1000)
        if kind == "exit":
            os._exit(7)
        return super().plan(batch, graph=graph)

ADAPTER = Trouble()
"""


@pytest.fixture
def trouble(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "trouble.py"
    path.write_text(TROUBLE)
    add_kernel_file(path)
    yield path
    _from_files.clear()


def measure(pool: Pool, *names: str) -> list[Timing]:
    return [pool.measure(Cell.parse(name), QUICK, silent) for name in names]


def test_a_dying_kernel_loses_only_its_own_cell(trouble: Path) -> None:
    with Pool(CPU, trouble) as pool:
        records = measure(pool, f"gather_{SMALL}", f"trouble_{SMALL}_s1", f"gather_{SMALL}")
    assert [record.status for record in records] == ["measured", "crashed", "measured"]
    assert records[1].reason == "the worker died of signal 11 while planning: last words"


def test_an_exit_code_is_told(trouble: Path) -> None:
    with Pool(CPU, trouble) as pool:
        (record,) = measure(pool, f"trouble_{SMALL}_s3")
    assert str(record.reason).startswith("the worker died with exit code 7")


def test_a_hanging_kernel_is_ended_and_loses_only_its_own_cell(
    trouble: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PATIENCE_S, "planning", 1.0)
    with Pool(CPU, trouble) as pool:
        records = measure(pool, f"trouble_{SMALL}_s2", f"gather_{SMALL}")
    assert [record.status for record in records] == ["crashed", "measured"]
    assert "hung while planning" in str(records[0].reason)


def test_one_worker_serves_many_cells() -> None:
    with Pool(CPU) as pool:
        measure(pool, f"gather_{SMALL}")
        first = pool._workers["plain"]._process.pid
        measure(pool, f"reference_{SMALL}")
        assert pool._workers["plain"]._process.pid == first
        pool.renew()
        measure(pool, f"gather_{SMALL}")
        assert pool._workers["plain"]._process.pid != first


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


SWEEP = ["run", "gather", "--suite", "smoke", "--seconds", "0.3"]


def pagebench(*words: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PAGEBENCH, *words],
        cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def wait_for_records(path: Path, count: int) -> None:
    for _ in range(600):
        if path.exists() and path.read_text().count("\n") >= count:
            return
        time.sleep(0.05)
    raise AssertionError(f"no {count} records in 30 s")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_sweep_killed_in_the_middle_leaves_no_orphan_and_resumes(tmp_path: Path) -> None:
    out = tmp_path / "sweep.jsonl"
    sweep = pagebench(*SWEEP, "--out", str(out), cwd=tmp_path)
    wait_for_records(out, 2)
    workers = children(sweep.pid)
    assert workers
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    deadline = time.monotonic() + 20
    while any(map(running, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(running, workers))

    before = [timing.key for timing in store.read([out], Timing).of(Timing)]
    with out.open("a") as file:
        file.write('{"cell":"gather_cut')  # as if killed in the middle of a write
    resumed = pagebench(*SWEEP, "--out", str(out), "--resume", cwd=tmp_path)
    _, errors = resumed.communicate()
    assert resumed.returncode == 0, errors
    keys = [timing.key for timing in store.read([out], Timing).of(Timing)]
    assert keys[: len(before)] == before
    assert len(keys) == len(set(keys)) == 10
    assert f"{len(before)} of 10 are already in" in errors


def test_resuming_a_finished_sweep_measures_nothing(tmp_path: Path) -> None:
    out = tmp_path / "sweep.jsonl"
    words = ["run", f"gather_{SMALL}", "--seconds", "0.05", "--out", str(out)]
    assert pagebench(*words, cwd=tmp_path).wait() == 0
    size = out.stat().st_size
    assert pagebench(*words, "--resume", cwd=tmp_path).wait() == 0
    assert out.stat().st_size == size
    assert json.loads(out.read_text())["status"] == "measured"
