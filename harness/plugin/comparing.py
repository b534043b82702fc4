"""A saved run of pytest-benchmark decides nothing about the times of another device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagebench.harness.plugin.storing import Measured, Store

DEVICES = "devices"  # in a file's machine_info
# Two GPUs of one model may be compared, and what a kernel chose may be what is tested: it is said.
ONLY_SAID = ("uuid",)
HOW = ("clock", "l2", "boundary")


@dataclass(frozen=True, slots=True)
class SavedRun:
    """The devices that a saved file names, and what stands beside its times."""

    devices: list[Mapping[str, Any]]
    extra: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, file: Mapping[str, Any]) -> SavedRun:
        """Of a loaded file. Its devices are taken out: pytest-benchmark would compare them with
        a machine of which nothing was measured yet."""
        devices = file["machine_info"].pop(DEVICES, None) or []
        extra = {each["fullname"]: each.get("extra_info") or {} for each in file["benchmarks"]}
        return cls(devices, extra)

    def device(self, fullname: str) -> Mapping[str, Any] | None:
        """The device that timed the benchmark; None where the file does not say."""
        extra = self.extra[fullname]
        for facts in self.devices:
            if (facts.get("name"), facts.get("uuid")) == (extra.get("device"), extra.get("uuid")):
                return facts
        return None


@dataclass(slots=True)
class Comparisons:
    """Saved runs that this run is compared with, and what must be said of them."""

    saved: list[SavedRun] = field(default_factory=list)
    refused: dict[tuple[str, str], int] = field(default_factory=dict)
    said: dict[tuple[str, str], int] = field(default_factory=dict)

    def drop(self, session: Any, store: Store) -> None:
        """Take out of pytest-benchmark's saved runs what is not comparable with this run."""
        ran = {each.fullname for each in session.benchmarks if each}
        for (path, benchmarks), saved in zip(
            session.compared_mapping.items(), self.saved, strict=True
        ):
            source = Path(str(path)).name.removesuffix(".json")
            for fullname in sorted(ran & set(benchmarks)):
                here, then = store.of(fullname), saved.extra[fullname]
                if here is None and "floor_us" not in then:
                    continue  # the host's times on both sides
                reason = why_not(here, saved, fullname)
                if reason:
                    del benchmarks[fullname]
                    _count(self.refused, (source, reason))
                elif here and (other := _also(here, saved, fullname)):
                    _count(self.said, (source, other))

    def lines(self, *, gates: bool) -> Iterable[str]:
        """What is to be said, one line each; `gates`: --benchmark-compare-fail was given."""
        undecided = "--benchmark-compare-fail does not decide, " if gates else ""
        for (source, reason), count in self.refused.items():
            yield f"ERROR: {undecided}{source} is not compared ({_benchmarks(count)}): {reason}"
        for (source, other), count in self.said.items():
            yield f"{source} is compared ({_benchmarks(count)}), but {other}"


def _count(of: dict[tuple[str, str], int], key: tuple[str, str]) -> None:
    of[key] = of.get(key, 0) + 1


def _benchmarks(count: int) -> str:
    return "1 benchmark" if count == 1 else f"{count} benchmarks"


def why_not(here: Measured | None, saved: SavedRun, fullname: str) -> str | None:
    """Why the saved benchmark is not comparable with what was measured here; None if it is."""
    then = saved.extra[fullname]
    if here is None:
        return "it was timed on the device there, and by the host here"
    device = saved.device(fullname)
    if "floor_us" not in then:
        return "it was timed by the host there, and on the device here"
    if device is None:
        return "the saved file does not say which device, driver and versions its times are of"
    how = differences(
        {key: then.get(key) for key in HOW}, {key: here.extra.get(key) for key in HOW}
    )
    differs = [*differences(device, here.facts), *how]
    return "; ".join(differs) or None


def _also(here: Measured, saved: SavedRun, fullname: str) -> str:
    """What else differs, of which a reader must know."""
    device, then = saved.device(fullname) or {}, saved.extra[fullname]
    both = [({"uuid": device.get("uuid")}, {"uuid": here.facts.get("uuid")})]
    both.append(({"resolved": then.get("resolved")}, {"resolved": here.extra.get("resolved")}))
    return "; ".join(each for a, b in both for each in _unlike(a, b))


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Facts that differ, each as a phrase; those that are only said are left out."""
    known = [key for key in {**there, **here} if key not in ONLY_SAID]
    return _unlike({k: there.get(k) for k in known}, {k: here.get(k) for k in known})


def _unlike(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for key in {**there, **here}:
        a, b = there.get(key), here.get(key)
        if isinstance(a, Mapping) or isinstance(b, Mapping):
            found += _unlike(a or {}, b or {})
        elif _plain(a) != _plain(b):
            found.append(f"{key} {_word(a)} there, {_word(b)} here")
    return found


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _word(value: Any) -> str:
    return "unknown" if value is None else str(value)
