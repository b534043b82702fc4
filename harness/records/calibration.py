"""The calibration record: what each counter shows for kernels whose loads are known."""

from __future__ import annotations

from collections.abc import Mapping

from pagebench.harness.records.base import IDENTITY, Json, Part, Record, Upgrade, as_it_was
from pagebench.profiles.metrics import TOLERANCE, metric


class Disagreement(Part, frozen=True):
    """A counter that does not show what a kernel executes or reads."""

    counter: str
    kernel: str
    seen: tuple[float, ...]
    expected: int


class Calibration(Record, frozen=True, kw_only=True, tag="calibration"):
    """By kernel and counter: `seen` in each launch, and `expected` from the kernel's source."""

    gpu: str
    chip: str
    ncu: str
    started: str
    seen: Mapping[str, Mapping[str, tuple[float, ...]]]
    expected: Mapping[str, Mapping[str, int]]

    def __post_init__(self) -> None:
        for kernel, wanted in self.expected.items():
            missing = wanted.keys() - self.seen.get(kernel, {}).keys()
            if missing:
                raise ValueError(f"{kernel} has no values of {', '.join(sorted(missing))}")

    @property
    def date(self) -> str:
        return self.started

    @property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """Counts must be exact; traffic may be off by the tolerance for repeated launches."""
        return tuple(
            Disagreement(name, kernel, self.seen[kernel][name], count)
            for kernel, wanted in self.expected.items()
            for name, count in wanted.items()
            if any(
                abs(value - count) > TOLERANCE[metric(name).kind] * count
                for value in self.seen[kernel][name]
            )
        )

    @property
    def distrusted(self) -> tuple[str, ...]:
        """Counters that disagree, each once: no conclusion may use them."""
        return tuple(dict.fromkeys(each.counter for each in self.disagreements))


def _underived(line: Json) -> Json:
    return {name: value for name, value in line.items() if name not in ("sees_async", "disagree")}


UPGRADES = (
    Upgrade("values that follow from the counts are computed when read", _underived),
    Upgrade(IDENTITY, as_it_was),
)
