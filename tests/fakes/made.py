"""Records made up for tests: what processes say of cells, and counters. Nothing was measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from fakes import H200
from pagebench.harness.cell import Cell
from pagebench.harness.environment import Environment
from pagebench.harness.records.ceilings import ByWarps, Launches, MeasuredCeilings
from pagebench.harness.records.rounds import Rounds
from pagebench.harness.records.select import Evidence, read_evidence
from pagebench.harness.records.verdict import Change
from pagebench.profiles.ceilings import Point
from pagebench.profiles.counters import Count

ON_H200 = Environment(gpu="NVIDIA H200")


def rounds(cells: Sequence[Cell], *there: Sequence[float], **fields: Any) -> Rounds:
    """One process: the cells' times in each round, in microseconds, the same there and back."""
    told: dict[str, Any] = {"clock": "events", "l2": "cold", "process": 0, "status": "measured"}
    told |= {"floor_us": 2.5, "resolved": ({},) * len(cells), "environment": ON_H200}
    both = tuple((*times, *reversed(times)) for times in there)
    return Rounds(cells=names(cells), rounds=both, **told | fields)


def lost(cells: Sequence[Cell], status: str = "crashed", reason: str = "no") -> Rounds:
    """A process that has no times."""
    told: dict[str, Any] = {"clock": "events", "l2": "cold", "process": 0}
    return Rounds(cells=names(cells), status=status, reason=reason, **told)


def names(cells: Sequence[Cell]) -> tuple[str, ...]:
    return tuple(cell.name for cell in cells)


def change(word: str = "changed", ratio: float = 1.1, half: float = 0.01) -> Change:
    return Change(word, ratio, ratio - half, ratio + half, 4, 0.01, 0.05)


def count(value: float, stable: bool = True) -> Count:
    return Count(value, stable, 0.0)


def ceilings(**changes: Any) -> MeasuredCeilings:
    """Round numbers made up for arithmetic; the products' ceiling alone does not saturate."""
    told: dict[str, Any] = {
        "gpu": "NVIDIA H200",
        "dram_read": (Point(2**20, 4000.0, True),),
        "l2_read_gbps": ByWarps(by_warps={8: 8000.0}, saturated=True),
        "issue_ginst": ByWarps(by_warps={8: 1000.0}, saturated=True),
        "fma_gflops": ByWarps(by_warps={8: 64000.0}, saturated=True),
        "matrix_gflops": ByWarps(by_warps={8: 409600.0}, saturated=False),
        "launch_us": Launches(by_launches={1: 3.0, 2: 4.0, 4: 6.0}, saturated=True),
        "environment": ON_H200,
    }
    return MeasuredCeilings(**told | changes)


OLD_CEILINGS = MeasuredCeilings(
    gpu="NVIDIA H200", dram_read=ceilings().dram_read, environment=ON_H200
)


@cache
def evidence(name: str = "counters.jsonl") -> Evidence:
    """Counters and ceilings recorded on the H200."""
    return read_evidence([H200 / name])
