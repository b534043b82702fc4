"""The speed record: how long something took each time, and its limit."""

from __future__ import annotations

from statistics import median

from pagebench.harness.records.base import IDENTITY, Json, Record, Upgrade, as_it_was


class Speed(Record, frozen=True, kw_only=True, tag="speed"):
    """`statistic` names what is compared with the limit: the best or median of `all_seconds`."""

    what: str
    all_seconds: tuple[float, ...]
    limit_s: float
    statistic: str

    def __post_init__(self) -> None:
        if self.statistic not in ("best", "median") or not self.all_seconds:
            raise ValueError("a speed record needs seconds, and best or median as its statistic")

    @property
    def seconds(self) -> float:
        return (min if self.statistic == "best" else median)(self.all_seconds)

    @property
    def is_kept(self) -> bool:
        """Whether the limit is kept."""
        return self.seconds <= self.limit_s


def _with_statistic(line: Json) -> Json:
    """Schema 1 stored the best of its seconds beside them."""
    kept = {name: value for name, value in line.items() if name != "seconds"}
    return kept | {"statistic": "best"}


UPGRADES = (
    Upgrade("names the statistic that is compared with the limit", _with_statistic),
    Upgrade(IDENTITY, as_it_was),
)
