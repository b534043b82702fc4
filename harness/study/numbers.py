"""How a study's tables format the numbers of records, and the commands that reproduce them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pagebench.harness.escape import shell
from pagebench.harness.records.counters import Counters
from pagebench.harness.show import timings as shown
from pagebench.harness.show.counters import OTHER_GRID
from pagebench.harness.study.figures import Ratio
from pagebench.harness.study.read import Timed

QUOTIENT = (
    "The interval of a ratio is the quotient of the far ends of both intervals. A ratio compares "
    "separate calls; a verdict compares interleaved ones."
)
UNSTABLE = "A * marks a counter that did not repeat within its tolerance."

# --- Times ----------------------------------------------------------------------------------------


def gb_of(found: Timed) -> float:
    return found.work.distinct_kv_bytes / 1e9


def time_text(found: Timed | None) -> str:
    return "" if found is None else f"{found.summary.median_us:.2f}"


def interval_text(found: Timed | None) -> str:
    if found is None or not found.summary.has_interval:
        return ""
    return f"{found.summary.low_us:.2f} to {found.summary.high_us:.2f}"


def ratio(other: Timed, one: Timed) -> Ratio:
    """Median of `other` over `one`, and the quotients of their intervals' far ends."""
    a, b = one.summary, other.summary
    return b.median_us / a.median_us, b.low_us / a.high_us, b.high_us / a.low_us


def percent(value: float) -> str:
    return f"{value - 1:+.2%}"


def ratio_text(found: Ratio) -> str:
    value, low, high = (percent(part) for part in found)
    return f"{value} [{low}, {high}]"


def notes(found: Timed) -> list[str]:
    """What a reader must know before using the number."""
    return shown.notes(found.timing, found.summary)


def note(found: Timed | None) -> str:
    return "; ".join(notes(found)) if found else ""


def notes_of(found: Mapping[str, Timed]) -> str:
    """Notes of several cells in one row, each after the names of its cells."""
    words: dict[str, list[str]] = {}
    for name, each in found.items():
        for line in notes(each):
            words.setdefault(line, []).append(name)
    return "; ".join(f"{', '.join(names)}: {line}" for line, names in words.items())


def files_of(timed: Iterable[Timed]) -> str:
    """A sentence that names the files of the timings; empty if there are none."""
    names = dict.fromkeys(found.file for found in timed)
    return f" Timings of {', '.join(names)}." if names else ""


# --- Counters -------------------------------------------------------------------------------------


def total(counters: Counters | None, name: str, scale: float = 1, digits: int = 0) -> str:
    """A counter of the call; marked if it did not repeat."""
    count = counters.total.get(name) if counters else None
    if count is None:
        return ""
    return f"{count.value / scale:,.{digits}f}{'' if count.stable else ' *'}"


def of_predicted(counters: Counters | None, name: str) -> str:
    if counters and counters.predicted.other_grids:
        return OTHER_GRID
    share = counters.over_predicted(name) if counters else None
    return "" if share is None else f"{share:.4f}"


def _ratio_of(counters: Counters | None, name: str) -> str:
    """A derived ratio; marked if one of its counters did not repeat."""
    value = counters.ratios.get(name) if counters else None
    if counters is None or not isinstance(value, float):
        return str(value or "")
    return f"{value:.1f}{'' if counters.ratio_repeats(name) else ' *'}"


def l2_hit(counters: Counters | None) -> str:
    return _ratio_of(counters, "l2_hit_pct")


def sectors(counters: Counters | None) -> str:
    return _ratio_of(counters, "l1_sectors_per_request")


def rate(counters: Counters | None, name: str) -> str:
    """A rate of the call's first kernel, the decode kernel."""
    decode = counters.kernels[0] if counters else None
    found = decode.median(name) if decode else None
    if decode is None or found is None:
        return ""
    return f"{found:.1f}{' *' if name in decode.unstable else ''}"


# --- Commands -------------------------------------------------------------------------------------


def commands_of(timed: Iterable[Timed], counted: Iterable[Counters] = ()) -> tuple[str, ...]:
    """The commands that measure the timings and count the counters again, one per record."""
    timings = (shown.command(found.timing) for found in timed)
    return (*timings, *map(counters_command, counted))


def counters_command(counters: Counters) -> str:
    """The command that counts this again; defaults are left out."""
    how = counters.how
    options = (
        (("--launches", how.launches), how.launches == 2),
        (("--single-pass",), "single" not in (how.replay_mode or "")),
        (("--l2", how.l2), how.l2 in (None, "cold")),
    )
    words = [word for words, is_default in options if not is_default for word in words]
    return shell("pagebench", "profile", counters.cell, *words)
