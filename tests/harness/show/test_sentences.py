"""Sentences: every caveat and conclusion has its words, in their order."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from msgspec.structs import replace

from pagebench.harness.records.attack import Attack, ExtraWork, Variant
from pagebench.harness.records.calibration import Disagreement
from pagebench.harness.records.caveats import (
    Apart,
    Caveat,
    ClockMoved,
    Differing,
    HiddenProcesses,
    JudgingCaveat,
    LostProcess,
    NoCounters,
    NothingRepeats,
    NoTime,
    OneSided,
    OppositeWays,
    OtherBinary,
    OthersOnGpu,
    ShortCall,
    Throttled,
    TimingCaveat,
    WideInterval,
)
from pagebench.harness.records.dose import Dose, Spread, Step
from pagebench.harness.records.old_sentences import caveats_of
from pagebench.harness.records.planted import PlantedLoads, PlantedWait, PlantedWord
from pagebench.harness.records.verdict import Change, SameBinary, Verdict, Work
from pagebench.harness.show import sentences
from pagebench.harness.show.caveats import caveat as in_words
from pagebench.profiles.ceilings import CriticalPath

WORDS = {
    LostProcess("crashed", "no: why"): "a process was lost: crashed: no: why",
    Throttled(("power cap", "hardware thermal")): "throttled: power cap, hardware thermal",
    ClockMoved(1500, 1900): "SM clock moved 1500 to 1900 MHz",
    OthersOnGpu(1): "1 other process on the GPU",
    OthersOnGpu(2): "2 other processes on the GPU",
    NoTime("refused", "no pages of 3"): "no time: refused: no pages of 3",
    ShortCall(4.26): "the call lasts 4.3 floors of its clock",
    NoCounters(): (
        "a cell has no counters of this GPU: pagebench profile A B counts work, and pagebench "
        "doctor says whether it can"
    ),
    NoCounters(("a", "b")): (
        "a and b have no counters of this GPU: pagebench profile a b counts work, and pagebench "
        "doctor says whether it can"
    ),
    OneSided("throttled", ("a",)): "throttled while timing a, and not beside the other cell",
    OtherBinary(("module",), ("l1_requests",)): (
        "module differ, and no prediction gives the ratio of l1_requests"
    ),
    Apart("processes", ("a", "b"), (Differing("driver", "580", "570"),)): (
        "the processes of a and b were not made alike: driver 580 and 570"
    ),
    Apart("counters", ("a",), (Differing("resolved splits", "4", "8"),), refused=True): (
        "the counters of a are not used, for they are of something else: splits 4 and 8"
    ),
    Apart("ceilings", (), (Differing("library torch", "2.9.0", "2.13.0"),)): (
        "the ceilings are not of the timed run: torch 2.9.0 and 2.13.0"
    ),
    HiddenProcesses(): "cannot see who else is on the GPU",
    HiddenProcesses(0, 5): (
        "cannot see who else is on the GPU: before, 0.0 GB were in use and it was 5 % busy"
    ),
    NothingRepeats(): "no counter repeated in both cells",
    WideInterval(): "the interval of the time ratio is too wide",
    OtherBinary(("symbol", "resources")): (
        "symbol, resources differ, and no prediction gives the work's ratio"
    ),
    OppositeWays(True): "the predicted work and the time moved in opposite directions",
    OppositeWays(False): "work and the time moved in opposite directions",
}


@pytest.mark.parametrize(("found", "words"), WORDS.items(), ids=WORDS.values())
def test_a_caveat_has_its_words(found: Caveat, words: str) -> None:
    assert in_words(found) == words


def test_every_caveat_has_words() -> None:
    known = {type(found) for found in WORDS}
    assert known == {*get_args(TimingCaveat), *get_args(JudgingCaveat)} == {*get_args(Caveat)}


# As schema 1 worded them, where it did so differently, without what it could not say.
NEW = {
    HiddenProcesses(),
    HiddenProcesses(0, 5),
    NoCounters(("a", "b")),
    OneSided("throttled", ("a",)),
    OtherBinary(("module",), ("l1_requests",)),
}
OLD_WORDS = {
    found: words
    for found, words in WORDS.items()
    if found not in NEW and not isinstance(found, Apart)
} | {
    NoCounters(): "no counters of both cells: pagebench profile A B counts them on a GPU",
    NothingRepeats(): "no counter of both cells repeated",
}


@pytest.mark.parametrize(("found", "words"), OLD_WORDS.items(), ids=OLD_WORDS.values())
def test_the_words_of_schema_1_are_read(found: Caveat, words: str) -> None:
    (read,) = caveats_of([words])
    assert read.pop("caveat") == type(found).__struct_config__.tag
    whole = replace(found, floors=4.3) if isinstance(found, ShortCall) else found
    assert type(found)(**_as_read(read)) == whole


def _as_read(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}


# --- Verdicts -------------------------------------------------------------------------------------

SLOWER = Change("changed", 1.2265, 1.2201, 1.2329, 4, 0.0083, 0.05)
MOVED = Work(
    {"ldg": 3.9406, "local_loads": None}, ("ldg", "local_loads"), ("ldg",),
    SameBinary(symbol=True, launch=True, resources=True),
)  # fmt: skip
PATH = CriticalPath(
    {"launch": 2.0, "L2": 17.0, "DRAM": 17.2}, ("DRAM", "L2"), ("L2",), ("DRAM",), ("FMA",), 20.0,
    ("L2",),
)  # fmt: skip
TIME = (
    "time x 1.2265 [1.2201, 1.2329] over 4 processes, one of 9 judged together: changed "
    "(detectable effect 0.83%)"
)
BINDS = (
    "what binds: DRAM 17.2 us (unsaturated), L2 17.0 us (from its busy share of the time, "
    "unstable), launch 2.0 us; T 19.2 us, 96.0% of the 20.0 measured by events: DRAM or L2 binds; "
    "unknown: FMA"
)
VERDICT = Verdict(
    contrast="positive", knob="page size", cells=("xqa_shared_p64", "xqa_shared_p16"),
    word="exposed", among=9, predicts="exposed", time=SLOWER, time_us=(16.0, 20.0), floors=8.0,
    work=MOVED, path=PATH, caveats=(OthersOnGpu(1),),
)  # fmt: skip


def test_a_verdict_says_time_then_work_then_what_binds_then_caveats() -> None:
    assert sentences.verdict_lines(VERDICT) == [
        TIME,
        "work changed: ldg x 3.941, local_loads from zero",
        "as predicted from layout or source: ldg",
        BINDS,
        "1 other process on the GPU",
    ]


def test_the_reasons_of_a_verdict_stand_before_notes_on_the_times() -> None:
    caveats = (WideInterval(), Throttled(("power cap",)))
    *_, reason, note = sentences.verdict_lines(replace(VERDICT, word="unclear", caveats=caveats))
    assert (reason, note) == ("the interval of the time ratio is too wide", "throttled: power cap")


def test_a_short_call_is_said_first_and_its_work_is_not() -> None:
    short = replace(VERDICT, word="floor", caveats=(ShortCall(8.0), OthersOnGpu(1)))
    assert sentences.verdict_lines(short) == [
        "the call lasts 8.0 floors of its clock", TIME, "1 other process on the GPU",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("work", "caveat"),
    [(None, NoCounters()), (replace(MOVED, changed={}, compared=()), NothingRepeats())],
)
def test_without_counters_that_repeat_nothing_is_said_of_work(
    work: Work | None, caveat: Caveat
) -> None:
    found = replace(VERDICT, word="unclear", work=work, caveats=(caveat,))
    assert sentences.verdict_lines(found) == [TIME, in_words(caveat)]


def test_without_a_time_why_stands_alone() -> None:
    found = replace(
        VERDICT, word="unclear", time=None, time_us=None, caveats=(NoTime("crashed", "no"),)
    )
    assert sentences.verdict_lines(found) == ["no time: crashed: no"]


def test_counters_that_did_not_move_are_named() -> None:
    line, *_ = sentences.work_lines(replace(MOVED, changed={}, from_knob=()))
    assert line == "no stable counter changed (ldg, local_loads)"


@pytest.mark.parametrize(
    ("predicts", "said"),
    [
        ("exposed", "exposed, as predicted"),
        ("hidden", "exposed, but hidden was predicted"),
        (None, "exposed"),
    ],
)
def test_a_headline_says_whether_the_word_was_predicted(predicts: str | None, said: str) -> None:
    assert sentences.headline(replace(VERDICT, predicts=predicts)) == said


def test_a_verdict_judged_alone_says_nothing_of_others() -> None:
    assert "judged together" not in sentences.time_line(SLOWER, 1)


def test_where_latency_binds_it_is_said_what_that_means() -> None:
    path = CriticalPath({"launch": 2.0, "L2": 3.0}, ("latency",), (), (), (), 20.0)
    assert sentences.binding_line(path) == (
        "L2 3.0 us, launch 2.0 us; T 5.0 us, 25.0% of the 20.0 measured by events: latency binds "
        "(no counted work explains 90% of the time; the rest is waiting)"
    )


# --- Doses ----------------------------------------------------------------------------------------


def dose(*middles: float, **counters: tuple[float, ...]) -> Dose:
    """Steps of those microseconds, each within half of one."""
    cells = [f"xqa_shared_p{page}" for page in (16, 32, 64, 128)[: len(middles) + 1]]
    return Dose(
        regime="shared", knob="page size", cells=tuple(cells), values=tuple(cells), processes=4,
        times=(Spread(1.0, 2.0, 3.0),) * len(cells),
        steps=tuple(Step(us - 0.5, us, us + 0.5) for us in middles), counters=counters,
        caveats=(OthersOnGpu(1),),
    )  # fmt: skip


def test_a_dose_says_its_steps_what_was_tried_and_its_caveats() -> None:
    found = dose(-4.0, -2.0, ldg=(8000, 4000, 2000), tma=(0, 0, 1))
    moved, ldg, tma, note = sentences.dose_lines(found)
    assert moved == (
        "time changes step by step (interleaved samples): -4.0 [-4.5, -3.5], -2.0 [-2.5, -1.5] us"
    )
    assert ldg == "ldg at 1 ns a count gives -4.0, -2.0 us: fits every step"
    assert tma == "tma at 0 ns a count gives +0.0, +0.0 us: does not fit"
    assert note == "1 other process on the GPU"
    assert sentences.follows(found) == "ldg"


def test_as_many_costs_as_steps_are_no_test() -> None:
    found = dose(-4.0, ldg=(8000, 4000))
    assert sentences.dose_reasons(found)[1].endswith(
        "fits every step, but has one free cost for each step at which its counters change: the "
        "cost is not tested"
    )
    assert sentences.follows(found) == "possibly ldg (not tested)"


def test_counters_that_move_alike_are_named_with_their_candidate() -> None:
    found = dose(-4.0, -2.0, ldg=(8000, 4000, 2000), l1_requests=(80, 40, 20))
    assert sentences.dose_reasons(found)[1].startswith("ldg (alike: l1_requests) at 1 ns a count")


@pytest.mark.parametrize(
    ("found", "end", "follows"),
    [
        (dose(-4.0), "no stable counter changes between these cells",
         "unknown: some cells have no counters"),
        (dose(0.0, ldg=(2, 1)), "every step's interval contains zero: the time does not change",
         "no counter"),
        (dose(-4.0, ldg=(1, 2)),
         "no counter and no pair of counters explains every step", "no counter"),
        (dose(-4.0, -2.0, -9.0, ldg=(8, 4, 2, 2), tma=(9, 9, 9, 0)),
         "no single counter explains every step", "ldg with tma"),
    ],
)  # fmt: skip
def test_what_the_table_of_a_dose_does_not_say(found: Dose, end: str, follows: str) -> None:
    assert sentences.dose_ends(found) == [end]
    assert sentences.dose_reasons(found)[-1] == end
    assert sentences.follows(found) == follows


# --- Attacks --------------------------------------------------------------------------------------


def attack(how: str, word: str, given: str = "changed") -> Attack:
    variant = Variant(
        cells=("xqa_shared_p64", "xqa_shared_p16"), time=replace(SLOWER, word=given),
        delta=Step(30.0, 40.5, 50.0), work=ExtraWork("ldg", 304_128.0),
    )  # fmt: skip
    variants = (variant,) * (3 if how == "context" else 2)
    return Attack(how=how, cells=variant.cells, word=word, variants=variants)


def test_an_attack_says_each_variants_effect_and_what_a_scale_singles_out() -> None:
    *effects, said, besides = sentences.attack_lines(attack("context", "scales"))
    assert effects == [
        "xqa_shared_p64 to xqa_shared_p16: +40.50 us [+30.00, +50.00] (changed), ldg +304,128 "
        "predicted"
    ] * 3  # fmt: skip
    assert said == ("one cost per extra global load (LDG) predicted for B fits all three contexts")
    assert besides == sentences.SCALING_BESIDES


@pytest.mark.parametrize("word", ["constant", "neither", "unclear"])
def test_other_words_of_scaling_are_explained(word: str) -> None:
    assert sentences.attack_ends(attack("context", word)) == [sentences.scaling_line(word, "ldg")]


@pytest.mark.parametrize("how", ["context", "kernel"])
@pytest.mark.parametrize(
    ("given", "word", "said"),
    [
        ("same", "no effect", "the given cells do not differ: there is nothing to attack"),
        ("unclear", "unclear", "it is not known whether the given cells differ"),
    ],
)
def test_an_effect_that_is_not_there_is_not_attacked(
    how: str, given: str, word: str, said: str
) -> None:
    assert sentences.attack_ends(attack(how, word, given)) == [said]


def test_another_kernels_word_says_it_all() -> None:
    assert sentences.attack_ends(attack("kernel", "survives")) == []


# --- Instruments ----------------------------------------------------------------------------------


def test_instruments_and_disagreements_have_names() -> None:
    rows = (
        PlantedWord("c", "absent", "absent"),
        PlantedLoads("c", 1, 1),
        PlantedWait("c", 1.0, 1.0, 0.9, 1.1),
    )
    assert list(map(sentences.instrument, rows)) == ["verdict", "counter (LDG)", "clock (us)"]
    found = Disagreement("ldg", "cal_loads", (3.0, 3.0), 4)
    assert sentences.disagreement(found) == "ldg: [3.0, 3.0] in cal_loads, which executes 4"
