"""Contrasts: two cells, the knob between them, and the verdict predicted before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from pagebench.harness.cell import Cell
from pagebench.layouts.work import predict


@dataclass(frozen=True, slots=True)
class Contrast:
    """`one` and `other` differ in `knob` alone; `predicts` is the word expected, and why."""

    name: str
    knob: str
    one: str
    other: str
    predicts: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Ladder:
    """All values of a knob, in order, in one regime."""

    name: str
    knob: str
    cells: tuple[str, ...]


WALL = "_b32_l8192"
CONTRASTS = (
    Contrast("negative", "allocation unit", "fidecode_distinct_churned1_p1",
             "fidecode_distinct_churned128_p1", "absent",
             "a token-flat engine's page size changes which slots it hands out, not how many"),
    Contrast("scatter", "placement", f"fidecode_distinct_p1{WALL}",
             f"fidecode_distinct_scatter_p1{WALL}", "absent",
             "each token's KV is one burst wherever it lies"),
    Contrast("block128", "placement", f"fidecode_distinct_p1{WALL}",
             f"fidecode_distinct_block128_p1{WALL}", "absent",
             "runs of 128 tokens leave even less to change"),
    Contrast("positive", "page size", "xqa_shared_p64", "xqa_shared_p16", "exposed",
             "smaller pages are more index loads, and reuse in L2 leaves room for them to show"),
    Contrast("vanishing", "page size", f"xqa_distinct_p64{WALL}", f"xqa_distinct_p16{WALL}",
             "hidden", "the same loads behind a wall of DRAM traffic"),
    Contrast("saturation", "page size", "xqa_shared_p64", "xqa_shared_p128", "absent",
             "a warp's tile is 64 tokens: no page beyond it saves a load on sm_90"),
    Contrast("tile", "page size", f"tritontile_distinct_p64{WALL}",
             f"tritontile_distinct_p16{WALL}", "hidden",
             "one load a page: four times the index loads, behind the same DRAM traffic"),
    Contrast("row", "page size", f"tritonrow_distinct_p64{WALL}",
             f"tritonrow_distinct_p16{WALL}", "absent",
             "one load a row whatever the page: the mechanism taken away"),
    Contrast("identity", "nothing", f"xqa_distinct_p64{WALL}", f"xqa_distinct_p64{WALL}", "absent",
             "A against A must be quiet"),
)  # fmt: skip

PAGES = (16, 32, 64, 128)
LADDERS = tuple(
    Ladder(name, "page size", tuple(f"xqa_{sharing}_p{page}{sizes}" for page in PAGES))
    for name, sharing, sizes in (
        ("shared", "shared", ""),
        ("distinct", "distinct", WALL),
        ("short", "distinct", ""),
    )
)

LONG = "tritontile_distinct_p64_l32768"  # 8 requests, 1.07 GB of KV, splits and so a merge
SPIN_STEP_NS = 500
LONG_SPIN_NS = 1_000_000


def spin_ns(nominal_gbps: float | None) -> int:
    """A wait of one per cent or little more of what LONG takes at that bandwidth, in steps.

    Less than a change of the time must be is found on no GPU. Where the bandwidth is not known it
    is 2500, as on an H200.
    """
    if not nominal_gbps:
        return 2500
    cell = Cell.parse(LONG)
    kv_bytes = predict(cell.shape, cell.sharing, "page_table").distinct_kv_bytes
    return ceil(kv_bytes / nominal_gbps / 100 / SPIN_STEP_NS) * SPIN_STEP_NS  # bytes over GB/s: ns


def planted_contrasts(nominal_gbps: float | None = None) -> tuple[Contrast, ...]:
    """Known work in our own kernels, and the word that each must have on such a GPU."""
    return (
        Contrast("planted nothing", "nothing", LONG, LONG, "absent", "A against A must be quiet"),
        Contrast("planted hidden loads", "planted loads", f"{LONG}_y{LONG_SPIN_NS}",
                 f"{LONG}_x1_y{LONG_SPIN_NS}", "hidden",
                 "one more index load a tile, in a call that waits a millisecond besides"),
        Contrast("planted many loads", "planted loads", LONG, f"{LONG}_x64", "exposed",
                 "64 more index loads a tile cost more than reading the tile"),
        Contrast("planted spin", "planted ns", LONG, f"{LONG}_y{spin_ns(nominal_gbps)}",
                 "unexplained",
                 "a wait at the start of the merge, where nothing overlaps it, does no counted "
                 "work"),
    )  # fmt: skip
