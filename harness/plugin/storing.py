"""Device times in pytest-benchmark: stored as they were measured, and proved to be."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import pytest

Target = Callable[[], object]
# Of an environment, what may change from one call to the next.
PASSING = ("commit", "dirty", "flush_bytes", "load", "other_processes", "processes_hidden")


@dataclass(frozen=True, slots=True)
class Measured:
    """Device times in seconds, in order, by which clock, what stands beside them, and where."""

    times_s: tuple[float, ...]
    clock: str
    extra: dict[str, Any]
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Store:
    """What this session stored: pytest-benchmark's own objects, and what they must hold."""

    kept: list[tuple[Any, Measured]] = field(default_factory=list)

    def put(self, benchmark: Any, measured: Measured, profiled: Target | None = None) -> None:
        """Make the times the benchmark's rounds, whatever timer and options it has.

        pytest-benchmark calls `profiled` for --benchmark-cprofile. The test fails where the times
        are not stored as they are.
        """
        benchmark.extra_info.update(measured.extra)
        if profiled is None and benchmark.cprofile:
            benchmark.cprofile = False
            warnings.warn(pytest.PytestWarning(NOTHING_TO_PROFILE), stacklevel=2)
        benchmark.pedantic(profiled if benchmark.cprofile else _nothing, rounds=1, iterations=1)
        if benchmark.disabled:
            return
        found = benchmark.stats
        found.stats.data[:] = measured.times_s
        found.options["timer"] = f"pagebench {measured.clock}"
        if why := _differs(found.as_dict()["stats"], measured):
            benchmark.has_error = True
            found.stats.data.clear()
            pytest.fail(f"not stored: {why}", pytrace=False)
        self.kept.append((found, measured))

    def facts(self) -> list[dict[str, Any]]:
        """Each device that times were stored of, once."""
        every = [measured.facts for _, measured in self.kept]
        return [facts for at, facts in enumerate(every) if facts not in every[:at]]

    def of(self, fullname: str) -> Measured | None:
        """The newest times of the test of that name."""
        named = [measured for found, measured in self.kept if found.fullname == fullname]
        return named[-1] if named else None

    def refuse_changed(self, written: Mapping[str, Any]) -> None:
        """UsageError where a file about to be written holds other times than were measured."""
        for each in written["benchmarks"]:
            mine = [m for found, m in self.kept if found.fullname == each["fullname"]]
            reasons = [_differs(each["stats"], measured) for measured in mine]
            if reasons and all(reasons):
                raise pytest.UsageError(f"{each['fullname']}: no file is written: {reasons[-1]}")


NOTHING_TO_PROFILE = "--benchmark-cprofile: a cell runs in a process of its own; it has no profile"


def _nothing() -> None:
    """A round that costs nothing: its time is replaced."""


def _differs(stats: Mapping[str, Any], measured: Measured) -> str | None:
    """How stored statistics differ from the times measured; None where they hold them."""
    times = list(measured.times_s)
    if list(stats.get("data", times)) != times or stats["rounds"] != len(times):
        return "pytest-benchmark holds other rounds than the times measured on the device"
    if stats["median"] != median(times) or stats["iterations"] != 1:
        kept_us, measured_us = stats["median"] * 1e6, median(times) * 1e6
        return f"the median kept is {kept_us:.3f} us, that on the device {measured_us:.3f} us"
    return None


def refuse_foreign(benchmark: Any) -> None:
    """Fail the test in one sentence where `benchmark` is not pytest-benchmark's own."""
    from pytest_benchmark.fixture import BenchmarkFixture

    kind = type(benchmark)  # isinstance would believe a __class__ that pretends
    if issubclass(kind, BenchmarkFixture):
        return
    owner = kind.__module__.partition(".")[0]
    without = "--codspeed" if owner == "pytest_codspeed" else "it"
    pytest.fail(
        "device times are stored by pytest-benchmark, and here the fixture `benchmark` is of "
        f"{owner}: run without {without}",
        pytrace=False,
    )


def warn_of_sharing() -> None:
    """Under pytest-xdist other workers use the device, and pytest-benchmark stores nothing."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        text = "device_benchmark under pytest-xdist: others use the device, and nothing is stored"
        warnings.warn(pytest.PytestWarning(text), stacklevel=2)


def facts_of(name: str, environment: Any) -> dict[str, Any]:
    """What a time depends on besides the call, as plain data for a file's `machine_info`."""
    from msgspec import to_builtins

    every = to_builtins(environment)
    return {"name": name, **{key: every[key] for key in every if key not in PASSING}}
