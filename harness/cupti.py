"""Kernel activity through CUPTI, attributed to a call by correlation id. It fails closed.

CUPTI slows every launch of its process, so it lives in a worker of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

BUFFER_BYTES = 8 << 20


class TraceError(RuntimeError):
    """Activity that was lost or cannot be attributed."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel execution; times in nanoseconds on the GPU's own clock."""

    name: str
    start_ns: int
    end_ns: int
    correlation: int


@dataclass(slots=True)
class Traced:
    """Activity of one call."""

    identity: int
    correlations: set[int] = field(default_factory=set)
    seen: list[Kernel] = field(default_factory=list)

    def kernels(self) -> list[Kernel]:
        """The call's kernels in launch order; TraceError if some are not of the call."""
        mine = [kernel for kernel in self.seen if kernel.correlation in self.correlations]
        if len(mine) != len(self.seen):
            raise TraceError(
                f"{len(self.seen) - len(mine)} of {len(self.seen)} kernels carry no correlation id "
                "of the call"
            )
        return sorted(mine, key=lambda kernel: kernel.start_ns)


class Tracer:
    """CUPTI's activity API for one process; RuntimeError where it is not installed."""

    def __init__(self) -> None:
        try:
            from cupti import cupti
        except ImportError as error:
            raise RuntimeError(
                "the cupti clock needs cupti-python: pip install 'pagebench[gpu]'"
            ) from error
        self._cupti: Any = cupti
        self._current: Traced | None = None
        self._identities = count(1)
        kinds = cupti.ActivityKind
        cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), self._completed)
        # A call's external id is tied to correlation ids only while its API calls are recorded.
        for kind in ("CONCURRENT_KERNEL", "RUNTIME", "DRIVER", "EXTERNAL_CORRELATION"):
            cupti.activity_enable(getattr(kinds, kind))

    @contextmanager
    def traced(self) -> Iterator[Traced]:
        """Collect the activity of what runs inside; it must synchronise before it leaves."""
        kind = self._cupti.ExternalCorrelationKind.CUSTOM0
        self._cupti.activity_flush_all(1)  # what ran before belongs to nobody
        traced = self._current = Traced(next(self._identities))
        self._cupti.activity_push_external_correlation_id(kind, traced.identity)
        try:
            yield traced
        finally:
            self._cupti.activity_pop_external_correlation_id(kind)
            self._cupti.activity_flush_all(1)
            self._current = None

    def _completed(self, activities: list[Any]) -> None:
        if self._current is None:
            return
        kinds = self._cupti.ActivityKind
        for activity in activities:
            if activity.kind == kinds.CONCURRENT_KERNEL:
                self._current.seen.append(
                    Kernel(activity.name, activity.start, activity.end, activity.correlation_id)
                )
            elif (
                activity.kind == kinds.EXTERNAL_CORRELATION
                and activity.external_id == self._current.identity
            ):
                self._current.correlations.add(activity.correlation_id)
