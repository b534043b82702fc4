"""What identifies a plug-in: the content of its file and of what it imports from its folder."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from os.path import isfile
from pathlib import Path

INSTALLED = {"site-packages", "dist-packages"}
OURS = "pagebench."


def content_hash(path: Path) -> str:
    """SHA-256 of the file alone, or with the names and contents of its neighbours: modules of its
    folder and below that are loaded, or that an import statement names, wherever that stands."""
    file = path.resolve()
    own = sha256(file.read_bytes())
    folder = file.parent
    found = {each for each in _neighbours(file, folder) if each != file}
    for name, each in sorted((each.relative_to(folder).as_posix(), each) for each in found):
        with suppress(OSError):  # gone since
            own.update(f"\n{name} {sha256(each.read_bytes()).hexdigest()}".encode())
    return own.hexdigest()


def _neighbours(file: Path, folder: Path) -> set[Path]:
    """Files of modules that are loaded from that folder, and those that they and `file` name."""
    found = {file, *_loaded(folder)}
    new = set(found)
    while new:
        named = {each for source in new for each in _named(source, folder) if _is_own(each, folder)}
        new = named - found
        found |= new
    return found


def _loaded(folder: Path) -> Iterator[Path]:
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not name.startswith(OURS) and _is_own(Path(file), folder):
            yield Path(file)


def _is_own(file: Path, folder: Path) -> bool:
    """Whether it lies in the folder and is no installed package, cache or Python's own."""
    if not file.is_relative_to(folder):
        return False
    parts = file.relative_to(folder).parts
    python = [Path(prefix) for prefix in {sys.prefix, sys.base_prefix}]
    return not (
        INSTALLED & set(parts)
        or any(part.startswith(".") for part in parts)
        or any(file.is_relative_to(each) for each in python if each.is_relative_to(folder))
    )


def _named(source: Path, folder: Path) -> Iterator[Path]:
    """Files of the folder that import statements of a Python file may mean."""
    try:
        tree = ast.parse(source.read_bytes()) if source.suffix == ".py" else None
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files_of(folder, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = source.parents[node.level - 1] if 0 < node.level <= len(source.parents) else None
            for alias in node.names:
                name = ".".join(filter(None, (node.module, alias.name)))
                yield from _files_of(base or folder, name)


def _files_of(base: Path, name: str) -> Iterator[Path]:
    at = base
    for part in name.split("."):
        yield from filter(isfile, (at / f"{part}.py", at / part / "__init__.py"))
        at /= part
