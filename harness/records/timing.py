"""The record: what one cell asked for, what it got, and how long that took.

History of the timing schema: 1, the first; 2, events beside the span in `cupti` samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

TIMING_SCHEMA = 2
MOST_SAMPLES = 200

# What became of a cell. Only `measured` has a time.
STATUSES = {
    "measured": "timed, and right before and after timing",
    "refused": "the kernel, the device or its memory cannot take the cell",
    "wrong": "the output does not match the reference",
    "poisoned": "the kernel read memory that no request owns",
    "rejected": "timed, but the time is impossible",
    "crashed": "an error, a death or a hang while measuring",
}
LISTS = ("time_us", "sum_us", "kernels", "events_us")  # of samples
MAPPINGS = ("axes", "options", "resolved", "predicted", "layout", "check", "environment")
FAILURES = ("wrong", "poisoned", "rejected", "crashed")


@dataclass(frozen=True, slots=True)
class Block:
    """State of the device while the samples from `start` on were taken; None where unreadable.

    `sm_mhz` is what NVML says between samples, `spin_mhz` what the spin before a sample ran at.
    """

    start: int
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    throttle: tuple[str, ...] = ()
    spin_mhz: int | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """Times in order, in microseconds, and what they were taken with."""

    time_us: tuple[float, ...]
    floor_us: float
    blocks: tuple[Block, ...]
    stopped: str  # why sampling ended: interval, samples or time
    discarded: int = 0  # samples whose spin did not outlast the queueing
    sum_us: tuple[float, ...] = ()  # cupti: busy time of all kernels; time_us is their span
    kernels: tuple[str, ...] = ()  # cupti: kernel symbols of one call, in launch order
    events_us: tuple[float, ...] = ()  # cupti: what events said of the same calls
    events_floor_us: float | None = None  # cupti: and of a null kernel

    def __post_init__(self) -> None:
        if not self.time_us or len(self.time_us) > MOST_SAMPLES:
            raise ValueError(f"{len(self.time_us)} samples; a record holds 1 to {MOST_SAMPLES}")
        if not self.blocks or not isinstance(self.floor_us, (int, float)):
            raise ValueError("samples have a floor and at least one block")
        if not all(isinstance(time, (int, float)) and 0 < time < inf for time in self.time_us):
            raise ValueError("a sample took no time, or no finite one")


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a results file. A record with samples is `measured`, and no other has any."""

    cell: str
    boundary: str
    clock: str
    l2: str
    status: str
    axes: Mapping[str, Any]
    started: str  # UTC, ISO 8601
    device: str  # cpu or cuda
    reason: str | None = None
    process: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)  # seconds, device, kernel file
    samples: Samples | None = None
    resolved: Mapping[str, Any] = field(default_factory=dict)
    predicted: Mapping[str, Any] = field(default_factory=dict)
    layout: Mapping[str, Any] = field(default_factory=dict)
    check: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    elapsed_s: float | None = None
    kind: str = "timing"
    schema: int = TIMING_SCHEMA

    def __post_init__(self) -> None:
        for name in MAPPINGS:
            if not isinstance(getattr(self, name), Mapping):
                raise ValueError(f"{name} is no set of fields")
        for name in ("cell", "boundary", "clock", "l2", "status", "started", "device"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} is no text")
        if self.status not in STATUSES:
            raise ValueError(f"status {self.status}; there are {', '.join(STATUSES)}")
        if (self.status == "measured") != (self.samples is not None):
            raise ValueError(
                f"a {self.status} record must {'' if self.samples is None else 'not '}have samples"
            )
        if (self.status == "measured") != (self.reason is None):
            raise ValueError(
                f"a {self.status} record and reason {self.reason!r} do not go together"
            )

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What makes a measurement the same one again."""
        return (self.cell, self.boundary, self.clock, self.l2, self.process)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Record:
        """Read any schema so far; ValueError on a newer one or on fields that do not fit."""
        if line.get("kind") != "timing" or line.get("schema", 0) > TIMING_SCHEMA:
            raise ValueError(f"no timing record of schema {TIMING_SCHEMA} or older")
        values = {name: value for name, value in line.items() if name in cls.__slots__}
        try:
            return cls(**values | {"samples": _samples(values.get("samples"))})
        except (TypeError, KeyError) as error:
            raise ValueError(f"a field is missing or unknown: {error}") from error


def _samples(line: Mapping[str, Any] | None) -> Samples | None:
    if line is None:
        return None
    blocks = tuple(
        Block(**block | {"throttle": tuple(block["throttle"])}) for block in line["blocks"]
    )
    lists = {name: tuple(line.get(name, ())) for name in LISTS}
    return Samples(**dict(line) | lists | {"blocks": blocks})
