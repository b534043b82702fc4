"""Error rates of `compare` on processes recorded on the H200, resampled by process.

A false alarm is any SLOWER or FASTER among 24 measurements of nothing. Three ways to have nothing:
the processes of one run, cut in time order into a half and the next; the same processes dealt out
by chance; and stretches of two runs of one cell on two GPUs, each run centred on its own mean, its
spread enlarged by what centring takes away. Nothing is resampled by sample.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import permutations, product
from math import exp, sqrt
from statistics import fmean

import numpy as np
import pytest

from fakes import H200
from pagebench.harness.gate import times
from pagebench.harness.gate.outcome import Key
from pagebench.harness.gate.sides import Process, Side, sides
from pagebench.harness.gate.times import Estimates, decided, holm, noise_of
from pagebench.harness.records import store
from pagebench.harness.records.rounds import Rounds
from pagebench.harness.records.timing import Timing

FILES = (
    *("study", "study_other_gpu", "study_third_gpu", "study_rooms", "selftest"),
    *("repeats", "repeats_other_gpu", "repeats_third_gpu"),
)
A_SIDE, TOGETHER, DEALT = 4, 24, 40
Run = tuple[Process, ...]
Pair = tuple[Side, Side]

pytestmark = pytest.mark.skipif(not H200.exists(), reason="the records are not installed")


@cache
def runs() -> dict[Key, list[Run]]:
    """Processes of one measurement in one file, in time order, where there are more than a side
    takes."""
    found = defaultdict(list)
    for name in FILES:
        stored = store.read([H200 / f"{name}.jsonl"], Rounds, Timing)
        for key, side in sides(stored).items():
            if len(side.processes) > A_SIDE:
                found[key].append(side.processes)
    return found


def eights() -> list[Run]:
    return [run for every in runs().values() for run in every if len(run) >= 2 * A_SIDE]


def halves(run: Run) -> list[Run]:
    """The run from any of its processes on: a half and the next."""
    return [run[at:] + run[:at] for at in range(2 * A_SIDE)]


def dealt(run: Run) -> list[Run]:
    rng = np.random.default_rng(3)
    return [tuple(run[at] for at in rng.permutation(2 * A_SIDE)) for _ in range(DEALT)]


def cut(run: Run) -> Pair:
    return Side(run[:A_SIDE]), Side(run[A_SIDE : 2 * A_SIDE])


def slower(side: Side, ratio: float) -> Side:
    return Side(tuple(_slower(each, ratio) for each in side.processes))


def _slower(process: Process, ratio: float) -> Process:
    return replace(process, time_us=tuple(us * ratio for us in process.time_us))


def centred(run: Run) -> Run:
    """The run with a mean log time of 0: what differs between GPUs is gone."""
    middle, grown = fmean(each.level for each in run), sqrt(len(run) / (len(run) - 1))
    return tuple(_slower(p, exp((p.level - middle) * (grown - 1) - middle)) for p in run)


def stretches(run: Run) -> list[Run]:
    return [run[at : at + A_SIDE] for at in range(len(run) - A_SIDE + 1)]


def exchanged(every: Sequence[Run]) -> list[Pair]:
    """Stretches of two runs. Runs of two modes are left out: each GPU has its own share of them."""
    one_mode = [centred(run) for run in every if not _has_modes(run)]
    pairs = [
        (Side(a), Side(b))
        for one, other in permutations(one_mode, 2)
        for a, b in product(stretches(one), stretches(other))
    ]
    order = np.random.default_rng(5).permutation(len(pairs))
    return [pairs[at] for at in order[:DEALT]]


def _has_modes(run: Run) -> bool:
    found = Side(run).times
    return found is not None and found.modes is not None


@cache
def cells(way: str) -> list[list[Pair]]:
    """By cell, pairs of sides between which nothing changed."""
    if way == "exchanged":
        return [found for every in runs().values() if (found := exchanged(every))]
    deal = {"halves": halves, "dealt": dealt}[way]
    return [list(map(cut, deal(run))) for run in eights()]


def words(pairs: Sequence[Pair]) -> list[str]:
    usual = noise_of(pairs)
    found: list[Estimates] = [times.tested(*pair, usual) for pair in pairs]
    errors = holm([each.p for each in found])
    return [decided(each, error).word for each, error in zip(found, errors, strict=True)]


def changed(pairs: Sequence[Pair]) -> list[bool]:
    return [word == "changed" for word in words(pairs)]


def swept(way: str, count: int, planted: float = 1.0) -> Iterator[list[bool]]:
    """Which of 24 cells are called changed, many times; the first one is slower by `planted`."""
    rng, every = np.random.default_rng(11), cells(way)
    for _ in range(count):
        drawn = [every[at] for at in rng.choice(len(every), TOGETHER, replace=False)]
        pairs = [pairs[rng.integers(len(pairs))] for pairs in drawn]
        if planted != 1:
            pairs[0] = (pairs[0][0], slower(pairs[0][1], planted))
        yield changed(pairs)


def test_there_are_enough_runs() -> None:
    assert len(eights()) == 38
    assert len(cells("exchanged")) == 35


@pytest.mark.parametrize("way", ["halves", "dealt"])
def test_a_sweep_of_nothing_has_a_false_alarm_in_at_most_two_per_cent(way: str) -> None:
    assert fmean(any(found) for found in swept(way, 400)) <= 0.02


def test_false_alarms_between_gpus_are_of_the_one_cell_whose_processes_pick_levels() -> None:
    """Some 2 % of sweeps, all of them XQA's pages of 32 with distinct KV: on two of four GPUs its
    processes lie 3 % apart, so four of one level against four of the other look like a change. The
    samples of a run do not show two modes."""
    names = [key.cell for key, every in runs().items() if exchanged(every)]
    picking = names.index("xqa_distinct_p32_b32_l8192")
    found = [changed([pairs[at % len(pairs)] for pairs in cells("exchanged")]) for at in range(200)]
    alarms = {cell for each in found for cell, is_changed in enumerate(each) if is_changed}
    assert alarms <= {picking}
    assert fmean(any(each) for each in swept("exchanged", 400)) <= 0.02


@pytest.mark.parametrize("way", ["halves", "dealt", "exchanged"])
def test_a_cell_compared_alone_has_a_false_alarm_in_at_most_two_per_cent(way: str) -> None:
    """No other cell says what noise is usual, so processes that agree by chance weigh more."""
    alone = [changed([pair])[0] for pairs in cells(way) for pair in pairs]
    assert fmean(alone) <= 0.02


@pytest.mark.parametrize(
    ("way", "ratio", "least"),
    [
        ("halves", 1.02, 0.65),
        ("halves", 1.03, 0.9),
        ("exchanged", 1.02, 0.65),
        ("exchanged", 1.03, 0.8),
    ],
)
def test_one_slower_cell_of_24_is_found(way: str, ratio: float, least: float) -> None:
    """With four processes a side: docs/regressions.md states the rates."""
    assert fmean(found[0] for found in swept(way, 150, ratio)) >= least


def test_both_modes_three_per_cent_slower_are_found_and_nothing_is_no_share() -> None:
    """In the four runs of eight that have two modes."""
    bimodal = [at for at, run in enumerate(eights()) if _has_modes(run)]
    assert len(bimodal) == 4
    rng, every, found, quiet = np.random.default_rng(1), cells("halves"), [], []
    for _ in range(100):
        others = rng.permutation([at for at in range(len(every)) if at not in bimodal])
        at = (rng.choice(bimodal), *others[: TOGETHER - 1])
        pairs = [every[cell][rng.integers(len(every[cell]))] for cell in at]
        quiet += words(pairs)
        found.append(words([(pairs[0][0], slower(pairs[0][1], 1.03)), *pairs[1:]])[0])
    assert fmean(word == "changed" for word in found) >= 0.95
    assert not {"changed", "shared"} & set(quiet)


# --- Other rules, on the same processes: each takes one run a side ------------------------------


def flat(base: Side, head: Side, share: float) -> bool:
    """A threshold on the median, as pytest-benchmark's `--benchmark-compare-fail=median:N%`."""
    return abs(exp(head.first.level - base.first.level) - 1) > share


def clear_gap(base: Side, head: Side) -> bool:
    """FAST or SLOW of nvbench-compare-robust: the intervals from least to third quartile lie 0.5 %
    apart. Its check in cycles is left out: these records hold no clock of a sample."""
    (low, high), (least, most) = (
        (float(np.min(s.first.time_us)), float(np.quantile(s.first.time_us, 0.75)))
        for s in (base, head)
    )
    return (least - high) / high >= 0.005 or (low - most) / most >= 0.005


RULES: dict[str, Callable[[Side, Side], bool]] = {
    "a flat 5 %": lambda base, head: flat(base, head, 0.05),
    "a flat 1 %": lambda base, head: flat(base, head, 0.01),
    "a clear gap": clear_gap,
}


def by_rule(name: str, planted: float = 1.0) -> tuple[float, float]:
    """The share of sweeps with an alarm, and of those in which the slower cell is found."""
    rng, every, rule = np.random.default_rng(11), cells("halves"), RULES[name]
    found = []
    for _ in range(1000):
        drawn = [every[at] for at in rng.choice(len(every), TOGETHER, replace=False)]
        pairs = [pairs[rng.integers(len(pairs))] for pairs in drawn]
        pairs[0] = (pairs[0][0], slower(pairs[0][1], planted))
        found.append([rule(*pair) for pair in pairs])
    return fmean(map(any, found)), fmean(each[0] for each in found)


@pytest.mark.parametrize(
    ("name", "alarms", "found"),
    [("a flat 5 %", 0.0, 0.01), ("a flat 1 %", 0.98, 0.99), ("a clear gap", 0.17, 0.31)],
)
def test_other_rules_have_the_rates_that_are_stated(name: str, alarms: float, found: float) -> None:
    """False alarms in a sweep of nothing, and 3 % slower found: as in docs/regressions.md."""
    assert by_rule(name)[0] == pytest.approx(alarms, abs=0.05)
    assert by_rule(name, 1.03)[1] == pytest.approx(found, abs=0.05)
