"""Whether two cells ran one binary alike, by what was counted of them."""

from __future__ import annotations

from msgspec.structs import replace

from fakes.ncu_pages import recorded
from pagebench.harness.judging.binary import same_binary
from pagebench.harness.records.verdict import SameBinary


def test_two_page_sizes_of_xqa_are_two_binaries() -> None:
    by_cell = {record.cell: record for record in recorded()}
    small, large = by_cell["xqa_shared_p16"], by_cell["xqa_shared_p64"]
    assert same_binary(small, small).differs == ()
    assert same_binary(small, large).launch
    assert not same_binary(small, large).module
    near = same_binary(small, by_cell["xqa_shared_p32"])
    assert near == SameBinary(module=False, symbol=True, launch=True, resources=True)


def test_kernels_whose_page_size_is_no_constant_are_one_binary() -> None:
    by_cell = {record.cell: record for record in recorded()}
    token, block = (
        by_cell[f"fidecode_distinct{where}_p1_b32_l8192"] for where in ("", "_block128")
    )
    assert same_binary(token, block).module
    told = replace(token, resolved={**token.resolved, "module": "one"})
    other = replace(block, resolved={"module": "another"})
    assert not same_binary(told, other).module
    assert same_binary(told, token).module  # an older record, without the name
