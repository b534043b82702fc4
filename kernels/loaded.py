"""Shared libraries that this process has loaded: where a compiled module's code lies."""

from __future__ import annotations

from pathlib import Path

MAPS = Path("/proc/self/maps")


def loaded_libraries(name: str, variants: tuple[str, ...] = ("",)) -> tuple[Path, ...]:
    """The loaded files NAME.so, or NAME and a variant, in order. LookupError where there is none.

    OSError where the system does not list what is loaded.
    """
    wanted = {f"{name}{variant}.so" for variant in variants}
    lines = MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    files = (Path(line.split(maxsplit=5)[5]) for line in lines if line.endswith(".so"))
    found = tuple(dict.fromkeys(path for path in files if path.name in wanted))
    if not found:
        raise LookupError(f"no library {name} is loaded")
    return found
