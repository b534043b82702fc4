"""A process's descriptors and signals: results alone on stdout, an end without a traceback."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

from pagebench.kernels.foreign import Asked, Interrupted
from pagebench.kernels.quiet import Unfailing

# How many signals of an interrupt it takes: to end in order, to be told, to leave at once.
TOLD, AT_ONCE = 2, 3


class Signalled(Asked):
    """The process was asked to end: `code` is what a shell reports of that signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.code = 128 + signum


def own_streams() -> None:
    """Keep stdout for what this command prints, and leave descriptor 1 to stderr.

    A kernel's C code, its threads and its children then print there. Closed descriptors are opened,
    so that no other file gets their numbers; what is printed to a closed stdout fails when it is
    printed, and stderr never fails. Streams that a test has put in place are left as they are.
    """
    was_closed = _open_missing()
    if sys.stderr is None or sys.stderr is sys.__stderr__:
        buffer = open(2, "wb", closefd=False)  # noqa: SIM115 (stays open)
        encoding = getattr(sys.stderr, "encoding", "utf-8")
        errors = "backslashreplace"
        sys.stderr = Unfailing(buffer, encoding=encoding, errors=errors, line_buffering=True)
    if sys.stdout is None or (sys.stdout is sys.__stdout__ and _is_one(sys.stdout)):
        encoding = getattr(sys.stdout, "encoding", "utf-8")
        kept = os.dup(1)
        if 1 not in was_closed:
            os.dup2(2, 1)
        sys.stdout = open(kept, "w", encoding=encoding, errors="replace")  # noqa: SIM115
        if os.isatty(kept):
            sys.stdout.reconfigure(line_buffering=True)


def leave_stdout() -> None:
    """What is printed from now on, by a kernel's own end, goes to stderr."""
    if not isinstance(sys.stderr, Unfailing):
        return
    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(which, signal.SIG_DFL)
    sys.stdout = sys.stderr


def _open_missing() -> set[int]:
    """Open descriptors 0 to 2 that are closed; returns them. A closed stdout takes no writes."""
    closed = set()
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
            os.set_inheritable(number, True)
            closed.add(number)
    return closed


def _is_one(stream: Any) -> bool:
    try:
        return bool(stream.fileno() == 1)
    except (OSError, ValueError):
        return False


def end_on_signals() -> None:
    """SIGTERM and SIGHUP end the command as Ctrl-C does: workers are ended, the cursor is shown."""
    if not isinstance(sys.stderr, Unfailing):
        return  # not a process of our own
    asked = 0

    def end(signum: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise Interrupted if signum == signal.SIGINT else Signalled(signum)
        if asked == TOLD:
            print("ending; once more leaves at once", file=sys.stderr)
        if asked >= AT_ONCE:
            if os.isatty(2):
                os.write(2, b"\x1b[?25h")  # show the cursor
            os._exit(128 + signum)

    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(which) != signal.SIG_IGN:  # as under nohup
            signal.signal(which, end)
