"""Where a container hides other processes, every number that stands on a time says so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes import DATA, made, pagebench_here
from pagebench.harness.cell import Cell
from pagebench.harness.cli.instruments import ceilings as command_ceilings
from pagebench.harness.environment import Environment, environment_seen
from pagebench.harness.instruments.planted import planted_of
from pagebench.harness.judging.attack import scaled
from pagebench.harness.records import codec, store
from pagebench.harness.records.base import Record
from pagebench.harness.records.caveats import HiddenProcesses, OthersOnGpu, hidden_processes
from pagebench.harness.records.rounds import Rounds, Side
from pagebench.harness.records.select import Evidence
from pagebench.harness.records.timing import Timing
from pagebench.harness.records.verdict import Verdict
from pagebench.harness.show.conclusions import planted_table
from pagebench.harness.timing.interleaved import Interleaved
from pagebench.harness.timing.rounds import _Taken
from pagebench.kernels.device import CPU

PAIR = ("reference_distinct_p16_b2_l64", "reference_distinct_p32_b2_l64")
CELLS = (Cell.parse(PAIR[0]), Cell.parse(PAIR[1]))
LADDER = (*PAIR, "reference_distinct_p64_b2_l64")
HIDDEN = {"processes_hidden": True, "bytes_used_before": 3_100_000_000, "percent_busy_before": 7}
SAID = "cannot see who else is on the GPU: before, 3.1 GB were in use and it was 7 % busy"


def process(number: int, cells: Sequence[Cell] = CELLS, **facts: Any) -> Rounds:
    """A process of an earlier run that this machine would go on with."""
    environment = replace(environment_seen(CPU), **facts)
    told = {"process": number, "clock": "wall", "environment": environment}
    times = [100.0 * (at + 1) for at in range(len(cells))]
    return made.rounds(cells, times, [us + 0.1 for us in times], **told)


def concluded(
    words: Sequence[str], groups: Sequence[Sequence[Cell]], out: Path, hidden: int | None
) -> tuple[str, dict[str, Any]]:
    """What a command prints of four processes of each group, and its record; the process `hidden`
    cannot see others."""
    for cells in groups:
        for number in range(4):
            facts = HIDDEN if number == hidden else {}
            store.append(out, process(number, cells, **facts))
    done = pagebench_here(*words, "--device", "cpu", "--resume", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "all is decided" in done.stderr
    return " ".join(done.stdout.split()), json.loads(out.read_text().splitlines()[-1])


COMMANDS = {
    "judge": (("judge", *PAIR), [CELLS]),
    "dose": (("dose", *LADDER), [tuple(map(Cell.parse, LADDER))]),
    "attack": (("attack", "context", *PAIR), scaled(CELLS)),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("hidden", [0, 2, 3])
def test_what_rests_on_rounds_says_it_as_data_and_in_words(
    command: str, hidden: int, tmp_path: Path
) -> None:
    """3acd176 read a list that was empty as nobody, and these commands said nothing of it. One
    process that cannot see is enough, whichever it is."""
    said, record = concluded(*COMMANDS[command], tmp_path / "a.jsonl", hidden)
    assert SAID in said
    found = [each for each in record["caveats"] if each["caveat"] == "hidden processes"]
    told = {"bytes_used_before": 3_100_000_000, "percent_busy_before": 7}
    assert found == [{"caveat": "hidden processes", **told}]
    read = codec.from_json(record)
    assert HiddenProcesses(3_100_000_000, 7) in getattr(read, "caveats", ())


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_said_where_all_can_be_seen(command: str, tmp_path: Path) -> None:
    said, record = concluded(*COMMANDS[command], tmp_path / "a.jsonl", None)
    assert "cannot see" not in said
    assert "hidden processes" not in json.dumps(record)


@pytest.mark.parametrize("command", COMMANDS)
def test_json_holds_the_caveat(command: str, tmp_path: Path) -> None:
    words, groups = COMMANDS[command]
    said, _ = concluded([*words, "--json"], groups, tmp_path / "a.jsonl", 1)
    (line,) = said.splitlines()
    assert "hidden processes" in [each["caveat"] for each in json.loads(line)["caveats"]]
    assert SAID in json.dumps(json.loads(line))


def test_an_attack_says_what_disturbed_it_too(tmp_path: Path) -> None:
    """3acd176 kept no caveat of an attack: other processes and throttling were lost."""
    for at, cells in enumerate(scaled(CELLS)):
        for number in range(4):
            others = 2 if (at, number) == (2, 1) else 0
            store.append(tmp_path / "a.jsonl", process(number, cells, other_processes=others))
    words = (*COMMANDS["attack"][0], "--device", "cpu", "--resume", "--out", "a.jsonl")
    done = pagebench_here(*words, cwd=tmp_path)
    assert "2 other processes on the GPU" in done.stdout
    drawn = pagebench_here("study", "a.jsonl", "--out", "drawn", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert "2 other processes on the GPU" in (tmp_path / "drawn" / "study.md").read_text()


def test_others_who_left_before_the_end_are_counted() -> None:
    """The environment is read at the end of a process, each side after its samples."""
    group = Interleaved(CELLS, 1)
    group.add(replace(process(0), sides=(Side(other_processes=1), Side(other_processes=3))))
    assert OthersOnGpu(3) in group.caveats


@pytest.mark.parametrize(
    ("seen", "kept"),
    [([None, None], None), ([0, None], 0), ([None, 2], 2), ([1, 0], 1)],
)
def test_a_side_that_sees_nobody_is_not_one_that_cannot_see(
    seen: list[int | None], kept: int | None
) -> None:
    """3acd176 wrote 0 for both."""
    taken = _Taken(
        1.0, 1, seen=[(0, Side(throttle=("hot",), other_processes=others)) for others in seen]
    )
    (side,) = taken.fields()["sides"]
    assert side.other_processes == kept


def test_the_most_of_all_processes_is_told() -> None:
    every = [
        Environment(other_processes=0),
        Environment(processes_hidden=True, bytes_used_before=5),
        Environment(processes_hidden=True, bytes_used_before=9, percent_busy_before=1),
        Environment(processes_hidden=False, bytes_used_before=99),
    ]
    assert hidden_processes(every) == HiddenProcesses(9, 1)
    assert hidden_processes(every[1:2]) == HiddenProcesses(5)
    assert hidden_processes([every[0], every[3]]) is None


# --- Times ----------------------------------------------------------------------------------------


def timed(process: int, clock: str = "events", **facts: Any) -> Timing:
    (golden,) = store.read([DATA / "timing_schema1.jsonl"], Timing).of(Timing)
    environment = replace(golden.environment, **facts)
    return replace(golden, process=process, clock=clock, environment=environment)


@pytest.mark.parametrize("option", ["--repeats", "--clocks", "--markdown", ""])
@pytest.mark.parametrize("hidden", [0, 1])
def test_tables_of_times_say_it(option: str, hidden: int, tmp_path: Path) -> None:
    """3acd176's tables said nothing of it; `--repeats` and `--clocks` had no notes at all."""
    clocks = ("graph", "events") if option == "--clocks" else ("events", "events")
    path = tmp_path / "t.jsonl"
    store.append(path, *(timed(at, clock) for at, clock in enumerate(clocks)))
    words = ("report", str(path), *([option] if option else []))
    before = pagebench_here(*words).stdout
    assert "cannot see" not in before
    path.unlink()
    every = [timed(at, c, **(HIDDEN if at == hidden else {})) for at, c in enumerate(clocks)]
    store.append(path, *every)
    done = pagebench_here(*words)
    assert done.returncode == 0
    assert done.stdout.count(SAID) == 1
    both = pagebench_here(*words, "--markdown") if option in ("--repeats", "--clocks") else done
    assert SAID in both.stdout


def test_a_selftest_says_it() -> None:
    """3acd176 printed what was found alone."""
    verdict = Verdict(
        **{"contrast": "quiet", "knob": "x", "cells": PAIR, "word": "absent", "among": 1},
        predicts="absent",
        caveats=(HiddenProcesses(3_100_000_000, 7),),
    )
    planted = planted_of([verdict], Evidence())
    assert planted.caveats == verdict.caveats
    assert SAID in planted_table(planted)
    assert "cannot see" not in planted_table(replace(planted, caveats=()))


def test_ceilings_say_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A ceiling that another process held down refutes nothing, and must not look as if alone."""
    from pagebench.harness.cli import instruments

    def found(**facts: Any) -> Record:
        return made.ceilings(environment=replace(made.ON_H200, **facts))

    monkeypatch.setattr(instruments, "measure_ceilings", lambda device, say: found(**HIDDEN))
    command_ceilings(out=tmp_path / "c.jsonl", device="cpu")
    assert SAID in capsys.readouterr().out
    monkeypatch.setattr(instruments, "measure_ceilings", lambda device, say: found())
    command_ceilings(out=tmp_path / "c.jsonl", device="cpu")
    assert "cannot see" not in capsys.readouterr().out
