"""What a call of XQA must load, derived from its source before it runs.

LDG counts more than index loads. It includes prefetches past the last tile (the hardware counts
instructions whose lanes are all off), a constant per thread block and a term per split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from pagebench.kernels.adapter import Loads
from pagebench.layouts.shape import DTYPE_BYTES, Shape

XQA_WARPS = 4  # warps that load K, and as many that load V
XQA_WARP_TOKENS = 64
XQA_CTA_TOKENS = XQA_WARPS * XQA_WARP_TOKENS


def xqa_loads(
    shape: Shape, resolved: Mapping[str, Any], capability: tuple[int, int] | None
) -> Loads:
    """Loads of XQA; those of Hopper's 8-bit kernel (mha_sm90.cu) are not known."""
    if capability is None or "mha.cu" not in str(resolved.get("kernel")):
        return Loads()
    splits = int(resolved["splits"])
    grid = (splits, shape.kv_heads, shape.batch)
    return Loads(xqa_ldg(shape, splits, capability), grids=(grid,))


def xqa_ldg(shape: Shape, splits: int, capability: tuple[int, int]) -> int:
    """LDG of csrc/xqa/mha.cu and `getPage` in mhaUtils.cuh (FlashInfer 0.7.2.post1).

    Warps load a tile's page indices one at a time. K's are loaded once before the first tile and
    once per tile; V's too, but one tile further ahead, as are K's where a head of K is one part. In
    a last tile that is not full, warps whose tokens lie past its end do nothing (SHORT_SEQ_OPT).
    Every warp loads the context length once. With splits, the last block of a head reads the row
    maximum of each split.
    """
    tile = _xqa_tile(shape, capability)
    loads = 0
    for length in shape.lengths().tolist():
        tiles = ceil(length / XQA_CTA_TOKENS)
        ahead = tile.k_pages * tile.k_ahead + tile.v_pages * tile.v_ahead
        loads += splits * XQA_WARPS * (ahead + 2) + _first_loads(shape, tile, length, splits)
        for index in range(tiles):
            tokens = min(XQA_CTA_TOKENS, length - index * XQA_CTA_TOKENS)
            k_calls = ceil(tokens / XQA_WARP_TOKENS)
            loads += tile.k_pages * k_calls + tile.v_pages * tile.v_calls(tokens)
        loads += splits if splits > 1 else 0
    return loads * shape.kv_heads


def _first_loads(shape: Shape, tile: _XqaTile, length: int, splits: int) -> int:
    """What K and V warps load before the first tile, including warps with tokens past the end.

    Such a load is predicated off, and counted. In modules of page size 64 the compiler branches
    around it instead, and it is not counted (SASS of all groups at head dim 128, nvcc 13.0 for
    sm_90a).
    """
    if shape.page_size != XQA_WARP_TOKENS:
        return splits * XQA_WARPS * (tile.k_pages + tile.v_pages)
    pages, warps = shape.pages(length), XQA_WARPS // tile.groups
    begins = [XQA_WARPS * split for split in range(splits)]
    k_warps = sum(begin + warp < pages for begin in begins for warp in range(XQA_WARPS))
    v_groups = sum(
        begin + group // tile.groups_an_x_tile < pages
        for begin in begins
        for group in range(tile.groups)
    )
    return k_warps * tile.k_pages + v_groups * warps * tile.v_pages


@dataclass(frozen=True, slots=True)
class _XqaTile:
    """How the four V warps walk a tile of 256 tokens: groups of warps, in steps of whole X tiles.

    `k_ahead` and `v_ahead` are 1 where the call before the first tile also loads pages, else 0.
    `steps_a_page` is how many steps share one page.
    """

    k_pages: int  # pages that a K call loads
    k_ahead: int
    v_pages: int
    v_ahead: int
    groups: int
    groups_an_x_tile: int
    steps: int
    x_tiles_a_step: int
    v_iters: int
    steps_a_page: int

    def v_calls(self, tokens: int) -> int:
        """Calls of all warps that load pages, in a tile that holds that many tokens."""
        warps = XQA_WARPS // self.groups
        return sum(
            warps * self.v_iters
            for group in range(self.groups)
            for step in range(self.steps)
            if self._first_token(group, step) < tokens and (step + 2) % self.steps_a_page == 0
        )

    def _first_token(self, group: int, step: int) -> int:
        return XQA_WARP_TOKENS * (step * self.x_tiles_a_step + group // self.groups_an_x_tile)


def _xqa_tile(shape: Shape, capability: tuple[int, int]) -> _XqaTile:
    page = shape.page_size
    head = next(dim for dim in (64, 128, 256) if dim >= shape.head_dim)
    sm = capability[0] * 10 + capability[1]
    small = sm in (86, 89, 120, 121)  # shared memory
    v_tokens, k_part_bytes = (32, 64) if small else (64, 128)  # of a V tile, of a K head
    groups = XQA_WARPS // min(head // 64, 4)
    stride = v_tokens * groups
    x_tiles = max(1, stride // XQA_WARP_TOKENS)
    v_iters = XQA_WARP_TOKENS * x_tiles // stride
    x_stride = stride * v_iters
    steps_a_page = max(1, page // x_stride)
    return _XqaTile(
        k_pages=max(1, XQA_WARP_TOKENS // page),
        k_ahead=int(head * DTYPE_BYTES[shape.dtype] <= k_part_bytes),
        v_pages=max(1, v_tokens // page),
        v_ahead=int(x_stride > page or (steps_a_page == 1 and v_iters == 1)),
        groups=groups,
        groups_an_x_tile=XQA_WARP_TOKENS // v_tokens,
        steps=XQA_WARPS // x_tiles,
        x_tiles_a_step=x_tiles,
        v_iters=1 if x_stride <= page else v_iters,
        steps_a_page=steps_a_page,
    )
