"""The timing record: what was asked for one cell, how it ended, and how long the call took."""

from __future__ import annotations

from math import inf
from statistics import median

from msgspec import field

from pagebench.harness.axes import Axes
from pagebench.harness.records.base import (
    IDENTITY,
    CellName,
    Json,
    Part,
    PredictedWork,
    Record,
    Resolved,
    Upgrade,
    as_it_was,
)

MOST_SAMPLES = 200
USUAL_SECONDS = 2.0  # longest sampling of a cell by default

# What became of a cell. Only `measured` has a time.
STATUSES = {
    "measured": "timed, and the output was right before and after",
    "refused": "the kernel, the device or its memory cannot take the cell",
    "wrong": "the output does not match the reference",
    "poisoned": "the kernel read memory that no request owns",
    "rejected": "timed, but the time is impossible",
    "crashed": "an error, a death or a hang while measuring",
}
FAILURES = ("wrong", "poisoned", "rejected", "crashed")


def check_status(status: str, reason: str | None, *, has_times: bool) -> None:
    """ValueError for an unknown status, or one with times or a reason that it cannot have."""
    if status not in STATUSES:
        raise ValueError(f"unknown status {status}; there are {', '.join(STATUSES)}")
    if (status == "measured") != has_times:
        raise ValueError(f"a {status} record must {'not ' if has_times else ''}have samples")
    if (status == "measured") != (reason is None):
        raise ValueError(f"a {status} record must {'not ' if reason else ''}have a reason")


ALLOWED_SHARE = 0.01  # of the span: events and cupti may differ by it and by the events' floor


class Block(Part, frozen=True):
    """State of the device while the samples from `start` on were taken; None where unreadable.

    `sm_mhz` is read from NVML between samples, `spin_mhz` measured by the spins before samples.
    """

    start: int
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    throttle: tuple[str, ...] = ()
    spin_mhz: int | None = None


class Samples(Part, frozen=True):
    """Times in order, in microseconds, and the conditions they were taken under."""

    time_us: tuple[float, ...]
    floor_us: float
    blocks: tuple[Block, ...]
    stopped: str  # why sampling ended: interval, samples or time
    discarded: int = 0  # samples whose spin did not outlast the queueing
    sum_us: tuple[float, ...] = ()  # cupti: busy time of all kernels; time_us is their span
    kernels: tuple[str, ...] = ()  # cupti: kernel symbols of one call, in launch order
    events_us: tuple[float, ...] = ()  # cupti: the same calls timed by events
    events_floor_us: float | None = None  # cupti: a null kernel timed by events

    def __post_init__(self) -> None:
        if not self.time_us or len(self.time_us) > MOST_SAMPLES:
            raise ValueError(f"{len(self.time_us)} samples; a record holds 1 to {MOST_SAMPLES}")
        if not self.blocks:
            raise ValueError("samples need at least one block")
        if not all(0 < time < inf for time in self.time_us):
            raise ValueError("every sample must be a positive, finite time")

    @property
    def gap_us(self) -> float | None:
        """Median of events less span over the same calls; None where one clock alone was asked."""
        if not self.events_us or self.events_floor_us is None:
            return None
        calls = zip(self.events_us, self.time_us, strict=False)
        return median(events - span for events, span in calls)

    @property
    def throttle(self) -> tuple[str, ...]:
        """Why the GPU was throttled in any block."""
        return tuple(sorted({why for block in self.blocks for why in block.throttle}))

    def allowed_us(self, floor_us: float) -> float:
        """By how much events with that floor may differ from this span."""
        return floor_us + ALLOWED_SHARE * median(self.time_us)


class Asked(Part, frozen=True, kw_only=True):
    """Options that are not part of the key; `kernel` is the file of --kernel.

    `kernel_sha` is the SHA-256 of that file's content and of what it imports from its own folder.
    """

    seconds: float
    device: str
    kernel: str | None = None
    kernel_sha: str | None = None


class Predicted(PredictedWork, frozen=True, kw_only=True):
    """Work, and the most device bytes that the cell takes."""

    device_bytes: int


class Layout(Part, frozen=True, kw_only=True):
    """The findings of the page table's check (`layouts.table.check`), and the lowering."""

    distinct_pages: int
    distinct_tokens: int
    pool_pages: int
    unused_entries: int
    lowering: str


# What a call is asked, and an output can fail.
QUESTIONS = {
    "random": "a random query",
    "typical": "a random query, the median of all heads",
    "zero": "a zero query",
    "weights": "each token's weight under a zero query",
    "needle": "a query that one token answers",
    "one token": "a context of one token",
    "lengths": "other lengths and other requests' contexts through the same plan",
    "pools": "keys and values that changed after planning",
    "far": "scores far apart in a long context",
    "share": "a query that gives one token three quarters of the weight",
    "beyond": "a query that only a token out of reach would answer",
    "timed": "the outputs while it is timed",
    "written": "every element is written",
    "poison": "unused memory is not read",
    "inputs": "inputs stay as they are",
    "canaries": "memory beside the output stays as it is",
}

ASKED_AT = {  # the question whose error a moment keeps
    "error_before": "random",
    "error_after": "random",
    "error_replanned": "lengths",
    "error_zero": "zero",
    "error_timed": "timed",
}


class Check(Part, frozen=True, kw_only=True):
    """Largest relative error of a head at each moment; None where not checked.

    `tolerance` holds for all errors but `error_zero`, which is that of zero queries. Needles ask
    every request; the others ask `requests` of `of_requests`. `canaries` says whether the memory
    beside the output is whole; it is absent where none could be placed. In early records an error
    is over a request's heads together. `error_typical` is the median of the heads with a random
    query, kept where a limit is set for it. `failed` is the one of QUESTIONS that the output
    failed.
    """

    tolerance: float
    requests: int
    of_requests: int
    error_before: float | None = None
    error_after: float | None = None
    error_replanned: float | None = None
    tolerance_zero: float | None = None
    error_zero: float | None = None
    error_needles: float | None = None
    error_timed: float | None = None
    canaries: bool | None = None
    failed: str | None = None
    tolerance_typical: float | None = None
    error_typical: float | None = None


class Timing(Record, frozen=True, tag="timing"):
    """One cell. A record has samples if, and only if, its status is `measured`.

    `resolved` is what the adapter reports that it chose; its keys are the adapter's own. `binary`
    is a hash of the machine code that ran, `no_binary` why it could not be read. `ceiling_gbps` is
    what was measured for as many bytes.
    """

    cell: CellName
    boundary: str
    clock: str
    l2: str
    status: str
    axes: Axes
    started: str  # UTC, ISO 8601
    device: str  # cpu or cuda
    asked: Asked
    reason: str | None = None
    process: int = 0
    samples: Samples | None = None
    resolved: Resolved = field(default_factory=dict)
    predicted: Predicted | None = None
    layout: Layout | None = None
    check: Check | None = None
    elapsed_s: float | None = None
    binary: str | None = None
    no_binary: str | None = None
    ceiling_gbps: float | None = None
    ceiling_refuted: bool | None = None

    def __post_init__(self) -> None:
        check_status(self.status, self.reason, has_times=self.samples is not None)

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What identifies a measurement: two records with one key repeat it."""
        return (self.cell, self.boundary, self.clock, self.l2, self.process)

    @property
    def date(self) -> str:
        return self.started


def _typed(line: Json) -> Json:
    """Schema 2 wrote nulls and empty mappings for what a status does not give."""
    kept = {name: value for name, value in line.items() if value not in (None, {})}
    device = line.get("device", "cuda")
    asked = {"seconds": USUAL_SECONDS, "device": device} | (kept.pop("options", None) or {})
    axes = {"planted_loads": 0, "planted_ns": 0} | dict(line["axes"])
    return kept | {"asked": asked, "axes": axes}


UPGRADES = (
    Upgrade("events beside the span in the samples of `cupti`", lambda line: line),
    Upgrade(
        "parts have types; `options` is `asked`; what a status does not give is absent", _typed
    ),
    Upgrade(
        IDENTITY
        + "; the call's code or why it is unknown, a file's content, the ceiling, more errors",
        as_it_was,
    ),
)
