"""Names: every cell has one, it reads back as the same cell, and a wrong one says what is wrong."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagebench.harness.cell import Cell, CellNameError, matches
from pagebench.harness.errors import UserError
from pagebench.harness.suites import SUITES, find_suite
from pagebench.kernels.registry import find_kernel, kernel_names
from pagebench.layouts.placement import Placement
from pagebench.layouts.shape import Shape
from pagebench.layouts.sharing import Sharing
from pagebench.layouts.work import predict

BOUNDED = settings(max_examples=100, deadline=None)

UNIT_KINDS = ("block", "grown", "churned", "churnedfifo", "churnedlifo")


@st.composite
def shapes(draw: st.DrawFn, kind: str) -> Shape:
    """Any sizes; for a prefix, those that hold a whole run of 128 tokens in whole pages."""
    prefix = kind == "prefix"
    kv_len = draw(st.integers(2000, 20_000) if prefix else st.integers(1, 2**24))
    page = draw(st.sampled_from([1, 2, 16, 64, 128]) if prefix else st.integers(1, 2**16))
    kv_heads = draw(st.integers(1, 64))
    tight = -(-kv_len // page) * page
    return Shape(
        batch=draw(st.integers(1, 200)),
        kv_len=kv_len,
        page_size=page,
        q_heads=kv_heads * draw(st.integers(1, 16)),
        kv_heads=kv_heads,
        head_dim=draw(st.integers(1, 1024)),
        dtype=draw(st.sampled_from(["bf16", "fp16", "e4m3"])),
        kv_layout=draw(st.sampled_from(["NHD", "HND"])),
        ragged_percent=draw(st.integers(0, 50 if prefix else 99)),
        seed=draw(st.integers(0, 2**63 - 1)),
        table_tokens=draw(
            st.none() if tight >= 2**24 else st.none() | st.integers(tight + 1, 2**24)
        ),
        planted_loads=draw(st.integers(0, 64)),
        planted_ns=draw(st.integers(0, 10**6)),
    )


@st.composite
def cells(draw: st.DrawFn) -> Cell:
    kind = draw(st.sampled_from(["distinct", "shared", "prefix"]))
    shape = draw(shapes(kind))
    units = st.integers(1, 100).map(lambda pages: pages * shape.page_size)
    return Cell(
        draw(st.sampled_from(kernel_names())),
        Sharing(kind, draw(st.integers(20, 99)) if kind == "prefix" else None),
        shape,
        draw(
            st.sampled_from([Placement(), Placement("scatter")])
            | st.builds(Placement, st.sampled_from(UNIT_KINDS), units)
        ),
    )


# --- Names read back ------------------------------------------------------------------------------


@BOUNDED
@given(cells())
def test_a_name_reads_back_as_its_cell(cell: Cell) -> None:
    assert Cell.parse(cell.name) == cell


@BOUNDED
@given(cells(), st.randoms())
def test_the_order_of_words_does_not_matter(cell: Cell, random: Random) -> None:
    words = cell.name.split("_")
    random.shuffle(words)
    assert Cell.parse("_".join(words)) == cell


@BOUNDED
@given(cells())
def test_names_are_of_lower_case_letters_digits_and_underscores(cell: Cell) -> None:
    assert set(cell.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")


@BOUNDED
@given(cells())
def test_axes_say_all_that_the_name_says(cell: Cell) -> None:
    axes = cell.axes()
    assert axes.kernel == cell.kernel
    assert axes.sharing in cell.name.split("_")
    assert (axes.batch, axes.kv_len) == (cell.shape.batch, cell.shape.kv_len)
    assert -(-axes.table_tokens // cell.shape.page_size) == cell.shape.table_width


def test_planted_work_is_an_axis_and_none_where_no_word_says_so() -> None:
    axes = Cell.parse("tritontile_distinct_p16_x8_y500").axes()
    assert (axes.planted_loads, axes.planted_ns) == (8, 500)
    none = Cell.parse("tritontile_distinct_p16").axes()
    assert (none.planted_loads, none.planted_ns) == (0, 0)


def test_a_cell_padded_to_no_more_than_tight_reads_back_too() -> None:
    padded = Cell("xqa", Sharing("shared"), Shape(32, 8192, 16, table_tokens=8192))
    assert Cell.parse(padded.name) == padded


@pytest.mark.parametrize(
    ("spelt_out", "name"),
    [
        ("xqa_shared_contiguous_p16_b32_l8192_r0_s0_h16x8_d128_bf16_nhd", "xqa_shared_p16"),
        ("xqa_distinct_p16_b8_l4096", "xqa_distinct_p16"),
        ("xqa_prefix50_p16_b8_l4096", "xqa_prefix50_p16"),
        ("xqa_distinct_p16_b32_l8192", "xqa_distinct_p16_b32_l8192"),
        ("xqa_shared_p16_w8192", "xqa_shared_p16"),
        ("xqa_shared_p16_l8190_w8192", "xqa_shared_p16_l8190"),
        ("xqa_shared_p016_b032", "xqa_shared_p16"),
        ("xqa_shared_p16_x0_y0", "xqa_shared_p16"),
        ("y500_x8_tritontile_hnd_shared_p16", "tritontile_shared_p16_hnd_x8_y500"),
        ("hnd_e4m3_p16_scatter_shared_xqa", "xqa_shared_scatter_p16_e4m3_hnd"),
        ("s7_r50_w9000_d64_h8x1_shared_block64_p16_gather",
         "gather_shared_block64_p16_r50_s7_w9000_h8x1_d64"),
    ],
)  # fmt: skip
def test_defaults_are_left_out_and_words_are_put_in_order(spelt_out: str, name: str) -> None:
    assert Cell.parse(spelt_out).name == name


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("xqa_shared_p16", (32, 8192)), ("xqa_distinct_p16", (8, 4096)),
     ("xqa_prefix9_p16", (8, 4096))],
)  # fmt: skip
def test_sizes_default_to_the_seed_studys(name: str, sizes: tuple[int, int]) -> None:
    shape = Cell.parse(name).shape
    assert (shape.batch, shape.kv_len) == sizes
    assert (shape.q_heads, shape.kv_heads, shape.head_dim) == (16, 8, 128)
    assert (shape.dtype, shape.kv_layout, shape.seed, shape.ragged_percent) == ("bf16", "NHD", 0, 0)


# --- Wrong names ----------------------------------------------------------------------------------

WRONG = (
    # Unknown words, with the nearest known one.
    ("xqq_shared_p16", "unknown word xqq", "did you mean xqa?"),
    ("xqa_share_p16", "unknown word share", "did you mean shared?"),
    ("xqa_shared_scater_p16", "unknown word scater", "did you mean scatter?"),
    ("xqa_shared_p16_bf61", "unknown word bf61", "did you mean bf16?"),
    ("xqa_shared_block_p16", "unknown word block", "did you mean block128?"),
    ("xqa_shared_p16_h16", "unknown word h16", "did you mean h16x8?"),
    ("xqa_shared_p16_zzzzz", "unknown word zzzzz", "examples of words are distinct, shared"),
    ("xqa_distinct_contiguous16_p16", "unknown word contiguous16", "did you mean contiguous?"),
    # A leading word that is near none is a kernel that is not here.
    ("mykernel_distinct_p16", "no kernel mykernel here", "--kernel FILE.py, or install its"),
    ("flashmla_distinct_p64", "no kernel flashmla here", "there are reference, gather"),
    ("myxqa_distinct_p16", "did you mean xqa?", "of your own needs --kernel FILE.py"),
    ("shraed_xqa_p16", "unknown word shraed", "did you mean shared?"),
    ("xqa_shared_mykernel_p16", "unknown word mykernel", "did you mean"),
    # An axis missing or given twice.
    ("shared_p16", "missing kernel", "such as xqa"),
    ("xqa_p16", "missing sharing", "such as shared"),
    ("xqa_shared", "missing page size", "such as p16"),
    ("xqa_shared_p16_p32", "p32 gives page size", "second time"),
    ("xqa_shared_distinct_p16", "distinct gives sharing", "second time"),
    ("gather_xqa_shared_p16", "xqa gives kernel", "second time"),
    ("xqa_shared_scatter_block16_p16", "block16 gives placement", "second time"),
    # Sizes that cannot be.
    ("xqa_shared_p0", "page_size is 0", "use 1 to 65536"),
    ("xqa_shared_p16_b0", "batch is 0", "use 1 to 65536"),
    ("xqa_shared_p16_b65537", "batch is 65537", "use 1 to 65536"),
    ("xqa_shared_p16_l0", "kv_len is 0", "use 1 to 16777216"),
    ("xqa_shared_p16_d1025", "head_dim is 1025", "use 1 to 1024"),
    ("xqa_shared_p16_h0x0", "q_heads is 0", "use 1 to 1024"),
    ("xqa_shared_p16_h16x3", "16 query heads", "3 KV heads"),
    ("tritontile_shared_p16_x65", "planted_loads is 65", "use 0 to 64"),
    ("tritontile_shared_p16_y1000001", "planted_ns is 1000001", "use 0 to 1000000"),
    ("tritontile_shared_p16_x8_x9", "x9 gives planted loads", "second time"),
    ("tritontile_shared_p16_x", "unknown word x", "did you mean x8?"),
    ("xqa_shared_p16_r100", "ragged percent 100", "use 0 to 99"),
    # Placements and tables that do not fit.
    ("xqa_shared_block24_p16", "block24", "multiple of the page size 16"),
    ("xqa_shared_churned8_p16", "churned8", "multiple of the page size 16"),
    ("xqa_shared_block0_p16", "block0", "give the allocation unit in tokens"),
    ("xqa_shared_churned0_p16", "churned0", "give the allocation unit in tokens"),
    ("xqa_distinct_p16_w4095", "a table of 4095 tokens is narrower", "use w4096 or more"),
    # Prefixes.
    ("xqa_prefix1_p16", "prefix1 of 4096 tokens is less than one run of 128", "a larger share"),
    ("xqa_prefix50_p96", "a prefix of 2048 tokens", "a page size that divides 128"),
    ("xqa_prefix50_p16_l100", "prefix50 of 100 tokens", "a longer context"),
    ("xqa_prefix0_p16", "prefix0", "prefix1 to prefix99"),
    ("xqa_prefix100_p16", "prefix100", "prefix1 to prefix99"),
)


@pytest.mark.parametrize(("name", "wrong", "right"), WRONG, ids=[case[0] for case in WRONG])
def test_an_error_names_the_cell_the_word_and_what_would_be_right(
    name: str, wrong: str, right: str
) -> None:
    with pytest.raises(CellNameError) as caught:
        Cell.parse(name)
    assert str(caught.value).startswith(f"{name}: ")
    assert wrong in str(caught.value)
    assert right in str(caught.value)


@pytest.mark.parametrize(
    ("name", "word"),
    [("XQA_shared_p16", "XQA"), ("xqa_shared_P16", "P16"), ("xqa_shared_p16 ", "p16 "),
     (" xqa_shared_p16", " xqa"), ("xqa_shared_p16\n", "p16\n"), ("", "(empty)"),
     ("xqa__shared_p16", "(empty)"), ("xqa_shared_p16_", "(empty)"), ("xqa_shared_p-1", "p-1"),
     ("xqa_shared_p１６", "p１６"), ("xqa-shared-p16", "xqa-shared-p16"),
     ("xqa_shared_p16_b" + "9" * 5000, "b" + "9" * 5000)],
    ids=["upper", "Upper size", "space", "lead", "newline", "empty", "twice", "last", "minus",
         "full-width digits", "dashes", "5000 digits"],
)  # fmt: skip
def test_nothing_but_the_words_is_read(name: str, word: str) -> None:
    with pytest.raises(CellNameError) as caught:
        Cell.parse(name)
    assert f"unknown word {word[:60]}" in str(caught.value)


FRAGMENTS = st.sampled_from(
    ["xqa", "shared", "p16", "prefix9", "l4096", "h1x1", "b", "0", "w9", "r", "s٣", "X", "b1b"]
)


@BOUNDED
@given(st.lists(FRAGMENTS | st.text(max_size=9), max_size=8))
def test_any_text_is_a_cell_or_a_name_error(words: list[str]) -> None:
    name = "_".join(words)
    try:
        cell = Cell.parse(name)
    except CellNameError:
        return
    assert Cell.parse(cell.name) == cell


# --- Filters --------------------------------------------------------------------------------------


@BOUNDED
@given(cells())
def test_a_cell_has_every_word_of_its_name(cell: Cell) -> None:
    assert matches(cell, frozenset(cell.name.split("_")))


@pytest.mark.parametrize(
    "words",
    ["", "xqa", "shared p16", "contiguous", "b32", "l8192", "h16x8", "d128", "bf16", "nhd", "r0",
     "s0", "w8192", "x0", "y0", "p16 xqa b32 contiguous"],
)  # fmt: skip
def test_defaults_count_as_words_of_a_filter(words: str) -> None:
    assert matches(Cell.parse("xqa_shared_p16"), frozenset(words.split()))


@pytest.mark.parametrize(
    "words", ["p1", "distinct", "xqa p64", "scatter", "b3", "e4m3", "hnd", "s1"]
)
def test_a_filter_word_that_the_cell_lacks_leaves_it_out(words: str) -> None:
    assert not matches(Cell.parse("xqa_shared_p16"), frozenset(words.split()))


def test_a_filter_chooses_the_cells_that_have_all_of_its_words() -> None:
    chosen = [cell.name for cell in find_suite("pages").cells
              if matches(cell, frozenset(("shared", "contiguous", "p16")))]  # fmt: skip
    assert chosen == ["xqa_shared_p16"]


# --- Suites ---------------------------------------------------------------------------------------

ALL = [pytest.param(suite.cells, id=suite.name) for suite in SUITES]


@pytest.mark.parametrize("suite", ALL)
def test_every_cell_of_a_suite_reads_back_and_is_there_once(suite: tuple[Cell, ...]) -> None:
    names = [cell.name for cell in suite]
    assert [Cell.parse(name) for name in names] == list(suite)
    assert max(Counter(names).values()) == 1


def test_each_suite_asks_a_question_of_its_own() -> None:
    assert all(suite.question.endswith("?") for suite in SUITES)
    assert len({suite.question for suite in SUITES}) == len(SUITES)
    assert {suite.name for suite in SUITES} >= {"smoke", "placements", "pages", "plan", "kernels"}


def test_a_suite_that_does_not_exist_names_those_that_do() -> None:
    assert find_suite("plan").boundary == "plan"
    with pytest.raises(UserError, match="no suite page; there are smoke, placements, pages"):
        find_suite("page")


def test_placements_span_footprints_in_each_placement() -> None:
    cells = find_suite("placements").cells
    sizes = [predict(cell.shape, cell.streams, "token_indices").distinct_kv_bytes for cell in cells]
    assert (min(sizes), max(sizes)) == (33_554_432, 8_589_934_592)  # 0.03 to 8.59 GB
    places = Counter((size, cell.placement.word) for size, cell in zip(sizes, cells, strict=True))
    assert len(places) == len(cells) == 6 * 3


def test_plan_spans_64_to_2_097_152_indices() -> None:
    sizes = [predict(cell.shape, cell.streams, find_kernel(cell.kernel).lowering(cell.shape))
             for cell in find_suite("plan").cells]  # fmt: skip
    entries = [work.index_entries for work in sizes]
    assert (entries[0], entries[-1]) == (64, 2_097_152)
    assert entries == sorted(set(entries))


def test_pages_has_every_page_size_of_xqa_in_order_and_two_shuffled() -> None:
    cells = [cell for cell in find_suite("pages").cells if cell.sharing.kind == "shared"]
    found = [(cell.placement.word, cell.shape.page_size) for cell in cells]
    assert found[:4] == [("contiguous", page) for page in (16, 32, 64, 128)]
    assert found[4:] == [(where, page) for where in ("block128", "scatter") for page in (16, 64)]


def test_pages_has_the_positive_control_and_two_regimes_of_distinct_tokens() -> None:
    cells = find_suite("pages").cells
    assert Cell.parse("xqa_shared_p16") in cells
    regimes = Counter((cell.sharing.word, cell.shape.batch, cell.shape.kv_len) for cell in cells)
    assert regimes == {("shared", 32, 8192): 8, ("distinct", 8, 4096): 8, ("distinct", 32, 8192): 8}


def test_kernels_has_every_kernel_in_every_regime() -> None:
    found = Counter(cell.kernel for cell in find_suite("kernels").cells)
    assert set(found) >= {"fidecode", "fitc", "fifa3", "xqa", "tritontoken", "tritonrow"}
    assert all(count % 3 == 0 for count in found.values())
    assert {cell.sharing.kind for cell in find_suite("kernels").cells} == {"shared", "distinct"}


def test_smoke_needs_no_gpu() -> None:
    assert {cell.kernel for cell in find_suite("smoke").cells} == {"gather", "reference"}
