"""Attack a mechanism: does its effect scale with the context, and does another kernel lack it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pagebench.harness.cell import Cell
from pagebench.harness.counting.predict import predict_counters
from pagebench.harness.errors import UserError, as_user_error
from pagebench.harness.records import identity
from pagebench.harness.records.attack import Attack, ExtraWork, Variant
from pagebench.harness.records.dose import Step
from pagebench.harness.timing.interleaved import Interleaved, NotTimed
from pagebench.harness.timing.refuse import refusal
from pagebench.kernels.device import Device
from pagebench.layouts.shape import SizeError

SCALES = (0.5, 1.0, 2.0)
# Kernels that read indices in different ways, tried in this order.
OTHERS = ("tritonrow", "tritontoken", "tritontile", "fidecode", "xqa", "gather", "reference")
GIVEN = {"context": 1, "kernel": 0}  # position of the variant with the cells as given
Pair = tuple[Cell, Cell]


# --- Which cells ----------------------------------------------------------------------------------


def check_pair(how: str, cells: Pair) -> None:
    """UserError where the cells cannot be attacked: they are equal, or of two kernels.

    For `context` also where their contexts differ.
    """
    one, other = cells
    if one == other:
        raise UserError("attack: give two cells that differ in the knob whose effect is in doubt")
    if one.kernel != other.kernel:
        raise UserError(f"attack: give cells of one kernel, not of {one.kernel} and {other.kernel}")
    if how == "context" and one.shape.kv_len != other.shape.kv_len:
        raise UserError("attack context scales the context: give cells of one context length")


def scaled(cells: Pair) -> list[Pair]:
    """Both cells at half, all and twice their context.

    UserError for an odd context, and where a scaled cell cannot exist.
    """
    if cells[0].shape.kv_len % 2:
        raise UserError(
            "attack context halves and doubles the context: "
            f"give an even one, not l{cells[0].shape.kv_len}"
        )
    with as_user_error(SizeError, prefix="attack context: "):
        return [(_at(cells[0], scale), _at(cells[1], scale)) for scale in SCALES]


def _at(cell: Cell, scale: float) -> Cell:
    return replace(cell, shape=replace(cell.shape, kv_len=round(cell.shape.kv_len * scale)))


def switched(cells: Pair, device: Device, kernel: str | None) -> list[Pair]:
    """The cells as given, and with another kernel: `kernel`, or the first that takes both.

    UserError, with the reason, where no kernel takes both.
    """
    if kernel == cells[0].kernel:
        raise UserError(f"--with {kernel}: the cells have that kernel; name another")
    names = [kernel] if kernel else [name for name in OTHERS if name != cells[0].kernel]
    reasons = []
    for name in names:
        other = (replace(cells[0], kernel=name), replace(cells[1], kernel=name))
        reason = next((why for cell in other if (why := refusal(cell, device))), None)
        if reason is None:
            return [cells, other]
        reasons.append(reason)
    raise UserError(reasons[0] if kernel else f"no other kernel takes both cells: {reasons[0]}")


def groups_of(pairs: Sequence[Pair]) -> list[Interleaved]:
    """What to interleave; all variants are judged together."""
    return [Interleaved(pair, len(pairs)) for pair in pairs]


# --- The attack's word ----------------------------------------------------------------------------


def attack_of(how: str, groups: Sequence[Interleaved]) -> Attack:
    """The effect in every variant, and its word. NotTimed where a variant has no times."""
    for group in groups:
        group.refuse_failed(" ".join(cell.name for cell in group.cells))
    _refuse_apart(groups)
    variants = tuple(map(_variant, groups))
    given = groups[GIVEN[how]]
    return Attack(
        how=how,
        cells=_names(given),
        word=word_of(how, variants),
        variants=variants,
        caveats=tuple(dict.fromkeys(each for group in groups for each in group.caveats)),
        environment=given.environment,
        kernel_sha=given.kernel_sha,
    )


def _refuse_apart(groups: Sequence[Interleaved]) -> None:
    """NotTimed where variants were timed on several machines, under several versions of software or
    with several contents of a kernel's file. Their calls may differ: that is what is attacked."""
    first, *others = (
        {**identity.of_environment(each.environment), "kernel file": each.kernel_sha or "none"}
        for each in groups
    )
    for other in others:
        if found := identity.differences(first, other):
            told = identity.told(found)
            raise NotTimed(f"attack: its variants were not made alike: {told}", crashed=False)


def _names(group: Interleaved) -> tuple[str, str]:
    one, other = (cell.name for cell in group.cells)
    return one, other


def _variant(group: Interleaved) -> Variant:
    time = group.step()
    delta = Step(*(round(us, 3) for us in time.delta_us(group.time_us(0))))
    return Variant(cells=_names(group), time=time, delta=delta, work=_work(group))


def _work(group: Interleaved) -> ExtraWork:
    """By how many loads B exceeds A according to the kernel's source, else by how many entries."""
    one, other = (
        predict_counters(cell, resolved, group.environment)
        for cell, resolved in zip(group.cells, group.resolved, strict=True)
    )
    if one.ldg_of_source and other.ldg_of_source:
        return ExtraWork("ldg", other.ldg_of_source - one.ldg_of_source)
    return ExtraWork("index_entries", other.index_entries - one.index_entries)


def word_of(how: str, variants: Sequence[Variant]) -> str:
    """The word for all variants; `no effect` or `unclear` if the given cells show no effect."""
    given = variants[GIVEN[how]]
    if given.time.word != "changed":
        return "unclear" if given.time.word == "unclear" else "no effect"
    return _scaling(variants) if how == "context" else _switching(*variants)


def _scaling(variants: Sequence[Variant]) -> str:
    """Whether one cost per unit of predicted work, or one constant time, fits all contexts."""
    ends = [(each.delta.low_us, each.delta.high_us) for each in variants]
    amounts = [each.work.amount for each in variants]
    constant = _share(ends)
    scales = all(amounts) and _share(
        [(low / n, high / n) for (low, high), n in zip(ends, amounts, strict=True)]
    )
    if scales:
        return "unclear" if constant else "scales"
    return "constant" if constant else "neither"


def _share(intervals: Sequence[tuple[float, float]]) -> bool:
    """Whether all intervals (ends in either order) have a value in common."""
    return max(map(min, intervals)) <= min(map(max, intervals))


def _switching(given: Variant, other: Variant) -> str:
    """Whether the effect vanishes, survives or reverses with the other kernel."""
    if other.time.word != "changed":
        return "vanishes" if other.time.word == "same" else "unclear"
    same_way = (given.delta.middle_us > 0) == (other.delta.middle_us > 0)
    return "survives" if same_way else "reverses"
