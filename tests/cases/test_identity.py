"""No number is put together with another of a different identity without a word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes import DATA, pagebench_here
from fakes import H200 as RECORDED
from fakes.made import ceilings, rounds
from fakes.ncu_pages import recorded
from pagebench.harness.cell import Cell
from pagebench.harness.cli.report import report
from pagebench.harness.contrasts import find_contrasts
from pagebench.harness.environment import Environment, variables
from pagebench.harness.judging.verdict import verdict_of
from pagebench.harness.judging.work import expected_work, work_between
from pagebench.harness.records import identity, store
from pagebench.harness.records.base import Record
from pagebench.harness.records.caveats import Apart
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.rounds import Rounds
from pagebench.harness.records.select import Evidence
from pagebench.harness.records.timing import Samples, Timing
from pagebench.harness.records.verdict import Verdict
from pagebench.harness.show.caveats import caveat as in_words
from pagebench.harness.show.identities import word
from pagebench.harness.timing.interleaved import Interleaved

H200 = Environment(
    gpu="NVIDIA H200", uuid="GPU-11111111-2222-3333", sm_count=132, driver="580.1", cuda="13.0",
    capability=(9, 0), mig=False, ecc=True, power_limit_w=700.0, memory_bus_bits=6144,
    versions={"torch": "2.13.0", "triton": "3.9.0"}, variables={}, torch_threads=4, cpu="x",
)  # fmt: skip
PLANTED: dict[str, tuple[dict[str, Any], str]] = {
    "gpu": ({"gpu": "NVIDIA L40S"}, "GPU NVIDIA L40S"),
    "uuid": ({"uuid": "GPU-99999999-2222-3333"}, "GPU-99999999"),
    "sm_count": ({"sm_count": 66}, "SMs 66"),
    "mig_slice": ({"mig_slice": "1g.18gb"}, "slice 1g.18gb"),
    "driver": ({"driver": "570.9"}, "driver 570.9"),
    "cuda": ({"cuda": "12.8"}, "CUDA 12.8"),
    "library torch": ({"versions": {"torch": "2.9.0", "triton": "3.9.0"}}, "torch 2.9.0"),
    "variables": ({"variables": {"CUDA_LAUNCH_BLOCKING": "1"}}, "CUDA_LAUNCH_BLOCKING=1"),
    "ecc": ({"ecc": False}, "ECC False"),
    "power_limit_w": ({"power_limit_w": 350.0}, "power limit W 350"),
    "torch_threads": ({"torch_threads": 8}, "torch threads 8"),
    "capability": ({"capability": (8, 9)}, "capability (8, 9)"),
    "memory_bus_bits": ({"memory_bus_bits": 384}, "memory bus bits 384"),
}
OF_CALL: dict[str, tuple[dict[str, Any], str]] = {
    "binary": ({"binary": "text:ffff"}, "binary text:ffff"),
    "resolved splits": ({"resolved": {"kernel": "k", "splits": 9}}, "splits 9"),
    "resolved kernel": ({"resolved": {"kernel": "other", "splits": 4}}, "kernel other"),
}
EVERY = {
    **{name: ({"environment": replace(H200, **f)}, said) for name, (f, said) in PLANTED.items()},
    **OF_CALL,
}


def timed(time_us: float, process: int = 0, **fields: Any) -> Timing:
    """A measured record on the H200, with times round `time_us`."""
    (golden,) = store.read([DATA / "timing_schema1.jsonl"], Timing).of(Timing)
    assert isinstance(golden.samples, Samples)
    times = tuple(time_us * (1 + 0.001 * (i % 5)) for i in range(40))
    known: dict[str, Any] = {"environment": H200, "binary": "text:0000", "process": process}
    known["resolved"] = {"kernel": "k", "splits": 4}
    return replace(golden, samples=replace(golden.samples, time_us=times), **known | fields)


def reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], timings: Sequence[Timing], *options: str
) -> list[str]:
    """The lines that `report` prints of the records."""
    path = tmp_path / "two.jsonl"
    store.append(path, *timings)
    report([path], **{option: True for option in options})
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("field", EVERY)
def test_a_planted_difference_in_every_field_is_found_and_nothing_else(field: str) -> None:
    """3acd176 compared a GPU's model in some joins and nothing in the others."""
    fields, _ = EVERY[field]
    one, other = (identity.of_timing(each) for each in (timed(1.0), timed(1.0, **fields)))
    assert [each.field for each in identity.differences(one, other)] == [field]
    assert identity.differences(one, one) == ()


@pytest.mark.parametrize("field", EVERY)
def test_processes_of_two_identities_are_not_pooled(
    field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """3acd176 printed `2 processes, median 333, bimodal` of an H200 at 222 us and another GPU at
    444 us."""
    fields, said = EVERY[field]
    here = [timed(222.0, process) for process in (0, 1)]
    there = [timed(444.0, process, **fields) for process in (0, 1)]
    lines = reported(tmp_path, capsys, [*here, *there], "repeats")
    assert len(lines) == 3
    assert "222." in lines[1]
    assert "444." in lines[2]
    assert said in lines[2]
    assert all("unimodal" in line for line in lines[1:])


@pytest.mark.parametrize("field", EVERY)
def test_clocks_shows_both_identities_and_compares_neither_with_the_other(
    field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """3acd176 showed the last record alone."""
    fields, said = EVERY[field]
    lines = reported(tmp_path, capsys, [timed(222.0), timed(444.0, **fields)], "clocks")
    assert len(lines) == 3
    assert "222." in lines[1]
    assert "444." in lines[2]
    assert said in lines[2]


def test_two_rows_of_one_cell_say_which_gpu_they_are_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """3acd176 printed two rows that nothing told apart."""
    other = replace(H200, gpu="NVIDIA L40S", uuid="GPU-9", sm_count=142)
    timings = [timed(222.0), timed(444.0, environment=other)]
    for options in ((), ("markdown",)):
        lines = reported(tmp_path, capsys, timings, *options)
        timings = []
        assert [line for line in lines if "222." in line and "GPU NVIDIA H200" in line]
        assert [line for line in lines if "444." in line and "GPU NVIDIA L40S" in line]


def test_two_processes_of_one_identity_are_pooled_as_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = reported(tmp_path, capsys, [timed(222.0, 0), timed(223.0, 1)], "repeats")
    assert len(lines) == 2
    assert "[" not in lines[1]


def test_what_an_old_record_does_not_know_is_no_difference() -> None:
    old = timed(1.0, environment=Environment(gpu="NVIDIA H200"), binary=None)
    assert identity.differences(*map(identity.of_timing, (old, timed(1.0)))) == ()


def test_hashes_of_two_kinds_are_not_compared_and_count_as_unknown() -> None:
    one, other = (identity.of_timing(timed(1.0, binary=b)) for b in ("text:00", "sass:11"))
    assert identity.differences(one, other) == ()
    assert not identity.is_binary_known(one, other)


def test_variables_that_change_speed_stand_in_the_record_without_places() -> None:
    """3acd176 recorded none. Which device was chosen stands elsewhere in the record."""
    given = {
        "CUDA_LAUNCH_BLOCKING": "1", "TRITON_CACHE_DIR": "/home/ann/cache", "CUTLASS_X": "2",
        "FLASHINFER_EXTRA_CUDAFLAGS": "-O1 -I/home/ann/include", "CUBLAS_WORKSPACE_CONFIG": ":16:8",
        "NVIDIA_TF32_OVERRIDE": "0", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "PYTORCH_ALLOC_CONF": "backend:native", "OMP_NUM_THREADS": "3", "HOME": "/home/ann",
        "CUDA_VISIBLE_DEVICES": "1", "CUDA_HOME": "/opt/cuda-13.0/",
    }  # fmt: skip
    found = variables(given)
    assert set(given) - set(found) == {"HOME", "CUDA_VISIBLE_DEVICES"}
    assert found["TRITON_CACHE_DIR"] == "cache"
    assert found["FLASHINFER_EXTRA_CUDAFLAGS"] == "-O1 -Iinclude"
    assert found["CUDA_HOME"] == "cuda-13.0"
    assert found["CUDA_LAUNCH_BLOCKING"] == "1"
    assert not any("ann" in value for value in found.values())


# --- Baselines ------------------------------------------------------------------------------------

CELL = "xqa_shared_p16"
OF_SOFTWARE = ("driver", "cuda", "library torch", "variables")
OF_MODEL = ("gpu", "sm_count", "mig_slice", "capability")


def counted(**fields: Any) -> Counters:
    """Counters of one cell on the H200."""
    (found,) = (each for each in recorded() if each.cell == CELL)
    known = {"environment": H200, "binary": "text:0000", "resolved": {"kernel": "k", "splits": 4}}
    return replace(found, **known | fields)


def baseline(command: str, tmp_path: Path, *records: Counters) -> tuple[int, str]:
    """The exit code of `pagebench baseline save|check` with those records, and what it says."""
    path = tmp_path / f"{command}.jsonl"
    path.unlink(missing_ok=True)
    store.append(path, *records)
    done = pagebench_here("baseline", command, str(tmp_path / "b.json"), "--counters", str(path))
    return done.returncode, done.stderr


@pytest.mark.parametrize("field", OF_MODEL)
def test_a_baseline_of_another_gpu_refuses_in_one_line(field: str, tmp_path: Path) -> None:
    """3acd176 wrote counts alone, and compared any GPU's with them."""
    fields, said = EVERY[field]
    baseline("save", tmp_path, counted())
    assert baseline("check", tmp_path, counted())[0] == 0
    code, text = baseline("check", tmp_path, counted(**fields))
    assert code == 2
    assert len(text.splitlines()) == 1
    assert said.split(" ", 1)[1] in text


def test_a_baseline_of_another_chip_refuses_too(tmp_path: Path) -> None:
    """3acd176 said that every kernel is `not in the baseline`, and exited 1."""
    baseline("save", tmp_path, counted())
    other = counted(environment=replace(H200, gpu="NVIDIA L40S"))
    other = replace(other, how=replace(other.how, chip="ad102"))
    code, text = baseline("check", tmp_path, other)
    assert (code, len(text.splitlines())) == (2, 1)
    assert "NVIDIA H200 and NVIDIA L40S" in text


@pytest.mark.parametrize("field", [*OF_SOFTWARE, *OF_CALL])
def test_a_baseline_names_other_software_and_code_and_compares_counts(
    field: str, tmp_path: Path
) -> None:
    """3acd176 said nothing of it. Comparing counts over versions is what a baseline is for."""
    fields, said = EVERY[field]
    baseline("save", tmp_path, counted())
    code, text = baseline("check", tmp_path, counted(**fields))
    assert code == 0
    name, value = said.split(" ", 1) if not said.startswith("CUDA_") else ("variables", said)
    assert f"is of other software or code: {name}" in text
    assert value in text
    assert CELL in text


@pytest.mark.parametrize("field", ["uuid", "power_limit_w", "ecc", "torch_threads"])
def test_counts_of_another_gpu_of_the_model_are_compared_without_a_word(
    field: str, tmp_path: Path
) -> None:
    baseline("save", tmp_path, counted())
    code, text = baseline("check", tmp_path, counted(**EVERY[field][0]))
    assert code == 0
    assert "other software" not in text


def test_an_old_baseline_is_read_and_does_not_say_what_it_is_of(tmp_path: Path) -> None:
    """3acd176 wrote such files; the recorded one is one of them."""
    old = RECORDED / "baseline.json"
    done = pagebench_here(
        "baseline", "check", str(old), "--counters", str(RECORDED / "counters.jsonl")
    )
    assert done.returncode == 0
    assert "does not say which GPU, versions and code it is of" in done.stderr
    assert "every count equals" in done.stderr


def test_a_baseline_of_two_gpus_is_not_saved_of_whichever_came_last(tmp_path: Path) -> None:
    """3acd176 took the newest of each chip."""
    other = counted(environment=replace(H200, gpu="NVIDIA GH200 480GB"))
    code, text = baseline("save", tmp_path, counted(), other)
    assert code == 2
    assert "NVIDIA GH200 480GB" in text
    assert "NVIDIA H200" in text
    assert not (tmp_path / "b.json").exists()


# --- A time, its counters, its ceiling ------------------------------------------------------------

OTHER_SOFTWARE = ("driver", "cuda", "library torch", "variables")
TIMED = "xqa_shared_p16"


def card(tmp_path: Path, timing: Timing, *beside: Record) -> str:
    """What `pagebench show` prints of the time and what stands beside it."""
    path = tmp_path / "both.jsonl"
    store.append(path, timing, *beside)
    done = pagebench_here("show", TIMED, str(path))
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def timed_by_events(**fields: Any) -> Timing:
    """A time of the counted cell, by events from a cold cache."""
    every = store.read([RECORDED / "pages.jsonl"], Timing).of(Timing)
    found = next(each for each in every if (each.cell, each.clock) == (TIMED, "events"))
    known: dict[str, Any] = {"environment": H200, "binary": "text:0000"}
    return replace(found, **known | {"resolved": {"kernel": "k", "splits": 4}} | fields)


def value(field: str) -> str:
    """The planted value of a field, as it is said."""
    return EVERY[field][1].removeprefix(f"{word(field)} ")


@pytest.mark.parametrize("field", [*OTHER_SOFTWARE, *OF_MODEL, *OF_CALL])
def test_a_time_and_counters_that_are_not_of_one_thing_say_so(field: str, tmp_path: Path) -> None:
    """3acd176 compared the GPU's name, and said no more than `not the GPU of the timing`."""
    alike = card(tmp_path, timed_by_events(), counted())
    assert "differ: " not in alike
    (tmp_path / "both.jsonl").unlink()
    said = card(tmp_path, timed_by_events(), counted(**EVERY[field][0]))
    assert "the timing and these counters differ: " in said
    assert value(field) in said.partition("these counters differ: ")[2]
    used = "DRAM read" in said
    assert used == (field in OTHER_SOFTWARE)  # bytes of another call over this time are no rate
    assert "DRAM read" in alike


@pytest.mark.parametrize("field", [*OTHER_SOFTWARE, *OF_MODEL])
def test_a_ceiling_of_another_model_is_not_this_gpus_and_other_software_is_named(
    field: str, tmp_path: Path
) -> None:
    """3acd176 took the newest ceilings of a GPU of that name."""
    environment = EVERY[field][0]["environment"]
    said = card(tmp_path, timed_by_events(), ceilings(environment=environment))
    if field in OF_MODEL:
        assert "no measured ceiling of this GPU" in said
    else:
        assert "of the measured 4000" in said
        assert value(field) in said.partition("that ceiling differ: ")[2]


@pytest.mark.parametrize("field", OTHER_SOFTWARE)
def test_counters_over_anothers_name_what_else_differs(field: str, tmp_path: Path) -> None:
    """3acd176 compared binaries, and nothing of the machine."""
    (other,) = (each for each in recorded() if each.cell == "xqa_shared_p64")
    environment = EVERY[field][0]["environment"]
    store.append(tmp_path / "c.jsonl", counted(), replace(other, environment=environment))
    words = ("show", TIMED, "--against", "xqa_shared_p64", str(tmp_path / "c.jsonl"))
    said = " ".join(pagebench_here(*words).stdout.split())
    assert value(field) in said.partition("both differ: ")[2]


# --- Two sides of a contrast ----------------------------------------------------------------------

PAIR = (Cell.parse("xqa_shared_p64"), Cell.parse("xqa_shared_p16"))
CALL = {"kernel": "k", "splits": 4}
BINARIES = ("text:0064", "text:0016")


def processes(**fields: Any) -> Rounds:
    """A process of the pair on the H200."""
    known: dict[str, Any] = {"environment": H200, "resolved": (CALL, CALL), "binary": BINARIES}
    return rounds(PAIR, [200.0, 240.0], [200.1, 240.1], **known | fields)


def evidence(**fields: Any) -> Evidence:
    """Counters of both cells; those of the second with other fields."""
    by_cell = {each.cell: each for each in recorded()}
    known = [
        replace(by_cell[cell.name], environment=H200, resolved=CALL, binary=binary)
        for cell, binary in zip(PAIR, BINARIES, strict=True)
    ]
    return Evidence((known[0], replace(known[1], **fields)))


def verdict(group: Sequence[Rounds], beside: Evidence) -> Verdict:
    together = Interleaved(PAIR, 1)
    for each in group:
        together.add(each)
    return verdict_of(find_contrasts([cell.name for cell in PAIR])[0], together, "cold", beside)


def of_rounds(field: str) -> dict[str, Any]:
    """The planted difference in the second cell of a process, or in its environment."""
    fields = EVERY[field][0]
    if "environment" in fields:
        return fields
    if "binary" in fields:
        return {"binary": (BINARIES[0], fields["binary"])}
    return {"resolved": (CALL, fields["resolved"])}


@pytest.mark.parametrize("field", EVERY)
def test_processes_that_were_not_made_alike_are_not_judged_together(field: str) -> None:
    """3acd176 took the environment of the last, and the ratios of all."""
    assert verdict([processes()] * 4, evidence()).word == "exposed"
    found = verdict([*[processes()] * 3, processes(**of_rounds(field))], evidence())
    assert found.word == "unclear"
    (apart,) = (
        each for each in found.caveats if isinstance(each, Apart) and each.what == "processes"
    )
    assert [each.field for each in apart.differs] == [field]
    assert value(field) in in_words(apart)


@pytest.mark.parametrize("field", [*OF_MODEL[1:], *OF_CALL])
def test_counters_of_another_call_or_model_are_not_used_and_named(field: str) -> None:
    """3acd176 took any counters of a GPU of that name."""
    fields = EVERY[field][0]
    found = verdict([processes()] * 4, evidence(**fields))
    assert found.work is None
    assert found.word.startswith("likely ")
    (apart,) = (each for each in found.caveats if isinstance(each, Apart))
    assert (apart.what, apart.cells, apart.refused) == ("counters", (PAIR[1].name,), True)
    assert [each.field for each in apart.differs] == [field]


@pytest.mark.parametrize("field", OTHER_SOFTWARE)
def test_counters_under_other_software_are_used_and_named(field: str) -> None:
    """3acd176 said nothing of it."""
    found = verdict([processes()] * 4, evidence(**EVERY[field][0]))
    assert found.word == "exposed"
    (apart,) = (each for each in found.caveats if isinstance(each, Apart))
    assert (apart.what, apart.cells, apart.refused) == ("counters", (PAIR[1].name,), False)
    assert [each.field for each in apart.differs] == [field]


def test_older_counters_of_the_very_call_are_preferred_to_newer_ones_of_another() -> None:
    of_call = evidence().counters
    of_others = evidence(resolved={"kernel": "k", "splits": 9}).counters
    found = verdict([processes()] * 4, Evidence((*of_call, *of_others)))
    assert found.word == "exposed"
    assert not [each for each in found.caveats if isinstance(each, Apart)]


def test_one_code_under_two_names_is_one_binary_and_another_under_one_is_not() -> None:
    """3acd176 compared the names of modules."""
    named = {"module": "m", **CALL}
    group = [processes(resolved=(named, named))] * 4
    by_cell = {each.cell: each for each in evidence().counters}
    for binaries, is_same in ((("text:1", "text:1"), True), (("text:1", "text:2"), False)):
        pair = [
            replace(by_cell[cell.name], resolved=named, binary=binary)
            for cell, binary in zip(PAIR, binaries, strict=True)
        ]
        told = [replace(each, binary=binaries) for each in group]
        work = verdict(told, Evidence(tuple(pair))).work
        assert work is not None
        assert work.same.module is is_same


# --- Counters and a prediction --------------------------------------------------------------------

OTHER_LIBRARY = replace(H200, versions={"flashinfer": "0.6.6"})


def test_a_prediction_by_another_versions_source_is_named_and_not_counted(tmp_path: Path) -> None:
    """3acd176 compared counters of any FlashInfer with the source of one."""
    path = tmp_path / "c.jsonl"
    every = {each.cell: each for each in recorded()}
    one, other = (every[cell.name] for cell in PAIR)
    for environment, is_said in ((H200, False), (OTHER_LIBRARY, True)):
        path.unlink(missing_ok=True)
        pair = [replace(each, environment=environment) for each in (one, other)]
        store.append(path, *pair)
        said = " ".join(pagebench_here("show", TIMED, str(path)).stdout.split())
        assert ("loads by the source of flashinfer 0.7.2.post1, and 0.6.6 ran" in said) == is_said
        work = work_between(PAIR, Evidence(tuple(pair)))
        assert work is not None
        assert ("ldg" in work.from_knob) != is_said
        resolved = [each.resolved for each in pair]
        assert ("ldg" in expected_work(PAIR, resolved, environment)) != is_said
