"""What long work tells as it goes: one line at a time."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str], None]


def silent(line: str) -> None:
    """Progress that nobody reads."""
