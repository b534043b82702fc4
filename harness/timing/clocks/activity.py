"""Kernel activity through CUPTI, attributed to a call by correlation id.

Activity that cannot be attributed is an error. CUPTI slows every launch of its process, so it runs
in a separate worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    """Activity of one bracket: of the call inside, and of the kernels around it."""

    call: int  # external id of the work inside Tracer.call
    around: int  # of the bracket's other kernels
    correlations: dict[int, int] = field(default_factory=dict)  # correlation id to external id
    seen: list[Kernel] = field(default_factory=list)

    def kernels(self) -> list[Kernel]:
        """The call's kernels by start. TraceError if a kernel belongs to neither id."""
        owners = [self.correlations.get(kernel.correlation) for kernel in self.seen]
        strangers = owners.count(None)
        if strangers:
            raise TraceError(
                f"{strangers} of {len(owners)} kernels carry no correlation id of the call"
            )
        mine = [k for k, owner in zip(self.seen, owners, strict=True) if owner == self.call]
        return sorted(mine, key=lambda kernel: kernel.start_ns)


class Tracer:
    """CUPTI's activity API for one process. RuntimeError where cupti-python is not installed."""

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
        """Collect the activity of the block inside, which must synchronise before it ends."""
        self._cupti.activity_flush_all(1)  # drop the activity from before
        traced = self._current = Traced(next(self._identities), next(self._identities))
        try:
            with self._owned_by(traced.around):
                yield traced
        finally:
            self._cupti.activity_flush_all(1)
            self._current = None

    def call(self, run: Callable[[], object]) -> None:
        """Inside `traced`: run the work that is to be attributed to the call."""
        assert self._current is not None
        with self._owned_by(self._current.call):
            run()

    @contextmanager
    def _owned_by(self, identity: int) -> Iterator[None]:
        kind = self._cupti.ExternalCorrelationKind.CUSTOM0
        self._cupti.activity_push_external_correlation_id(kind, identity)
        try:
            yield
        finally:
            self._cupti.activity_pop_external_correlation_id(kind)

    def _completed(self, activities: list[Any]) -> None:
        current, kinds = self._current, self._cupti.ActivityKind
        if current is None:
            return
        ours = (current.call, current.around)
        for activity in activities:
            if activity.kind == kinds.CONCURRENT_KERNEL:
                current.seen.append(
                    Kernel(activity.name, activity.start, activity.end, activity.correlation_id)
                )
            elif activity.kind == kinds.EXTERNAL_CORRELATION and activity.external_id in ours:
                current.correlations[activity.correlation_id] = activity.external_id
