"""What a kernel prints, closed and full descriptors, signals, and how long a kernel may take."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from fakes import pagebench, pagebench_here
from pagebench.harness.environment import PAGEBENCH
from pagebench.harness.timing.options import Options
from pagebench.harness.workers.patience import CALLS, PATIENCE_S, patience

CELL = "own_distinct_p16_b2_l64"
QUICK = ("--device", "cpu", "--seconds", "0.05", "--kernel", "own.py")
LOUD = """
import atexit, ctypes, os, threading
from pagebench.kernels.adapter import Call
from pagebench.kernels.gather import Gather

def speak(where):
    print("python", where)
    ctypes.CDLL(None).puts(b"c")
    os.write(1, b"raw\\n")
    os.system("echo child")

speak("import")
atexit.register(speak, "end")

class Own(Gather):
    name = "own"

    def refuses(self, shape, device):
        speak("refuses")

    def lowering(self, shape):
        speak("lowering")
        return super().lowering(shape)

    def plan(self, batch, *, graph):
        speak("plan")
        call = super().plan(batch, graph=graph)

        def run():
            print("no end of line", end="")
            ctypes.CDLL(None).puts(b"c")
            call.run()

        return Call(run, call.out, call.replan, call.resolved)

ADAPTER = Own()
"""
SLOW = """
import time
from pagebench.kernels.adapter import Call
from pagebench.kernels.gather import Gather

class Own(Gather):
    name = "own"

    def plan(self, batch, *, graph):
        call, waits = super().plan(batch, graph=graph), [FIRST]

        def run():
            open("called", "w").close()
            time.sleep(waits.pop() if waits else EVERY)
            call.run()

        return Call(run, call.out, call.replan, call.resolved)

ADAPTER = Own()
"""


@pytest.mark.parametrize("command", ["run", "once", "list"])
def test_what_a_kernel_prints_never_reaches_stdout(command: str, tmp_path: Path) -> None:
    """3acd176 printed the kernel's lines among the JSON of `run --json`."""
    (tmp_path / "own.py").write_text(LOUD)
    words = [word for word in QUICK if command == "run" or word not in ("--seconds", "0.05")]
    done = pagebench(command, CELL, "--json", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["cell"] == CELL
    for said in ("python import", "python end", "\nc\n", "raw", "child"):
        assert said in done.stderr


def test_a_first_call_that_compiles_has_the_patience_of_planning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3acd176 said of a kernel that compiles in its first call "hung while checking"."""
    (tmp_path / "own.py").write_text(SLOW.replace("FIRST", "2.5").replace("EVERY", "0"))
    monkeypatch.setitem(PATIENCE_S, "usual", 2.0)
    done = pagebench_here("run", CELL, *QUICK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_slow_honest_kernel_is_not_called_hung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3acd176 ended a worker whose calls took longer than its fixed limit."""
    (tmp_path / "own.py").write_text(SLOW.replace("FIRST", "0").replace("EVERY", "0.4"))
    monkeypatch.setitem(PATIENCE_S, "usual", 0.3)
    done = pagebench_here("run", CELL, *QUICK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_hang_is_ended_after_the_patience_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3acd176 had fixed limits, in no help."""
    for stage in PATIENCE_S:
        monkeypatch.setitem(PATIENCE_S, stage, PATIENCE_S[stage])
    (tmp_path / "own.py").write_text(SLOW.replace("FIRST", "100").replace("EVERY", "0"))
    done = pagebench_here("run", CELL, *QUICK, "--patience", "3", cwd=tmp_path)
    assert done.returncode == 1
    assert "hung while first call: no answer in 3 s (--patience SECONDS" in done.stderr


def test_a_stage_may_take_some_calls_and_as_long_as_was_asked() -> None:
    asked = Options(seconds=300)
    assert patience("timing", asked) == PATIENCE_S["usual"] + 300
    assert patience("timing", asked, 60.0) == CALLS * 60 + 300
    assert patience("timing", Options("plan")) > PATIENCE_S["planning"]
    assert patience("first call", asked) == patience("planning", asked)


@pytest.mark.parametrize("seconds", ["nan", "0", "-1", "inf"])
def test_a_patience_or_a_time_that_is_none_is_refused(seconds: str, tmp_path: Path) -> None:
    """3acd176 measured under `--seconds inf` and then lost the record."""
    cell = CELL.replace("own", "gather")
    for option in ("--patience", "--seconds"):
        done = pagebench_here("run", cell, "--device", "cpu", option, seconds, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert option in done.stderr
    assert not (tmp_path / "runs").exists()


def shell(line: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    words = [*PAGEBENCH, *line.split()[:-1]]
    script = f'exec "$@" {line.split()[-1]}'
    return subprocess.run(
        ["bash", "-c", script, "bash", *words],
        cwd=cwd,
        env=os.environ | variables,
        text=True,
        capture_output=True,
    )


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("list gather >&-", 2, "output: Bad file descriptor\n"),
        ("list gather >/dev/full", 2, "output: No space left on device\n"),
        ("list nonsense 2>&-", 2, ""),
        ("list nonsense 2>/dev/full", 2, ""),
        ("list gather <&-", 0, ""),
    ],
)
def test_a_closed_or_full_descriptor_is_a_line(
    line: str, code: int, says: str, tmp_path: Path
) -> None:
    """3acd176 printed a traceback for `>&-`."""
    done = shell(line, tmp_path)
    assert (done.returncode, done.stderr) == (code, says)


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full", ">&-"])
def test_a_run_measures_without_a_descriptor(closed: str, tmp_path: Path) -> None:
    """3acd176's `run 2>&-` measured nothing and said nothing."""
    cell = CELL.replace("own", "gather")
    done = shell(f"run {cell} --device cpu --seconds 0.05 --out r.jsonl {closed}", tmp_path)
    assert '"status":"measured"' in (tmp_path / "r.jsonl").read_text()
    assert "Traceback" not in done.stderr
    assert done.returncode == (2 if closed == ">&-" else 0)


def test_a_locale_without_utf8_loses_a_character_and_no_more(tmp_path: Path) -> None:
    """3acd176's `show` died of one ellipsis."""
    (tmp_path / "own.py").write_text("ADAPTER = 1 / 0  # …\n", encoding="utf-8")
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    code = (
        "from pagebench.harness.cli.streams import own_streams; own_streams(); print('a\\u2026b')"
    )
    done = subprocess.run(
        [*PAGEBENCH[:-1], code], env=os.environ | ascii_only, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "a?b\n", "")
    listed = pagebench("list", CELL, "--kernel", "own.py", cwd=tmp_path, **ascii_only)
    assert "line 1: ZeroDivisionError" in listed.stderr


def hear_signals() -> None:
    """In a child: the tests may run in the background or under nohup, which ignore these."""
    for each in (signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        ([signal.SIGTERM], 143),
        ([signal.SIGHUP], 129),
        ([signal.SIGINT], 130),
        ([signal.SIGINT, signal.SIGINT], 130),
        ([signal.SIGINT, signal.SIGTERM], 130),
    ],
)
def test_a_signal_ends_a_run_without_a_traceback(
    signals: list[signal.Signals], code: int, tmp_path: Path
) -> None:
    """3acd176 left the cursor hidden after SIGTERM and SIGHUP, and a quick second Ctrl-C was a
    traceback."""
    (tmp_path / "own.py").write_text(SLOW.replace("FIRST", "100").replace("EVERY", "0"))
    running = subprocess.Popen(
        [*PAGEBENCH, "run", CELL, *QUICK],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hear_signals,
    )
    assert running.stderr is not None
    first = running.stderr.readline()
    while not (tmp_path / "called").exists() and running.poll() is None:
        time.sleep(0.01)  # until a worker is in the kernel's first call
    for each in signals:
        os.killpg(running.pid, each) if each == signal.SIGINT else running.send_signal(each)
    said = first + running.stderr.read()
    assert running.wait(120) == code
    assert "Traceback" not in said
    assert "KeyboardInterrupt" not in said
