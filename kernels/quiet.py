"""Keep what other people's code prints away from stdout, which holds results alone."""

from __future__ import annotations

import ctypes
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """What Python prints meanwhile goes to stderr. (What C prints does so in the whole process:
    the command line and its workers leave descriptor 1 to stderr from their start.)"""
    with redirect_stdout(sys.stderr):
        yield


def flush_c() -> None:
    """Write out what C code has printed and libc still holds."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).fflush(None)


class Unfailing(io.TextIOWrapper):
    """A stream of messages: one that is full or closed loses them and stops nothing."""

    def write(self, text: str, /) -> int:
        with suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()
