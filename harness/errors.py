"""What a user can put right: the only errors that the command line prints without a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagebench.kernels.foreign import text_of


class UserError(Exception):
    """Bad input, or a machine that lacks something. One line says what is wrong and what is right.

    Everything else that reaches `main` is a bug of ours: it keeps its traceback and exits 70.
    """


@contextmanager
def as_user_error(*kinds: type[Exception], prefix: str = "") -> Iterator[None]:
    """Turn errors of rooms below, whose messages are written for users, into UserError."""
    try:
        yield
    except kinds as error:
        raise UserError(f"{prefix}{error}") from error


def one_line(error: Exception) -> str:
    """The error's type, its first line and where it was raised. The further lines of a CUDA error
    are hints on debugging torch."""
    from traceback import extract_tb

    try:
        lines = str(error).strip().splitlines() or ["no message"]
    except Exception:
        lines = [text_of(error)]
    frames = extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {lines[0][:400]}{where}"
