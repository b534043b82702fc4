"""The cubins inside a shared library, which nvcc puts into its section `.nv_fatbin`."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from pagebench.profiles.cubin_code import CodeError, cubin_hash, digest, has_functions, sections
from pagebench.profiles.sass import local_memory, together

SECTIONS = (".nv_fatbin", "__nv_relfatbin")
CONTAINER = struct.pack("<I", 0xBA55ED50)
MACHINE_CODE = 2  # kind of an entry; 1 is PTX, which the driver compiles
COMPRESSED = 0x2000 | 0x8000  # flags of an entry: LZ4, Zstandard
TOOL = "cuobjdump"
TOOL_S = 60.0
# How a library's hash was made. Two of different ways cannot be compared.
BY_CODE, BY_BYTES = "library", "fatbin"


@dataclass(frozen=True, slots=True)
class Entry:
    """One image in a fatbin."""

    kind: int
    flags: int
    content: bytes

    @property
    def is_compressed(self) -> bool:
        return bool(self.flags & COMPRESSED)


def library_hash(path: Path) -> str:
    """`library:` and a hash of all machine code in a library, or `fatbin:` and one of its bytes.

    The second where the code is compressed and cuobjdump, which can unpack it, is not here: other
    options of nvcc give other bytes for the same code. CodeError or OSError where there is none.
    """
    facts = path.stat()
    return _hash(str(path), facts.st_mtime_ns, facts.st_size)


def library_local_memory(path: Path) -> dict[str, int]:
    """Instructions of local memory of all kernels in a library, those that did not run as well.

    Empty where the code is compressed and cuobjdump is not here. CodeError where there is none.
    """
    facts = path.stat()
    return dict(_local_memory(str(path), facts.st_mtime_ns, facts.st_size))


@lru_cache(maxsize=256)
def _local_memory(path: str, mtime_ns: int, size: int) -> dict[str, int]:
    images = [each for each in entries(Path(path).read_bytes()) if each.kind == MACHINE_CODE]
    cubins, tool = [each.content for each in images], find_tool()
    if any(each.is_compressed for each in images):
        cubins = unpacked(Path(path), tool) if tool else []
    return together([local_memory(each) for each in cubins if has_functions(each)])


@lru_cache(maxsize=256)
def _hash(path: str, mtime_ns: int, size: int) -> str:
    images = [each for each in entries(Path(path).read_bytes()) if each.kind == MACHINE_CODE]
    if not images:
        raise CodeError("it holds no machine code for a GPU")
    if not any(each.is_compressed for each in images):
        return f"{BY_CODE}:{_of_cubins([each.content for each in images])}"
    tool = find_tool()
    if tool is None:
        return f"{BY_BYTES}:{digest([each.content for each in images])}"
    return f"{BY_CODE}:{_of_cubins(unpacked(Path(path), tool))}"


def _of_cubins(cubins: list[bytes]) -> str:
    """Of those with functions: nvcc adds one without to every library."""
    hashes = sorted(cubin_hash(each) for each in cubins if has_functions(each))
    if not hashes:
        raise CodeError("it holds no functions for a GPU")
    return digest([each.encode() for each in hashes])


def entries(library: bytes) -> Iterator[Entry]:
    """All images in a library. CodeError where it has no fatbin, or one of another format."""
    held = [each.content for each in sections(library) if each.name in SECTIONS]
    if not held:
        raise CodeError("it has no section .nv_fatbin")
    try:
        for content in held:
            yield from _entries(content)
    except struct.error as error:
        raise CodeError(f"a fatbin of an unknown format: {error}") from error


def _entries(content: bytes) -> Iterator[Entry]:
    at = content.find(CONTAINER)
    while at >= 0:
        _, _, header, size = struct.unpack_from("<IHHQ", content, at)
        at += header
        end = at + size
        while at < end:
            kind, _, header, length = struct.unpack_from("<HHIQ", content, at)
            (flags,) = struct.unpack_from("<Q", content, at + 40)
            if header < 48 or not length:
                raise CodeError("a fatbin of an unknown format")
            yield Entry(kind, flags, content[at + header : at + header + length])
            at += header + length
        at = content.find(CONTAINER, end)


def find_tool() -> str | None:
    """cuobjdump on the PATH, beside nvcc, or in Triton's wheel; None where there is none."""
    if found := shutil.which(TOOL):
        return found
    toolkits = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    places = [Path(each) / "bin" for each in toolkits if each]
    triton = find_spec("triton")
    if triton and triton.origin:
        places.append(Path(triton.origin).parent / "backends" / "nvidia" / "bin")
    return next((str(at / TOOL) for at in places if os.access(at / TOOL, os.X_OK)), None)


def unpacked(library: Path, tool: str) -> list[bytes]:
    """All cubins of a library, by cuobjdump. CodeError where it fails."""
    with tempfile.TemporaryDirectory() as scratch:
        link = Path(scratch, "code.so")  # the cubins have the library's name, which may be long
        link.symlink_to(library.resolve())
        words = [tool, "-xelf", "all", link.name]
        try:
            done = subprocess.run(
                words, cwd=scratch, capture_output=True, timeout=TOOL_S, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CodeError(f"{TOOL}: {error}") from error
        cubins = [each.read_bytes() for each in sorted(Path(scratch).glob("*.cubin"))]
    if done.returncode or not cubins:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["it found no code"]
        raise CodeError(f"{TOOL}: {said[0]}")
    return cubins
