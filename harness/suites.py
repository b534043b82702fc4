"""Suites: tuples of cells, each with the question it asks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from pagebench.harness.cell import Cell
from pagebench.harness.errors import UserError


@dataclass(frozen=True, slots=True)
class Suite:
    """Cells that together answer `question`, and the boundary they are measured at."""

    name: str
    question: str
    cells: tuple[Cell, ...]
    boundary: str = "run"


def _cells(names: Iterable[str]) -> tuple[Cell, ...]:
    """Cells by name, each once, in first-named order."""
    return tuple(dict.fromkeys(Cell.parse(name) for name in names))


SMALL = "b4_l1024"
SMOKE_CELLS = (
    *(
        f"gather_distinct{where}_p{page}_{SMALL}"
        for page, where in product((1, 16, 64), ("", "_scatter"))
    ),
    f"gather_shared_p16_{SMALL}",
    f"gather_prefix50_p16_{SMALL}",
    f"gather_distinct_churned16_p16_{SMALL}",
    f"gather_distinct_p16_{SMALL}_r50",
    f"reference_distinct_p16_{SMALL}",
    f"reference_shared_scatter_p16_{SMALL}",
)

FOOTPRINTS = (1, 4, 16, 32, 128, 256)  # requests of 8,192 tokens: 0.03 to 8.59 GB of KV
PLACEMENTS = ("contiguous", "block128", "scatter")
REGIMES = ("shared{}_p{}", "distinct{}_p{}", "distinct{}_p{}_b32_l8192")
XQA_PAGES = (16, 32, 64, 128)
PLAN_SIZES = (  # requests x tokens: 64 to 2,097,152 indices
    *((1, 64), (4, 128), (8, 512), (8, 4096)),
    *((32, 8192), (128, 8192), (128, 16384)),
)
KERNEL_PAGES = (
    *("fidecode_{}_p1", "fidecode_{}_p16", "fidecode_{}_p64", "fitc_{}_p1", "fitc_{}_p64"),
    *("fifa3_{}_p1", "fifa3_{}_p64", "xqa_{}_p16", "xqa_{}_p64", "tritontoken_{}_p1"),
    *("tritonrow_{}_p16", "tritonrow_{}_p64", "tritontile_{}_p16", "tritontile_{}_p64"),
    *("gather_{}_p64", "reference_{}_p64"),
)
KERNEL_REGIMES = (("shared", ""), ("distinct", ""), ("distinct", "_b32_l8192"))
MODEL_HEADS = ("h32x8", "h64x8", "h8x1")
MODEL_SIZES = ("b1_l131072", "b16_l16384", "b128_l2048")
MODEL_KERNELS = (
    *("fidecode_distinct_p1", "fitc_distinct_p1"),
    *("xqa_distinct_p64", "tritontile_distinct_p64"),
)


def placement_cell(placement: str, batch: int) -> str:
    """Canonical name of a cell of the suite `placements`."""
    return Cell.parse(f"fidecode_distinct_{placement}_p1_b{batch}_l8192").name


SUITES = (
    Suite("smoke", "Does the whole path work here, on any device?", _cells(SMOKE_CELLS)),
    Suite(
        "placements",
        "Does it matter to a token-flat kernel where tokens lie?",
        _cells(
            placement_cell(placement, batch) for batch, placement in product(FOOTPRINTS, PLACEMENTS)
        ),
    ),
    Suite(
        "pages",
        "What does page size cost a kernel that reads the page table?",
        _cells(
            "xqa_" + regime.format(where, page)
            for regime in REGIMES
            for where, pages in (("", XQA_PAGES), ("_block128", (16, 64)), ("_scatter", (16, 64)))
            for page in pages
        ),
    ),
    Suite(
        "plan",
        "Does host planning grow with the number of indices?",
        _cells(f"fidecode_distinct_p1_b{batch}_l{tokens}" for batch, tokens in PLAN_SIZES),
        boundary="plan",
    ),
    Suite(
        "kernels",
        "How do all kernels compare on the same bytes?",
        _cells(
            kernel.format(sharing) + sizes
            for (sharing, sizes), kernel in product(KERNEL_REGIMES, KERNEL_PAGES)
        ),
    ),
    Suite(
        "models",
        "Do the answers hold for the head counts, lengths and types that models have?",
        _cells(
            "_".join((kernel, sizes, heads)) + dtype
            for heads, sizes, dtype, kernel in product(
                MODEL_HEADS, MODEL_SIZES, ("", "_e4m3"), MODEL_KERNELS
            )
        ),
    ),
)


def find_suite(name: str) -> Suite:
    """The suite of that name. UserError, with all names, for an unknown one."""
    for suite in SUITES:
        if suite.name == name:
            return suite
    raise UserError(f"no suite {name}; there are {', '.join(suite.name for suite in SUITES)}")
