"""How the Triton kernels are launched: what may be tuned, and what no launch can exceed."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from pagebench.kernels.adapter import Refusal, first
from pagebench.kernels.device import Device
from pagebench.kernels.limits import MOST_GRID_YZ, MOST_INT32, at_most, shared_bytes
from pagebench.layouts.shape import DTYPE_BYTES, Shape

LEAST_BLOCK_H = 16  # rows of the tensor cores' smallest A operand (mma.m16n8k16)
MAX_SPLITS = 64  # merge_splits holds splits x head_dim float32 in the registers of 128 threads
WARP_GROUP_ROWS = 64  # rows of the A operand of Hopper's and Blackwell's asynchronous products


@dataclass(frozen=True, slots=True)
class Tuning:
    """Choices that do not change the result.

    A stage of the pipeline is a K and a V tile of `block_n` tokens, and num_stages - 1 of them are
    allocated: 64 KiB per CTA at head_dim 128. Three CTAs fit the 227 KiB of a Hopper SM and keep
    96 KiB or more in flight; about 40 KiB saturate its DRAM.
    """

    block_n: int = 64
    num_warps: int = 4
    num_stages: int = 3
    programs: int = 256  # wanted CTAs, one wave of 3 per SM: more only add partials (docs/log.md)
    least_tiles: int = 8  # per split: with fewer, filling the pipeline is most of the work

    def __post_init__(self) -> None:
        if self.block_n >= 32 * self.num_warps:
            raise ValueError(
                f"a tile of {self.block_n} tokens needs more than {self.num_warps} warps: Triton "
                "sends an index vector as long as the CTA through shared memory"
            )

    def tiles_per_split(self, shape: Shape) -> int:
        """Tiles per split, independent of page size and mode, so that all have equal grids."""
        tiles = ceil(shape.kv_len / self.block_n)
        wanted = ceil(self.programs / (shape.batch * shape.kv_heads))
        return max(self.least_tiles, ceil(tiles / min(wanted, MAX_SPLITS)))

    def splits(self, shape: Shape) -> int:
        return ceil(shape.kv_len / (self.block_n * self.tiles_per_split(shape)))


def power_of_two(count: int) -> int:
    """The least power of two that is not below `count`."""
    return 1 << (count - 1).bit_length()


def block_h(shape: Shape) -> int:
    """Query heads of a group, padded to what `tl.dot` takes."""
    return max(LEAST_BLOCK_H, power_of_two(shape.group))


def refuses_launch(name: str, shape: Shape, tuning: Tuning, device: Device) -> str | None:
    """Requests are the grid's z axis, offsets have 32 bits, and tiles lie in shared memory."""
    partials = shape.batch * shape.q_heads * tuning.splits(shape) * shape.head_dim
    page = shape.page_size * shape.kv_heads * shape.head_dim
    entries = shape.batch * shape.table_width
    fewer = "use a smaller batch or fewer heads"
    return first(
        at_most(
            *(MOST_GRID_YZ, shape.batch, name, "requests (its grid's z axis)"),
            "use a smaller batch, or fidecode, fitc or fifa3",
        ),
        at_most(MOST_INT32, partials, name, "elements in its splits' outputs", fewer),
        at_most(MOST_INT32, page, name, "elements in a page", "use smaller pages or fewer heads"),
        at_most(
            *(MOST_INT32, entries, name, "entries in its page table"),
            "use a smaller batch or a shorter context",
        ),
        _refuses_shared(name, shape, tuning, device),
    )


def _refuses_shared(name: str, shape: Shape, tuning: Tuning, device: Device) -> Refusal | None:
    most = shared_bytes(device)
    if most is None:
        return None
    return at_most(
        *(most, shared_of(shape, tuning, device), name),
        f"bytes of shared memory a block on {device}",
        "use a smaller head_dim or fewer query heads per KV head",
    )


def shared_of(shape: Shape, tuning: Tuning, device: Device) -> int:
    """Shared memory that Triton allocates for `split_decode`: K and V tiles of all stages in
    flight, the queries, and the weights where they are fewer."""
    rows, dim, block_n = block_h(shape), shape.head_dim, tuning.block_n
    stages, rest = tuning.num_stages - 1, 2 * rows * block_n if dim > rows else 0
    if (
        rows >= WARP_GROUP_ROWS
        and device.capability is not None
        and device.capability[0] in (9, 10)
    ):
        # Asynchronous products: one more stage, weights in registers, 8-bit tiles widened.
        stages, rest = tuning.num_stages, 2 * block_n * dim if shape.dtype == "e4m3" else 0
    return 2 * stages * block_n * dim * DTYPE_BYTES[shape.dtype] + 2 * rows * dim + rest
