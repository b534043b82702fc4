"""How long work reports its progress: one line at a time."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str], None]


def silent(line: str) -> None:
    """Drop the line: progress that nobody reads."""
