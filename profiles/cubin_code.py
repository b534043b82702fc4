"""What a GPU executes of a cubin, as a hash: two builds of one source have the same.

Kept are the instructions of each function with its name and registers, constants, initialised
globals, the size of shared memory, and where a loader puts addresses. Left out are debug
information, notes of the tools, and what depends on the folder of the source.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
CUDA = 190  # e_machine
SYMBOLS, RELA, NO_BITS, REL = 2, 4, 8, 9  # sh_type
KEPT = (".text.", ".nv.constant", ".nv.global", ".nv.shared.")
OF_SECTION = 3  # the type of a section's own symbol
REGISTERS = 0x2F  # EIATTR_REGCOUNT in .nv.info: a function's symbol and its registers
WITH_SIZE = 0x04  # format of an attribute that says its own size; others have two bytes
DIGITS = 32  # of a hash, 128 bits

# Names with internal linkage hold a hash of the source's path, and the length and name of the file:
# _GLOBAL__N__96ba1f6f_4_k_cu_first. Digits before count the characters.
OF_FILE = re.compile(r"\d*(_GLOBAL__N_|_INTERNAL|__nv_static_\d+_)_[0-9a-f]{8}_(\d+)_")


class CodeError(ValueError):
    """Bytes that are no ELF file of the expected kind."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section header of an ELF file, and its bytes; none where the file holds none."""

    name: str
    kind: int
    link: int
    info: int
    size: int
    content: bytes


def sections(image: bytes) -> list[Section]:
    """All sections of a 64-bit ELF file. CodeError for anything else."""
    try:
        return list(_sections(image))
    except CodeError:
        raise
    except (struct.error, ValueError, IndexError) as error:
        raise CodeError(f"not a whole ELF file: {error}") from error


def _sections(image: bytes) -> Iterator[Section]:
    if not image.startswith(MAGIC):
        raise CodeError("it does not begin as a 64-bit ELF file does")
    (begin,) = struct.unpack_from("<Q", image, 40)
    size, count, names = struct.unpack_from("<HHH", image, 58)
    headers = [struct.unpack_from("<IIQQQQII", image, begin + size * at) for at in range(count)]
    table = headers[names][4]
    for name, kind, _, _, offset, length, link, info in headers:
        end = image.index(b"\0", table + name)
        content = b"" if kind == NO_BITS else image[offset : offset + length]
        if kind not in (0, NO_BITS) and len(content) != length:
            raise CodeError("a section ends beyond the file")
        text = image[table + name : end].decode("utf-8", "replace")
        yield Section(text, kind, link, info, length, content)


def cubin_hash(cubin: bytes) -> str:
    """The hash of the code in a cubin. CodeError where it is none, or has no code."""
    found = sections(cubin)
    if struct.unpack_from("<H", cubin, 18)[0] != CUDA:
        raise CodeError("an ELF file for another machine than a GPU")
    symbols = _symbols(found)
    parts = [_content(each) for each in found if each.name.startswith(KEPT)]
    if not has_functions(cubin):
        raise CodeError("it holds no functions")
    parts += [part for each in found for part in _relocations(each, symbols)]
    parts += [part for each in found for part in _registers(each, symbols)]
    return digest(repr(part).encode() for part in sorted(parts))


def has_functions(cubin: bytes) -> bool:
    """Whether there is anything to run. CodeError where it is no ELF file."""
    return any(each.name.startswith(".text.") for each in sections(cubin))


def digest(parts: Iterator[bytes] | list[bytes]) -> str:
    """One hash of parts in their order; it depends on where each begins."""
    whole = sha256()
    for part in parts:
        whole.update(struct.pack("<Q", len(part)) + part)
    return whole.hexdigest()[:DIGITS]


def _content(section: Section) -> tuple[str, ...]:
    """Older cubins keep a function's registers in the high byte of its section's `info`."""
    registers = section.info >> 24 if section.name.startswith(".text.") else 0
    hashed = sha256(section.content).hexdigest()
    return (without_file(section.name), str(section.size), str(registers), hashed)


def without_file(name: str) -> str:
    """A symbol's name without the source's path and file name."""
    at = 0
    while found := OF_FILE.search(name, at):
        kept = name[: found.start()] + found[1]
        name = kept + name[found.end() + int(found[2]) :]
        at = len(kept)
    return name


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    value: int


def _symbols(found: list[Section]) -> list[_Symbol]:
    """The symbol table; a section's own symbol has its name."""
    for table in found:
        if table.kind == SYMBOLS:
            names = found[table.link].content
            entries = struct.iter_unpack("<IBBHQQ", table.content)
            return [_symbol(found, names, entry) for entry in entries]
    return []


def _symbol(found: list[Section], names: bytes, entry: tuple[int, ...]) -> _Symbol:
    name, info, _, section, value, _ = entry
    text = names[name : names.index(b"\0", name)].decode("utf-8", "replace")
    if info & 15 == OF_SECTION and section < len(found):
        text = found[section].name
    return _Symbol(without_file(text), value)


def _relocations(section: Section, symbols: list[_Symbol]) -> Iterator[tuple[str, ...]]:
    """Where the loader puts which address in a section that is kept."""
    layouts = {RELA: "<QQq", REL: "<QQ"}
    target = section.name.removeprefix(".rela").removeprefix(".rel")
    if section.kind not in layouts or not target.startswith(KEPT):
        return
    for offset, info, *addend in struct.iter_unpack(layouts[section.kind], section.content):
        symbol = symbols[info >> 32]
        how = (offset, info & 0xFFFFFFFF, *addend, symbol.value)
        yield ("to", without_file(target), symbol.name, *map(str, how))


def _registers(section: Section, symbols: list[_Symbol]) -> Iterator[tuple[str, ...]]:
    """Registers of each function, which decide how many warps run at once."""
    if section.name != ".nv.info":
        return
    at, content = 0, section.content
    while at + 4 <= len(content):
        form, attribute, size = struct.unpack_from("<BBH", content, at)
        at += 4
        if form == WITH_SIZE:
            if attribute == REGISTERS:
                symbol, count = struct.unpack_from("<II", content, at)
                yield ("registers", symbols[symbol].name, str(count))
            at += size
