"""`judge`, `dose` and `attack` conclude nothing from processes that were not made alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes import made, pagebench_here
from fakes.ncu_pages import recorded
from pagebench.harness.cell import Cell
from pagebench.harness.contrasts import Ladder
from pagebench.harness.environment import Environment
from pagebench.harness.judging.dose import dose_of
from pagebench.harness.records import store
from pagebench.harness.records.attack import Attack
from pagebench.harness.records.caveats import Apart
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.dose import Dose
from pagebench.harness.records.rounds import Rounds
from pagebench.harness.records.select import Evidence
from pagebench.harness.timing.interleaved import Interleaved
from pagebench.harness.workers import interleave
from pagebench.harness.workers.bench import Bench

NAMES = tuple(f"reference_distinct_p{page}_b2_l64" for page in (16, 32, 64))
H200 = Environment(
    gpu="NVIDIA H200", uuid="GPU-11111111-2222-3333", sm_count=132, driver="580.1", cuda="13.0",
    capability=(9, 0), mig=False, ecc=True, power_limit_w=700.0,
    versions={"torch": "2.13.0"}, variables={},
)  # fmt: skip
FACTS: dict[str, dict[str, Any]] = {
    "gpu": {"gpu": "NVIDIA L40S"},
    "uuid": {"uuid": "GPU-9"},
    "sm_count": {"sm_count": 66},
    "mig_slice": {"mig_slice": "1g.18gb"},
    "driver": {"driver": "570.9"},
    "cuda": {"cuda": "12.8"},
    "ecc": {"ecc": False},
    "power_limit_w": {"power_limit_w": 350.0},
    "library torch": {"versions": {"torch": "2.9.0"}},
    "variables": {"variables": {"CUDA_X": "1"}},
}
CALL = {"kernel": "k", "splits": 4}
COMMANDS = {
    "judge": ("judge", *NAMES[:2]),
    "dose": ("dose", *NAMES),
    "attack context": ("attack", "context", *NAMES[:2]),
    "attack kernel": ("attack", "kernel", *NAMES[:2], "--with", "gather"),
}
SAID = {"sm_count": "SMs", "mig_slice": "slice", "power_limit_w": "power limit"}  # by `judge`
PLANTED = [*FACTS, "binary", "resolved splits", "resolved kernel", "kernel file"]


def process(cells: Sequence[Cell], number: int, field: str = "") -> Rounds:
    """A process on the H200, with a planted difference in that field."""
    count = len(cells)
    resolved: list[dict[str, Any]] = [dict(CALL) for _ in cells]
    binary = ["cubin:00"] * count
    told: dict[str, Any] = {"environment": replace(H200, **FACTS.get(field, {}))}
    if field == "binary":
        binary[-1] = "cubin:ff"
    if field.startswith("resolved"):
        resolved[-1] |= {"splits": 9} if field.endswith("splits") else {"kernel": "other"}
    told |= {"kernel_sha": ("1" if field == "kernel file" else "0") * 64, "clock": "wall"}
    times = [100.0 * (at + 1) for at in range(count)]
    again = [us + 0.1 for us in times]
    called = {"resolved": tuple(resolved), "binary": tuple(binary), "process": number}
    return made.rounds(cells, times, again, **told | called)


def concluded(
    command: str, field: str, at: int, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> tuple[int, str, str, Path]:
    """The exit code and output of a command whose process `at` differs in that field, in the last
    of the groups that it times."""

    def one_process(groups: Sequence[Interleaved], bench: Bench) -> None:
        number = bench.options.process
        for group in groups:
            is_other = number == at and group is groups[-1]
            rounds = process(group.cells, number, field if is_other else "")
            store.append(bench.out, rounds)
            group.add(rounds)

    monkeypatch.setattr(interleave, "_one_process", one_process)
    out = folder / "a.jsonl"
    done = pagebench_here(*COMMANDS[command], "--device", "cpu", "--out", str(out), cwd=folder)
    return done.returncode, done.stdout, done.stderr, out


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("field", PLANTED)
def test_no_conclusion_from_processes_that_differ(
    command: str, field: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """3acd176 took the environment of the last process, and the ratios of all."""
    code, out, err, path = concluded(command, field, 2, monkeypatch, tmp_path)
    assert code == 2
    assert "not made alike" in out + err
    told = f" {out} {err}".lower()
    name = field.removeprefix("resolved ").removeprefix("library ").lower()
    assert f" {name} " in told or f" {SAID.get(field, name).lower()} " in told
    assert not store.read([path], Dose).of(Dose)
    assert not store.read([path], Attack).of(Attack)
    assert len(store.read([path], Rounds).of(Rounds)) >= 4
    assert "Traceback" not in err


@pytest.mark.parametrize("at", [0, 1, 3])
@pytest.mark.parametrize("command", COMMANDS)
def test_whichever_process_differs(
    command: str, at: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert concluded(command, "driver", at, monkeypatch, tmp_path)[0] == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_processes_that_were_made_alike_are_concluded_from(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, out, err, _ = concluded(command, "", 0, monkeypatch, tmp_path)
    assert code == 0, err
    assert "not made alike" not in out + err


# --- Variants and ladders -------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["gpu", "sm_count", "driver", "library torch", "variables"])
@pytest.mark.parametrize("command", ["attack context", "attack kernel"])
def test_variants_of_an_attack_are_of_one_machine(
    command: str, field: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each variant by itself is made alike; 3acd176 put them together all the same."""

    def one_process(groups: Sequence[Interleaved], bench: Bench) -> None:
        number = bench.options.process
        for group in groups:
            group.add(process(group.cells, number, field if group is groups[-1] else ""))

    monkeypatch.setattr(interleave, "_one_process", one_process)
    words = (*COMMANDS[command], "--device", "cpu", "--out", "a.jsonl")
    done = pagebench_here(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "its variants were not made alike" in done.stderr
    assert len([line for line in done.stderr.splitlines() if "not made alike" in line]) == 1


PAIR = ("xqa_shared_p64", "xqa_shared_p16")
OF_COUNTERS: dict[str, tuple[dict[str, Any], bool]] = {
    **{f: ({"environment": replace(H200, **FACTS[f])}, f not in ("sm_count", "mig_slice", "gpu"))
       for f in ("gpu", "sm_count", "mig_slice", "driver", "cuda", "library torch", "variables")},
    "binary": ({"binary": "cubin:ff"}, False),
    "resolved splits": ({"resolved": {**CALL, "splits": 9}}, False),
}  # fmt: skip


@pytest.mark.parametrize("field", OF_COUNTERS)
def test_counters_of_a_dose_are_of_its_calls(field: str) -> None:
    """3acd176 took the newest of a GPU of that name."""
    cells = tuple(map(Cell.parse, PAIR))
    fields, is_used = OF_COUNTERS[field]
    group = Interleaved(cells, 1)
    for number in range(4):
        group.add(process(cells, number))
    by_cell: dict[str, Counters] = {each.cell: each for each in recorded()}
    known: dict[str, Any] = {"environment": H200, "resolved": CALL, "binary": "cubin:00"}
    one, other = (replace(by_cell[name], **known) for name in PAIR)
    ladder = Ladder("own", "page size", cells)
    alike = dose_of(ladder, group, "cold", Evidence((one, other)))
    assert alike.counters
    assert not [each for each in alike.caveats if isinstance(each, Apart)]
    found = dose_of(ladder, group, "cold", Evidence((one, replace(other, **fields))))
    assert bool(found.counters) is is_used
    apart = [each for each in found.caveats if isinstance(each, Apart)]
    if field == "gpu":  # those are not meant for this one
        assert not apart
        return
    assert [(each.what, each.cells, each.refused) for each in apart] == [
        ("counters", (PAIR[1],), not is_used)
    ]
    assert [each.field for each in apart[0].differs] == [field]
