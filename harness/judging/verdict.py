"""What follows from whether the work changed and whether the time did.

| | time same | time changed |
|---|---|---|
| work same | absent | unexplained |
| work changed | hidden | exposed |

and three ways of not knowing: floor, confounded, unclear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pagebench.profiles.counters import ratio_repeats, ratios

WORDS = ("absent", "hidden", "exposed", "unexplained", "confounded", "floor", "unclear")
# What is device work. The time is not in it, nor how busy a unit was: that follows from the time.
WORK = (
    "instructions",
    *("ldg", "ldgsts", "tma", "local_loads", "local_stores", "l1_requests", "l1_sectors"),
    *("l2_requests", "l2_sectors", "l2_hit_pct", "dram_read_bytes"),
)
HIT_MARGIN = 1.0  # percentage points: a hit rate is no count, and none is told from 0.1 and 0.3 %
# Stable traffic may differ by this much between two layouts of the same work.
TRAFFIC_MARGIN = 0.01
EXACT = 1e-9  # a count is an integer, its predicted ratio a quotient of two
LESS_IS_MORE = ("l2_hit_pct",)  # the more of it, the less work
SHORT_FLOORS = 10
BINDS = "what binds: "  # before the sentence that says so


@dataclass(frozen=True, slots=True)
class Work:
    """Stable counters of both cells, what was predicted of them, and whether one binary ran alike.

    `changed` maps counters to B over A, None where A had none of it; `from_knob` are those whose
    ratio the prediction gives.
    """

    changed: Mapping[str, float | None]
    compared: tuple[str, ...]
    from_knob: tuple[str, ...]
    same: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One of WORDS, and the sentences it rests on."""

    word: str
    because: tuple[str, ...]


def work_of(
    one: Mapping[str, Mapping[str, float]],
    other: Mapping[str, Mapping[str, float]],
    predicted: Mapping[str, float],
    same: Mapping[str, bool],
) -> Work:
    """Compare two cells' totals. `predicted` holds ratios B over A that layout or source give."""
    one, other = _with_hit_rate(one), _with_hit_rate(other)
    compared = tuple(
        name for name in WORK
        if name in one and name in other and one[name]["stable"] and other[name]["stable"]
    )  # fmt: skip
    changed = {
        name: _ratio(other[name]["value"], one[name]["value"])
        for name in compared
        if differs(name, one[name]["value"], other[name]["value"])
    }
    from_knob = tuple(
        name for name, ratio in changed.items()
        if name in predicted
        and ratio is not None
        and abs(ratio / predicted[name] - 1) <= max(_margin(name), EXACT)
    )  # fmt: skip
    return Work(changed, compared, from_knob, same)


def _ratio(value: float, over: float) -> float | None:
    return value / over if over else None


def _with_hit_rate(total: Mapping[str, Mapping[str, float]]) -> Mapping[str, Mapping[str, float]]:
    """The L2 hit rate beside its counts; as stable as both of them."""
    rate = ratios({name: entry["value"] for name, entry in total.items()}).get("l2_hit_pct")
    if not isinstance(rate, float):
        return total
    return {**total, "l2_hit_pct": {"value": rate, "stable": ratio_repeats(total, "l2_hit_pct")}}


def differs(name: str, one: float, other: float) -> bool:
    """Whether a counter moved: exactly, or for traffic and rates beyond a margin."""
    if name == "l2_hit_pct":
        return abs(other - one) > HIT_MARGIN
    return abs(other - one) > _margin(name) * max(abs(one), abs(other))


def _margin(name: str) -> float:
    return TRAFFIC_MARGIN if name.startswith(("l2_", "dram_", "l1_sectors")) else 0.0


def follows(work: Work, slower: bool) -> bool:
    """Whether the time moved as the predicted work did, or any work where none was predicted.

    More work is never faster: where a kernel with more of it is, something else moved the time.
    """
    names = work.from_knob or tuple(work.changed)
    return any(_grew(name, work.changed[name]) == slower for name in names)


def _grew(name: str, ratio: float | None) -> bool:
    return (ratio is None or ratio > 1) != (name in LESS_IS_MORE)


def judge(
    time_word: str,
    time_text: str,
    work: Work | None,
    floors: float,
    *,
    slower: bool = True,
    binding: str | None = None,
) -> Verdict:
    """The verdict from whether the time changed, what work changed, and how many floors it lasts.

    `time_word` is changed, same or unclear, and B `slower` than A or not; `work` is None where
    there are no counters.
    """
    if floors < SHORT_FLOORS:
        return Verdict("floor", (f"the call lasts {floors:.1f} floors of its clock", time_text))
    if work is None:
        missing = "no counters of both cells: pagebench profile A B counts them on a GPU"
        return Verdict("unclear", (time_text, missing))
    if not work.compared:
        return Verdict("unclear", (time_text, "no counter of both cells repeated"))
    because = [time_text, *_work_sentences(work)]
    if binding:
        because.append(BINDS + binding)
    if time_word == "unclear":
        return Verdict("unclear", (*because, "the interval of the time ratio is too wide"))
    word, reasons = _word(time_word == "changed", work, slower)
    return Verdict(word, (*because, *reasons))


def _word(changed: bool, work: Work, slower: bool) -> tuple[str, tuple[str, ...]]:
    """The word of a time that is known, and what keeps it from being `hidden` or `exposed`."""
    if not work.changed:
        return "unexplained" if changed else "absent", ()
    other = ", ".join(what for what, is_same in work.same.items() if not is_same)
    if other and not work.from_knob:
        return "confounded", (f"{other} differ, and no prediction gives the work's ratio",)
    if changed and not follows(work, slower):
        which = "the predicted work" if work.from_knob else "work"
        reason = f"{which} and the time moved in opposite directions"
        return "confounded" if other else "unexplained", (reason,)
    return "exposed" if changed else "hidden", ()


def _work_sentences(work: Work) -> list[str]:
    if not work.changed:
        return [f"no stable counter moved ({', '.join(work.compared)})"]
    moved = ", ".join(
        f"{name} from none" if ratio is None else f"{name} x {ratio:.4g}"
        for name, ratio in work.changed.items()
    )
    lines = [f"work moved: {moved}"]
    if work.from_knob:
        lines.append(f"as predicted from layout or source: {', '.join(work.from_knob)}")
    return lines
