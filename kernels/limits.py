"""What no launch of a kernel can exceed, so that a cell is refused before anything is built.

Sources: CUDA programming guide, table of technical specifications by compute capability.
"""

from __future__ import annotations

from pagebench.kernels.adapter import Refusal
from pagebench.kernels.device import Device

MOST_GRID_YZ = 65_535  # blocks along y and along z of a grid
MOST_INT32 = 2**31 - 1
# KiB of shared memory that a block can ask for, by compute capability.
SHARED_KIB = {(8, 0): 163, (8, 6): 99, (8, 7): 163, (8, 9): 99, (9, 0): 227, (12, 0): 99}
SHARED_KIB_OF_MAJOR = {10: 227, 11: 227, 12: 99}


def at_most(most: int, count: int, kernel: str, what: str, remedy: str) -> Refusal | None:
    """The refusal of more than `most` of something, with the limit and what to do."""
    if count <= most:
        return None
    return Refusal(f"{kernel} takes up to {most:,} {what}, not {count:,}: {remedy}", "shape")


def shared_bytes(device: Device) -> int | None:
    """Bytes of shared memory that a block can have on the device; None where not known."""
    if device.capability is None:
        return None
    major = SHARED_KIB_OF_MAJOR.get(device.capability[0])
    kib = SHARED_KIB.get(device.capability, major)
    return None if kib is None else kib * 1024
