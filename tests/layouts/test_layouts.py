"""Layouts: what a table promises, whatever the shape, the sharing and the placement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from pagebench.layouts import table as tables
from pagebench.layouts.counter_hash import hash_numpy, hash_torch, permutation
from pagebench.layouts.lowering import KINDS, lower
from pagebench.layouts.placement import Placed, Placement, place, pool_pages
from pagebench.layouts.shape import Shape
from pagebench.layouts.sharing import Sharing, share
from pagebench.layouts.table import LayoutError, PageTable, check, page_table
from pagebench.layouts.tensors import Batch, materialise, queries, request_kv

BOUNDED = settings(max_examples=60, deadline=None)

DISTINCT, SHARED = Sharing("distinct"), Sharing("shared")
CONTIGUOUS, SCATTER = Placement(), Placement("scatter")
UNIT_KINDS = ("block", "grown", "churned", "churnedfifo", "churnedlifo")
KIND_LAYOUTS = [(kind, "NHD") for kind in KINDS] + [("csr_pages", "HND"), ("page_table", "HND")]


@dataclass(frozen=True)
class Case:
    shape: Shape
    sharing: Sharing
    placement: Placement

    @property
    def table(self) -> PageTable:
        return page_table(self.shape, share(self.sharing, self.shape), self.placement, "cpu")


def placements(page_size: int) -> st.SearchStrategy[Placement]:
    units = st.sampled_from([page_size * pages for pages in (1, 2, 3, 5)])
    fixed = st.sampled_from([CONTIGUOUS, SCATTER])
    return fixed | st.builds(Placement, st.sampled_from(UNIT_KINDS), units)


@st.composite
def sharings(draw: st.DrawFn) -> tuple[Sharing, int, int, int]:
    """Whose tokens, with a context, a page size and a raggedness that it can have."""
    kind = draw(st.sampled_from(["distinct", "shared", "prefix"]))
    if kind == "prefix":  # at least one run of 128 tokens, and pages that divide it
        percent, kv_len = draw(st.integers(50, 99)), draw(st.integers(200, 300))
        page = draw(st.sampled_from([1, 2, 16, 64, 128]))
        return Sharing(kind, percent), kv_len, page, draw(st.integers(0, 35))
    page = draw(st.sampled_from([1, 2, 3, 7, 16, 64, 128]))
    return Sharing(kind), draw(st.integers(1, 300)), page, draw(st.integers(0, 99))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    sharing, kv_len, page, ragged = draw(sharings())
    shape = Shape(
        batch=draw(st.integers(1, 5)),
        kv_len=kv_len,
        page_size=page,
        q_heads=4,
        kv_heads=2,
        head_dim=draw(st.sampled_from([3, 8])),
        dtype=draw(st.sampled_from(["bf16", "fp16", "e4m3"])),
        ragged_percent=ragged,
        seed=draw(st.integers(0, 2**63 - 1)),
        table_tokens=draw(st.none() | st.integers(kv_len, kv_len + 200)),
    )
    return Case(shape, sharing, draw(placements(page)))


def bits(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8 if tensor.element_size() == 1 else torch.int16)


def read(batch: Batch, pool: Tensor, request: int) -> Tensor:  # bits [length, kv_heads, head_dim]
    """What a kernel reads that has only the index tensors to go by."""
    lowered, page = batch.lowered, batch.lowered.page_size
    if lowered.table is not None:
        length = int(lowered.lengths[request])
        entries = lowered.table[request, : -(-length // page)]
    else:
        assert lowered.indptr is not None
        assert lowered.indices is not None
        assert lowered.last_page_len is not None
        entries = lowered.indices[slice(*lowered.indptr[request : request + 2].tolist())]
        length = (len(entries) - 1) * page + int(lowered.last_page_len[request])
    paged = pool.unsqueeze(1) if lowered.kind == "token_indices" else pool
    by_token = paged.transpose(1, 2) if batch.shape.kv_layout == "HND" else paged
    return bits(by_token)[entries.long()].flatten(0, 1)[:length]


def distinct_tokens(case: Case) -> int:
    """Counted by hand: the common tokens once, the others once a request."""
    lengths = case.shape.lengths()
    if case.sharing.kind == "shared":
        return int(lengths.max())
    common = share(case.sharing, case.shape).shared_tokens
    return common + int((lengths - common).sum())


# --- What every table promises -------------------------------------------------------------------


@BOUNDED
@given(cases())
def test_check_passes_and_counts_what_is_stored(case: Case) -> None:
    table = case.table
    found = check(table)
    assert found["distinct_tokens"] == distinct_tokens(case)
    assert found["unused_entries"] == table.pages.numel() - int(table.request_pages.sum())
    assert found["pool_pages"] >= found["distinct_pages"] + 1


@BOUNDED
@given(cases(), st.sampled_from(KIND_LAYOUTS))
def test_every_lowering_reads_the_requests_own_tokens(case: Case, kind: tuple[str, str]) -> None:
    table = replace(case, shape=replace(case.shape, kv_layout=kind[1])).table
    batch = materialise(table, kind[0])
    for request in range(case.shape.batch):
        for pool, wanted in zip((batch.k, batch.v), request_kv(table, request, "cpu"), strict=True):
            assert pool is not None
            assert torch.equal(read(batch, pool, request), bits(wanted))


@BOUNDED
@given(cases())
def test_exactly_the_slots_that_no_token_owns_are_nan(case: Case) -> None:
    batch = materialise(case.table, "token_indices")
    dead = torch.ones(batch.table.pool_pages * case.shape.page_size, dtype=torch.bool)
    assert batch.lowered.indices is not None
    dead[batch.lowered.indices.long()] = False
    assert int(dead.sum()) == len(dead) - distinct_tokens(case)
    for pool in (batch.k, batch.v):
        assert pool is not None
        assert torch.equal(pool.float().isnan(), dead[:, None, None].expand_as(pool))


@BOUNDED
@given(cases())
def test_a_paged_pool_holds_as_many_nan_as_dead_slots(case: Case) -> None:
    hnd = replace(case, shape=replace(case.shape, kv_layout="HND"))
    batch = materialise(hnd.table, "csr_pages")
    assert batch.k is not None
    slots = batch.table.pool_pages * case.shape.page_size
    dead = slots - distinct_tokens(case)
    assert int(batch.k.float().isnan().sum()) == dead * 2 * case.shape.head_dim


@BOUNDED
@given(cases())
def test_unused_entries_point_at_the_last_page_which_is_all_nan(case: Case) -> None:
    batch = materialise(case.table, "page_table")
    assert batch.k is not None
    poison = len(batch.k) - 1
    used = np.arange(case.shape.table_width) < batch.table.request_pages[:, None]
    assert ((batch.table.pages == poison).numpy() == ~used).all()
    assert bool(batch.k[poison].float().isnan().all())


@BOUNDED
@given(cases())
def test_pages_stored_do_not_depend_on_placement(case: Case) -> None:
    ideal = check(replace(case, placement=CONTIGUOUS).table)
    found = check(case.table)
    assert found["distinct_pages"] == ideal["distinct_pages"]
    assert ideal["pool_pages"] == ideal["distinct_pages"] + 1


@BOUNDED
@given(cases())
def test_pool_pages_predicts_what_place_gives(case: Case) -> None:
    streams = share(case.sharing, case.shape)
    placed = place(case.placement, streams, case.shape.seed, "cpu")
    assert pool_pages(case.placement, streams) == placed.pool_pages


@BOUNDED
@given(cases())
def test_the_same_case_gives_the_same_table(case: Case) -> None:
    assert torch.equal(case.table.pages, case.table.pages)


@BOUNDED
@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_another_seed_gives_another_scatter(seed: int, other: int) -> None:
    assume(seed % 2**64 != other % 2**64)
    one, two = (Case(Shape(2, 64, 1, seed=s), DISTINCT, SCATTER).table for s in (seed, other))
    assert not torch.equal(one.pages, two.pages)


@BOUNDED
@given(cases(), st.sampled_from(KINDS))
def test_entries_are_those_of_live_tokens(case: Case, kind: str) -> None:
    lowered = lower(case.table, kind)
    lengths = case.shape.lengths()
    per_entry = 1 if kind == "token_indices" else case.shape.page_size
    assert lowered.entries == int((-(-lengths // per_entry)).sum())
    assert lowered.indices is None or len(lowered.indices) == lowered.entries


@BOUNDED
@given(cases())
def test_the_dense_table_is_int32_with_rows_at_its_width(case: Case) -> None:
    table = lower(case.table, "page_table").table
    assert table is not None
    width = -(-(case.shape.table_tokens or case.shape.kv_len) // case.shape.page_size)
    assert (table.dtype, table.shape) == (torch.int32, (case.shape.batch, width))
    assert table.stride() == (width, 1)


# --- Shorter contexts -----------------------------------------------------------------------------


@BOUNDED
@given(cases(), st.integers(1, 99))
def test_shortened_poisons_what_it_cuts_and_nothing_else(case: Case, percent: int) -> None:
    table = case.table
    lengths = -(-table.lengths * percent // 100)
    short = table.shortened(lengths)
    kept = np.arange(case.shape.table_width) < (-(-lengths // case.shape.page_size))[:, None]
    wanted = np.where(kept, table.pages.numpy(), table.poison_page)
    assert (short.pages.numpy() == wanted).all()
    assert check(short)["unused_entries"] == int((~kept).sum())


@BOUNDED
@given(cases(), st.sampled_from(KINDS))
def test_with_lengths_reads_the_first_tokens_of_each_request(case: Case, kind: str) -> None:
    batch = materialise(case.table, kind)
    lengths = np.maximum(batch.table.lengths // 2, 1)
    short = batch.with_lengths(lengths)
    assert short.k is not None
    for request, length in enumerate(lengths):
        k, _ = request_kv(batch.table, request, "cpu")
        assert torch.equal(read(short, short.k, request), bits(k[:length]))


def test_a_table_cannot_be_lengthened() -> None:
    table = Case(Shape(2, 32, 16), DISTINCT, CONTIGUOUS).table
    with pytest.raises(ValueError, match="shortened"):
        table.shortened(np.array([32, 33]))


# --- Placements -----------------------------------------------------------------------------------


def pages_of(placement: Placement, shape: Shape) -> list[list[int]]:
    rows: list[list[int]] = Case(shape, DISTINCT, placement).table.pages.tolist()
    return rows


def test_contiguous_lays_requests_end_to_end() -> None:
    assert pages_of(CONTIGUOUS, Shape(3, 64, 16)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_scatter_uses_every_page_once_in_another_order() -> None:
    pages = np.array(pages_of(SCATTER, Shape(4, 64, 1))).reshape(-1).tolist()
    assert pages != sorted(pages)
    assert sorted(pages) == list(range(256))


@pytest.mark.parametrize("unit", [1, 2, 4])
def test_grown_interleaves_requests_unit_by_unit(unit: int) -> None:
    pages = pages_of(Placement("grown", 16 * unit), Shape(4, 128, 16))
    order = [(column // unit * 4 + row) * unit + column % unit
             for row in range(4) for column in range(8)]  # fmt: skip
    assert np.array(pages).reshape(-1).tolist() == order


def test_grown_goes_on_without_the_requests_that_have_ended() -> None:
    shape = Shape(2, 4, 1, ragged_percent=50, seed=7)
    assert shape.lengths().tolist() == [4, 2]
    assert pages_of(Placement("grown", 1), shape) == [[0, 2, 4, 5], [1, 3, 6, 6]]  # 6 is poison


@BOUNDED
@given(st.integers(2, 8), st.sampled_from([1, 4, 16]))
def test_block_keeps_runs_of_its_unit_in_shuffled_order(unit: int, page: int) -> None:
    shape = Shape(5, 80 * page, page)
    pages = np.array(pages_of(Placement("block", unit * page), shape)).reshape(-1)
    starts = pages[::unit]
    assert (pages == (starts[:, None] + np.arange(unit)).reshape(-1)[: len(pages)]).all()
    assert (starts % unit == 0).all()
    assert starts.tolist() != sorted(starts)


@pytest.mark.parametrize(("unit", "forced"), [(1, "churnedfifo"), (16, "churnedlifo")])
def test_churned_reuses_as_the_engine_does_at_that_unit(unit: int, forced: str) -> None:
    shape = Shape(4, 256, unit)
    plain = pages_of(Placement("churned", unit), shape)
    orders = {kind: pages_of(Placement(kind, unit), shape) for kind in UNIT_KINDS[-2:]}
    assert [kind for kind, pages in orders.items() if pages == plain] == [forced]


def test_first_in_first_out_walks_the_whole_pool_and_last_in_first_out_stays_at_its_head() -> None:
    shape = Shape(4, 256, 4)
    live, capacity = 4 * 64, 4 * 64 * 3 // 2
    fifo = np.array(pages_of(Placement("churnedfifo", 4), shape))
    lifo = np.array(pages_of(Placement("churnedlifo", 4), shape))
    assert lifo.max() == live - 1
    assert live < fifo.max() < capacity


@BOUNDED
@given(st.sampled_from(["churned", "churnedfifo", "churnedlifo"]), st.integers(0, 2**32))
def test_churn_moves_requests_but_never_the_shared_stream(kind: str, seed: int) -> None:
    shape = Shape(4, 384, 16, seed=seed)
    streams = share(Sharing("prefix", 34), shape)
    pages = page_table(shape, streams, Placement(kind, 16), "cpu").pages
    assert (pages[:, :8] == torch.arange(8)).all()  # 128 tokens, allocated first
    assert pages[:, 8:].min() >= 8
    assert not torch.equal(pages[:, 8:], pages[:, 8:].sort(dim=1).values)


@pytest.mark.parametrize("unit", [1, 8, 17, 24])
def test_a_unit_that_is_no_whole_number_of_pages_is_refused(unit: int) -> None:
    with pytest.raises(ValueError, match=rf"block{unit}: .* multiple of the page size 16"):
        Placement("block", unit).unit_pages(16)


# --- Broken tables --------------------------------------------------------------------------------


def churned_table() -> PageTable:
    """Six pages of 16 tokens in two rows of four entries, in a pool with pages to spare."""
    shape = Shape(2, 48, 16, table_tokens=64)
    return Case(shape, DISTINCT, Placement("churned", 16)).table


def with_entries(entries: dict[tuple[int, int], int]) -> PageTable:
    table = churned_table()
    pages = table.pages.clone()
    for where, page in entries.items():
        pages[where] = page
    return replace(table, pages=pages)


def test_check_refuses_an_aliased_page() -> None:
    table = churned_table()
    aliased = table.placed.pages.clone()
    aliased[4] = aliased[1]
    with pytest.raises(LayoutError, match="two stored pages"):
        check(replace(table, placed=Placed(aliased, table.placed.pool_pages)))


def test_check_refuses_swapped_entries() -> None:
    pages = churned_table().pages
    swapped = with_entries({(0, 0): int(pages[0, 1]), (0, 1): int(pages[0, 0])})
    with pytest.raises(LayoutError, match="other tokens"):
        check(swapped)


def test_check_refuses_entries_swapped_between_requests() -> None:
    pages = churned_table().pages
    swapped = with_entries({(0, 2): int(pages[1, 2]), (1, 2): int(pages[0, 2])})
    with pytest.raises(LayoutError, match="other tokens"):
        check(swapped)


def test_check_does_not_trust_what_the_table_was_built_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built = tables.stored_pages
    monkeypatch.setattr(tables, "stored_pages", lambda *of: built(*of).roll(1, 0))
    with pytest.raises(LayoutError, match="other tokens"):
        check(churned_table())  # every request reads its neighbour's pages


def test_check_refuses_an_unused_entry_that_points_at_a_free_page() -> None:
    table = churned_table()
    free = set(range(table.placed.pool_pages)) - set(table.placed.pages.tolist())
    with pytest.raises(LayoutError, match="poison"):
        check(with_entries({(1, 3): min(free)}))


def test_check_refuses_an_unused_entry_that_points_at_a_stored_page() -> None:
    stored = int(churned_table().pages[0, 0])
    with pytest.raises(LayoutError, match="other tokens"):
        check(with_entries({(1, 3): stored}))


def test_check_refuses_a_stored_page_on_the_poisoned_one() -> None:
    table = churned_table()
    outside = table.placed.pages.clone()
    outside[0] = table.poison_page
    with pytest.raises(LayoutError, match="outside"):
        check(replace(table, placed=Placed(outside, table.placed.pool_pages)))


def test_check_refuses_an_entry_beyond_the_pool() -> None:
    with pytest.raises(LayoutError):
        check(with_entries({(0, 0): churned_table().pool_pages}))


def test_check_refuses_a_negative_entry_that_wraps_to_the_right_page() -> None:
    table = churned_table()
    with pytest.raises(LayoutError):
        check(with_entries({(0, 0): int(table.pages[0, 0]) - table.pool_pages}))


# --- Random numbers -------------------------------------------------------------------------------


@BOUNDED
@given(
    st.integers(0, 2**70),
    st.integers(0, 10),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50),
)
def test_numpy_and_torch_hashes_agree_bit_for_bit(
    seed: int, stream: int, counts: list[int]
) -> None:
    counters = np.array(counts, dtype=np.int64)
    ours = hash_torch(seed, stream, torch.from_numpy(counters)).numpy()
    assert (ours.view(np.uint64) == hash_numpy(seed, stream, counters)).all()


def test_the_hash_is_splitmix64() -> None:
    """Its published first outputs for the state 0."""
    first = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert hash_numpy(0, 0, np.arange(4)).tolist() == first


@BOUNDED
@given(st.integers(0, 2**63 - 1), st.integers(0, 10), st.integers(0, 2000))
def test_a_permutation_holds_each_number_once(seed: int, stream: int, count: int) -> None:
    assert permutation(seed, stream, count, "cpu").sort().values.tolist() == list(range(count))


def test_streams_of_one_seed_are_different_numbers() -> None:
    draws = [tuple(hash_numpy(7, stream, np.arange(8)).tolist()) for stream in range(1, 8)]
    assert len({draw[0] for draw in draws}) == len(set(draws)) == 7


# --- The same on every machine: these numbers must never change -----------------------------------


def test_a_scatter_table_is_this_one() -> None:
    pages = pages_of(SCATTER, Shape(2, 100, 1))
    assert pages[0][:8] == [160, 185, 90, 187, 82, 2, 1, 25]


def test_a_churned_token_table_is_this_one() -> None:
    pages = pages_of(Placement("churned", 1), Shape(3, 64, 1))
    assert pages[0][:10] == [26, 29, 32, 35, 38, 41, 44, 47, 272, 273]


def test_a_churned_page_table_is_this_one() -> None:
    pages = pages_of(Placement("churned", 16), Shape(3, 512, 16))
    assert pages[0][:8] == [21, 24, 27, 45, 48, 51, 54, 55]


def test_ragged_lengths_are_these() -> None:
    shape = Shape(5, 300, 16, ragged_percent=60)
    assert shape.lengths().tolist() == [300, 215, 127, 143, 123]
    assert replace(shape, seed=3).lengths().tolist() == [300, 266, 203, 135, 156]


def test_the_first_values_are_these() -> None:
    table = Case(Shape(1, 2, 1, kv_heads=1, head_dim=4, dtype="fp16"), DISTINCT, CONTIGUOUS).table
    k, v = request_kv(table, 0, "cpu")
    assert bits(k[0, 0]).tolist() == [11262, -17954, -17278, -16870]
    assert bits(v[0, 0]).tolist() == [10210, -16764, 14732, -17958]


# --- Shapes, sharings and values ------------------------------------------------------------------


@BOUNDED
@given(st.integers(1, 2000), st.integers(0, 99), st.integers(0, 2**63 - 1))
def test_lengths_lie_in_the_spread_and_the_first_is_longest(
    kv: int, ragged: int, seed: int
) -> None:
    lengths = Shape(50, kv, 1, ragged_percent=ragged, seed=seed).lengths()
    assert lengths[0] == lengths.max() == kv
    assert lengths.min() >= max(1, kv * (100 - ragged) / 100)
    assert ragged or (lengths == kv).all()


def test_lengths_reach_both_ends_evenly() -> None:
    lengths = Shape(20_000, 100, 1, ragged_percent=50).lengths()
    assert (lengths.min(), lengths.max()) == (50, 100)
    assert abs(lengths.mean() - 75) < 0.5


@pytest.mark.parametrize(
    ("percent", "kv_len", "common"),
    [(50, 4096, 2048), (1, 12800, 128), (98, 4096, 3968), (99, 200, 128), (37, 1000, 384)],
)
def test_a_prefix_is_rounded_to_whole_runs_of_128(percent: int, kv_len: int, common: int) -> None:
    streams = share(Sharing("prefix", percent), Shape(3, kv_len, 16))
    assert streams.tokens.tolist() == [common, *[kv_len - common] * 3]


def test_a_prefix_is_of_the_shortest_request() -> None:
    shape = Shape(8, 1000, 16, ragged_percent=60)
    shortest = int(shape.lengths().min())
    assert shortest < 512
    assert share(Sharing("prefix", 99), shape).shared_tokens == shortest // 128 * 128


def test_shared_requests_read_one_stream() -> None:
    streams = share(SHARED, Shape(4, 100, 16, ragged_percent=50))
    assert streams.tokens.tolist() == [100, 0, 0, 0, 0]
    assert (streams.stored_pages, streams.shared_pages) == (7, 7)


@pytest.mark.parametrize("percent", [None, 0, 100])
def test_a_prefix_of_nothing_or_all_is_refused(percent: int | None) -> None:
    with pytest.raises(ValueError, match="prefix1 to prefix99"):
        Sharing("prefix", percent)


def test_values_do_not_depend_on_page_size_or_placement() -> None:
    one = Case(Shape(2, 50, 1, 4, 2, 8), DISTINCT, SCATTER).table
    other = Case(Shape(2, 50, 16, 4, 2, 8), DISTINCT, Placement("churned", 32)).table
    for first, second in zip(request_kv(one, 1, "cpu"), request_kv(other, 1, "cpu"), strict=True):
        assert torch.equal(first, second)


def test_values_have_mean_0_and_variance_1_and_k_is_not_v() -> None:
    table = Case(Shape(1, 300, 16, dtype="fp16"), DISTINCT, CONTIGUOUS).table
    k, v = (values.float() for values in request_kv(table, 0, "cpu"))
    for values in (k, v):
        assert abs(float(values.mean())) < 0.01
        assert abs(float(values.var()) - 1) < 0.01
    assert abs(float((k * v).mean())) < 0.01


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [("bf16", torch.bfloat16), ("fp16", torch.float16), ("e4m3", torch.bfloat16)],
)
def test_queries_keep_16_bits_with_e4m3(dtype: str, wanted: torch.dtype) -> None:
    q = queries(Shape(2, 16, 16, dtype=dtype), "cpu")
    assert (q.dtype, q.shape) == (wanted, (2, 16, 128))


POOL_SHAPES: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("token_indices", "NHD", (112, 2, 8)),
    ("csr_pages", "NHD", (7, 16, 2, 8)),
    ("page_table", "HND", (7, 2, 16, 8)),
)


@pytest.mark.parametrize(("kind", "layout", "wanted"), POOL_SHAPES)
def test_a_pool_has_the_dimensions_of_its_layout(
    kind: str, layout: str, wanted: tuple[int, ...]
) -> None:
    shape = Shape(2, 40, 16, 4, 2, 8, dtype="e4m3", kv_layout=layout)
    batch = materialise(Case(shape, DISTINCT, CONTIGUOUS).table, kind)
    for pool in (batch.k, batch.v):
        assert pool is not None
        assert (tuple(pool.shape), pool.dtype) == (wanted, torch.float8_e4m3fn)
        assert pool.is_contiguous()


def test_planning_alone_takes_no_pool() -> None:
    batch = materialise(churned_table(), "csr_pages", with_kv=False)
    assert (batch.q, batch.k, batch.v) == (None, None, None)
    assert batch.lowered.entries == 6


REFUSED: tuple[tuple[str, Callable[[], object]], ...] = (
    ("no lowering pages; there are token_indices", lambda: lower(churned_table(), "pages")),
    ("no HND layout", lambda: materialise(
        Case(Shape(1, 4, 1, kv_layout="HND"), DISTINCT, CONTIGUOUS).table, "token_indices")),
)  # fmt: skip


@pytest.mark.parametrize(("message", "build"), REFUSED)
def test_what_cannot_be_built_is_refused(message: str, build: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=message):
        build()
