"""Wrong kernels that 3acd176 timed as if they were right, as plug-ins of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from fakes import pagebench
from pagebench.harness.cell import Cell
from pagebench.harness.instruments.oracle import SMALL, Trial, planted
from pagebench.harness.progress import silent
from pagebench.harness.records.timing import QUESTIONS, Timing
from pagebench.harness.timing.measure import measure_cell
from pagebench.harness.timing.options import Options
from pagebench.harness.timing.session import Session
from pagebench.kernels import registry
from pagebench.kernels.adapter import DEFAULT, Tolerance, tolerance_of
from pagebench.kernels.device import CPU
from pagebench.kernels.probes import faulty
from pagebench.kernels.probes.faulty import Planted
from pagebench.kernels.probes.seen import Bug, Seen, attention

SEEDS = (1, 2, 3)
QUICK = Options("run", "wall", "cold", 0.05)
TRIALS = [each for each in planted("cpu") if each.cell.shape.kv_len < 4096]
WRONG = [each for each in TRIALS if each.expected == "wrong"]
INNOCENT = [
    (each, seed)
    for each in TRIALS
    if each.expected == "right"
    for seed in (SEEDS if each.cell.name.endswith(SMALL) else SEEDS[:1])
]


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(CPU)


def ended(trial: Trial, seed: int, session: Session) -> Timing:
    return measure_cell(trial.seeded(seed), QUICK, session, silent)


def name(trial: Trial) -> str:
    return trial.cell.name


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("trial", WRONG, ids=name)
def test_no_wrong_kernel_gets_a_time(trial: Trial, seed: int, session: Session) -> None:
    """3acd176 compared a random query within 1 % over all heads: many of these had a time."""
    record = ended(trial, seed, session)
    assert record.status in ("wrong", "poisoned"), record.reason
    assert record.samples is None
    assert record.check is not None
    assert record.check.failed in QUESTIONS


@pytest.mark.parametrize(("trial", "seed"), INNOCENT)
def test_a_right_kernel_keeps_its_time(trial: Trial, seed: int, session: Session) -> None:
    record = ended(trial, seed, session)
    assert record.status == "measured", record.reason
    assert record.check is not None
    assert record.check.canaries is True
    assert record.check.failed is None


def test_at_least_twenty_kernels_are_wrong_in_ways_of_their_own() -> None:
    assert len(WRONG) >= 20
    assert {each.cell.kernel for each in WRONG} | {"faultyrarely"} == {
        name for name in faulty.PLANTED if name.startswith("faulty")
    }


# --- One token ------------------------------------------------------------------------------------


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, session: Session) -> Callable[[Bug, str], Timing]:
    def measure(bug: Bug, cell: str) -> Timing:
        monkeypatch.setitem(registry._from_files, "own", Planted("own", bug))
        return measure_cell(Cell.parse(cell), QUICK, session, silent)

    return measure


def test_one_token_of_many_is_found_by_its_weight_and_named(
    measured: Callable[[Bug, str], Timing],
) -> None:
    """3acd176 let one token of 32,768 pass. Its error is below the tolerance; its weight is 0."""
    record = measured(
        lambda seen: attention(seen.without(20_001)), "own_distinct_p1_b1_l65536_h2x1_d128"
    )
    assert record.status == "wrong"
    assert "token 20001 of request 0 has" in str(record.reason)
    assert record.check is not None
    assert record.check.failed == "weights"


def test_a_query_that_is_changed_is_no_longer_the_query_that_is_asked_next(
    measured: Callable[[Bug, str], Timing],
) -> None:
    """3acd176 did not look at its inputs again. A change below the tolerance counts too."""

    def nudges(seen: Seen) -> Tensor:
        answer = attention(seen)
        seen.q[0, 0] *= 1.01
        return answer

    record = measured(nudges, "own_distinct_p16_b2_l100_h2x1_d64")
    assert (record.status, record.reason) == (
        "wrong",
        "before timing, the call changed its inputs: query",
    )


def test_a_plug_in_may_be_stricter_and_never_laxer_than_the_default() -> None:
    lax, strict = Tolerance(0.5, 0.5), Tolerance(0.001, 0.001, DEFAULT.typical)

    class Claims(Planted):
        tolerance: dict[str, Tolerance]

    def claiming(tolerance: Tolerance) -> Planted:
        made = Claims("own", attention)
        object.__setattr__(made, "tolerance", {"bf16": tolerance})
        return made

    Claims.__module__ = "elsewhere"
    assert tolerance_of(claiming(lax), "bf16") == DEFAULT
    assert tolerance_of(claiming(strict), "bf16") == strict
    assert tolerance_of(registry.find_kernel("xqa"), "e4m3").random > DEFAULT.random


# --- The command ----------------------------------------------------------------------------------


def test_the_command_tells_who_was_found_and_how(tmp_path: Path) -> None:
    """3acd176 had no such command: what its check finds was not known."""
    cells = (
        "faultyfirst_distinct_p16_b2_l100_h4x2_d64",
        "innocentorder_distinct_p16_b2_l100_h4x2_d64",
    )
    done = pagebench("oracle", *cells, "--seeds", "2", "--device", "cpu", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    wrong, right = map(json.loads, done.stdout.splitlines())
    assert (wrong["expected"], wrong["found"], wrong["as_expected"]) == ("wrong", 2, True)
    assert (right["expected"], right["found"], right["as_expected"]) == ("right", 0, True)
    assert [run["seed"] for run in wrong["runs"]] == [1, 2]
    drawn = pagebench("report", *map(str, (tmp_path / "runs").iterdir()), "--markdown")
    assert "| wrong | 2 of 2 | yes |" in drawn.stdout


def test_a_kernel_of_which_nothing_is_known_is_only_counted(tmp_path: Path) -> None:
    file = tmp_path / "half.py"
    file.write_text(
        "from pagebench.kernels.probes import bugs, faulty\n"
        "ADAPTER = faulty.Planted('half', bugs.window)\n"
    )
    done = pagebench(
        *("oracle", "half_distinct_p16_b2_l100_h4x2_d64", "--kernel", str(file)),
        *("--seeds", "1", "--device", "cpu", "--json"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (told,) = map(json.loads, done.stdout.splitlines())
    assert (told.get("expected"), told["found"], told["as_expected"]) == (None, 1, None)
    assert len(told["kernel_sha"]) == 64


def test_a_right_kernel_that_has_no_time_is_no_success(tmp_path: Path) -> None:
    """An oracle that finds everything wrong would pass otherwise."""
    done = pagebench(
        *("oracle", "faultyone_distinct_p16_b1_l1_h8x4_d64", "--seeds", "1", "--device", "cpu"),
        cwd=tmp_path,
    )
    assert done.returncode == 1  # there is one token, and it is read
    assert "0 of 1" in done.stdout
    assert "NO" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["oracle", "--seeds", "0"], "--seeds"),
        (["oracle", "gather_distinct_p16_s3", "--device", "cpu"], "leave the seed out"),
        (["oracle", "xqa_shared_p16", "--device", "cpu"], "xqa needs an NVIDIA GPU"),
        (["oracle", "nokernel_shared_p16", "--device", "cpu"], "nokernel"),
    ],
)
def test_what_is_wrong_is_one_line(words: list[str], says: str, tmp_path: Path) -> None:
    done = pagebench(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert says in line
