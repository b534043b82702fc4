"""One measurement that stands in both files: what forbids a ratio, and what follows from one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log
from statistics import fmean

from msgspec.structs import replace

from pagebench.harness.gate.differing import (
    causes_of,
    differing,
    not_comparable,
    same_code,
    sorted_by,
    work_changed,
)
from pagebench.harness.gate.outcome import (
    BASE,
    HEAD,
    MOVED,
    Differs,
    Disturbed,
    FewProcesses,
    GateCaveat,
    InBoth,
    Key,
    Mixed,
    ModesPart,
    NotInCycles,
    Row,
    ShareUnclear,
    Wide,
)
from pagebench.harness.gate.sides import Process, Side, without_copies
from pagebench.harness.gate.times import (
    LEAST_PROCESSES,
    Decided,
    Estimates,
    decided,
    processes_needed,
)
from pagebench.harness.records.caveats import Differing, ShortCall, Throttled, clock_moved

THROTTLED = "throttled"
SHORT_FLOORS = 10  # a call that lasts fewer is mostly floor: its ratio is diluted


@dataclass(frozen=True)
class Pair:
    """Both sides of a measurement. `head` lacks processes that are copies of the base's."""

    key: Key
    base: Side
    whole_head: Side

    @cached_property
    def head(self) -> Side:
        return without_copies(self.whole_head, self.base)

    @property
    def copies(self) -> int:
        return len(self.whole_head.processes) - len(self.head.processes)

    @property
    def sides(self) -> tuple[tuple[str, Side], ...]:
        return (BASE, self.base), (HEAD, self.head)

    # --- The discrete layer ---

    @cached_property
    def _found(self) -> tuple[Differs, ...]:
        return differing(self.base, self.head)

    @cached_property
    def same_code(self) -> bool | None:
        return same_code(self.key, self.base.first, self.head.first, self._found)

    @cached_property
    def differs(self) -> tuple[Differs, ...]:
        return sorted_by(self._found, self.same_code)

    # --- What forbids a ratio ---

    def without_ratio(self) -> Row | None:
        """The row where the two sides have no ratio; None where they have one."""
        base, head = self.base, self.head
        if base.withdrawn or not base.processes:
            return self._row("UNCLEAR", caveats=_ended(base))
        if head.withdrawn or not self.whole_head.processes:
            return self._row("FAILED", caveats=_ended(head))
        if not head.processes:
            return self._row("SAME", same_code=True, caveats=(InBoth(self.copies, all=True),))
        if apart := not_comparable(base.first, head.first):
            return self._row("REFUSED", differs=apart)
        mixed = tuple(_mixed(name, side) for name, side in self.sides if side.mixed)
        return self._row("UNCLEAR", caveats=mixed) if mixed else None

    def unjudged(self) -> Row | None:
        """The row where there is a ratio that cannot be judged; None where it can."""
        few = self._few()
        reasons = (*([few] if few else []), *self._disturbed())
        if not reasons:
            return None
        ratio = exp(fmean(self.head.levels) - fmean(self.base.levels))
        return self._discrete("UNCLEAR", ratio=ratio, caveats=(*reasons, *self._caveats()))

    def _few(self) -> FewProcesses | None:
        base, head = len(self.base.processes), len(self.head.processes)
        is_few = min(base, head) < LEAST_PROCESSES
        return FewProcesses(base, head, LEAST_PROCESSES) if is_few else None

    def _disturbed(self) -> Iterator[Disturbed]:
        """What was seen on one side alone."""
        for one, other in ((BASE, HEAD), (HEAD, BASE)):
            for what in sorted(self._seen[one] - self._seen[other]):
                yield Disturbed(what, one)

    @cached_property
    def _seen(self) -> dict[str, set[str]]:
        """What disturbed any process, by side."""
        return {
            name: set[str]().union(*map(_disturbances, side.processes)) for name, side in self.sides
        }

    # --- What a ratio says ---

    def row(self, found: Estimates, error: float) -> Row:
        """The row of what was tested, at that error."""
        word = decided(found, error)
        status = self._status(word)
        apart = () if status != "UNCLEAR" else (self._why(found, word, error),)
        causes = causes_of(self.differs, self.same_code, clock=self._is_clock(word))
        return self._discrete(
            status,
            time=word.time,
            ratio=word.time.ratio,
            modes=word.modes,
            causes=causes if status in MOVED else (),
            caveats=(*apart, *self._caveats()),
        )

    def _is_clock(self, word: Decided) -> bool:
        """Whether the SM clock may have moved the time: it gives half of the move or more, and the
        cycles are not shown to have moved the same way."""
        time, cycles = log(word.time.ratio), word.cycles
        if cycles is None or not (self.base.mhz and self.head.mhz and time):
            return False
        is_confirmed = cycles.word == "changed" and log(cycles.ratio) * time > 0
        return not is_confirmed and log(self.base.mhz / self.head.mhz) / time >= 0.5

    def _status(self, word: Decided) -> str:
        if word.word == "changed":
            up_or_down = "SLOWER" if word.time.ratio > 1 else "FASTER"
            is_clock = self._is_clock(word) and word.cycles and word.cycles.is_decided
            return "UNCLEAR" if is_clock else up_or_down
        return {"same": "SAME", "shared": "SHARE", "unclear": "UNCLEAR"}[word.word]

    def _why(self, found: Estimates, word: Decided, error: float) -> GateCaveat:
        """Why what was tested is unclear."""
        if word.word == "changed" and word.cycles:
            return NotInCycles(self.base.mhz or 0, self.head.mhz or 0, word.cycles)
        words = {each.word for each in word.modes or ()}
        if word.modes and "changed" in words:
            return ModesPart(*word.modes)
        if words == {"same"}:
            return ShareUnclear()
        return Wide(processes_needed(found, error))

    # --- Rows ---

    def _discrete(self, status: str, **fields: object) -> Row:
        """A row with all that differs."""
        work = work_changed(self.base, self.head)
        told = {"same_code": self.same_code, "differs": self.differs, "work": work}
        return self._row(status, **told, **fields)

    def _row(self, status: str, **fields: object) -> Row:
        head = self.head if self.head.processes else self.whole_head
        row = Row(key=self.key, status=status, base=self.base.times, head=head.times)
        return replace(row, **fields)

    def _caveats(self) -> Iterator[GateCaveat]:
        """What a reader of a ratio must know."""
        yield from (each for _, side in self.sides for each in side.ended)
        if self.copies:
            yield InBoth(self.copies)
        processes = [each for _, side in self.sides for each in side.processes]
        floors = [exp(each.level) / each.floor_us for each in processes if each.floor_us]
        if floors and min(floors) < SHORT_FLOORS:
            yield ShortCall(round(min(floors), 1))
        if all(THROTTLED in seen for seen in self._seen.values()):
            yield Throttled(tuple(sorted({why for each in processes for why in each.throttle})))
        if moved := clock_moved([round(each.mhz) for each in processes if each.mhz]):
            yield moved


def _ended(side: Side) -> tuple[GateCaveat, ...]:
    return (side.withdrawn,) if side.withdrawn else side.ended[:1]


def _mixed(name: str, side: Side) -> Mixed:
    return Mixed(name, tuple(Differing(d.field, d.one, d.other) for d in side.mixed))


def _disturbances(process: Process) -> set[str]:
    seen = {
        THROTTLED: process.throttle,
        "others on the GPU": process.others,
        "busy machine": process.busy,
    }
    return {what for what, is_seen in seen.items() if is_seen}


def tested_pairs(pairs: Sequence[Pair]) -> tuple[list[Row], list[Pair]]:
    """Rows of pairs that cannot be tested, and the pairs that can."""
    rows: list[Row] = []
    left: list[Pair] = []
    for pair in pairs:
        row = pair.without_ratio() or pair.unjudged()
        if row:
            rows.append(row)
        else:
            left.append(pair)
    return rows, left
