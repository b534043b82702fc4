"""What the counters of a cell should show, according to its layout and its kernel's source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from msgspec.structs import replace

from pagebench.harness.cell import Cell
from pagebench.harness.environment import Environment
from pagebench.harness.errors import UserError, as_user_error
from pagebench.harness.records.base import Resolved
from pagebench.harness.records.counters import Counters, How, PredictedCounters
from pagebench.harness.timing.planned import lowering_of
from pagebench.kernels.adapter import Loads
from pagebench.kernels.foreign import foreign, told
from pagebench.kernels.registry import KernelError, find_kernel, kernel_names, loads_of
from pagebench.layouts.sharing import share
from pagebench.layouts.work import predict


def predict_counters(
    cell: Cell,
    resolved: Resolved,
    environment: Environment,
    how: How | None = None,
    grids: Sequence[str] = (),
) -> PredictedCounters:
    """What the counters should show, from the layout and, for a known GPU, the kernel's source.

    With ncu's cache control `all`, its default, a merge kernel also begins cold and reads its
    partials from DRAM. `grids` are those of the counted kernels, where they were counted: formulas
    that assume others predict nothing. UserError where the kernel does not load.
    """
    shape = cell.shape
    work = predict(shape, share(cell.sharing, shape), _lowering(cell))
    loads, failed = _loads(cell, resolved, environment.capability)
    other = _other_grids(loads, grids)
    if other or (len(grids) > 1 and not resolved):  # a merge of splits that nobody names
        loads = Loads(merge_bytes=None)
    merged = loads.merge_bytes if how is None or how.cache_control in (None, "all") else 0
    predictable = cell.sharing.kind == "distinct" and merged is not None
    return PredictedCounters(
        **asdict(work),
        ldg=loads.ldg,
        decode_ldg=loads.decode_ldg,
        dram_read_bytes=work.read_bytes + (merged or 0) if predictable else None,
        failed=failed,
        other_source=_other_source(cell, environment) if loads.ldg else {},
        other_grids=other,
    )


def _other_grids(loads: Loads, counted: Sequence[str]) -> tuple[str, str] | None:
    """The grids that the loads assume, and the counted ones; None where they are the same, or one
    side has none."""
    assumed = [str(grid) for grid in loads.grids]
    if not assumed or not counted or assumed == list(counted):
        return None
    return " + ".join(assumed), " + ".join(counted)


def _other_source(cell: Cell, environment: Environment) -> dict[str, tuple[str, str]]:
    """Libraries of which another version ran than the one whose source gives the loads."""
    read = getattr(find_kernel(cell.kernel), "source", None)
    ran = environment.versions
    return {
        name: (version, ran[name])
        for name, version in (read.items() if isinstance(read, Mapping) else ())
        if isinstance(version, str) and ran.get(name, version) != version
    }


def _lowering(cell: Cell) -> str:
    with as_user_error(KernelError):
        adapter = find_kernel(cell.kernel)
    try:
        with foreign():
            return lowering_of(adapter, cell.shape)
    except Exception as error:
        raise UserError(f"{cell.kernel}.lowering(): {told(error)}") from error


def _loads(
    cell: Cell, resolved: Resolved, capability: tuple[int, int] | None
) -> tuple[Loads, str | None]:
    """Loads by the kernel's source, or why its formula fails, which must not lose the counts."""
    try:
        return loads_of(cell.kernel, cell.shape, resolved, capability), None
    except KernelError as error:
        return Loads(ldg=None, merge_bytes=None), str(error)


def anew(counters: Counters) -> Counters:
    """The record with the prediction of today's formulas, which may be better than its own.

    A record of a kernel that is not registered here keeps its prediction.
    """
    if counters.axes.kernel not in kernel_names():
        return counters
    cell = Cell.parse(counters.cell)
    return replace(counters, predicted=predicted_of(cell, counters))


def predicted_of(cell: Cell, counters: Counters) -> PredictedCounters:
    """What these counters should show, as they were launched."""
    grids = [kernel.grid for kernel in counters.kernels]
    how, environment = counters.how, counters.environment
    return predict_counters(cell, counters.resolved, environment, how, grids)
