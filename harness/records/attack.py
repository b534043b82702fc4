"""The attack record: an effect in other contexts or with another kernel."""

from __future__ import annotations

from pagebench.harness.records.base import (
    IDENTITY,
    CellName,
    Json,
    Part,
    Record,
    Upgrade,
    as_it_was,
)
from pagebench.harness.records.caveats import TimingCaveat
from pagebench.harness.records.dose import Step
from pagebench.harness.records.verdict import OLD_ERROR, Change

SCALING_WORDS = ("scales", "constant", "neither", "unclear", "no effect")
SWITCHING_WORDS = ("survives", "vanishes", "reverses", "unclear", "no effect")


class ExtraWork(Part, frozen=True):
    """The predicted work of B beyond that of A: `ldg` from kernel source, else `index_entries`."""

    name: str
    amount: float


class Variant(Part, frozen=True, kw_only=True):
    """The effect of B over A in one variant, as a ratio and in microseconds."""

    cells: tuple[CellName, CellName]
    time: Change
    delta: Step
    work: ExtraWork


class Attack(Record, frozen=True, kw_only=True, tag="attack"):
    """`how` is context or kernel. `cells` is the given pair; `variants` includes it."""

    how: str
    cells: tuple[CellName, CellName]
    word: str
    variants: tuple[Variant, ...]
    caveats: tuple[TimingCaveat, ...] = ()  # of all variants
    kernel_sha: str | None = None  # of the content of --kernel's file

    def __post_init__(self) -> None:
        words = {"context": SCALING_WORDS, "kernel": SWITCHING_WORDS}.get(self.how)
        if words is None or self.word not in words:
            raise ValueError(f"an attack by {self.how} has no word {self.word}")
        if not self.variants:
            raise ValueError("an attack needs at least one variant")


def _as_data(line: Json) -> Json:
    """Schema 1 had sentences; its work was a mapping of one name."""
    kept = {name: value for name, value in line.items() if name not in ("attack", "because")}
    return kept | {"how": line["attack"], "variants": list(map(_variant, line["variants"]))}


def _variant(variant: Json) -> Json:
    if len(variant["work"]) != 1:
        raise ValueError("a variant has the extra work of one name")
    ((name, amount),) = variant["work"].items()
    return {
        "cells": variant["cells"],
        "time": {"error": OLD_ERROR} | variant["time"],
        "delta": dict(zip(Step.__struct_fields__, variant["delta_us"], strict=True)),
        "work": {"name": name, "amount": amount},
    }


UPGRADES = (
    Upgrade("no sentences; work and microseconds have names", _as_data),
    Upgrade(IDENTITY + "; a kernel file's content; caveats", as_it_was),
)
