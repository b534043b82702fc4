"""Worker processes measure, the parent records, so a crash loses only one cell.

The parent sends a cell, or several to interleave; the worker answers with progress and one record.
A worker is replaced only after it died or hung. It ends when its parent ends, for any reason.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.progress import Progress
from pagebench.harness.records.rounds import Rounds
from pagebench.harness.records.timing import Timing
from pagebench.harness.timing.measure import measure_cell, unmeasured
from pagebench.harness.timing.options import Options
from pagebench.harness.timing.rounds import measure_rounds
from pagebench.harness.timing.session import Session
from pagebench.harness.workers.patience import patience
from pagebench.kernels.device import Device
from pagebench.kernels.quiet import Unfailing, flush_c
from pagebench.kernels.registry import add_kernel_file

ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
CLOSING_S = 2.0  # for a worker to end by itself before it is killed
LAST_WORDS = 300  # characters of a lost worker's last line on stderr that its record keeps


def _serve(pipe: Connection, device: Device, kernel_file: Path | None, log: str) -> None:
    """The worker's main: measure what the parent sends, until the pipe closes."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _redirect(log)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt ends
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    if kernel_file is not None:
        pipe.send(("stage", "importing"))
        add_kernel_file(kernel_file, None)  # the parent has the patience
    session = Session(device)
    pipe.send(("ready", None))
    while True:
        try:
            cells, options = pipe.recv()
        except EOFError:
            return
        record = _answer(cells, options, session, lambda stage: pipe.send(("stage", stage)))
        is_usable = record.status != "crashed" or session.is_usable
        flush_c()  # a process that is killed prints no more
        pipe.send(("record", (record, is_usable)))
        if not is_usable:
            return  # a sticky CUDA error: the context is lost, and this process with it


def _redirect(log: str) -> None:
    """What a kernel prints goes to the parent's stderr, and errors to a file, which holds a dying
    process's last words."""
    os.dup2(2, 1)
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), 2)
    buffer = open(1, "wb", closefd=False)  # noqa: SIM115 (stays open)
    sys.stdout = Unfailing(buffer, errors="replace", line_buffering=True)


def _answer(
    cells: tuple[Cell, ...], options: Options, session: Session, progress: Progress
) -> Timing | Rounds:
    """The record of one cell, or of several interleaved."""
    if len(cells) > 1:
        return measure_rounds(cells, options, session, progress)
    return measure_cell(cells[0], options, session, progress)


def _end_with_parent() -> None:
    parent = mp.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class WorkerLost(RuntimeError):
    """A worker that died or hung; the message says how, and at which stage."""


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """This process sees what asks it to end afterwards; one that starts meanwhile, once it serves,
    and never Ctrl-C."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Worker:
    """One worker, started when first needed and again after a loss. `close` ends it."""

    def __init__(self, device: Device, kernel_file: Path | None = None) -> None:
        self._device, self._kernel_file = device, kernel_file
        self._process: Any = None
        self._pipe: Connection | None = None
        self._log = Path(os.devnull)
        self._stage = "starting"

    def measure(self, cell: Cell, options: Options, progress: Progress) -> Timing:
        """The cell's record; its status is `crashed` if the worker is lost on it."""
        try:
            record = self.ask((cell,), options, progress)
        except WorkerLost as loss:
            return unmeasured(cell, options, self._device, "crashed", str(loss))
        assert isinstance(record, Timing)
        return record

    def ask(self, cells: tuple[Cell, ...], options: Options, progress: Progress) -> Timing | Rounds:
        """The record of one cell, or of several interleaved. WorkerLost if it dies or hangs."""
        try:
            if self._process is None or not self._process.is_alive():
                self._start(progress)
            assert self._pipe is not None
            self._pipe.send((cells, options))
            return self._recorded(*self._followed(progress, "record", options))
        except (EOFError, OSError, TimeoutError) as loss:
            reason = self._why_lost(self._stage, loss)
            self.close(kill=True)
            raise WorkerLost(reason) from loss

    def _recorded(self, record: Timing | Rounds, is_usable: bool) -> Timing | Rounds:
        if not is_usable:
            self.close(kill=True)
        return record

    def _followed(self, progress: Progress, wanted: str, options: Options | None = None) -> Any:
        """What the worker answers in the end; until then its stages are passed on."""
        call_s, began = 0.0, monotonic()
        while True:
            kind, value = self._receive(patience(self._stage, options, call_s))
            if self._stage == "second call":
                call_s += monotonic() - began
            if kind == wanted:
                return value
            self._stage, began = value, monotonic()
            progress(self._stage)

    def _start(self, progress: Progress) -> None:
        self._stage = "starting"
        progress(self._stage)
        self.close(kill=True)
        context = mp.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        handle, name = tempfile.mkstemp(prefix="pagebench-worker-", suffix=".log")
        os.close(handle)
        self._log = Path(name)
        arguments = (theirs, self._device, self._kernel_file, name)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        with _interrupts_blocked():
            self._process.start()
        theirs.close()
        self._followed(progress, "ready")

    def _receive(self, patience_s: float) -> tuple[str, Any]:
        assert self._pipe is not None
        if not self._pipe.poll(patience_s):
            raise TimeoutError(f"no answer in {patience_s:g} s (--patience SECONDS waits longer)")
        answer: tuple[str, Any] = self._pipe.recv()
        return answer

    def _why_lost(self, stage: str, loss: Exception) -> str:
        if isinstance(loss, TimeoutError):
            return f"the worker hung while {stage}: {loss}"
        self._process.join(5)
        code = self._process.exitcode
        how = f"of signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        return f"the worker died {how} while {stage}{self._last_words()}"

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return f": {lines[-1].strip()[-LAST_WORDS:]}" if lines else ""

    def close(self, *, kill: bool = False) -> None:
        """End the worker: by closing its pipe, or with `kill` at once."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if self._process is not None:
            if not kill:
                self._process.join(CLOSING_S)
            self._process.kill()
            self._process.join()
            self._process = None
            self._log.unlink(missing_ok=True)


class Pool:
    """A worker for events and one for CUPTI, which slows every launch of its process."""

    def __init__(self, device: Device, kernel_file: Path | None = None) -> None:
        self.device, self._kernel_file = device, kernel_file
        self._workers: dict[str, Worker] = {}

    def measure(self, cell: Cell, options: Options, progress: Progress) -> Timing:
        """The cell's record, from the worker that its clock needs."""
        role = "cupti" if options.clock == "cupti" else "plain"
        worker = self._workers.setdefault(role, Worker(self.device, self._kernel_file))
        return worker.measure(cell, options, progress)

    def renew(self) -> None:
        """End the workers, so that the next cell begins in fresh ones."""
        self.close()

    def close(self) -> None:
        self._close(kill=False)

    def _close(self, *, kill: bool) -> None:
        for worker in self._workers.values():
            worker.close(kill=kill)
        self._workers.clear()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._close(kill=kind is not None)
