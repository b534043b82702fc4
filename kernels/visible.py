"""Which GPUs CUDA shows to a process: CUDA_VISIBLE_DEVICES read as CUDA reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

# As strtol reads an index: blanks, a sign, and the digits in front. "1gpu" is 1.
LEADING_NUMBER = re.compile(r"\s*([+-]?\d+)", re.ASCII)


def visible(listed: str | None, gpus: Sequence[str], slices: Sequence[str] = ()) -> list[int]:
    """Positions of what CUDA shows, in its order; slices are counted after the GPUs.

    `listed` is the variable (None: not set), `gpus` and `slices` are the UUIDs of this machine in
    PCI order. The first word says of which kind all are: indices, or UUIDs of GPUs or of slices. A
    word that names nothing hides itself and all after it, and a device named twice hides all.
    """
    if listed is None:
        return list(range(len(gpus)))
    find = _reader(listed, gpus, slices)
    found: list[int] = []
    for word in listed.split(","):
        position = find(word)
        if position is None:
            break
        if position in found:
            return []
        found.append(position)
    # A process can use one slice.
    return found[:1] if listed.startswith("MIG-") else found


def _reader(listed: str, gpus: Sequence[str], slices: Sequence[str]) -> Callable[[str], int | None]:
    if listed.startswith("GPU-"):
        return partial(_beginning, "GPU-", gpus, 0)
    if listed.startswith("MIG-"):
        return partial(_beginning, "MIG-", slices, len(gpus))
    return partial(_index, len(gpus))


def _index(count: int, word: str) -> int | None:
    number = LEADING_NUMBER.match(word)
    index = int(number[1]) if number else -1
    return index if 0 <= index < count else None


def _beginning(kind: str, uuids: Sequence[str], offset: int, word: str) -> int | None:
    """The only UUID that begins with the word."""
    those = [offset + at for at, uuid in enumerate(uuids) if uuid.startswith(word)]
    return those[0] if word.startswith(kind) and len(those) == 1 else None
