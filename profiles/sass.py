"""Instructions of local memory in machine code: how many it has, and not how often they run."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from pagebench.profiles.cubin_code import CodeError, sections

INSTRUCTION = 16  # bytes, from sm_70 on
# The low 12 bits of an instruction, read from what ptxas makes for each of TRIED
# (tests/profiles/test_sass.py compares them with nvdisasm).
LOCAL = {"ldl": 0x983, "stl": 0x387}
# A load or store of any memory: it may be of local memory too.
GENERIC = {"ldl": 0x980, "stl": 0x985}
TRIED = (75, 80, 86, 89, 90, 100, 120)


def local_memory(cubin: bytes) -> dict[str, int]:
    """`ldl` and `stl`: how many such instructions the code of a cubin has.

    A name is left out where the code has a generic load or store, which may reach local memory, and
    both are for an architecture that was not tried. CodeError where it is no cubin.
    """
    found = list(_opcodes(cubin))
    if _architecture(cubin) not in TRIED:
        return {}
    return {
        name: found.count(opcode) for name, opcode in LOCAL.items() if GENERIC[name] not in found
    }


def together(cubins: Sequence[dict[str, int]]) -> dict[str, int]:
    """What all have; a name that one does not know is left out."""
    known = [name for name in LOCAL if cubins and all(name in each for each in cubins)]
    return {name: sum(each[name] for each in cubins) for name in known}


def _opcodes(cubin: bytes) -> Iterator[int]:
    for section in sections(cubin):
        if section.name.startswith(".text."):
            if len(section.content) % INSTRUCTION:
                raise CodeError("its code is not made of whole instructions")
            for (begin,) in struct.iter_unpack("<H14x", section.content):
                yield begin & 0xFFF


def _architecture(cubin: bytes) -> int:
    """The sm of the header's flags; newer tools keep it a byte further."""
    (flags,) = struct.unpack_from("<I", cubin, 48)
    return int(flags >> 8 & 0xFF if flags >> 24 else flags & 0xFF)
