"""What a study draws from: records of files, sorted by kind, and picked so that they compare."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pagebench.harness.counting.predict import State, predicted_anew, read_counters
from pagebench.harness.instruments.ceilings import diagnose
from pagebench.harness.judging.dose import Step
from pagebench.harness.judging.ladder import conclusion
from pagebench.harness.judging.verdict import BINDS
from pagebench.harness.records import store
from pagebench.harness.records.timing import Record
from pagebench.harness.show import timings as report
from pagebench.harness.timing.stats import Summary, summarise
from pagebench.profiles.ceilings import binding_sentence

Line = Mapping[str, Any]
DOSE_SENTENCE = re.compile(r"^from step to step|^time moves by|^no |a count gives")
# What of each kind is drawn; a record that lacks it is an error and not an empty cell.
FIELDS = {
    "verdict": (
        "contrast",
        "knob",
        "cells",
        "verdict",
        "headline",
        "predicted",
        "because",
        "time",
        "work",
    ),
    "attack": ("attack", "cells", "word", "because", "variants"),
    "ceilings": ("gpu", "dram_read"),
    "dose": ("regime", "knob", "cells", "time_us", "steps_us", "counters", "because"),
    "planted": ("rows", "detectable"),
}


@dataclass(frozen=True, slots=True)
class Timed:
    """A measured record, the summary of its samples, and the name of its file."""

    record: Record
    summary: Summary
    file: str

    @property
    def gpu(self) -> str:
        return gpu_name(self.record.environment)

    @property
    def gbps(self) -> float:
        """Each distinct KV byte counted once, over the median."""
        return float(self.record.predicted["distinct_kv_bytes"] / self.summary.median_us / 1e3)


@dataclass(frozen=True, slots=True)
class Run:
    """One file's timings on one GPU by boundary and cell: the usual clock's, the newest of each."""

    file: str
    records: Mapping[tuple[str, str], Record]

    def timed(self, cells: Iterable[str], boundary: str) -> dict[str, Timed]:
        found = {cell: self.records.get((boundary, cell)) for cell in cells}
        return {
            cell: Timed(record, summarise(record.samples.time_us), self.file)
            for cell, record in found.items()
            if record and record.samples
        }


@dataclass(frozen=True, slots=True)
class Recorded:
    """All usable records, each kind with its newest last; `left_out` counts other timings."""

    runs: tuple[Run, ...]
    left_out: Mapping[str, int]
    counters: tuple[Line, ...]
    verdicts: tuple[Line, ...]
    ceilings: tuple[Line, ...]
    doses: tuple[Line, ...]
    planted: tuple[Line, ...]
    attacks: tuple[Line, ...]

    def timed(self, cells: Sequence[str], boundary: str = "run") -> dict[str, Timed]:
        """The cells that one run holds: of the run that has the most of them, the newest such."""
        found: dict[str, Timed] = {}
        for run in self.runs:
            here = run.timed(cells, boundary)
            found = here if len(here) >= len(found) else found
        return found

    def counted(self, cells: Sequence[str], environment: Line | None = None) -> dict[str, Line]:
        """The newest cold counters of each cell that hold loads, in the order of `cells`.

        With an environment, of that GPU, else of its model.
        """
        lines = self.counters
        if environment is not None:
            lines = tuple(store.of_gpu(lines, environment))
        newest = {
            line["cell"]: line
            for line in lines
            if "ldg" in line["total"] and line["how"].get("l2", "cold") == "cold"
        }
        return {cell: newest[cell] for cell in cells if cell in newest}

    def timings(self) -> Iterator[tuple[str, Record]]:
        """Every timing with the name of its file."""
        for run in self.runs:
            yield from ((run.file, record) for record in run.records.values())

    def environments(self) -> Iterator[tuple[str, Line]]:
        """What was measured, and in which environment, of every record that says so."""
        for file, record in self.timings():
            yield file, record.environment
        for line in (
            *self.counters,
            *self.ceilings,
            *self.doses,
            *self.planted,
            *self.verdicts,
            *self.attacks,
        ):
            if line.get("environment"):
                yield f"{line['kind']} records", line["environment"]


def read(paths: Sequence[Path]) -> Recorded:
    """Records of the files. ValueError where none is usable, or they are of several GPU models.

    Records without a date are taken to be as new as the newest timing of their file.
    """
    paths = sorted(paths, key=_newest_timing)
    runs, left_out = _runs(paths)
    found = Recorded(
        runs=runs,
        left_out=left_out,
        counters=tuple(predicted_anew(dict(line)) for line in read_counters(paths)),
        verdicts=_lines(paths, "verdict"),
        ceilings=_lines(paths, "ceilings"),
        doses=tuple(map(_dose_anew, _lines(paths, "dose"))),
        planted=_lines(paths, "planted"),
        attacks=_lines(paths, "attack"),
    )
    found = replace(found, verdicts=tuple(_bound_anew(line, found) for line in found.verdicts))
    if not any(getattr(found, name) for name in Recorded.__slots__ if name != "left_out"):
        raise ValueError(f"no record that a study draws in {', '.join(map(str, paths))}")
    device_name(found)
    return found


def device_name(recorded: Recorded) -> str:
    """The GPU model, or the CPU, that all records are of; ValueError where there are several."""
    names = {line["gpu"] for line in recorded.ceilings}
    names |= {env.get("gpu") or env.get("cpu") for _, env in recorded.environments()}
    known = sorted(name for name in names if name)
    if len(known) > 1:
        raise ValueError(f"records of several devices ({', '.join(known)}): draw a page for each")
    return known[0] if known else "a device that no record names"


def _newest_timing(path: Path) -> str:
    return max((record.started for record in store.read([path])), default="")


def gpu_name(environment: Line) -> str:
    """The beginning of a GPU's UUID, enough to tell it from others; empty for what has none."""
    return str(environment.get("uuid") or "")[:12]


def gpus_of(*found: Line | Timed | None) -> str:
    """The GPUs that a row's records are of, in order and once each."""
    names = [each.gpu if isinstance(each, Timed) else gpu_name(each.get("environment", {}))
             for each in found if each]  # fmt: skip
    return ", ".join(dict.fromkeys(filter(None, names)))


def all_gpus(recorded: Recorded) -> tuple[str, ...]:
    """All GPUs that records are of, in order of their names."""
    names = {gpu_name(environment) for _, environment in recorded.environments()}
    return tuple(sorted(filter(None, names)))


def _runs(paths: Sequence[Path]) -> tuple[tuple[Run, ...], dict[str, int]]:
    """Runs with usable timings, and how many timings are not drawn, by the reason."""
    found: dict[tuple[Path, str], dict[tuple[str, str], Record]] = {}
    left_out: Counter[str] = Counter()
    for path in paths:
        for record in sorted(store.read([path]), key=lambda each: each.started):
            reason = _why_not(record)
            if reason:
                left_out[reason] += 1
                continue
            run = found.setdefault((path, record.environment.get("uuid", record.device)), {})
            left_out["older of the same cell"] += (record.boundary, record.cell) in run
            run[record.boundary, record.cell] = record
    runs = [Run(path.name, run) for (path, _), run in found.items()]
    return tuple(sorted(runs, key=_last_started)), +left_out


def _last_started(run: Run) -> str:
    return max(record.started for record in run.records.values())


def _why_not(record: Record) -> str:
    if record.samples is None:
        return record.status
    usual = (record.clock, record.l2) == report.usual_state(record)
    return "" if usual else "by another clock or L2 state"


def _bound_anew(line: Line, found: Recorded) -> Line:
    """What binds cell B by today's rule, where the files have its counters and the ceilings."""
    state = State(line.get("environment", {}), "cold")
    counters = found.counted([line["cells"][1]], state.environment).get(line["cells"][1])
    if counters is None or not line.get("time_us"):
        return line
    path = diagnose(counters, state, line["time_us"][1], found.ceilings)
    if path is None:
        return line
    said = [text for text in line["because"] if not text.startswith(BINDS)]
    ceilings = store.of_gpu(found.ceilings, state.environment)[-1]
    return {
        **line,
        "path": path.entry(),
        "because": [*said, f"{BINDS}{binding_sentence(path)} †"],
        "anew": True,
        "bound_by": (counters, ceilings),
    }


def _dose_anew(line: Line) -> Line:
    """What the time of a dose record follows by today's rule.

    Before they had values these records had page sizes, of the one knob there was, and their notes
    stood among the sentences.
    """
    old = {"values": list(map(str, line.get("pages", ())))}
    notes = [text for text in line["because"] if not DOSE_SENTENCE.search(text)]
    steps = [Step(*step_us) for step_us in line["steps_us"]]
    return {**old, "notes": notes, **line, **conclusion(steps, dict(line["counters"]))}


def _lines(paths: Sequence[Path], kind: str) -> tuple[Line, ...]:
    lines = tuple(store.read_kind(paths, kind))
    for line in lines:
        missing = [name for name in FIELDS[kind] if name not in line]
        if missing:
            raise ValueError(f"a {kind} record lacks {', '.join(missing)}")
    return lines
