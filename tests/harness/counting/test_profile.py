"""Profiled processes with a stand-in for ncu, which exports recorded pages."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes import DATA
from fakes.ncu_pages import GPU, NAME, PAGE, TOLD, Fake, edited, option
from pagebench.harness.cell import Cell
from pagebench.harness.counting import process
from pagebench.harness.counting.profile import Request, profile, profile_single_pass
from pagebench.harness.errors import UserError
from pagebench.harness.records.counters import Counters
from pagebench.harness.show.counters import counters_card, counters_row
from pagebench.kernels.device import CPU
from pagebench.kernels.registry import find_kernel
from pagebench.profiles import ncu_page
from pagebench.profiles.metrics import LAUNCH, METRICS, PASSES, SINGLE_PASS, names_on

RATES = {metric.name for metric in METRICS if metric.kind == "rate"}


def count(*names: str, said: Callable[[str], object] = str, **how: Any) -> list[Counters]:
    """All counters of those cells, by default of one."""
    return _with(profile, names, said, how)


def count_single(*names: str, said: Callable[[str], object] = str, **how: Any) -> list[Counters]:
    """In groups of one pass."""
    return _with(profile_single_pass, names, said, how)


def _with(function: Any, names: tuple[str, ...], said: Any, how: dict[str, Any]) -> Any:
    return function(tuple(map(Cell.parse, names or (NAME,))), Request(GPU, **how), said)


# --- one profiled process ---------------------------------------------------------------------


def test_a_record_holds_counts_prediction_and_how_it_was_counted(fake: Fake) -> None:
    fake('==PROF== Profiling "kernel_mha" - 0: 0%....50%....100% - 6 passes', TOLD)
    said: list[str] = []
    (record,) = count(said=said.append)
    ldg = record.total["ldg"]
    assert (ldg.value, ldg.stable, ldg.spread) == (407_552, True, 0)
    assert (record.predicted.ldg, record.off) == (407_552, [])
    how = record.how
    assert (how.ncu, how.chip, how.replay_mode) == ("2025.3.1", "gh100", "kernel")
    assert (how.cache_control, how.clock_control, how.l2) == ("all", "none", "cold")
    assert (how.launches, how.cells, how.imported) == (2, 1, False)
    assert said == ["profiled kernel_mha in 6 passes"]


def test_ncu_replays_what_once_calls_with_clocks_left_alone(fake: Fake) -> None:
    commands = fake()
    count()
    (words,) = map(json.loads, commands.read_text().splitlines())
    assert option(words, "--profile-from-start") == "off"
    assert option(words, "--replay-mode") == "kernel"
    assert option(words, "--cache-control") == "all"
    assert option(words, "--clock-control") == "none"
    assert option(words, "--check-exit-code") == "1"
    assert option(words, "--config-file") == "off"
    assert "--nvtx" in words
    assert set(names_on("gh100").values()) <= set(option(words, "--metrics").split(","))
    child = words[words.index("once") :]
    assert child[1] == NAME
    assert "--keep-going" in child
    assert (option(child, "--launches"), option(child, "--l2")) == ("2", "cold")
    assert option(child, "--device") == "cuda:0"
    assert "--kernel" not in child


def test_a_per_cent_sign_in_the_folder_of_temporary_files_is_no_macro(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = fake()
    (tmp_path / "50%p").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "50%p"))
    assert len(count()) == 1
    (words,) = map(json.loads, commands.read_text().splitlines())
    assert "/50%%p/" in option(words, "--export")


def test_a_page_is_exported_in_base_units_and_the_c_locale(fake: Fake) -> None:
    exports = fake().with_name("exports.jsonl")
    count()
    ((words, locale),) = map(json.loads, exports.read_text().splitlines())
    assert option(words, "--config-file") == "off"
    assert option(words, "--page") == "raw"
    assert option(words, "--print-units") == "base"
    assert locale == "C"


def test_an_old_report_is_not_read_as_a_new_one(fake: Fake, tmp_path: Path) -> None:
    (tmp_path / "old.ncu-rep").write_text(edited(ldg="111"))
    fake("==WARNING== No kernels were profiled.", report=False)
    with pytest.raises(UserError, match="no kernel ran"):
        count(keep=Path("old.ncu-rep"))


@pytest.mark.parametrize(
    ("plan", "says"),
    [({"report": False}, "no kernel ran"), ({"pages": {"": "no page"}}, "not a raw CSV page")],
)
def test_an_old_report_outlives_a_count_that_failed(
    plan: dict[str, Any], says: str, fake: Fake, tmp_path: Path
) -> None:
    (tmp_path / "old.ncu-rep").write_text("old")
    fake("==WARNING== No kernels were profiled.", **plan)
    with pytest.raises(UserError, match=says):
        count(keep=Path("old.ncu-rep"))
    assert (tmp_path / "old.ncu-rep").read_text() == "old"


def test_a_report_that_cannot_be_kept_costs_no_count(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    fake()
    monkeypatch.setattr(process.shutil, "copyfile", full)
    said: list[str] = []
    assert len(count(keep=Path("r.ncu-rep"), said=said.append)) == 1
    assert "--keep r.ncu-rep: No space left on device" in said


def test_the_report_that_is_kept_is_of_the_first_process_that_counted(
    fake: Fake, tmp_path: Path
) -> None:
    fake(TOLD, dies_on="xqa_shared_p64")
    count("xqa_shared_p64", NAME, keep=Path("r"))
    assert (tmp_path / "r.ncu-rep").read_text() == PAGE


def test_a_report_is_kept_where_it_was_wished(fake: Fake, tmp_path: Path) -> None:
    fake()
    count(keep=Path("kept/xqa"))
    assert (tmp_path / "kept" / "xqa.ncu-rep").read_text() == PAGE


def test_a_line_that_the_childs_death_cut_off_is_passed_over(fake: Fake) -> None:
    fake(TOLD, '{"cell": "xqa_shared_p64", "resol')
    said: list[str] = []
    assert len(count(NAME, "xqa_shared_p64", said=said.append)) == 1
    assert "lost: xqa_shared_p64: the process reported nothing about it" in said


def test_a_cell_that_failed_costs_its_own_record_alone(fake: Fake) -> None:
    other = "xqa_shared_p64"
    fake(TOLD, {"cell": other, "status": "crashed", "reason": "out of memory"})
    said: list[str] = []
    (record,) = count(NAME, other, said=said.append)
    assert record.cell == NAME
    assert f"crashed: {other}: out of memory" in said


def test_where_every_cell_failed_there_is_no_record_and_each_is_named(fake: Fake) -> None:
    fake({"cell": NAME, "status": "wrong", "reason": "off by 3"}, report=False, code=1)
    said: list[str] = []
    assert count(said=said.append) == []
    assert said == [f"wrong: {NAME}: off by 3"]


def test_a_cell_that_the_process_did_not_reach_is_lost(fake: Fake) -> None:
    fake(TOLD)
    said: list[str] = []
    assert len(count(NAME, "xqa_shared_p64", said=said.append)) == 1
    assert "lost: xqa_shared_p64: the process reported nothing about it" in said


def test_what_a_dead_process_took_with_it_is_counted_in_another(fake: Fake) -> None:
    """The first cell killed the process before it said a word; the next is counted alone."""
    commands = fake(TOLD, dies_on="xqa_shared_p64")
    said: list[str] = []
    (record,) = count("xqa_shared_p64", NAME, said=said.append)
    assert (record.cell, record.how.cells) == (NAME, 1)
    assert any(line.startswith("crashed: xqa_shared_p64: ") for line in said)
    first, second = map(json.loads, commands.read_text().splitlines())
    assert "xqa_shared_p64" in first
    assert "xqa_shared_p64" not in second


def test_a_process_that_dies_of_its_only_cell_is_an_error(fake: Fake) -> None:
    fake(TOLD, dies_on=NAME)
    with pytest.raises(UserError, match=r"process failed: .* returned an error code \(11\)"):
        count()


def test_cells_behind_one_that_failed_and_one_that_killed_the_process_are_counted(
    fake: Fake,
) -> None:
    """Of the three the process spoke of the first alone."""
    wrong = json.dumps({"cell": "xqa_shared_p32", "status": "wrong", "reason": "off by 3"})
    fake(wrong, TOLD, dies_on="xqa_shared_p64", last=[wrong])
    said: list[str] = []
    cells = ("xqa_shared_p32", "xqa_shared_p64", NAME)
    (record,) = count(*cells, said=said.append)
    assert record.cell == NAME
    assert "wrong: xqa_shared_p32: off by 3" in said
    assert any(line.startswith("crashed: xqa_shared_p64: ") for line in said)


def test_a_process_that_dies_after_its_last_word_is_laid_to_the_cell_that_crashed(
    fake: Fake,
) -> None:
    """As where a fault on the device ends the process only when it lets go of its memory."""
    broke = {"cell": "xqa_shared_p64", "status": "crashed", "reason": "illegal address"}
    fake(TOLD, dies_on="xqa_shared_p64", last=list(map(json.dumps, (TOLD, broke))))
    said: list[str] = []
    (record,) = count(NAME, "xqa_shared_p64", said=said.append)
    assert record.cell == NAME
    assert "crashed: xqa_shared_p64: illegal address" in said


@pytest.mark.parametrize(
    "words",
    [
        "==ERROR== Failed to prepare kernel for profiling\n==ERROR== Unknown Error on device 0.",
        "ModuleNotFoundError: No module named 'flashinfer'",
    ],
)
def test_what_ends_two_processes_before_any_cell_is_no_cells_fault(words: str, fake: Fake) -> None:
    commands = fake(
        words, "==ERROR== The application returned an error code (1).", report=False, code=1
    )
    cells = [f"xqa_shared_p{page}" for page in (16, 32, 64, 128)]
    with pytest.raises(UserError, match=r"Unknown Error|ModuleNotFoundError"):
        count(*cells)
    assert len(commands.read_text().splitlines()) == 2


def test_cells_that_kill_their_process_without_a_word_are_each_laid_to_themselves(
    fake: Fake,
) -> None:
    commands = fake(TOLD, dies_on="--l2")
    cells = [f"xqa_shared_p{page}" for page in (16, 32, 64)]
    said: list[str] = []
    with pytest.raises(UserError, match="returned an error code"):
        count(*cells, said=said.append)
    assert len(commands.read_text().splitlines()) == 3


def test_a_formula_that_fails_costs_its_prediction_and_no_count(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake()
    monkeypatch.setattr(type(find_kernel("xqa")), "loads", lambda *_: 1 / 0)
    said: list[str] = []
    (record,) = count(said=said.append)
    assert record.value("ldg") == 407_552
    assert record.predicted.ldg is None
    failed = "xqa.loads(): ZeroDivisionError: division by zero"
    assert f"{NAME}: loads are not predicted: {failed}" in said
    assert failed in counters_card(record)


def test_a_later_process_that_dies_leaves_what_was_counted(fake: Fake) -> None:
    broke = {"cell": "xqa_shared_p64", "status": "crashed", "reason": "illegal address"}
    lost = {"cell": "xqa_shared_p32", "status": "lost", "reason": "the device failed"}
    broken = list(map(json.dumps, (TOLD, broke, lost)))
    fake(TOLD, breaks_on="xqa_shared_p64", broken=broken, dies_on="xqa_shared_p32")
    said: list[str] = []
    (record,) = count(NAME, "xqa_shared_p64", "xqa_shared_p32", said=said.append)
    assert record.cell == NAME
    assert any(line.startswith("crashed: xqa_shared_p32: ") for line in said)


def test_cells_behind_one_that_broke_the_device_are_counted_in_another_process(fake: Fake) -> None:
    lost = {"cell": NAME, "status": "lost", "reason": "the device failed in xqa_shared_p64"}
    broke = {"cell": "xqa_shared_p64", "status": "crashed", "reason": "illegal address"}
    fake(TOLD, breaks_on="xqa_shared_p64", broken=[json.dumps(broke), json.dumps(lost)])
    said: list[str] = []
    (record,) = count("xqa_shared_p64", NAME, said=said.append)
    assert record.cell == NAME
    assert "crashed: xqa_shared_p64: illegal address" in said
    assert any(line.endswith("counting it again") for line in said)


def is_alive(pid: str) -> bool:
    """A process without a parent that waits for it stays a zombie (state Z) for a while."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_interrupt_ends_ncu_too(fake: Fake) -> None:
    pids = fake('==PROF== Profiling "kernel_mha" - 0: 0% - 6 passes', hangs=20).with_name("pids")

    def interrupt(line: str) -> None:
        while not pids.exists() or not pids.read_text().endswith("end"):
            time.sleep(0.01)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        count(said=interrupt)
    tool, child, _ = pids.read_text().split()
    assert not is_alive(tool)
    ends = time.monotonic() + 5
    while is_alive(child) and time.monotonic() < ends:
        time.sleep(0.01)
    assert not is_alive(child)


@pytest.mark.parametrize("symbols", [["merge"], ["kernel_mha", "merge"]])
def test_kernels_that_were_not_promised_or_are_missing_are_listed(
    symbols: list[str], fake: Fake
) -> None:
    fake(TOLD | {"symbols": symbols})
    said: list[str] = []
    assert count(said=said.append) == []
    (line,) = [text for text in said if text.startswith("wrong: ")]
    assert f"{NAME}: expected {', '.join(symbols)}; saw kernel_mha(" in line


@pytest.mark.parametrize("line", ["{1}", '{"text": "a kernel prints"}', "[]", "{", '"cell"'])
def test_other_words_of_the_process_are_no_cells(line: str, fake: Fake) -> None:
    fake(line, TOLD)
    assert len(count()) == 1


def test_what_does_not_say_what_it_should_of_a_cell_is_a_bug_of_ours(fake: Fake) -> None:
    fake({"cell": NAME, "symbols": 5})
    with pytest.raises(ValueError, match="Expected `array`") as caught:
        count()
    assert not isinstance(caught.value, UserError)


def test_a_bug_in_reading_a_page_keeps_its_traceback(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("planted")

    fake()
    monkeypatch.setattr(ncu_page, "number", broken)
    with pytest.raises(ValueError, match="planted"):
        count()


# --- what goes wrong --------------------------------------------------------------------------

# What ncu 2025 says after every profile that failed.
SHUT_DOWN = """==ERROR== Failed to profile "kernel_mha" in process 954
==PROF== Trying to shutdown target application
==ERROR== The application returned an error code (9).
==ERROR== An error occurred while trying to profile.
==WARNING== No kernels were profiled."""


@pytest.mark.parametrize(
    ("said", "code", "remedy"),
    [
        ((DATA / "ncu_no_permission.txt").read_text(), 1, "NVreg_RestrictProfilingToAdminUsers=0"),
        ((DATA / "ncu_no_permission.txt").read_text(), 0, "NVreg_RestrictProfilingToAdminUsers=0"),
        ((DATA / "ncu_no_permission.txt").read_text(), 1, r"`sudo env PATH=\$PATH`"),
        ((DATA / "ncu_no_permission.txt").read_text(), 1, "under WSL allow all users"),
        ("==WARNING== No kernels were profiled.", 0, "no kernel ran"),
        ("==ERROR== Something that nobody has seen", 1, "Something that nobody has seen"),
        (
            "RuntimeError: CUDA out of memory\n==WARNING== No kernels were profiled.\n"
            "==ERROR== The application returned an error code (1).",
            1,
            "failed: RuntimeError: CUDA out",
        ),
        (
            "a lock file of the child's own\n==ERROR== The application returned an error code (1).",
            1,
            "failed: a lock file of the child's own",
        ),
        (json.dumps(TOLD), 1, "ncu said nothing"),
        ("a warning of torch's\n==WARNING== No kernels were profiled.", 0, "no kernel ran"),
        ("a warning of torch's\n==ERROR== LaunchFailed\n" + SHUT_DOWN, 9, "^ncu: LaunchFailed$"),
        (
            "==ERROR== Failed to prepare kernel for profiling\n"
            "==ERROR== Unknown Error on device 0.\n" + SHUT_DOWN,
            9,
            "^ncu: Failed to prepare kernel for profiling Unknown Error on device 0.$",
        ),
        (
            "==ERROR== An error was reported by the driver:\n"
            "==ERROR== Cuda driver is not compatible with Nsight Compute.\n"
            "==ERROR== The application returned an error code (11).",
            11,
            "use an older ncu",
        ),
    ],
)
def test_trouble_is_one_line_that_names_the_cause(
    said: str, code: int, remedy: str, fake: Fake
) -> None:
    fake(*said.splitlines(), code=code, report=False)
    with pytest.raises(UserError, match=remedy) as caught:
        count()
    assert "\n" not in str(caught.value)


def test_an_ncu_that_is_missing_or_too_old_is_named(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(version="2021.3.0")
    with pytest.raises(UserError, match=r"ncu 2021\.3 is too old: use 2022 or later"):
        count()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="ncu is not on the PATH"):
        count()


def test_without_a_gpu_there_is_one_line(fake: Fake) -> None:
    commands = fake()
    with pytest.raises(UserError, match="need an NVIDIA GPU; `pagebench import FILE` reads"):
        profile([Cell.parse(NAME)], Request(CPU), str)
    assert not commands.exists()


@pytest.mark.parametrize(
    ("function", "changes", "match"),
    [
        (count, {"l2": "warm"}, "add --single-pass"),
        (count_single, {"keep": Path("r.ncu-rep")}, "--keep .*leave out --single-pass"),
        (count, {"keep": Path("ncu.json/r.ncu-rep")}, "--keep ncu.json/r.ncu-rep: Not a directory"),
        (count, {"keep": Path("folder.ncu-rep")}, "--keep folder.ncu-rep: Is a directory"),
    ],
)
def test_wishes_that_do_not_go_together_are_refused_before_anything_is_counted(
    function: Any, changes: dict[str, Any], match: str, fake: Fake, tmp_path: Path
) -> None:
    commands = fake()
    (tmp_path / "ncu.json").touch()
    (tmp_path / "folder.ncu-rep").mkdir()
    with pytest.raises(UserError, match=match):
        function(**changes)
    assert not commands.exists()


@pytest.mark.parametrize("text", ["n/a", "(!) n/a", "(!) nan", "-nan", "inf", "no data"])
def test_a_counter_that_ncu_could_not_count_is_left_out(text: str, fake: Fake) -> None:
    """As on a GPU without DRAM counters, or in a MIG instance that shares its L2."""
    fake(pages={"": edited(dram_read_bytes=text, dram_busy_pct=text)})
    (record,) = count()
    assert record.total.keys() == names_on("gh100").keys() - RATES - {"dram_read_bytes"}
    assert "dram_read_bytes" not in counters_card(record)
    assert counters_row(record)[6:9] == ("", "", "")


# --- single passes ----------------------------------------------------------------------------


def test_launches_state_and_an_own_kernel_reach_the_profiled_process(
    fake: Fake, tmp_path: Path
) -> None:
    commands = fake(pages={"": edited(passes="1")})
    own = tmp_path / "own.py"
    count_single(l2="warm", kernel_file=own)
    for words in map(json.loads, commands.read_text().splitlines()):
        child = words[words.index("once") :]
        assert (option(child, "--l2"), option(child, "--kernel")) == ("warm", str(own))


def test_single_passes_are_a_process_each_and_become_one_record(fake: Fake) -> None:
    commands = fake(pages={"": edited(passes="1")})
    (record,) = count_single()
    processes = list(map(json.loads, commands.read_text().splitlines()))
    assert len(processes) == len(SINGLE_PASS)
    for words, group in zip(processes, SINGLE_PASS.values(), strict=True):
        assert option(words, "--cache-control") == "none"
        counters = {name for name in option(words, "--metrics").split(",") if "__" in name}
        assert set(names_on("gh100", group).values()) <= counters
        assert (
            not set(names_on("gh100").values()) - set(names_on("gh100", group).values()) & counters
        )
    assert (record.how.replay_mode, record.how.cache_control) == ("single pass", "none")
    counted = {name for group in SINGLE_PASS.values() for name in group} - {"dram_busy_pct"}
    assert set(record.total) == counted
    (kernel,) = record.kernels
    assert set(kernel.values) == counted | {"dram_busy_pct"}


def test_a_group_that_took_more_than_one_pass_is_refused(fake: Fake) -> None:
    fake()
    with pytest.raises(UserError, match="took 6 passes here, not one"):
        count_single()


def test_groups_that_ran_different_kernels_are_no_record(fake: Fake) -> None:
    """As where a kernel is chosen anew in every process."""
    names = names_on("gh100", SINGLE_PASS["misses"]).values()
    last = ",".join([*names, *LAUNCH.values(), PASSES])
    pages = {last: edited(passes="1", symbol="other"), "": edited(passes="1")}
    fake(TOLD | {"symbols": []}, pages=pages)
    said: list[str] = []
    assert count_single(said=said.append) == []
    assert said == [f"wrong: {NAME}: its groups of counters ran different kernels"]


# --- What a kernel prints is no report ------------------------------------------------------------


def test_json_like_ours_that_a_kernel_prints_is_not_taken_for_a_report(fake: Fake) -> None:
    """3acd176 took every line that began with a brace: these splits stood in the record."""
    stray = json.dumps(TOLD | {"resolved": {"kernel": "another", "splits": 99}})
    fake(TOLD, stray=[stray], begun="begun and not ended, ")
    (record,) = count()
    assert record.resolved == TOLD["resolved"]
