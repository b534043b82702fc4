"""Contrasts: two cells, the knob that differs, and the verdict predicted before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import ceil

from pagebench.harness.cell import Cell, moving_axes
from pagebench.harness.errors import UserError
from pagebench.layouts.work import predict


@dataclass(frozen=True, slots=True)
class Contrast:
    """`one` and `other` differ only in `knob`; `predicts` is the expected word, for `why`."""

    name: str
    knob: str
    one: Cell
    other: Cell
    predicts: str | None = None
    why: str | None = None

    @property
    def cells(self) -> tuple[Cell, Cell]:
        return self.one, self.other


@dataclass(frozen=True, slots=True)
class Ladder:
    """Cells with all values of a knob, in order, in one regime."""

    name: str
    knob: str
    cells: tuple[Cell, ...]


def _contrast(name: str, knob: str, cells: str, predicts: str, why: str) -> Contrast:
    """`cells` holds both names, with a space between them."""
    one, other = map(Cell.parse, cells.split())
    return Contrast(name, knob, one, other, predicts, why)


CONTRASTS = (
    _contrast(
        "negative",
        "allocation unit",
        "fidecode_distinct_churned1_p1 fidecode_distinct_churned128_p1",
        "absent",
        "a token-flat engine's page size changes which slots it hands out, not how many",
    ),
    _contrast(
        "scatter",
        "placement",
        "fidecode_distinct_p1_b32_l8192 fidecode_distinct_scatter_p1_b32_l8192",
        "absent",
        "each token's KV is one burst in any placement",
    ),
    _contrast(
        "block128",
        "placement",
        "fidecode_distinct_p1_b32_l8192 fidecode_distinct_block128_p1_b32_l8192",
        "absent",
        "with runs of 128 tokens even less changes",
    ),
    _contrast(
        "positive",
        "page size",
        "xqa_shared_p64 xqa_shared_p16",
        "exposed",
        "smaller pages need more index loads, and L2 reuse leaves little DRAM traffic to hide them",
    ),
    _contrast(
        "vanishing",
        "page size",
        "xqa_distinct_p64_b32_l8192 xqa_distinct_p16_b32_l8192",
        "hidden",
        "the same index loads, hidden behind DRAM traffic",
    ),
    _contrast(
        "saturation",
        "page size",
        "xqa_shared_p64 xqa_shared_p128",
        "absent",
        "a warp's tile is 64 tokens, so a larger page saves no load on sm_90",
    ),
    _contrast(
        "tile",
        "page size",
        "tritontile_distinct_p64_b32_l8192 tritontile_distinct_p16_b32_l8192",
        "hidden",
        "one load per page: four times the index loads, hidden behind the same DRAM traffic",
    ),
    _contrast(
        "row",
        "page size",
        "tritonrow_distinct_p64_b32_l8192 tritonrow_distinct_p16_b32_l8192",
        "absent",
        "one load per row at every page size: the mechanism is removed",
    ),
    _contrast(
        "identity",
        "nothing",
        "xqa_distinct_p64_b32_l8192 xqa_distinct_p64_b32_l8192",
        "absent",
        "A against A must show no effect",
    ),
)


def _pages(name: str, cell: str) -> Ladder:
    """The ladder of page sizes; `cell` is a cell's name with `{}` in place of the page size."""
    pages = (16, 32, 64, 128)
    return Ladder(name, "page size", tuple(Cell.parse(cell.format(page)) for page in pages))


LADDERS = (
    _pages("shared", "xqa_shared_p{}"),
    _pages("distinct", "xqa_distinct_p{}_b32_l8192"),
    _pages("short", "xqa_distinct_p{}"),
)

LONG = "tritontile_distinct_p64_l32768"  # 8 requests, 1.07 GB of KV; it splits, so it has a merge
SPIN_STEP_NS = 500
LONG_SPIN_NS = 1_000_000


def spin_ns(nominal_gbps: float | None) -> int:
    """A wait in ns: 1 % of LONG's time at that bandwidth, rounded up to steps of SPIN_STEP_NS.

    A shorter wait is below the least effect that counts as a change, so no GPU would find it. It is
    2500, as on an H200, where the bandwidth is not known.
    """
    if not nominal_gbps:
        return 2500
    cell = Cell.parse(LONG)
    kv_bytes = predict(cell.shape, cell.streams, "page_table").distinct_kv_bytes
    return ceil(kv_bytes / nominal_gbps / 100 / SPIN_STEP_NS) * SPIN_STEP_NS  # bytes over GB/s: ns


def planted_contrasts(nominal_gbps: float | None = None) -> tuple[Contrast, ...]:
    """Contrasts of known work in our own kernels, and the word that each must get.

    `nominal_gbps` is the GPU's nominal DRAM bandwidth in GB/s, None where unknown.
    """
    wait = f"{LONG}_y{LONG_SPIN_NS}"
    return (
        _contrast(
            "planted nothing",
            "nothing",
            f"{LONG} {LONG}",
            "absent",
            "A against A must show no effect",
        ),
        _contrast(
            "planted hidden loads",
            "planted loads",
            f"{wait} {LONG}_x1_y{LONG_SPIN_NS}",
            "hidden",
            "one more index load per tile, in a call that also waits a millisecond",
        ),
        _contrast(
            "planted many loads",
            "planted loads",
            f"{LONG} {LONG}_x64",
            "exposed",
            "64 more index loads per tile cost more than reading the tile",
        ),
        _contrast(
            "planted spin",
            "planted ns",
            f"{LONG} {LONG}_y{spin_ns(nominal_gbps)}",
            "unexplained",
            "a wait at the start of the merge, where nothing overlaps it, does no counted work",
        ),
    )


# --- By name --------------------------------------------------------------------------------------


def find_contrasts(names: Sequence[str]) -> list[Contrast]:
    """Shipped contrasts by name, or one of two cells; else UserError, with what to give."""
    known = {contrast.name: contrast for contrast in CONTRASTS}
    if list(names) == ["all"]:
        return list(CONTRASTS)
    if all(name in known for name in names):
        return [known[name] for name in dict.fromkeys(names)]
    if len(names) != 2:
        raise UserError(_wanted(names, known, "two cells", "contrasts"))
    one, other = map(Cell.parse, names)
    return [Contrast("", _knob((one, other)), one, other)]


def find_ladders(names: Sequence[str]) -> list[Ladder]:
    """Shipped ladders by name, or one of the cells; else UserError, with what to give."""
    known = {ladder.name: ladder for ladder in LADDERS}
    if list(names) == ["all"]:
        return list(LADDERS)
    if all(name in known for name in names):
        return [known[name] for name in dict.fromkeys(names)]
    if len(names) < 3:
        raise UserError(_wanted(names, known, "three cells or more", "ladders"))
    cells = tuple(map(Cell.parse, names))
    knob = _knob(cells)
    if len(moving_axes(cells)) != 1:
        raise UserError(f"the cells of a dose must differ in one knob; these differ in {knob}")
    return [Ladder(knob, knob, cells)]


def _knob(cells: Sequence[Cell]) -> str:
    """What differs between the cells, in words."""
    return ", ".join(moving_axes(cells)).replace("_", " ") or "nothing"


def _wanted(names: Sequence[str], known: Iterable[str], cells: str, kind: str) -> str:
    """What to give, with the known name that is nearest to an unknown one."""
    listed = list(known)
    near = [match for name in names for match in get_close_matches(name, listed, 1)]
    guess = f"; did you mean {near[0]}?" if near else ""
    return (
        f"{len(names)} given: give {cells}, all, or some of the {kind} {', '.join(listed)}{guess}"
    )
