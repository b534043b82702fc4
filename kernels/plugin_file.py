"""Run a plug-in's Python file as a module, with a limit of patience, and say where it failed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from types import FrameType, ModuleType

from pagebench.kernels.foreign import Asked, foreign, told

PATIENCE_S = 120.0  # for the import of a file
REMINDER_S = 10.0  # of silence until it is said that a file is still being imported
GRACE_S = 5.0  # for a file to end after the limit, before its process is ended


class FileFailed(Exception):
    """A plug-in's file that cannot be run; the message says where and why."""


class _TooLong(Asked):
    """Raised in the file at its limit; not an Exception, which the file itself may catch."""


def module_name(path: Path) -> str:
    """A name of its own for each file: two files of one stem are two modules."""
    return f"pagebench_kernel_{path.stem}_{sha256(os.fsencode(path.resolve())).hexdigest()[:8]}"


def run_file(path: Path, patience_s: float | None = PATIENCE_S) -> ModuleType:
    """The file as a module that stands in sys.modules, as dataclasses, torch.compile and pickle
    need. FileFailed where it fails; the caller holds `forgotten_on_failure` round it."""
    spec = spec_from_file_location(module_name(path), path)
    if spec is None or spec.loader is None:
        raise FileFailed(": a Python file's name ends in .py")
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module
    try:
        with foreign(), _limited(path, patience_s):
            spec.loader.exec_module(module)
    except Exception as error:
        raise FileFailed(f"{place(error, path)}: {told(error)}") from error
    except _TooLong as limit:
        said = f"not imported after {patience_s:g} s: raise --patience, or do less on import"
        raise FileFailed(f"{place(limit, path)}: {said}") from limit
    return module


@contextmanager
def forgotten_on_failure(folder: Path) -> Iterator[None]:
    """A file may import its neighbours. Where it fails, nothing of them stays in sys.modules and
    sys.path."""
    before, searched = set(sys.modules), list(sys.path)
    sys.path.append(str(folder))
    try:
        yield
    except BaseException:
        sys.path[:] = searched
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).parent.is_relative_to(folder):
                del sys.modules[name]
        raise


def place(error: BaseException, path: Path) -> str:
    """`, line 12`: where in the file it failed, or in which of its neighbours; empty if unknown."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return _spot(error.filename, error.lineno, path)
    frames = [(frame.filename, frame.lineno or 0) for frame in extract_tb(error.__traceback__)]
    folder = path.resolve().parent
    within = [frame for frame in frames if _is_in(frame[0], folder)]
    return _spot(*within[-1], path) if within else ""


def _is_in(file: str, folder: Path) -> bool:
    return not file.startswith("<") and Path(file).resolve().parent == folder


def _spot(file: str, line: int, path: Path) -> str:
    return (
        f", line {line}"
        if Path(file).resolve() == path.resolve()
        else f" ({Path(file).name}, line {line})"
    )


@contextmanager
def _limited(path: Path, patience_s: float | None) -> Iterator[None]:
    """Raise _TooLong in the main thread after the limit, if there is one.

    A file that survives it ends the process. Elsewhere than in the main thread no signal can be
    caught, and whoever waits must give up.
    """
    if patience_s is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(signum: int, frame: FrameType | None) -> None:
        raise _TooLong

    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(path, patience_s, done), daemon=True)
    before = signal.signal(signal.SIGALRM, give_up)
    try:
        watcher.start()
        signal.setitimer(signal.ITIMER_REAL, patience_s)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        done.set()
        signal.signal(signal.SIGALRM, before)


def _watch(path: Path, patience_s: float, done: threading.Event) -> None:
    """Say that the import takes long, and end the process where code that Python cannot interrupt
    outlasts the limit."""
    if patience_s > REMINDER_S and not done.wait(REMINDER_S):
        _say(f"still importing {path.name} (at most {patience_s:g} s)")
    if not done.wait(max(0.0, patience_s - REMINDER_S) + GRACE_S):
        _say(f"--kernel {path}: not imported after {patience_s:g} s, and it cannot be interrupted")
        os._exit(2)


def _say(text: str) -> None:
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    print(shown, file=sys.stderr, flush=True)
