"""Pools that change and are put back, pages in another order, and shares of a weight."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pagebench.harness.cell import Cell
from pagebench.harness.timing.known import Shares, Two
from pagebench.harness.timing.needles import Targets
from pagebench.kernels.reference import attend
from pagebench.layouts.table import page_table
from pagebench.layouts.tensors import Batch, materialise, request_kv

SHAPES = [
    ("distinct_p16_b3_l100_h4x2_d64_r50", "page_table"),
    ("distinct_p16_b3_l100_h4x2_d64_hnd", "page_table"),
    ("distinct_p1_b2_l40_h2x1_d64_e4m3", "page_table"),
    ("distinct_p16_b2_l100_h4x2_d64", "token_indices"),
    ("shared_p16_b3_l100_h4x2_d64_r50", "page_table"),
    ("prefix50_p16_b3_l400_h4x2_d64_r30", "csr_pages"),
]


def made(name: str, kind: str = "page_table") -> Batch:
    cell = Cell.parse(f"innocentplain_{name}")
    return materialise(page_table(cell.shape, cell.streams, cell.placement, "cpu"), kind)


def read(batch: Batch, pool: torch.Tensor, request: int) -> torch.Tensor:
    """A request's tokens through its page table, float32 [length, kv_heads, head_dim]."""
    shape, length = batch.shape, int(batch.table.lengths[request])
    if batch.lowered.kind == "token_indices":
        pool = pool.view(-1, shape.page_size, *pool.shape[1:])
    by_token = pool.transpose(1, 2) if shape.kv_layout == "HND" else pool
    return by_token.float()[batch.table.pages[request].long()].flatten(0, 1)[:length]


@pytest.mark.parametrize(("name", "kind"), SHAPES)
def test_two_tokens_change_places_and_come_back(name: str, kind: str) -> None:
    batch = made(name, kind)
    assert batch.k is not None
    before = batch.k.view(torch.uint8).clone()
    two = Two.at(batch, 10**6 + 7)
    assert two is not None
    at = two.position
    expected = [read(batch, batch.k, request) for request in range(batch.shape.batch)]
    with two.exchanged(batch.k):
        for request, own in enumerate(expected):
            own[[at, at + 1]] = own[[at + 1, at]]
            assert torch.equal(read(batch, batch.k, request), own)
    assert torch.equal(batch.k.view(torch.uint8), before)


def test_requests_of_one_token_have_no_two() -> None:
    batch = made("distinct_p16_b2_l1_h4x2_d64")
    assert Two.at(batch, 3) is None
    mixed = made("distinct_p16_b2_l9_h4x2_d64").with_lengths(np.array([1, 9]))
    two = Two.at(mixed, 3)
    assert two is not None
    assert two.has.tolist() == [False, True]


@pytest.mark.parametrize(("name", "kind"), SHAPES)
def test_pages_in_another_order_hold_the_same_tokens(name: str, kind: str) -> None:
    table = made(name, kind).table
    other = table.reordered()
    assert not torch.equal(other.pages, table.pages)
    assert torch.equal(other.pages.sort(1).values, table.pages.sort(1).values)
    for old, new, length in zip(table.pages, other.pages, table.lengths, strict=True):
        used, rest = divmod(int(length), table.shape.page_size)
        assert set(new[:used].tolist()) == set(old[:used].tolist())
        assert new[used] == old[used] if rest else True
    shared = min(table.streams.shared_pages, int((table.lengths // table.shape.page_size).min()))
    assert (other.pages[:, :shared] == other.pages[:1, :shared]).all()


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_right_answer_has_the_share_that_is_known(seed: int) -> None:
    batch = made(f"distinct_p16_b2_l3000_h4x2_d128_s{seed}")
    shares = Shares.of(batch, Targets(batch, 1).own(1000, edges=False), 0.02)
    assert shares.limit.isfinite().all()
    assert ((shares.share > 0.7) & (shares.share < 0.8)).all()
    answers = [
        attend(shares.q[request], *request_kv(batch.table, request, "cpu")) for request in range(2)
    ]
    assert (shares.errors(torch.stack(answers)) < shares.limit / 2).all()


def test_short_contexts_and_small_heads_are_not_asked_for_shares() -> None:
    for name in ("distinct_p16_b2_l40_h4x2_d128", "distinct_p16_b2_l3000_h4x2_d16"):
        batch = made(name)
        shares = Shares.of(batch, Targets(batch, 1).own(1000, edges=False), 0.02)
        assert shares.limit.isinf().all()
