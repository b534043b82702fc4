"""Code of a plug-in: what it prints stays off stdout, and whatever it raises is an error."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from pagebench.kernels.quiet import stdout_to_stderr

MOST_SAID = 400  # characters of somebody else's text that a line holds


class Asked(BaseException):
    """Raised by us to end what runs, also in the code of a plug-in."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, as the command's own handler raises it; a plain one may be a plug-in's."""


class Ended(RuntimeError):
    """A plug-in raised what ends a process."""


@contextmanager
def foreign() -> Iterator[None]:
    """While a plug-in's code runs: what it prints goes to stderr, and it is `contained`."""
    with contained(), stdout_to_stderr():
        yield


@contextmanager
def contained() -> Iterator[None]:
    """While a plug-in's code runs, SystemExit, a KeyboardInterrupt of its own and the like become
    Ended. Descriptors that it closes are opened again, or the next file gets their numbers and what
    is printed there."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if isinstance(error, Asked) or _is_interrupt(error):
            raise
        raise Ended(told(error)).with_traceback(error.__traceback__) from error
    finally:
        _open_closed()


def _is_interrupt(error: BaseException) -> bool:
    """Whether the user asked for it. Under Python's own handler nobody can tell."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(error, Interrupted) or (isinstance(error, KeyboardInterrupt) and usual)


def _open_closed() -> None:
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free: this one
            os.set_inheritable(number, True)


def told(error: BaseException) -> str:
    """`Type: text`, on one line and not too long, also where the error cannot be printed."""
    if isinstance(error, Ended):
        return text_of(error)
    return f"{type(error).__name__}: {text_of(error) or 'no message'}"


def text_of(error: BaseException) -> str:
    """What an error says, on one line and not too long."""
    try:
        said = str(error)
    except BaseException as other:
        if isinstance(other, Asked) or _is_interrupt(other):
            raise
        return "its text cannot be read"
    return " ".join(said[: 4 * MOST_SAID].split())[:MOST_SAID]
