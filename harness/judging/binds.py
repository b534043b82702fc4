"""What binds a call that was timed and counted, according to the ceilings of its GPU."""

from __future__ import annotations

from collections.abc import Sequence

from pagebench.harness.records.counters import Counters, Kernel
from pagebench.harness.records.select import Evidence, State
from pagebench.profiles.ceilings import CriticalPath, critical_path
from pagebench.profiles.counters import Count, counts

NEARLY_ALL = 0.95  # share of a call's instructions from which the first kernel's rates are used


def path_of(
    counters: Counters, state: State, time_us: float, evidence: Evidence
) -> CriticalPath | None:
    """What binds a call that took `time_us` in that state.

    Ceilings of the same GPU are preferred to those of others of its model. None where there are no
    ceilings, or the counters are of another model or another state of the cache.
    """
    found = evidence.newest_ceilings(state.environment)
    if found is None or not state.holds(counters):
        return None
    kernels = counters.kernels
    return critical_path(counters.total, len(kernels), found.ceilings(), time_us, l2_slice(kernels))


def l2_slice(kernels: Sequence[Kernel]) -> Count | None:
    """Share of cycles, in per cent, in which the L2 slices were busy in the call's first kernel.

    None where that was not counted, or the kernel is not nearly all of the call.
    """
    executed = [kernel.values.get("instructions", (None,))[0] for kernel in kernels]
    counted = [count for count in executed if count is not None]
    if kernels[0].median("l2_slice_pct") is None or len(counted) < len(kernels):
        return None
    if counted[0] < NEARLY_ALL * sum(counted):
        return None
    shares = [share for share in kernels[0].values["l2_slice_pct"] if share is not None]
    return counts({"l2_slice_pct": shares})["l2_slice_pct"]
