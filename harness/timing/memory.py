"""How much memory a cell needs, and whether any device could hold it.

Nothing here imports numpy or torch: `pagebench list` asks it about every cell.
"""

from __future__ import annotations

from math import ceil

from pagebench.harness.cell import Cell
from pagebench.harness.timing.planned import workspace_of
from pagebench.harness.timing.scratch import FILL_BYTES, oracle_bytes
from pagebench.kernels.adapter import Adapter, Refusal
from pagebench.kernels.device import Device, memory_bytes
from pagebench.kernels.limits import MOST_INT32, at_most
from pagebench.layouts.shape import Shape
from pagebench.layouts.sharing import prefix_tokens

ADDRESSABLE = 2**47  # bytes of a process on x86-64 and on arm64 with three levels of pages
LESS = "use a smaller batch or a shorter context"
UNITS = ("GB", "TB", "PB")


def device_bytes(shape: Shape, pages: int, workspace: int, kind: str, boundary: str) -> int:
    """The most device bytes that a cell with a pool of so many pages will take.

    Planning alone needs no KV pool.
    """
    entries = shape.batch * shape.table_width
    tables = 40 * (entries + pages)  # int64 temporaries while the table is built and checked
    if boundary == "plan":
        return tables + workspace
    oracle = shape.kv_len * oracle_bytes(shape)
    pool = pages * shape.page_size * shape.token_kv_bytes
    return pool + tables + max(FILL_BYTES[kind], oracle, workspace)


def refuse_size(cell: Cell, adapter: Adapter, device: Device, boundary: str) -> Refusal | None:
    """The refusal of a cell that cannot fit: more than the device has, or than indices can count.

    It may pass a cell that is too large by little: the worker knows what is free.
    """
    indices = _refuse_indices(cell, adapter)
    return indices or _refuse_bytes(cell, adapter, device, boundary)


def refuse_unaddressable(cell: Cell, boundary: str) -> Refusal | None:
    """The refusal of a cell that no device could hold, whatever its kernel."""
    needed = device_bytes(cell.shape, least_pages(cell), 0, "cpu", boundary)
    if needed <= ADDRESSABLE:
        return None
    most = f"more than any device can address ({amount(ADDRESSABLE)})"
    return Refusal(f"it needs {amount(needed)} of memory, {most}: {LESS}", "memory")


def _refuse_indices(cell: Cell, adapter: Adapter) -> Refusal | None:
    """Slots, pages and the ends of requests are int32 in every lowering."""
    shape, pages = cell.shape, least_pages(cell)
    try:
        kind = adapter.lowering(shape)
    except Exception:
        return None  # planning names it
    if kind == "token_indices":
        ends = _shortest(shape) * shape.batch
        count = max(pages * shape.page_size, ends)
        return at_most(MOST_INT32, count, "an int32 index", "tokens", LESS)
    ends = shape.pages(_shortest(shape)) * shape.batch if kind == "csr_pages" else 0
    return at_most(MOST_INT32, max(pages, ends), "an int32 index", "pages", LESS)


def _refuse_bytes(cell: Cell, adapter: Adapter, device: Device, boundary: str) -> Refusal | None:
    has = memory_bytes(device)
    if has is None:
        return None
    try:
        workspace = workspace_of(adapter, cell.shape)
    except Exception:
        workspace = 0  # planning names it
    needed = device_bytes(cell.shape, least_pages(cell), workspace, device.kind, boundary)
    if needed <= has:
        return None
    return Refusal(
        f"it needs {amount(needed)} of memory and {device.name} has {amount(has)}: {LESS}", "memory"
    )


def least_pages(cell: Cell) -> int:
    """No more pages than the cell's pool will have: all of them, but for ragged lengths and a
    placement that leaves pages unused."""
    shape, shortest = cell.shape, _shortest(cell.shape)
    if cell.sharing.kind == "shared":
        return shape.pages(shape.kv_len)
    if cell.sharing.kind == "distinct":
        return shape.pages(shape.kv_len) + (shape.batch - 1) * shape.pages(shortest)
    common = prefix_tokens(cell.sharing, shape)
    return shape.pages(common) + shape.batch * shape.pages(max(shortest - common, 1))


def _shortest(shape: Shape) -> int:
    """No request can be shorter."""
    return max(1, ceil(shape.kv_len * (100 - shape.ragged_percent) / 100))


def amount(size: int) -> str:
    """Bytes in the largest unit of UNITS in which they are a number of one digit or more."""
    scaled, unit = size / 1e9, 0
    while scaled >= 1000 and unit + 1 < len(UNITS):
        scaled, unit = scaled / 1000, unit + 1
    return f"{scaled:,.1f} {UNITS[unit]}"
