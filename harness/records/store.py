"""Results files: JSON lines, append-only, on disk after every record; read once a command."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from msgspec.structs import replace

from pagebench.harness.errors import UserError
from pagebench.harness.escape import visible
from pagebench.harness.records import codec
from pagebench.harness.records.base import Record
from pagebench.harness.records.timing import Timing

STARTS = ('{"cell":', '{"kind":')  # how a line of ours begins, also when a kill cut it off
LONGEST_WORD = len("false") + 1  # of JSON, with what it was in
SomeRecord = TypeVar("SomeRecord", bound=Record)


class StoreError(UserError):
    """A results file that cannot be read or written."""


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn the system's error for a file that the user named into a StoreError."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error


# --- Writing --------------------------------------------------------------------------------------


def append(path: Path, *records: Record) -> None:
    """Add records, a line each, and force each to disk. A line cut off by a kill is closed first.

    A record without a date gets the time of writing.
    """
    for record in records:
        _append_line(path, codec.encode(_dated(record)))


def _append_line(path: Path, line: str) -> None:
    make_folder_of(path)
    with file_errors(path), path.open("a+b") as file:
        if file.tell() and not _ends_whole(file):
            file.write(b"\n")
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def make_folder_of(path: Path) -> None:
    """Make the folder that a file goes to; StoreError where that fails."""
    try:
        with file_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
    except StoreError as error:
        if isinstance(error.__cause__, FileExistsError):  # the system says only `File exists`
            raise StoreError(f"{path}: {os.strerror(errno.ENOTDIR)}") from error
        raise


def write_whole(path: Path, text: str) -> None:
    """Write a file beside its place and move it there, so that a full disk leaves the old one.

    A symbolic link is kept. StoreError where that fails.
    """
    make_folder_of(path)
    with replacing(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write beside `path`, which then takes its place if all of it is on disk; else what
    stood there stays. StoreError where writing fails."""
    part = part_of(path)
    with file_errors(path):
        try:
            yield part
            with part.open("rb") as file:
                os.fsync(file.fileno())
            part.replace(os.path.realpath(path))
        finally:
            part.unlink(missing_ok=True)


def part_of(path: Path) -> Path:
    """The temporary file that then replaces `path`."""
    path = Path(os.path.realpath(path))  # a link that leads to itself stays, and fails when opened
    return path.with_name(f"{path.name}.part")


def _dated(record: Record) -> Record:
    if record.date:
        return record
    return replace(record, written=datetime.now(UTC).isoformat(timespec="seconds"))


def _ends_whole(file: IO[bytes]) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def check_writable(path: Path) -> None:
    """StoreError for a file that cannot be written: found now, before anything runs.

    A file that does not exist yet is not left behind.
    """
    with file_errors(path):
        existed = path.exists()
    if existed and not path.is_file() and not path.is_dir():
        raise StoreError(f"{path}: not a regular file")
    make_folder_of(path)
    with file_errors(path):
        path.open("a").close()
        if not existed:
            path.unlink()


def check_appendable(path: Path) -> None:
    """StoreError for a file that cannot be written or is not a results file: before any run."""
    check_writable(path)
    first = ""
    try:
        if path.exists():
            with file_errors(path), path.open(encoding="utf-8") as file:
                first = file.readline()
    except UnicodeDecodeError as error:
        raise StoreError(f"{path}: not a results file: not valid UTF-8") from error
    if first.strip() and not _is_start_of_ours(first[:8]):
        raise StoreError(f"{path} is not a results file; choose another for --out")


# --- Reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stored:
    """Records, each with its file, in the order of files and lines.

    `kinds` has the kind of every line, also of those that were not asked for.
    """

    lines: tuple[tuple[Path, Record], ...]
    kinds: frozenset[str]

    def of(self, kind: type[SomeRecord]) -> list[SomeRecord]:
        """All records of a type: timings in the order of the files, others the newest last."""
        found = [record for _, record in self.lines if isinstance(record, kind)]
        return found if issubclass(kind, Timing) else sorted(found, key=lambda each: each.date)

    def timings_of(self, path: Path) -> list[Timing]:
        return [each for where, each in self.lines if where == path and isinstance(each, Timing)]


def read(paths: Iterable[Path], *kinds: type[Record]) -> Stored:
    """Records of those kinds, or of all; each file is opened once. StoreError gives file and line.

    Other kinds, and kinds not known here, are skipped. A line that is not JSON is an error, unless
    it begins as ours do and only lacks its end: then a kill cut it off, which is said on stderr.
    """
    wanted = tuple(name for name, kind in codec.KINDS.items() if not kinds or kind.record in kinds)
    found: list[tuple[Path, Record]] = []
    seen: set[str] = set()
    for path in paths:
        for where, value in _objects(path):
            name = codec.kind_of(value)
            seen.add(name)
            if name in wanted:
                found.append((path, _typed(value, where)))
    return Stored(tuple(found), frozenset(seen))


def read_whole(paths: Iterable[Path], kind: type[SomeRecord]) -> list[SomeRecord]:
    """Records of one kind, the newest last; damaged ones and those of a later schema are skipped.
    StoreError for a file that is not a results file."""
    found: list[SomeRecord] = []
    for path in paths:
        for where, value in _objects(path):
            known = codec.KINDS.get(codec.kind_of(value))
            if known and known.record is kind:
                with suppress(StoreError):
                    found.append(cast(SomeRecord, _typed(value, where)))
    return sorted(found, key=lambda each: each.date)


def _objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every whole line as an object, with its file and line number."""
    for number, line in enumerate(_lines(path), 1):
        if line.strip():
            value = _object(line, f"{path}, line {number}")
            if value is not None:
                yield f"{path}, line {number}", value


def _object(line: str, where: str) -> dict[str, Any] | None:
    """The line as an object; None, after saying so, where a kill cut it off."""
    try:
        value = codec.decode(line)
    except json.JSONDecodeError as error:
        if _is_start_of_ours(line) and _is_cut_off(error):
            print(visible(f"{where}: cut off, so it is left out"), file=sys.stderr, flush=True)
            return None
        raise StoreError(f"{where}: not a JSON record") from None
    except ValueError as error:
        raise StoreError(f"{where}: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise StoreError(f"{where}: not a pagebench record")
    return value


def _is_cut_off(error: json.JSONDecodeError) -> bool:
    """Whether only the end is missing: what cannot be read is an open string or a last word."""
    left = len(error.doc.rstrip()) - error.pos
    return left < LONGEST_WORD or error.msg.startswith("Unterminated string")


def _typed(value: dict[str, Any], where: str) -> Record:
    try:
        return codec.from_json(value)
    except ValueError as error:
        raise StoreError(f"{where}: {error}") from error


def _lines(path: Path) -> list[str]:
    try:
        with file_errors(path):
            return path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise StoreError(f"{path}: not a results file: not valid UTF-8") from error


def _is_start_of_ours(line: str) -> bool:
    return any(line.startswith(start[: len(line)]) for start in STARTS)
