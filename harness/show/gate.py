"""What a comparison of two files found: tables, a comment in Markdown, and its reasons in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pagebench.harness.escape import in_markdown
from pagebench.harness.gate.outcome import (
    JUDGED,
    MOVED,
    Comparison,
    Differs,
    Disturbed,
    Ended,
    FewProcesses,
    GateCaveat,
    InBoth,
    Key,
    Mixed,
    ModesPart,
    NotInCycles,
    Row,
    ShareUnclear,
    Times,
    Wide,
)
from pagebench.harness.records.caveats import Differing
from pagebench.harness.records.verdict import Change
from pagebench.harness.show.caveats import caveat
from pagebench.harness.show.identities import between
from pagebench.harness.show.text import markdown, number, plain, plural
from pagebench.harness.show.timings import WIDE, bimodal
from pagebench.harness.timing.stats import Modes

HEADINGS = (
    *("status", "cell", "clock, L2", "base us", "head us", "head over base", "detectable"),
    *("processes", "why"),
)
USUAL = ("run", "events", "cold")
MUCH = 2.0  # from this ratio on it is told as a factor
SAME_HASH = "not the code, whose hash is the same"
CAUSE_ALONE = {
    "code": "code",
    "method": "method",
    "hardware": "hardware",
    "noise": f"{SAME_HASH}: machine, clock or noise",
    "unknown": "nothing recorded differs, and no hash says whether the code is the same",
}

# --- The table ------------------------------------------------------------------------------------


def table(found: Comparison) -> str:
    """A row for each measurement, the worst first, under what all of them differ in."""
    everywhere = common(found)
    lines = [f"base and head differ in {_both(everywhere)}"] if everywhere else []
    rows = (cells_of(row, everywhere) for row in found.rows)
    return "\n".join([*lines, plain(HEADINGS, rows)])


def cells_of(row: Row, everywhere: Sequence[Differs] = ()) -> tuple[str, ...]:
    """A row as text, in the order of HEADINGS."""
    counts = [str(side.processes) if side else "0" for side in (row.base, row.head)]
    return (
        row.status,
        named(row.key),
        f"{row.key.clock}, {row.key.l2}",
        _us(row.base),
        _us(row.head),
        ratio(row),
        f"{row.time.detectable:.2%}" if row.time else "",
        " and ".join(counts),
        "; ".join(why(row, everywhere)),
    )


def named(key: Key) -> str:
    """The cell, with its boundary where that is unusual, and what it was interleaved with."""
    boundary = "" if key.boundary == USUAL[0] else f", {key.boundary}"
    others = [cell for cell in key.beside if cell != key.cell] or list(key.beside[1:])
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return f"{key.cell}{boundary}{f' beside {others[0]}{more}' if others else ''}"


def _us(side: Times | None) -> str:
    return number(side.time_us if side else None, 2)


def ratio(row: Row) -> str:
    """The change with its interval; without one where too few processes were measured."""
    if row.time:
        return f"{_step(row.time.ratio)} {_interval(row.time)}"
    return "" if row.ratio is None else f"{_step(row.ratio)}, no interval"


def _step(value: float) -> str:
    return f"{value - 1:+.2%}" if 1 / MUCH < value < MUCH else f"x {value:.3g}"


def _interval(time: Change) -> str:
    if 1 / MUCH < time.ratio < MUCH:
        return f"[{100 * (time.low - 1):+.2f}, {100 * (time.high - 1):+.2f}]"
    return f"[{time.low:.3g}, {time.high:.3g}]"


def common(found: Comparison) -> tuple[Differs, ...]:
    """Differences that all measurements of both files share, where there are several."""
    rows = [row for row in found.rows if row.base and row.head and row.status != "REFUSED"]
    if len(rows) < 2:
        return ()
    return tuple(each for each in rows[0].differs if all(each in row.differs for row in rows))


SHORTENED = {
    "uuid": 12,
    "commit": 12,
    "kernel file": 12,
    "binary": 20,
}  # characters that tell apart


def _both(found: Sequence[Differs | Differing]) -> str:
    """Both values of what differs; of long names the beginning."""
    return between(
        Differing(d.field, d.one[:most], d.other[:most])
        for d in found
        for most in (SHORTENED.get(d.field),)
    )


# --- Why ------------------------------------------------------------------------------------------


def why(row: Row, everywhere: Sequence[Differs] = ()) -> list[str]:
    """The causes of a move, what is discrete, and what a reader must know."""
    told = [each for each in row.differs if each not in everywhere]
    if row.status == "REFUSED":
        return [f"not comparable: {_both(told)}"]
    discrete = (*_work(row), *_modes(row))
    caveats = map(reason, row.caveats)
    if row.status in MOVED:
        return [*_causes(row, told), *discrete, *_size(row), *caveats]
    return [*caveats, *_code(told), *discrete]


def _causes(row: Row, told: Sequence[Differs]) -> Iterator[str]:
    if row.same_code and row.causes != ("noise",):
        yield SAME_HASH
    for cause in row.causes:
        mine = [each for each in told if each.of == cause]
        yield f"{cause}: {_both(mine)}" if mine else CAUSE_ALONE[cause]


def _code(told: Sequence[Differs]) -> Iterator[str]:
    mine = [each for each in told if each.of == "code"]
    if mine:
        yield f"code: {_both(mine)}"


def _work(row: Row) -> Iterator[str]:
    for name, times in row.work.items():
        yield f"{name} from zero" if times is None else f"{name} x {times:.4g}"


def _modes(row: Row) -> Iterator[str]:
    if row.status == "SHARE":
        yield "both modes are where they were"
    for name, side in (("base", row.base), ("head", row.head)):
        modes = side.modes if side else None
        if modes:
            told = bimodal(Modes(modes.fast_us, modes.slow_us, modes.slow_share))
            yield f"{name} {told}"


def _size(row: Row) -> Iterator[str]:
    time = row.time
    if time and row.status in MOVED and time.high - time.low > WIDE * time.ratio:
        yield "by how much is no measurement"


def reason(found: GateCaveat) -> str:
    """Why a measurement is not judged, or what a reader must know of it."""
    match found:
        case Ended(side, status, text):
            return f"{side}: {status}: {text}"
        case FewProcesses(_, _, least):
            return f"a decision takes {least} processes a side (run --processes {least})"
        case Mixed(side, differs):
            return f"the {side}'s processes were not made alike: {_both(differs)}"
        case Disturbed(what, side):
            return f"{what} in the {side} alone"
        case InBoth(_, True):
            return "every process of the head is one of the base"
        case InBoth(processes, False):
            return f"{plural(processes, 'process', 'es')} of the head stand in the base too"
        case _:
            return _of_time(found)


def _of_time(found: GateCaveat) -> str:
    match found:
        case Wide(None):
            return "the interval is too wide, and no reasonable number of processes narrows it"
        case Wide(needs):
            return f"the interval is too wide: some {needs} processes a side would decide"
        case NotInCycles(base_mhz, head_mhz, cycles):
            return (
                f"the SM clock went from {base_mhz:.0f} to {head_mhz:.0f} MHz, and in cycles it is "
                f"{_step(cycles.ratio)} {_interval(cycles)}"
            )
        case ShareUnclear():
            return "both modes are where they were; whether their share changed is unclear"
        case ModesPart(fast, slow):
            return (
                f"its two modes went apart: {_step(fast.ratio)} {_interval(fast)} and "
                f"{_step(slow.ratio)} {_interval(slow)}"
            )
        case other:
            return caveat(other)  # type: ignore[arg-type]


# --- All of it ------------------------------------------------------------------------------------


def summary(found: Comparison) -> str:
    """How many measurements have each status, and how they were tested."""
    counts = {status: len(found.of(status)) for status in ("SLOWER", "FASTER")}
    counts |= {row.status: len(found.of(row.status)) for row in found.rows}
    told = ", ".join(f"{number} {status}" for status, number in counts.items())
    tests = f"; {found.together} tested together at an error of {found.error:.0%} (Holm)"
    neither = f"; {found.refused} that neither side can run" if found.refused else ""
    return f"{told} of {len(found.rows)}{tests if found.together else ''}{neither}"


def comment(found: Comparison) -> str:
    """What changed and nothing else, in Markdown."""
    everywhere = common(found)
    changed = [
        row for row in found.rows if row.status not in ("SAME", "UNCLEAR") or row.code_changed
    ]
    lines = [f"**pagebench compare: {in_markdown(summary(found))}**"]
    if everywhere:
        lines += ["", in_markdown(f"Base and head differ in {_both(everywhere)}.")]
    if changed:
        rows = (_without_processes(cells_of(row, everywhere)) for row in changed)
        lines += ["", markdown(_without_processes(HEADINGS), rows)]
    return "\n".join(lines)


def _without_processes(cells: Sequence[str]) -> tuple[str, ...]:
    return (*cells[:7], *cells[8:])


def warnings(found: Comparison, *, strict: bool) -> Iterator[str]:
    """What must be said of the two files: why nothing was judged, or what to mistrust."""
    judged = len(found.of(*JUDGED))
    if not found.rows:
        yield "neither file has a measurement"
    elif all(row.base is None or row.head is None for row in found.rows):
        yield "the two files have no measurement in common"
    elif not judged:
        yield "nothing could be judged"
    elif strict and judged < len(found.rows):
        yield f"--strict: {len(found.rows) - judged} of {len(found.rows)} could not be judged"
    if judged and found.is_older:
        yield "the head was measured before the base: were they swapped?"
