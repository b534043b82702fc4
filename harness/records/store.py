"""Results files: JSON lines, append-only, on disk after every cell."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pagebench.harness.records.timing import Record

Line = TypeVar("Line", bound=Mapping[str, Any])
STARTS = ('{"cell":', '{"kind":')  # how a line of ours begins, also when a kill cut it off


class StoreError(ValueError):
    """A results file that cannot be read or written."""


def append(path: Path, record: Record) -> None:
    """Add one record and force it to disk."""
    append_line(path, record.to_json())


def append_line(path: Path, value: dict[str, Any]) -> None:
    """Add one JSON line and force it to disk. A line cut off by a kill before is closed first.

    A line that does not say when it was `started` says when it was `written`.
    """
    line = json.dumps(_dated(value), separators=(",", ":"), allow_nan=False)
    try:
        make_folder_of(path)
        with path.open("a+b") as file:
            if file.tell() and not _ends_whole(file):
                file.write(b"\n")
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error


def append_lines(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    for line in lines:
        append_line(path, line)


def make_folder_of(path: Path) -> None:
    """The folder that a file is to be in; a file in its place is no folder, not `File exists`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        code = errno.ENOTDIR
        raise NotADirectoryError(code, os.strerror(code), str(path.parent)) from error


def _dated(value: dict[str, Any]) -> dict[str, Any]:
    if _date(value):
        return value
    return value | {"written": datetime.now(UTC).isoformat(timespec="seconds")}


def _date(value: Mapping[str, Any]) -> str:
    return str(value.get("started") or value.get("written") or "")


def _ends_whole(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")


def read(paths: Iterable[Path]) -> Iterator[Record]:
    """Timing records of all files, in order. Records of other kinds are passed over.

    A line that is no JSON is an error, unless it begins as ours do: a kill cut it off, and what it
    was about to say is measured again.
    """
    for path in paths:
        for number, line in enumerate(_lines(path), 1):
            if line.strip():
                record = _read_line(line, f"{path}, line {number}")
                if record is not None:
                    yield record


def read_kind(
    paths: Iterable[Path],
    kind: str,
    wrong: Callable[[dict[str, Any]], str | None] = lambda value: None,
) -> Iterator[dict[str, Any]]:
    """Lines of one kind other than timing, the newest last; those without a date come first.

    A line that a kill cut off is passed over; StoreError for one of which `wrong` says something.
    """
    found = []
    for path in paths:
        for number, line in enumerate(_lines(path), 1):
            value = _whole(line) if f'"{kind}"' in line else None
            if value and value.get("kind") == kind:
                if reason := wrong(value):
                    raise StoreError(f"{path}, line {number}: {reason}")
                found.append(value)
    yield from sorted(found, key=_date)


def of_gpu(lines: Iterable[Line], environment: Mapping[str, Any]) -> list[Line]:
    """Lines of the same GPU model, in order, and those of the very same GPU after the others."""

    def same(line: Line, fact: str) -> bool:
        return bool(line.get("environment", {}).get(fact) == environment.get(fact))

    return sorted(
        (line for line in lines if same(line, "gpu")), key=lambda line: same(line, "uuid")
    )


def kinds(paths: Iterable[Path]) -> set[str]:
    """The kinds of all whole lines."""
    values = (_whole(line) for path in paths for line in _lines(path) if line.strip())
    return {str(value["kind"]) for value in values if value and "kind" in value}


def _whole(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise StoreError(f"{path}: no results file, for it is not utf-8 text") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error


def _is_start_of_ours(line: str) -> bool:
    return any(line.startswith(start[: len(line)]) for start in STARTS)


def _read_line(line: str, where: str) -> Record | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        if _is_start_of_ours(line):
            return None
        raise StoreError(f"{where}: not a JSON record") from None
    if not isinstance(value, dict) or "kind" not in value:
        raise StoreError(f"{where}: not a pagebench record")
    if value["kind"] != "timing":
        return None
    try:
        return Record.from_json(value)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"{where}: {error}") from error


def check_writable(path: Path) -> None:
    """OSError or StoreError before anything is run, and not when the file is to be written.

    A file that is not there yet is not left behind.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise StoreError(f"{path}: not a regular file")
    make_folder_of(path)
    existed = path.exists()
    path.open("a").close()
    if not existed:
        path.unlink()


def check_appendable(path: Path) -> None:
    """Refuse a file that cannot be written or holds something else, before anything is run."""
    first = ""
    try:
        check_writable(path)
        if path.exists():
            with path.open(encoding="utf-8") as file:
                first = file.readline()
    except UnicodeDecodeError as error:
        raise StoreError(f"{path}: no results file, for it is not utf-8 text") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    if first.strip() and not _is_start_of_ours(first[:8]):
        raise StoreError(f"{path} is no results file: choose another for --out")
