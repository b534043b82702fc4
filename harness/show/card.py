"""One card per cell: what was asked, what reached the kernel, how long it took, what it did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import asdict

from pagebench.harness.cell import Cell
from pagebench.harness.counting.predict import anew
from pagebench.harness.environment import Environment
from pagebench.harness.errors import UserError
from pagebench.harness.escape import shell
from pagebench.harness.judging.binary import same_binary
from pagebench.harness.judging.binds import path_of
from pagebench.harness.judging.ceiling import beside_ceiling, ceiling_of
from pagebench.harness.records import identity, store
from pagebench.harness.records.base import Resolved
from pagebench.harness.records.ceilings import MeasuredCeilings
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.identity import Difference
from pagebench.harness.records.select import Evidence, by_events, newest_timing, state_of
from pagebench.harness.records.store import Stored
from pagebench.harness.records.timing import Timing
from pagebench.harness.records.verdict import SameBinary
from pagebench.harness.show import identities, timings
from pagebench.harness.show.counters import counters_card
from pagebench.harness.show.sentences import binding_line
from pagebench.harness.show.text import bandwidth, fold, share
from pagebench.harness.timing.stats import summarise
from pagebench.profiles.ceilings import CriticalPath

NO_MATTER = ("uuid", "cpu", "torch_threads", "power_limit_w")  # to counts


@dataclass(frozen=True, slots=True)
class Card:
    """The newest measured timing and the newest counters of a cell; None if there are none.

    `ceiling_gbps`: the measured GB/s of its GPU when it reads as many bytes. `path`: what binds the
    newest time that counters and ceilings can explain.
    """

    cell: str
    timing: Timing | None
    counters: Counters | None
    ceiling_gbps: float | None
    path: CriticalPath | None
    ceilings_apart: tuple[Difference, ...] = ()

    @property
    def apart(self) -> tuple[Difference, ...]:
        """In what the timing and the counters are not of one thing. Which GPU of a model counted
        does not matter, and is said by itself."""
        if self.timing is None or self.counters is None:
            return ()
        both = identity.of_timing(self.timing), identity.of_counters(self.counters)
        return identity.differences(*both, without=NO_MATTER)

    @property
    def resolved(self) -> Resolved:
        """What the adapter resolved: of the timing, or else of the counters."""
        found = self.timing or self.counters
        return found.resolved if found else {}


@dataclass(frozen=True, slots=True)
class Against:
    """Counters `of` one cell over those of `cell` where they differ; None over zero."""

    cell: str
    of: str
    same: SameBinary
    ratio: Mapping[str, float | None]
    apart: tuple[Difference, ...] = ()


# --- Joining --------------------------------------------------------------------------------------


def read_files(files: Sequence[Path]) -> Stored:
    """All records that cards use. StoreError for a file that cannot be read."""
    return store.read(files, Timing, Counters, MeasuredCeilings)


def joined(cell: str, files: Sequence[Path], found: Stored | None = None) -> Card:
    """The newest timing and counters of a cell in those files; UserError if there are none.

    `found`: their records, if already read. Counters of the same GPU and L2 state as the timing
    come first, then those of the same model.
    """
    found = found or read_files(files)
    times = [each for each in found.of(Timing) if each.cell == cell]
    evidence = Evidence(tuple(found.of(Counters)), tuple(found.of(MeasuredCeilings)))
    timing = newest_timing(times)
    counters = _counters(cell, timing, evidence)
    if timing is None and counters is None:
        raise UserError(_nothing(cell, files))
    timing = timing and beside_ceiling(timing, evidence)
    ceiling = ceiling_of(timing, evidence) if timing else None
    path = _binds(times, counters, evidence) if counters else None
    apart = _ceilings_apart(timing, evidence) if timing and ceiling else ()
    return Card(cell, timing, counters, ceiling, path, apart)


def _ceilings_apart(timing: Timing, evidence: Evidence) -> tuple[Difference, ...]:
    """Under what other software the ceiling was measured."""
    found = evidence.newest_ceilings(timing.environment)
    return identity.in_software(timing.environment, found.environment) if found else ()


def _nothing(cell: str, files: Sequence[Path]) -> str:
    more = f" and {len(files) - 2} more files" if len(files) > 3 else ""
    where = ", ".join(map(str, files[: 2 if more else 3])) or "runs/"
    return (
        f"{cell}: no records in {where}{more}; `{shell('pagebench', 'run', cell)}` makes one, or "
        "name the files that hold it"
    )


def _counters(cell: str, timing: Timing | None, evidence: Evidence) -> Counters | None:
    """Counters of the timing's GPU and state if there are any, else any; predictions recomputed."""
    cells = [Cell.parse(cell)]
    state = state_of(timing) if timing else None
    found = evidence.newest_counters(cells, state) or evidence.newest_counters(cells)
    return anew(found[0]) if found else None


def _binds(times: Iterable[Timing], counters: Counters, evidence: Evidence) -> CriticalPath | None:
    """The critical path of the newest time by events that counters and ceilings can explain."""
    timing = by_events(times, counters)
    if timing is None or timing.samples is None:
        return None
    time_us = summarise(timing.samples.time_us, find_modes=False).median_us
    return path_of(counters, state_of(timing), time_us, evidence)


def contrast(card: Card, other: Card) -> Against:
    """Whether both cells ran the same binary alike, and stable counters over the other's.

    The ratio is None if the counter is zero in the other. UserError if one has no counters.
    """
    mine, theirs = _counted(card), _counted(other)
    total, over = mine.total, theirs.total
    moved = [
        name
        for name in total
        if name in over
        and total[name].stable
        and over[name].stable
        and total[name].value != over[name].value
    ]
    ratio = {
        name: round(total[name].value / of, 4) if (of := over[name].value) else None
        for name in moved
    }
    one, two = (identity.of_environment(each.environment) for each in (theirs, mine))
    apart = identity.differences(one, two, without=NO_MATTER)
    return Against(other.cell, card.cell, same_binary(mine, theirs), ratio, apart)


def _counted(card: Card) -> Counters:
    if card.counters is None:
        raise UserError(f"{card.cell}: no counters; {_counting(card)}")
    return card.counters


def _counting(card: Card) -> str:
    return shell("make", "ncu", f"CELL={card.cell}")


# --- Text -----------------------------------------------------------------------------------------


def joined_card(card: Card, against: Against | None = None) -> str:
    """Timing, counters and prediction of a cell as text, and counters over another cell's."""
    above = [*_timing_lines(card), *_counted_where(card)]
    below = _against_lines(against) if against else []
    if card.counters:
        table = counters_card(card.counters).partition("\n")[2]
    else:
        table = f"  no counters: {_counting(card)}"
    return "\n".join([card.cell, *_folded(above), table, *_folded(below)])


def _folded(lines: Iterable[str]) -> list[str]:
    return [fold(line, 12) for line in lines]


def _against_lines(found: Against) -> list[str]:
    same = ", ".join(
        f"{what} {'same' if is_same else 'different'}"
        for what, is_same in found.same.items().items()
    )
    ratios = ", ".join(
        f"{name} {'from zero' if ratio is None else f'x {ratio:.4f}'}"
        for name, ratio in found.ratio.items()
    )
    return [
        f"  against   {found.cell}: {same}",
        f"            {found.of} over {found.cell}: {ratios or 'no stable change'}",
        *_apart_line(found.apart, "both"),
    ]


def _counted_where(card: Card) -> list[str]:
    if card.counters is None:
        return []
    counters, timing = card.counters, card.timing
    whence = _whence(counters.environment, counters.date)
    if timing and timing.environment.uuid != counters.environment.uuid:
        whence += ", not the GPU of the timing"
    return [f"  counters  on {whence}", *_apart_line(card.apart, "the timing and these counters")]


def _apart_line(found: Sequence[Difference], of: str) -> list[str]:
    """In what two measurements that are shown together differ; empty where in nothing."""
    return [f"            {of} differ: {identities.between(found)}"] if found else []


def _timing_lines(card: Card) -> list[str]:
    timing = card.timing
    if timing is None:
        return [f"  no timing: {shell('pagebench', 'run', card.cell)}"]
    shown = timings.row(timing)
    interval = "" if shown.low_us is None else f" [{shown.low_us:.2f}, {shown.high_us:.2f}]"
    return [
        f"  asked     {_words(asdict(timing.axes))}",
        f"  resolved  {_words(_short(card.resolved))}",
        f"  time      {shown.time_us:.2f} us{interval}, floor {shown.floor_us:.2f} "
        f"({shown.clock}, {shown.l2})",
        f"            on {_whence(timing.environment, timing.started)}",
        _bandwidth(card, timing, shown),
        *_apart_line(card.ceilings_apart, "the timing and that ceiling"),
        *([f"  binds     {binding_line(card.path)}"] if card.path else []),
        *([f"  note      {shown.note}"] if shown.note else []),
    ]


def _whence(facts: Environment, date: str) -> str:
    """GPU, date and commit of a record."""
    unnamed = "a GPU not named in the report" if facts.capability else "unknown device"
    device = facts.gpu or facts.cpu or unnamed
    words = [
        f"{device} {facts.gpu_name}".rstrip(),
        date[:16].replace("T", " "),
        f"commit {facts.commit[:7]}" if facts.commit else "",
    ]
    return ", ".join(filter(None, words))


def _short(resolved: Resolved) -> Resolved:
    """Without the module, whose name is too long for a card; JSON has it."""
    return {name: value for name, value in resolved.items() if name != "module"}


def _words(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _distinct_bytes(timing: Timing) -> int:
    return timing.predicted.distinct_kv_bytes if timing.predicted else 0


def _bandwidth(card: Card, timing: Timing, shown: timings.Row) -> str:
    """Distinct bytes over time against the ceiling, and DRAM bytes if counted."""
    nominal = f" ({share(shown.of_nominal)} of nominal)" if shown.of_nominal is not None else ""
    distinct, gbps = _distinct_bytes(timing) / 1e6, bandwidth(shown.gbps)
    text = f"  bytes     {distinct:.1f} MB distinct, {gbps} GB/s{nominal}"
    if card.ceiling_gbps:
        reached = (shown.gbps or 0) / card.ceiling_gbps
        text += f", {reached:.1%} of the measured {card.ceiling_gbps:.0f}"
    elif timing.environment.gpu:
        text += ", no measured ceiling of this GPU for as many bytes"
    return text + _dram(card.counters, timing, shown)


def _dram(counters: Counters | None, timing: Timing, shown: timings.Row) -> str:
    """Bytes read from DRAM, if counted on the GPU and in the L2 state of the timing."""
    read = counters.total.get("dram_read_bytes") if counters else None
    if counters is None or read is None or not shown.time_us:
        return ""
    if not state_of(timing).holds(counters):
        return ""
    trust = "" if read.stable else ", unstable"
    rate = read.value / shown.time_us / 1e3
    return f"; DRAM read {read.value / 1e6:.1f} MB, {rate:.0f} GB/s{trust}"
