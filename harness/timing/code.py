"""Which machine code a call ran, as a hash. Reading it never fails a cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pagebench.harness.errors import one_line
from pagebench.kernels.adapter import Call
from pagebench.kernels.foreign import foreign
from pagebench.profiles.cubin_code import CodeError, cubin_hash, digest
from pagebench.profiles.fatbin import library_hash, library_local_memory
from pagebench.profiles.sass import local_memory, together

BY_CUBIN = "cubin"  # the kernels that ran; `library` and `fatbin` hold others beside them
MOST_REASON = 200  # characters


@dataclass(frozen=True, slots=True)
class Code:
    """`cubin:`, `library:` or `fatbin:` and a hash; or why there is none. Neither where an adapter
    does not say what it runs. `local` has `ldl` and `stl`, as `local_memory` finds them."""

    binary: str | None = None
    why: str | None = None
    local: Mapping[str, int] = field(default_factory=dict)


NOT_TOLD = Code()


def code_of(call: Call) -> Code:
    """The hash of what the call ran, after its first run."""
    if call.code is None:
        return NOT_TOLD
    try:
        with foreign():
            parts = tuple(call.code())
        return Code(_hash(parts), None, _local(parts))
    except Exception as error:
        return Code(why=one_line(error)[:MOST_REASON])


def _hash(parts: Iterable[bytes | Path]) -> str | None:
    """One hash of all parts, in any order; None where there is none."""
    hashes = sorted({_of_part(part) for part in parts})
    if len(hashes) < 2:
        return hashes[0] if hashes else None
    kinds = {each.partition(":")[0] for each in hashes}
    return f"{'+'.join(sorted(kinds))}:{digest([each.encode() for each in hashes])}"


def _local(parts: Iterable[bytes | Path]) -> Mapping[str, int]:
    """Instructions of local memory in all parts; none where one part cannot be read."""
    try:
        return together([_local_of(part) for part in parts])
    except (CodeError, OSError):
        return {}


def _local_of(part: bytes | Path) -> dict[str, int]:
    return local_memory(part) if isinstance(part, bytes) else library_local_memory(Path(part))


def _of_part(part: object) -> str:
    if isinstance(part, bytes):
        return f"{BY_CUBIN}:{cubin_hash(part)}"
    if isinstance(part, Path | str):
        return library_hash(Path(part))
    raise TypeError(f"code() gave {type(part).__name__}; give bytes of a cubin or a library's path")
