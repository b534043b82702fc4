"""The counters record: what Nsight Compute counted of one cell, launch by launch.

Totals, ratios, what repeats and what is off its prediction are computed from the values on demand:
a stored spread would be rounded, and tolerances may change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from statistics import median

from msgspec import field
from msgspec.structs import replace

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
from pagebench.profiles.counters import Count, counts, ratio_repeats, ratios, totals, unstable
from pagebench.profiles.metrics import METRICS

# Measured over predicted may be off by this much before the card flags it.
LDG_MARGIN, DRAM_MARGIN = 0.01, 0.02
OWN_BYTES = 0.12e6  # code, constants and spills, which no layout predicts, add up to this much
KNOWN = frozenset(metric.name for metric in METRICS)
Values = tuple[float | None, ...]  # one for each launch, None where ncu has no value


class How(Part, frozen=True, kw_only=True):
    """How it was counted. An imported page gives only the chip and the launches.

    `elapsed_s` and `cells` are of the whole profiled process.
    """

    chip: str
    launches: int
    ncu: str | None = None
    replay_mode: str | None = None
    cache_control: str | None = None
    clock_control: str | None = None
    l2: str | None = None
    elapsed_s: float | None = None
    cells: int | None = None
    imported: bool = False


class Kernel(Part, frozen=True, kw_only=True):
    """One kernel of the call. `launch` has the keys of `profiles.metrics.LAUNCH`, `values` our
    names of counters."""

    symbol: str
    grid: str
    block: str
    passes: int | None = None
    launch: Mapping[str, float | None]
    values: Mapping[str, Values]

    def median(self, name: str) -> float | None:
        """A counter's or rate's median over the launches; None where one lacks it."""
        values = [value for value in self.values.get(name, ()) if value is not None]
        return median(values) if values and None not in self.values[name] else None

    @property
    def unstable(self) -> list[str]:
        """Counters that did not repeat."""
        return unstable(self.values)


class PredictedCounters(PredictedWork, frozen=True, kw_only=True):
    """Work, and what the counters should show. `failed` says why a formula gave no loads.

    `other_source` maps a library to the version whose source gave the loads and to the version that
    ran, where these are two. `other_grids` holds the kernels' grids that the formulas assume and
    those that were counted, where these are two: then nothing that depends on them is predicted.
    """

    ldg: int | None = None
    decode_ldg: int | None = None
    dram_read_bytes: int | None = None
    failed: str | None = None
    other_source: Mapping[str, tuple[str, str]] = {}
    other_grids: tuple[str, str] | None = None

    @property
    def ldg_of_source(self) -> int | None:
        """Loads by the source of what ran; None where they are known of another version alone."""
        return None if self.other_source else self.ldg


class Counters(Record, frozen=True, kw_only=True, tag="counters", dict=True):
    """One cell under Nsight Compute. `distrusted` counters were found wrong and taken out.

    `predicted` is the prediction made when it was counted; `counting.predict.anew` gives today's.
    """

    cell: CellName
    axes: Axes
    predicted: PredictedCounters
    kernels: tuple[Kernel, ...]
    how: How
    resolved: Resolved = field(default_factory=dict)
    distrusted: tuple[str, ...] = ()
    calibrated: bool = False
    binary: str | None = None  # a hash of the machine code that ran
    no_binary: str | None = None  # why it could not be read

    def __post_init__(self) -> None:
        columns = [values for kernel in self.kernels for values in kernel.values.values()]
        strange = {name for kernel in self.kernels for name in kernel.values} - KNOWN
        if strange:
            raise ValueError(f"unknown counters: {', '.join(sorted(strange))}")
        if len({len(values) for values in columns}) != 1 or not columns[0]:
            raise ValueError("its kernels need a value of every counter for every launch")

    @cached_property
    def total(self) -> dict[str, Count]:
        """Counts and traffic of the whole call: the median launch, and whether it repeated."""
        return counts(totals([kernel.values for kernel in self.kernels]))

    @cached_property
    def ratios(self) -> dict[str, float | str]:
        """Hit rate and sectors a request, where they are defined."""
        return ratios({name: count.value for name, count in self.total.items()})

    def value(self, name: str) -> float | None:
        return self.total[name].value if name in self.total else None

    def ratio_repeats(self, name: str) -> bool:
        """Whether both counters that a ratio is made of repeated."""
        return ratio_repeats(self.total, name)

    def over_predicted(self, name: str) -> float | None:
        """A counter of the call over its prediction; None where either is not known."""
        value, wanted = self.value(name), self._wanted(name)
        return value / wanted if value is not None and wanted else None

    @property
    def decode_over_predicted(self) -> float | None:
        """The first kernel's LDG over its prediction, known also for calls without one."""
        value, wanted = self.kernels[0].values.get("ldg", (None,))[0], self.predicted.decode_ldg
        return value / wanted if value and wanted else None

    def _wanted(self, name: str) -> int | None:
        known = {"ldg": self.predicted.ldg, "dram_read_bytes": self.predicted.dram_read_bytes}
        return known.get(name)

    @property
    def off(self) -> list[str]:
        """Counters whose measurement over prediction is further from 1 than its margin."""
        margins = {"ldg": (LDG_MARGIN, 0.0), "dram_read_bytes": (DRAM_MARGIN, OWN_BYTES)}
        return [
            name
            for name, (share, least) in margins.items()
            if (wanted := self._wanted(name))
            and (value := self.value(name)) is not None
            and abs(value - wanted) > max(share * wanted, least)
        ]

    def without(self, names: Iterable[str]) -> Counters:
        """The record less those counters in every kernel."""
        gone = tuple(names)
        kernels = (
            replace(k, values={name: v for name, v in k.values.items() if name not in gone})
            for k in self.kernels
        )
        return replace(self, kernels=tuple(kernels), distrusted=gone)


DERIVED = ("total", "ratios", "off")


def _underived(line: Json) -> Json:
    """Schema 1 stored totals, ratios, and what is unstable or off beside the values."""
    kept = {name: value for name, value in line.items() if name not in DERIVED}
    axes = {"planted_loads": 0, "planted_ns": 0} | line["axes"]
    gone = line.get("distrusted", ())  # totals lacked them already, when kernels did not yet
    kernels = [_kernel(kernel, gone) for kernel in line["kernels"]]
    return kept | {"axes": axes, "kernels": kernels}


def _kernel(kernel: Json, gone: Sequence[str]) -> Json:
    kept = {name: value for name, value in kernel.items() if name != "unstable"}
    values = {name: counted for name, counted in kernel["values"].items() if name not in gone}
    return kept | {"values": values}


UPGRADES = (
    Upgrade("values that follow from the counts are computed when read", _underived),
    Upgrade(
        IDENTITY + "; what the call's code was, or why that is unknown; of which source and grids "
        "predicted loads are",
        as_it_was,
    ),
)
