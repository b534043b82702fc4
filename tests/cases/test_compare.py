"""`pagebench compare`: every status, every exit code, and faults that nobody named.

3acd176 had no comparison of two files: a regression was found by eye, or not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from msgspec.structs import replace

from fakes import H200, pagebench_here
from fakes.compared import (
    AXES,
    CELL,
    HERE,
    NOISE,
    OTHER_CODE,
    counters,
    failed,
    later,
    samples,
    side,
    timing,
    written,
)
from pagebench.harness.records import store
from pagebench.harness.records.base import Record
from pagebench.harness.records.rounds import Rounds
from pagebench.harness.records.rounds import Side as RoundsSide
from pagebench.harness.records.timing import Timing

pytestmark = pytest.mark.usefixtures("in_tmp")


def compare(base: Sequence[Record], head: Sequence[Record], *options: str) -> CompletedProcess[str]:
    """Both sides in files of their own, compared."""
    for name, records in (("base.jsonl", base), ("head.jsonl", head)):
        Path(name).unlink(missing_ok=True)
        written(Path(name), *records)
    return pagebench_here("compare", "base.jsonl", "head.jsonl", *options)


def rows(base: Sequence[Record], head: Sequence[Record]) -> list[dict[str, Any]]:
    lines = map(json.loads, compare(base, head, "--json").stdout.splitlines())
    return [line for line in lines if "summary" not in line]


def row(base: Sequence[Record], head: Sequence[Record]) -> dict[str, Any]:
    (found,) = rows(base, head)
    return found


BASE = side(100.0)


# --- Words and exit codes -------------------------------------------------------------------------


def test_nothing_changed_is_same_and_0() -> None:
    done = compare(BASE, later(side(100.05)))
    assert (done.returncode, done.stderr) == (0, "")
    assert "SAME" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("0 SLOWER, 0 FASTER, 1 SAME of 1")


def test_slower_is_1_with_the_interval_and_what_would_be_found() -> None:
    found = row(BASE, later(side(102.0)))
    assert found["status"] == "SLOWER"
    assert found["time"]["low"] < 1.02 < found["time"]["high"]
    assert 0.004 <= found["time"]["detectable"] < 0.01
    assert compare(BASE, later(side(102.0))).returncode == 1


def test_faster_is_0_and_stands_above_what_is_the_same() -> None:
    both = [*BASE, *side(50.0, "other_distinct_p16")]
    done = compare(both, [*later(side(98.0)), *later(side(50.0, "other_distinct_p16"))])
    assert done.returncode == 0
    first, second = (line.split()[0] for line in done.stdout.splitlines()[1:3])
    assert (first, second) == ("FASTER", "SAME")
    assert "1 FASTER" in done.stdout
    assert "FASTER" in compare(BASE, later(side(98.0)), "--markdown").stdout


@pytest.mark.parametrize(("ratio", "said"), [(1.0, "+0.00%"), (1.3, "+30.00%"), (10.5, "x 10.5")])
def test_one_process_a_side_decides_nothing_and_says_why(ratio: float, said: str) -> None:
    """A script that takes two medians would say `same` of the first and `slower` of the others."""
    done = compare([timing(100.0)], later([timing(100.0 * ratio)]))
    assert done.returncode == 2
    assert "UNCLEAR" in done.stdout
    assert f"{said}, no interval" in done.stdout
    assert "a decision takes 4 processes a side (run --processes 4)" in done.stdout
    assert "nothing could be judged" in done.stderr


@pytest.mark.parametrize(("base", "head"), [(3, 5), (5, 3), (1, 5)])
def test_too_few_processes_on_one_side_decide_nothing(base: int, head: int) -> None:
    found = row(side(100.0, count=base), later(side(150.0, count=head)))
    assert (found["status"], found["time"]) == ("UNCLEAR", None)
    assert found["ratio"] == pytest.approx(1.5, rel=0.01)


def test_strict_ends_with_2_where_one_of_two_cells_is_not_judged() -> None:
    base, head = [*BASE, timing(9.0, 0, "few_distinct_p16")], later(BASE)
    head.append(later([timing(9.0, 0, "few_distinct_p16")])[0])
    assert compare(base, head).returncode == 2 - 2
    done = compare(base, head, "--strict")
    assert (done.returncode, done.stderr) == (2, "--strict: 1 of 2 could not be judged\n")
    assert compare(BASE, later(side(100.0)), "--strict").returncode == 0


def test_a_regression_is_1_also_where_another_cell_is_not_judged() -> None:
    base = [*BASE, timing(9.0, 0, "few_distinct_p16")]
    head = [*later(side(105.0)), *later([timing(9.0, 0, "few_distinct_p16")])]
    assert compare(base, head, "--strict").returncode == 1


def test_a_noisy_cell_is_unclear_and_says_how_many_processes_it_takes() -> None:
    wild = [timing(us, n) for n, us in enumerate((100, 102, 98.8, 100.8, 99.4))]
    found = row(wild, later([timing(us, n) for n, us in enumerate((100.8, 99.4, 102, 98.8, 100))]))
    assert found["status"] == "UNCLEAR"
    assert any("processes a side would decide" in why for why in found["why"])


# --- Both files -----------------------------------------------------------------------------------


def test_new_and_missing_cells_are_shown() -> None:
    done = compare(
        [*BASE, *side(1, "gone_distinct_p16")], [*later(BASE), *side(2, "new_shared_p1")]
    )
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[1:4]] == ["MISSING", "NEW", "SAME"]


def test_nothing_in_common_is_2() -> None:
    done = compare(side(1, "gone_distinct_p16"), side(2, "new_shared_p1"))
    assert done.returncode == 2
    assert "MISSING" in done.stdout
    assert done.stderr == "the two files have no measurement in common\n"


def test_a_cell_that_the_head_refuses_is_missing_with_the_reason() -> None:
    found = row(BASE, later([failed("refused", 0)]))
    assert (found["status"], found["why"]) == ("MISSING", ["head: refused: refused on purpose"])


def test_a_cell_that_neither_side_can_run_is_only_counted() -> None:
    no = failed("refused", 0, cell="no_distinct_p16")
    done = compare([*BASE, no], [*later(BASE), *later([no])], "--strict")
    assert done.returncode == 0
    assert "1 that neither side can run" in done.stdout


@pytest.mark.parametrize("count", [1, 5])
def test_the_same_file_twice_is_same(count: int) -> None:
    written(Path("base.jsonl"), *side(100.0, count=count))
    done = pagebench_here("compare", "base.jsonl", "base.jsonl")
    assert done.returncode == 0
    assert "SAME" in done.stdout
    assert f"{count} and {count} " in done.stdout
    assert "every process of the head is one of the base" in done.stdout


def test_a_line_that_stands_there_twice_counts_once() -> None:
    """Two files put together with `cat a a` are no more processes than one."""
    twice = side(100.0, count=2) * 3
    assert row(twice, later(side(110.0)))["status"] == "UNCLEAR"
    assert row(twice, later(side(110.0)))["base"]["processes"] == 2


def test_a_head_that_begins_as_a_copy_of_the_base_is_judged_by_what_is_new() -> None:
    """`cp base head` and `run --out head`: the old half would pull the ratio to 1."""
    found = row(BASE, [*BASE, *later(side(102.0))])
    assert found["status"] == "SLOWER"
    assert found["ratio"] == pytest.approx(1.02, abs=1e-3)
    assert "5 processes of the head stand in the base too" in found["why"]


def test_a_head_that_is_older_than_the_base_is_said() -> None:
    done = compare(later(BASE), side(98.0))
    assert "measured before the base: were they swapped?" in done.stderr


def test_sides_that_took_turns_are_not_swapped() -> None:
    early = replace(BASE[0], started="2026-12-03T00:00:00+00:00")
    assert compare([*BASE[1:], early], later(side(98.0))).stderr == ""


# --- What cannot be compared ----------------------------------------------------------------------

APART: dict[str, dict[str, Any]] = {
    "gpu": {"environment": replace(HERE, gpu="NVIDIA L40S")},
    "sm_count": {"environment": replace(HERE, sm_count=66)},
    "mig_slice": {"environment": replace(HERE, mig=True, mig_slice="1g.18gb")},
    "device": {"device": "cpu"},
    "clock": {"clock": "cupti"},
    "l2": {"l2": "warm"},
    "boundary": {"boundary": "plan"},
    "kv_len": {"axes": replace(AXES, kv_len=8192)},
}


@pytest.mark.parametrize("field", APART)
def test_what_was_not_measured_alike_is_refused_with_the_field(field: str) -> None:
    """The last is a name whose default changed from one version to the next."""
    head = later(side(300.0, **APART[field]))
    found = row(BASE, head)
    assert found["status"] == "REFUSED"
    assert field in {each["field"] for each in found["differs"]}
    assert found["time"] is None
    assert found["ratio"] is None
    done = compare(BASE, head)
    assert done.returncode == 2
    assert "not comparable" in done.stdout


def test_a_clock_that_both_have_is_compared_and_another_is_missing() -> None:
    base = [*BASE, *side(90.0, clock="graph")]
    head = later([*BASE, *side(80.0, clock="cupti")])
    found = {(each["clock"], each["status"]) for each in rows(base, head)}
    assert found == {("events", "SAME"), ("graph", "MISSING"), ("cupti", "NEW")}


@pytest.mark.parametrize("name", ["base", "head"])
def test_processes_of_one_side_that_were_not_made_alike_are_not_judged(name: str) -> None:
    """A file that was appended to after the driver was updated."""
    mixed = [*side(100.0), *side(90.0, environment=replace(HERE, driver="570.9"))]
    sides = (mixed, later(BASE)) if name == "base" else (BASE, later(mixed))
    found = row(*sides)
    assert (found["status"], found["ratio"]) == ("UNCLEAR", None)
    assert any(f"the {name}'s processes were not made alike: driver" in w for w in found["why"])


# --- Outputs that were wrong, processes that were lost --------------------------------------------


@pytest.mark.parametrize("status", ["wrong", "poisoned", "rejected"])
def test_a_base_whose_output_was_wrong_once_has_no_ratio(status: str) -> None:
    done = compare([*BASE, failed(status)], later(side(50.0)))
    assert done.returncode == 2
    assert f"base: {status}: {status} on purpose" in done.stdout
    assert "%" not in done.stdout


@pytest.mark.parametrize("status", ["wrong", "poisoned", "rejected"])
def test_a_head_whose_output_is_wrong_once_in_six_fails(status: str) -> None:
    done = compare(BASE, later([*side(50.0), failed(status)]))
    assert done.returncode == 1
    assert "FAILED" in done.stdout
    assert "%" not in done.stdout


def test_wrong_on_both_sides_is_no_news() -> None:
    done = compare([failed("wrong")], later([failed("wrong")]))
    assert (done.returncode, "UNCLEAR" in done.stdout) == (2, True)


def test_a_head_that_only_crashes_fails() -> None:
    assert compare(BASE, later([failed("crashed")])).returncode == 1


def test_a_killed_worker_is_said_and_the_others_decide() -> None:
    found = row(BASE, later([*side(102.0, count=4), failed("crashed")]))
    assert found["status"] == "SLOWER"
    assert "head: crashed: crashed on purpose" in found["why"]


def test_a_crash_that_was_measured_again_is_over() -> None:
    """As --resume does it: the same process has times later."""
    crash = failed("crashed", 0, started="2026-12-01T09:00:00+00:00")
    assert row(BASE, later([crash, *side(100.0)]))["why"] == []


# --- What may have moved it -----------------------------------------------------------------------

MOVED_BY: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "nothing": ({}, ["noise"], "not the code, whose hash is the same: machine, clock or noise"),
    "no hash": ({"binary": None}, ["unknown"], "no hash says whether the code is the same"),
    "another way of hashing": ({"binary": "library:1111"}, ["unknown"], "no hash says"),
    "other code": ({"binary": OTHER_CODE}, ["code"], "code: binary cubin:1111 and cubin:2222"),
    "another plan of the same code": (
        {"resolved": {"kernel": "k", "splits": 8}}, ["code"], "code: splits 4 and 8",
    ),
    "a file of one's own": (
        {"binary": None, "asked": {"kernel_sha": "bb"}}, ["code"], "kernel file aa and bb",
    ),
    "a library, and the code is the same": (
        {"versions": {"torch": "2.14.0", "triton": "3.9.0"}}, ["method"], "torch 2.13.0 and 2.14.0",
    ),
    "a library, and no hash": (
        {"versions": {"torch": "2.14.0", "triton": "3.9.0"}, "binary": None}, ["code"], "code: tor",
    ),
    "a driver": ({"driver": "590.1"}, ["hardware"], "not the code, whose hash is the same"),
    "another card": ({"uuid": "GPU-99999999-2222"}, ["hardware"], "hardware: UUID GPU-11111111"),
    "a variable": ({"variables": {"CUDA_X": "1"}}, ["method"], "method: variables none and CUDA_X"),
    "seconds": ({"asked": {"seconds": 0.1}}, ["method"], "method: seconds 2 and 0.1"),
    "our commit": ({"commit": "b" * 40}, ["method"], "method: commit aaaaaaaaaaaa and bbbb"),
    "code and card": (
        {"binary": OTHER_CODE, "uuid": "GPU-99999999-2222"}, ["code", "hardware"], "code: binary",
    ),
}  # fmt: skip


def changed(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a timing from fields of it, of its environment and of what was asked."""
    asked = replace(BASE[0].asked, **{"kernel_sha": "aa"} | fields.get("asked", {}))
    known = HERE.__struct_fields__
    environment = replace(HERE, **{k: v for k, v in fields.items() if k in known})
    rest = {k: v for k, v in fields.items() if k not in known}
    return rest | {"environment": environment, "asked": asked}


@pytest.mark.parametrize("what", MOVED_BY)
def test_a_move_is_sorted_by_what_differs(what: str) -> None:
    fields, causes, said = MOVED_BY[what]
    base = side(100.0, **changed({k: v for k, v in fields.items() if (k, v) == ("binary", None)}))
    found = row(base, later(side(103.0, **changed(fields))))
    assert (found["status"], found["causes"]) == ("SLOWER", causes)
    assert said in "; ".join(found["why"])


def test_an_equal_hash_says_nothing_of_the_host_where_the_clock_sees_it() -> None:
    for fields in ({"clock": "eager"}, {"clock": "wall", "boundary": "plan"}):
        found = row(side(100.0, **fields), later(side(103.0, **fields)))
        assert (found["same_code"], found["causes"]) == (None, ["unknown"])


def test_other_code_is_said_also_where_the_time_is_the_same() -> None:
    found = row(BASE, later(side(100.0, binary=OTHER_CODE)))
    assert (found["status"], found["same_code"], found["causes"]) == ("SAME", False, [])
    assert "code: binary cubin:1111 and cubin:2222" in found["why"]
    done = compare(BASE, later(side(100.0, binary=OTHER_CODE)), "--markdown")
    assert "| SAME |" in done.stdout


def test_what_was_counted_stands_beside_the_verdict() -> None:
    before = counters(128, ("k",), ldg=1000, instructions=5000, dram_read_bytes=1e6)
    after = counters(168, ("k", "merge"), ldg=560, instructions=2500, dram_read_bytes=5.5e5)
    found = row([*BASE, before], [*later(side(104.0)), after])
    assert found["work"] == {"ldg": 1.12}
    fields = {each["field"]: (each["one"], each["other"]) for each in found["differs"]}
    assert fields["kernels"] == ("1", "2")
    assert fields["symbols"] == ("k", "k, merge")
    assert fields["registers"] == ("128", "168, 168")
    assert found["causes"] == ["code"]
    assert "ldg x 1.12" in found["why"]


def test_kernels_that_cupti_saw_are_compared() -> None:
    def seen(*symbols: str) -> dict[str, Any]:
        return {"clock": "cupti", "samples": replace(samples(100.0), kernels=symbols)}

    found = row(side(1, **seen("decode")), later(side(1, **seen("decode", "merge"))))
    assert "code: kernels 1 and 2, symbols decode and decode, merge" in found["why"]


def test_counters_of_another_call_are_not_put_beside_it() -> None:
    other = replace(counters(ldg=9000), resolved={"kernel": "k", "splits": 9})
    assert row([*BASE, counters(ldg=1000)], [*later(BASE), other])["work"] == {}


# --- Under fire -----------------------------------------------------------------------------------

DISTURBED: dict[str, dict[str, Any]] = {
    "throttled": {"samples": samples(100.0, throttle=("power cap",))},
    "others on the GPU": {"environment": replace(HERE, other_processes=1)},
    "busy machine": {"environment": replace(HERE, load=9.0, cores=2)},
}


@pytest.mark.parametrize("what", DISTURBED)
@pytest.mark.parametrize("name", ["base", "head"])
def test_what_disturbs_one_side_alone_is_not_judged(what: str, name: str) -> None:
    """One process of five is enough."""
    odd = [*side(103.0, count=4), timing(103.0, 4, **DISTURBED[what])]
    found = row(odd, later(BASE)) if name == "base" else row(BASE, later(odd))
    assert found["status"] == "UNCLEAR"
    assert f"{what} in the {name} alone" in found["why"]


def test_throttling_on_both_sides_is_said() -> None:
    hot = {"samples": samples(100.0, throttle=("power cap",))}
    base = [timing(100.0, n, **hot) for n in range(5)]
    assert row(base, later(base))["why"] == ["throttled: power cap"]


def test_a_time_that_moved_with_the_clock_is_not_slower() -> None:
    slow = [timing(1, n, samples=samples(100 * (1 + n / 5000) * 1.1, mhz=1800)) for n in range(5)]
    fast = [timing(1, n, samples=samples(100 * (1 + n / 5000), mhz=1980)) for n in range(5)]
    found = row(fast, later(slow))
    assert found["status"] == "UNCLEAR"
    assert any("the SM clock went from 1980 to 1800 MHz" in why for why in found["why"])
    assert compare(fast, later(slow)).returncode == 2


def test_a_time_that_moved_more_than_the_clock_is_slower() -> None:
    slow = [timing(1, n, samples=samples(100 * (1 + n / 5000) * 1.3, mhz=1800)) for n in range(5)]
    fast = [timing(1, n, samples=samples(100 * (1 + n / 5000), mhz=1980)) for n in range(5)]
    found = row(fast, later(slow))
    assert (found["status"], found["causes"]) == ("SLOWER", ["noise"])
    assert any("SM clock moved" in why for why in found["why"])


def test_a_clock_that_barely_moved_takes_no_slower_cell_away() -> None:
    """0.43 % slower is called so, 0.38 % would not be; the clock is 0.05 % lower."""
    slow = [timing(1, n, samples=samples(100.43 * (1 + n / 9e4), mhz=1979)) for n in range(5)]
    fast = [timing(1, n, samples=samples(100.0 * (1 + n / 9e4), mhz=1980)) for n in range(5)]
    assert row(fast, later(slow))["status"] == "SLOWER"


def test_a_call_of_few_floors_says_so() -> None:
    assert "the call lasts 4.0 floors of its clock" in row(side(10.0), later(side(10.0)))["why"]


def test_a_move_of_unknown_size_is_said_to_be_no_measurement() -> None:
    base = [timing(100.0 + n / 10, n) for n in range(5)]
    head = later([timing(us, n) for n, us in enumerate((160.0, 190.0, 200.0, 210.0, 240.0))])
    found = row(base, head)
    assert found["status"] == "SLOWER"
    assert "by how much is no measurement" in found["why"]


def test_a_compile_in_the_middle_is_one_sample() -> None:
    times = (9e5, *samples(100.0).time_us[1:])
    late = [replace(each, samples=replace(samples(100.0), time_us=times)) for each in BASE]
    assert row(BASE, later(late))["status"] == "SAME"


def test_a_coarse_clock_makes_no_certainty_out_of_equal_times() -> None:
    """Steps of 2 %: all processes of a side read the same, one step apart."""

    def ticks(us: float) -> Any:
        times = (us, us, us, 51.0, 50.0) * 8
        return replace(samples(us), time_us=times)

    base = [timing(1, n, samples=ticks(50.0)) for n in range(5)]
    head = later([timing(1, n, samples=ticks(51.0)) for n in range(5)])
    assert row(base, head)["status"] == "UNCLEAR"


# --- Two modes ------------------------------------------------------------------------------------


def bimodal(fast: float, slow: float, slow_of_ten: int) -> list[Timing]:
    """Five processes whose samples lie at either time."""
    levels = [slow if at < slow_of_ten else fast for at in range(10)]
    noisy = [[us * (1 + 3 * noise) for us in levels] for noise in (0.0, 2e-4, -1e-4, 1e-4, -2e-4)]
    return [timing(1, n, samples=samples(*each)) for n, each in enumerate(noisy)]


def test_equal_modes_with_another_share_is_its_own_word() -> None:
    found = row(bimodal(100, 105, 2), later(bimodal(100, 105, 8)))
    assert found["status"] == "SHARE"
    assert "both modes are where they were" in found["why"]
    assert found["base"]["modes"]["slow_share"] == pytest.approx(0.2)
    assert compare(bimodal(100, 105, 2), later(bimodal(100, 105, 8))).returncode == 0


def test_two_modes_that_both_moved_are_slower_by_the_lesser_move() -> None:
    found = row(bimodal(100, 105, 2), later(bimodal(103, 110.25, 6)))
    assert found["status"] == "SLOWER"
    assert found["time"]["ratio"] == pytest.approx(1.03, abs=0.002)


def test_two_modes_of_which_one_moved_are_unclear() -> None:
    found = row(bimodal(100, 105, 5), later(bimodal(100, 110, 5)))
    assert found["status"] == "UNCLEAR"
    assert any("its two modes went apart" in why for why in found["why"])


def test_equal_modes_whose_share_wanders_are_unclear_for_that() -> None:
    """Processes of a cell pick the slow mode a third of the time, more or less."""

    def wandering(*slow_of_ten: int) -> list[Timing]:
        return [replace(bimodal(100, 105, s)[n], process=n) for n, s in enumerate(slow_of_ten)]

    found = row(wandering(2, 8, 3, 7, 4), later(wandering(7, 8, 2, 5, 9)))
    assert found["status"] == "UNCLEAR"
    assert any("whether their share changed is unclear" in why for why in found["why"])


def test_equal_modes_and_shares_are_same() -> None:
    assert row(bimodal(100, 105, 3), later(bimodal(100, 105, 3)))["status"] == "SAME"


# --- Files ----------------------------------------------------------------------------------------


def test_a_line_that_a_kill_cut_off_is_said_and_the_rest_is_judged() -> None:
    written(Path("base.jsonl"), *BASE)
    written(Path("head.jsonl"), *later(side(102.0)))
    with Path("head.jsonl").open("a") as file:
        file.write(Path("base.jsonl").read_text().splitlines()[0][:700])
    done = pagebench_here("compare", "base.jsonl", "head.jsonl")
    assert done.returncode == 1
    assert "head.jsonl, line 6: cut off, so it is left out" in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no times in head.jsonl: no records"),
        ("cell,us\nx,1\n", "head.jsonl, line 1: not a JSON record"),
        ('{"machine_info": {}, "benchmarks": []}\n', "head.jsonl, line 1: not a pagebench record"),
        ('{"kind": "timing", "schema": 99}\n', "schema 99"),
        ('{"kind": "timing", "schema": 1, "cell": "a_distinct_p1"}\n', "head.jsonl, line 1"),
    ],
)
def test_a_file_that_is_none_of_ours_is_one_line_and_2(content: str, said: str) -> None:
    written(Path("base.jsonl"), *BASE)
    Path("head.jsonl").write_text(content)
    for words in (("base.jsonl", "head.jsonl"), ("head.jsonl", "base.jsonl")):
        done = pagebench_here("compare", *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert said in done.stderr


def test_binary_and_missing_files_are_one_line_and_2() -> None:
    Path("bytes").write_bytes(b"\xff\xfe\0")
    for name in ("bytes", "absent.jsonl", "."):
        done = pagebench_here("compare", name, name)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_counters_alone_are_no_times() -> None:
    done = compare([counters(ldg=1)], BASE)
    assert done.returncode == 2
    assert done.stderr == "no times in base.jsonl: only counters records\n"


def test_an_older_schema_is_compared_and_what_it_does_not_know_is_no_difference() -> None:
    lines = [json.loads(line) for line in (H200 / "repeats.jsonl").read_text().splitlines()]
    assert all("schema" not in line or line["schema"] < 4 for line in lines)
    with Path("head.jsonl").open("w") as file:
        for line in lines:
            line["samples"]["time_us"] = [us * 1.05 for us in line["samples"]["time_us"]]
            file.write(json.dumps(line) + "\n")
    done = pagebench_here("compare", str(H200 / "repeats.jsonl"), "head.jsonl", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()][:-1]
    assert done.returncode == 1
    assert len(found) == 13
    slower = [each for each in found if each["status"] == "SLOWER"]
    assert len(slower) >= 11
    assert {tuple(each["causes"]) for each in slower} == {("unknown",)}


def test_rounds_of_a_verdict_are_compared_with_each_other_and_with_no_lone_process() -> None:
    rounds = store.read([H200 / "study.jsonl"], Rounds).of(Rounds)
    slower = [replace(r, rounds=tuple(tuple(us * 1.04 for us in each) for each in r.rounds),
                      written="2027-01-01") for r in rounds]  # fmt: skip
    found = rows(rounds, slower)
    words = {each["status"] for each in found}
    assert words <= {"SLOWER", "UNCLEAR"}
    assert sum(each["status"] == "SLOWER" for each in found) > 30
    assert all(each["beside"] for each in found)
    alone = [each for each in rounds if each.cells == ("xqa_shared_p64", "xqa_shared_p16")]
    lone = store.read([H200 / "repeats.jsonl"], Timing).of(Timing)
    refused = [each for each in rows(alone, lone) if each["status"] == "REFUSED"]
    assert {each["cell"] for each in refused} == {"xqa_shared_p64", "xqa_shared_p16"}
    assert {d["field"] for each in refused for d in each["differs"]} == {"beside"}


def test_rounds_of_one_process_are_one_process() -> None:
    """An attack times its pair again in the process that timed the contrast."""
    rounds = store.read([H200 / "study.jsonl"], Rounds).of(Rounds)
    pair = [each for each in rounds if each.cells == ("xqa_shared_p64", "xqa_shared_p16")]
    assert (len(pair), len({each.process for each in pair})) == (12, 4)
    assert {each["base"]["processes"] for each in rows(pair, pair)} == {4}


@pytest.mark.parametrize(
    ("what", "seen"),
    [
        ("throttled", RoundsSide(throttle=("power cap",))),
        ("others on the GPU", RoundsSide(other_processes=1)),
    ],
)
def test_what_disturbed_one_cell_of_rounds_is_of_that_cell(what: str, seen: RoundsSide) -> None:
    base = [rounds(n) for n in range(4)]
    head = [rounds(n + 4, sides=(RoundsSide(), seen), throttle=("power cap",)) for n in range(4)]
    found = {each["cell"]: each for each in rows(base, head)}
    assert found["a_distinct_p1"]["status"] == "SAME"
    assert f"{what} in the head alone" in found["b_distinct_p1"]["why"]


def rounds(process: int, **fields: Any) -> Rounds:
    """One process of two cells, a there, b there, b back, a back."""
    times = tuple((100 + n % 3 / 50, 50.0 + n % 3 / 99, 50.01, 100.03) for n in range(process, 30))
    told: dict[str, Any] = {"clock": "events", "l2": "cold", "status": "measured", "floor_us": 2.5}
    cells = ("a_distinct_p1", "b_distinct_p1")
    return Rounds(cells=cells, process=process, rounds=times, environment=HERE, **told | fields)


# --- Ways of saying it ----------------------------------------------------------------------------


def test_json_is_a_line_a_cell_and_a_summary() -> None:
    done = compare(BASE, later(side(102.0)), "--json")
    first, last = map(json.loads, done.stdout.splitlines())
    assert first["cell"] == CELL
    assert {"status", "ratio", "time", "same_code", "differs", "work", "causes"} <= set(first)
    assert last["summary"]["statuses"]["SLOWER"] == 1
    assert last["summary"]["error"] == 0.02


def test_markdown_holds_what_changed_and_nothing_else() -> None:
    base = [*BASE, *side(50.0, "other_distinct_p16"), timing(9.0, 0, "few_distinct_p16")]
    head = [*later(side(102.0)), *later(side(50.0, "other_distinct_p16")),
            *later([timing(9.0, 0, "few_distinct_p16")])]  # fmt: skip
    done = compare(base, head, "--markdown")
    assert "| SLOWER | mine_distinct_p16 | events, cold |" in done.stdout
    assert "other_distinct_p16" not in done.stdout
    assert "few_distinct_p16" not in done.stdout
    assert "1 UNCLEAR, 1 SAME of 3" in done.stdout
    quiet = compare(BASE, later(side(100.0)), "--markdown")
    assert "|" not in quiet.stdout


def test_what_a_record_says_reaches_neither_terminal_nor_markdown_as_more() -> None:
    evil = {"kernel": "k", "splits": "\x1b[2J<img src=x>|"}
    for option in ((), ("--markdown",), ("--json",)):
        done = compare(BASE, later(side(103.0, resolved=evil)), *option)
        assert "\x1b" not in done.stdout
        assert option == () or option == ("--json",) or "<img" not in done.stdout


def test_two_ways_of_printing_are_one_too_many() -> None:
    done = compare(BASE, BASE, "--json", "--markdown")
    assert (done.returncode, done.stderr) == (2, "use only one of --json and --markdown\n")


def test_what_would_be_found_grows_with_the_cells_beside_it() -> None:
    def detectable(count: int) -> float:
        every = [
            timing(100.0 * (1 + 4 * noise), n, f"c{cell}_distinct_p16")
            for cell in range(count)
            for n, noise in enumerate(NOISE)
        ]
        first = rows(every, later(every))[0]
        assert first["status"] == "SAME"
        return float(first["time"]["detectable"])

    assert detectable(1) < detectable(3)


def test_24_cells_are_corrected_for_and_say_so() -> None:
    cells = [f"c{n}_distinct_p16" for n in range(24)]
    base = [each for cell in cells for each in side(100.0, cell)]
    head = [
        each for cell in cells for each in later(side(101.5 if cell == cells[3] else 100.0, cell))
    ]
    done = compare(base, head)
    assert done.returncode == 1
    assert done.stdout.splitlines()[1].split()[:2] == ["SLOWER", cells[3]]
    assert "1 SLOWER, 0 FASTER, 23 SAME of 24; 24 tested together at an error of 2% (Holm)" in (
        done.stdout
    )
