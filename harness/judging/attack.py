"""Attack a mechanism: does its effect scale with the context, does another kernel lose it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.counting.predict import predict_counters
from pagebench.harness.records import store
from pagebench.harness.timing.measure import Options, refusal
from pagebench.harness.workers.interleave import Interleaved, interleave
from pagebench.kernels.device import Device

ATTACK_SCHEMA = 1
SCALES = (0.5, 1.0, 2.0)
# Kernels that read indices in another way, tried in this order.
OTHERS = ("tritonrow", "tritontoken", "tritontile", "fidecode", "xqa", "gather", "reference")
# Whether one cost a load fits all contexts, and whether one time does.
FITS = {
    (True, False): "scales",
    (False, True): "constant",
    (False, False): "neither",
    (True, True): "unclear",
}
SCALING = {
    "scales": "one cost for each {work} that B is predicted to do beyond A fits all three contexts",
    "constant": "one time fits all three contexts: a fixed cost",
    "neither": "neither a fixed cost nor one for each {work} that B does beyond A fits",
    "unclear": "both a fixed cost and one for each {work} that B does beyond A fit: the intervals "
    "are wide",
}
SCALING_BESIDES = (
    "so would a cost of anything else that a tile does, for all of it grows with the context: "
    "this singles out no counter"
)
WORK_NAMES = {"ldg": "global load (LDG)", "index_entries": "index entry"}
Pair = tuple[Cell, Cell]
Progress = Callable[[str], None]


def check(how: str, cells: Pair) -> None:
    """ValueError where there is no effect to attack: cells of two kernels, or alike."""
    one, other = cells
    if one == other:
        raise ValueError("attack: give two cells that differ, in a knob whose effect is in doubt")
    if one.kernel != other.kernel:
        raise ValueError(
            f"attack: give cells of one kernel, not of {one.kernel} and {other.kernel}"
        )
    if how == "context" and one.shape.kv_len != other.shape.kv_len:
        raise ValueError("attack context scales the context: give cells of one context length")


def scaled(cells: Pair) -> list[Pair]:
    """Both cells at half, the whole and twice their context; ValueError where that is no cell."""
    if cells[0].shape.kv_len % 2:
        raise ValueError(
            "attack context halves the context and doubles it: "
            f"give an even one, not l{cells[0].shape.kv_len}"
        )
    return [(_at(cells[0], scale), _at(cells[1], scale)) for scale in SCALES]


def _at(cell: Cell, scale: float) -> Cell:
    return replace(cell, shape=replace(cell.shape, kv_len=round(cell.shape.kv_len * scale)))


def switched(cells: Pair, device: Device, kernel: str | None) -> list[Pair]:
    """The cells as they are and with another kernel: the one named, or the first that takes both.

    ValueError says why no kernel does.
    """
    if kernel == cells[0].kernel:
        raise ValueError(f"--with {kernel}: the cells have that kernel; name another")
    names = [kernel] if kernel else [name for name in OTHERS if name != cells[0].kernel]
    reasons = []
    for name in names:
        other = (replace(cells[0], kernel=name), replace(cells[1], kernel=name))
        reason = next((why for cell in other if (why := refusal(cell, device))), None)
        if reason is None:
            return [cells, other]
        reasons.append(reason)
    raise ValueError(reasons[0] if kernel else f"no other kernel takes both cells: {reasons[0]}")


def attack(
    how: str,
    pairs: Sequence[Pair],
    options: Options,
    device: Device,
    out: Path,
    progress: Progress,
) -> dict[str, Any]:
    """An attack record, appended to `out` after the group records of each process.

    ValueError where a variant has no times.
    """
    groups = groups_of(pairs)
    interleave(groups, options, device, out, progress)
    record = attack_of(how, groups)
    store.append_line(out, record)
    return record


def groups_of(pairs: Sequence[Pair]) -> list[Interleaved]:
    return [Interleaved(pair, len(pairs)) for pair in pairs]


def attack_of(how: str, groups: Sequence[Interleaved]) -> dict[str, Any]:
    """The effect in every variant, and what that says of the mechanism. ValueError as above."""
    for group in groups:
        group.refuse_failed(" ".join(cell.name for cell in group.cells))
    variants = [_variant(group) for group in groups]
    word, because = (_scaling if how == "context" else _switching)(variants)
    given = groups[1 if how == "context" else 0]
    return {
        "kind": "attack",
        "schema": ATTACK_SCHEMA,
        "attack": how,
        "cells": [cell.name for cell in given.cells],
        "word": word,
        "because": because,
        "variants": variants,
        "environment": given.environment,
    }


def _variant(group: Interleaved) -> dict[str, Any]:
    found = group.step()
    return {
        "cells": [cell.name for cell in group.cells],
        "time": asdict(found),
        "delta_us": [round(us, 3) for us in found.delta_us(group.time_us(0))],
        "work": _work(group),
    }


def _work(group: Interleaved) -> dict[str, float]:
    """Loads that kernel source predicts B to do more than A, else index entries; by name."""
    one, other = (
        predict_counters(cell, resolved, group.environment)
        for cell, resolved in zip(group.cells, group.resolved, strict=True)
    )
    name = "ldg" if one.get("ldg") and other.get("ldg") else "index_entries"
    return {name: other[name] - one[name]}


def _scaling(variants: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """A word of SCALING; `no effect` where the cells as given have none."""
    lines = [_effect(variant) for variant in variants]
    if variants[1]["time"]["word"] != "changed":
        return _nothing(variants[1], lines)
    deltas = [variant["delta_us"] for variant in variants]
    work = [next(iter(variant["work"].values())) for variant in variants]
    scales = all(work) and _share(
        [[low / w, high / w] for (low, _, high), w in zip(deltas, work, strict=True)]
    )
    word = FITS[scales, _share([[low, high] for low, _, high in deltas])]
    said = [scaling_sentence(word, next(iter(variants[1]["work"])))]
    return word, [*lines, *said, *([SCALING_BESIDES] if word == "scales" else [])]


def scaling_sentence(word: str, work: str) -> str:
    """What a word of SCALING means, with the name of the work that was predicted."""
    return SCALING[word].format(work=WORK_NAMES.get(work, work))


def _nothing(given: dict[str, Any], lines: list[str]) -> tuple[str, list[str]]:
    if given["time"]["word"] == "unclear":
        return "unclear", [*lines, "whether the cells as given differ is not known"]
    return "no effect", [*lines, "the cells as given do not differ: nothing to attack"]


def _share(intervals: list[list[float]]) -> bool:
    """Whether all intervals have a value in common."""
    ordered = [sorted(each) for each in intervals]
    return max(low for low, _ in ordered) <= min(high for _, high in ordered)


def _switching(variants: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """`vanishes`, `survives` or, the other way round, `reverses`; `unclear`; or `no effect`."""
    given, other = variants
    lines = [_effect(variant) for variant in variants]
    if given["time"]["word"] != "changed":
        return _nothing(given, lines)
    if other["time"]["word"] != "changed":
        return {"same": "vanishes", "unclear": "unclear"}[other["time"]["word"]], lines
    same_way = (given["delta_us"][1] > 0) == (other["delta_us"][1] > 0)
    return "survives" if same_way else "reverses", lines


def _effect(variant: dict[str, Any]) -> str:
    low, middle, high = variant["delta_us"]
    work = ", ".join(f"{name} {value:+,.0f}" for name, value in variant["work"].items())
    return (
        f"{' to '.join(variant['cells'])}: {middle:+.2f} us [{low:+.2f}, {high:+.2f}] "
        f"({variant['time']['word']}), {work} predicted"
    )
