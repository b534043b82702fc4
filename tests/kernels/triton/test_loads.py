"""What our Triton kernels load by their source, where it is planted."""

from __future__ import annotations

import pytest

from pagebench.harness.cell import Cell
from pagebench.kernels.registry import find_kernel, loads_of


def ldg_of(name: str) -> int:
    """Of one of our Triton kernels, as it would be resolved."""
    cell = Cell.parse(name)
    resolved = find_kernel(cell.kernel)._resolved(cell.shape)  # type: ignore[attr-defined]
    predicted = loads_of(cell.kernel, cell.shape, resolved, (9, 0)).ldg
    assert predicted is not None
    return predicted


@pytest.mark.parametrize("kernel", ["tritontoken", "tritonrow", "tritontile"])
@pytest.mark.parametrize("loads", [1, 8, 64])
def test_planted_loads_are_one_a_tile_and_warp_of_each_kv_head(kernel: str, loads: int) -> None:
    """4 warps, 8 KV heads, and tiles of 64 tokens: 64 of 4,096 tokens in 4 splits, no prologue."""
    name = f"{kernel}_distinct_p1"
    assert ldg_of(f"{name}_x{loads}") - ldg_of(name) == loads * 4 * 8 * 8 * 64
    # Lengths of 300, 215, 127, 143 and 123 tokens: 5 + 4 + 2 + 3 + 2 tiles, one split.
    ragged = f"{name}_b5_l300_r60"
    assert ldg_of(f"{ragged}_x{loads}") - ldg_of(ragged) == loads * 4 * 8 * 16


def test_a_planted_spin_loads_nothing() -> None:
    assert ldg_of("tritontile_distinct_p16_y500") == ldg_of("tritontile_distinct_p16")
