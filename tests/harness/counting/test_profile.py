"""The Nsight Compute driver without a GPU: a stand-in for ncu that exports recorded pages."""

from __future__ import annotations

import csv
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import DATA, TESTS
from pagebench.harness.cell import Cell
from pagebench.harness.cli import counting as cli_count
from pagebench.harness.counting import count as counting
from pagebench.harness.counting import profile
from pagebench.harness.counting.count import Wanted, count
from pagebench.harness.instruments import calibrate
from pagebench.harness.records import store
from pagebench.harness.show.card import counters_card
from pagebench.kernels.device import Device
from pagebench.kernels.registry import find_kernel
from pagebench.profiles.metrics import METRICS, SINGLE_PASS, names_on
from pagebench.profiles.ncu import NcuError

PAGE = (DATA / "ncu_xqa_shared_p16.csv").read_text()
GPU = Device("cuda", "NVIDIA H200", 0, (9, 0))
NAME = "xqa_shared_p16"
RESOLVED = {"kernel": "kernel_mha (mha.cu)", "splits": 1, "page_size": 16}
TOLD = {"cell": NAME, "resolved": RESOLVED, "symbols": ["kernel_mha"]}
RATES = {metric.name for metric in METRICS if metric.kind == "rate"}
FACTS = {"gpu": GPU.name, "uuid": "GPU-1", "capability": [9, 0]}
Fake = Callable[..., Path]


def edited(page: str = PAGE, /, **columns: str) -> str:
    """A raw page with other values in columns, named as ours or as `passes`."""
    table = list(csv.reader(line for line in page.splitlines() if line.startswith('"')))
    known = names_on("gh100") | {"passes": "profiler__replayer_passes", "symbol": "Kernel Name"}
    for ours, value in columns.items():
        at = table[0].index(known[ours])
        for row in table[2:]:
            row[at] = value
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(table)
    return text.getvalue()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Puts the stand-in on the PATH; call it with what the next processes are to do."""
    tool = tmp_path / "bin" / "ncu"
    tool.parent.mkdir()
    source = (TESTS / "fake_ncu.py").read_text()
    tool.write_text(f"#!{sys.executable}\n{source}")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    monkeypatch.setattr(profile, "gpu_facts", lambda device: FACTS)
    monkeypatch.chdir(tmp_path)

    def plan(*told: dict[str, Any] | str, **changes: Any) -> Path:
        say = [line if isinstance(line, str) else json.dumps(line) for line in told or (TOLD,)]
        wanted = {"version": "2025.3.1", "pages": {"": PAGE}, "say": say, "code": 0, "report": True}
        tool.with_name("ncu.json").write_text(json.dumps(wanted | changes))
        return tool.with_name("commands.jsonl")

    return plan


def wanted(how: str = "card", *names: str, **changes: Any) -> Wanted:
    cells = tuple(map(Cell.parse, names or (NAME,)))
    return Wanted(**{"cells": cells, "device": GPU, "how": how, "launches": 2, "l2": "cold",
                     "keep": None, "import_": None, "kernel_file": None} | changes)  # fmt: skip


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


# --- one profiled process ---------------------------------------------------------------------


def test_a_record_holds_counts_prediction_and_how_it_was_counted(fake: Fake) -> None:
    fake('==PROF== Profiling "kernel_mha" - 0: 0%....50%....100% - 6 passes', TOLD)
    said: list[str] = []
    (record,) = count(wanted(), said.append)
    assert record["total"]["ldg"] == {"value": 407_552, "stable": True, "spread": 0}
    assert (record["predicted"]["ldg"], record["off"]) == (407_552, [])
    how = record["how"]
    assert (how["ncu"], how["chip"], how["replay_mode"]) == ("2025.3.1", "gh100", "kernel")
    assert (how["cache_control"], how["clock_control"], how["l2"]) == ("all", "none", "cold")
    assert (how["launches"], how["cells"]) == (2, 1)
    assert said[0] == "profiled kernel_mha in 6 passes"
    assert said[1].startswith("counters are not calibrated")


def test_ncu_replays_what_once_calls_with_clocks_left_alone(fake: Fake) -> None:
    commands = fake()
    count(wanted(), str)
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
    assert len(count(wanted(), str)) == 1
    (words,) = map(json.loads, commands.read_text().splitlines())
    assert "/50%%p/" in option(words, "--export")


def test_calibration_counts_on_the_gpu_that_was_asked_for(fake: Fake) -> None:
    commands = fake()
    with pytest.raises(NcuError, match="calibration saw 0 launches of cal_ldg"):
        calibrate.calibrate(replace(GPU, index=1), str)
    (words,) = map(json.loads, commands.read_text().splitlines())
    assert words[-1].endswith("main(1)")


def test_launches_state_and_an_own_kernel_reach_the_profiled_process(
    fake: Fake, tmp_path: Path
) -> None:
    commands = fake(pages={"": edited(passes="1")})
    own = tmp_path / "own.py"
    count(wanted("single", l2="warm", kernel_file=own), str)
    for words in map(json.loads, commands.read_text().splitlines()):
        child = words[words.index("once") :]
        assert (option(child, "--l2"), option(child, "--kernel")) == ("warm", str(own))


def test_a_page_is_exported_in_base_units_and_the_c_locale(fake: Fake) -> None:
    exports = fake().with_name("exports.jsonl")
    count(wanted(), str)
    ((words, locale),) = map(json.loads, exports.read_text().splitlines())
    assert option(words, "--config-file") == "off"
    assert option(words, "--page") == "raw"
    assert option(words, "--print-units") == "base"
    assert locale == "C"


def test_an_old_report_is_not_read_as_a_new_one(fake: Fake, tmp_path: Path) -> None:
    (tmp_path / "old.ncu-rep").write_text(edited(ldg="111"))
    fake("==WARNING== No kernels were profiled.", report=False)
    with pytest.raises(ValueError, match="no kernel matched"):
        count(wanted(keep=Path("old.ncu-rep")), str)


@pytest.mark.parametrize(
    ("plan", "says"),
    [({"report": False}, "no kernel matched"), ({"pages": {"": "no page"}}, "no raw CSV page")],
)
def test_an_old_report_outlives_a_count_that_failed(
    plan: dict[str, Any], says: str, fake: Fake, tmp_path: Path
) -> None:
    (tmp_path / "old.ncu-rep").write_text("old")
    fake("==WARNING== No kernels were profiled.", **plan)
    with pytest.raises(ValueError, match=says):
        count(wanted(keep=Path("old.ncu-rep")), str)
    assert (tmp_path / "old.ncu-rep").read_text() == "old"


def test_a_report_that_cannot_be_kept_costs_no_count(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    fake()
    monkeypatch.setattr(profile.shutil, "copyfile", full)
    said: list[str] = []
    assert len(count(wanted(keep=Path("r.ncu-rep")), said.append)) == 1
    assert "--keep r.ncu-rep: No space left on device" in said


def test_the_report_that_is_kept_is_of_the_first_process_that_counted(
    fake: Fake, tmp_path: Path
) -> None:
    fake(TOLD, dies_on="xqa_shared_p64")
    count(wanted("card", "xqa_shared_p64", NAME, keep=Path("r")), str)
    assert (tmp_path / "r.ncu-rep").read_text() == PAGE


def test_a_line_that_the_childs_death_cut_off_is_passed_over(fake: Fake) -> None:
    fake(TOLD, '{"cell": "xqa_shared_p64", "resol')
    said: list[str] = []
    assert len(count(wanted("card", NAME, "xqa_shared_p64"), said.append)) == 1
    assert "lost: xqa_shared_p64: the process said nothing of it" in said


def test_a_cell_that_failed_costs_its_own_record_alone(fake: Fake) -> None:
    other = "xqa_shared_p64"
    fake(TOLD, {"cell": other, "status": "crashed", "reason": "out of memory"})
    said: list[str] = []
    (record,) = count(wanted("card", NAME, other), said.append)
    assert record["cell"] == NAME
    assert f"crashed: {other}: out of memory" in said


def test_where_every_cell_failed_there_is_no_record_and_each_is_named(fake: Fake) -> None:
    fake({"cell": NAME, "status": "wrong", "reason": "off by 3"}, report=False, code=1)
    said: list[str] = []
    assert count(wanted(), said.append) == []
    assert said == [f"wrong: {NAME}: off by 3"]


def test_a_cell_that_the_process_did_not_reach_is_lost(fake: Fake) -> None:
    fake(TOLD)
    said: list[str] = []
    assert len(count(wanted("card", NAME, "xqa_shared_p64"), said.append)) == 1
    assert "lost: xqa_shared_p64: the process said nothing of it" in said


def test_what_a_dead_process_took_with_it_is_counted_in_another(fake: Fake) -> None:
    """The first cell killed the process before it said a word; the next is counted alone."""
    commands = fake(TOLD, dies_on="xqa_shared_p64")
    said: list[str] = []
    (record,) = count(wanted("card", "xqa_shared_p64", NAME), said.append)
    assert (record["cell"], record["how"]["cells"]) == (NAME, 1)
    assert any(line.startswith("crashed: xqa_shared_p64: ") for line in said)
    first, second = map(json.loads, commands.read_text().splitlines())
    assert "xqa_shared_p64" in first
    assert "xqa_shared_p64" not in second


def test_a_process_that_dies_of_its_only_cell_is_an_error(fake: Fake) -> None:
    fake(TOLD, dies_on=NAME)
    with pytest.raises(ValueError, match=r"process failed: .* returned an error code \(11\)"):
        count(wanted(), str)


def test_cells_behind_one_that_failed_and_one_that_killed_the_process_are_counted(
    fake: Fake,
) -> None:
    """Of the three the process spoke of the first alone."""
    wrong = json.dumps({"cell": "xqa_shared_p32", "status": "wrong", "reason": "off by 3"})
    fake(wrong, TOLD, dies_on="xqa_shared_p64", last=[wrong])
    said: list[str] = []
    cells = ("xqa_shared_p32", "xqa_shared_p64", NAME)
    (record,) = count(wanted("card", *cells), said.append)
    assert record["cell"] == NAME
    assert "wrong: xqa_shared_p32: off by 3" in said
    assert any(line.startswith("crashed: xqa_shared_p64: ") for line in said)


def test_a_process_that_dies_after_its_last_word_is_laid_to_the_cell_that_crashed(
    fake: Fake,
) -> None:
    """As where a fault on the device ends the process only when it lets go of its memory."""
    broke = {"cell": "xqa_shared_p64", "status": "crashed", "reason": "illegal address"}
    fake(TOLD, dies_on="xqa_shared_p64", last=list(map(json.dumps, (TOLD, broke))))
    said: list[str] = []
    (record,) = count(wanted("card", NAME, "xqa_shared_p64"), said.append)
    assert record["cell"] == NAME
    assert "crashed: xqa_shared_p64: illegal address" in said


@pytest.mark.parametrize("words", [
    '==ERROR== Failed to prepare kernel for profiling\n==ERROR== Unknown Error on device 0.',
    "ModuleNotFoundError: No module named 'flashinfer'",
])  # fmt: skip
def test_what_ends_two_processes_before_any_cell_is_no_cells_fault(words: str, fake: Fake) -> None:
    commands = fake(words, "==ERROR== The application returned an error code (1).", report=False,
                    code=1)  # fmt: skip
    cells = [f"xqa_shared_p{page}" for page in (16, 32, 64, 128)]
    with pytest.raises(ValueError, match=r"Unknown Error|ModuleNotFoundError"):
        count(wanted("card", *cells), str)
    assert len(commands.read_text().splitlines()) == 2


def test_cells_that_kill_their_process_without_a_word_are_each_laid_to_themselves(
    fake: Fake,
) -> None:
    commands = fake(TOLD, dies_on="--l2")
    cells = [f"xqa_shared_p{page}" for page in (16, 32, 64)]
    said: list[str] = []
    with pytest.raises(ValueError, match="returned an error code"):
        count(wanted("card", *cells), said.append)
    assert len(commands.read_text().splitlines()) == 3


def test_a_formula_that_fails_costs_its_prediction_and_no_count(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake()
    monkeypatch.setattr(type(find_kernel("xqa")), "loads", lambda *_: 1 / 0)
    said: list[str] = []
    (record,) = count(wanted(), said.append)
    assert record["total"]["ldg"]["value"] == 407_552
    assert record["predicted"]["ldg"] is None
    failed = "xqa.loads(): ZeroDivisionError: division by zero"
    assert f"{NAME}: loads are not predicted: {failed}" in said
    assert failed in counters_card(record)


def test_a_later_process_that_dies_leaves_what_was_counted(fake: Fake) -> None:
    broke = {"cell": "xqa_shared_p64", "status": "crashed", "reason": "illegal address"}
    lost = {"cell": "xqa_shared_p32", "status": "lost", "reason": "the device failed"}
    broken = list(map(json.dumps, (TOLD, broke, lost)))
    fake(TOLD, breaks_on="xqa_shared_p64", broken=broken, dies_on="xqa_shared_p32")
    said: list[str] = []
    (record,) = count(wanted("card", NAME, "xqa_shared_p64", "xqa_shared_p32"), said.append)
    assert record["cell"] == NAME
    assert any(line.startswith("crashed: xqa_shared_p32: ") for line in said)


def test_cells_behind_one_that_broke_the_device_are_counted_in_another_process(fake: Fake) -> None:
    lost = {"cell": NAME, "status": "lost", "reason": "the device failed in xqa_shared_p64"}
    broke = {"cell": "xqa_shared_p64", "status": "crashed", "reason": "illegal address"}
    fake(TOLD, breaks_on="xqa_shared_p64", broken=[json.dumps(broke), json.dumps(lost)])
    said: list[str] = []
    (record,) = count(wanted("card", "xqa_shared_p64", NAME), said.append)
    assert record["cell"] == NAME
    assert "crashed: xqa_shared_p64: illegal address" in said
    assert any(line.endswith("counting it again") for line in said)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
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
        count(wanted(), interrupt)
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
    assert count(wanted(), said.append) == []
    (line,) = [text for text in said if text.startswith("wrong: ")]
    assert f"{NAME}: expected {', '.join(symbols)}; saw kernel_mha(" in line


# --- what goes wrong --------------------------------------------------------------------------

# What ncu 2025 says after every profile that failed.
SHUT_DOWN = """==ERROR== Failed to profile "kernel_mha" in process 954
==PROF== Trying to shutdown target application
==ERROR== The application returned an error code (9).
==ERROR== An error occurred while trying to profile.
==WARNING== No kernels were profiled."""


@pytest.mark.parametrize(("said", "code", "remedy"), [
    ((DATA / "ncu_no_permission.txt").read_text(), 1, "NVreg_RestrictProfilingToAdminUsers=0"),
    ((DATA / "ncu_no_permission.txt").read_text(), 0, "NVreg_RestrictProfilingToAdminUsers=0"),
    ((DATA / "ncu_no_permission.txt").read_text(), 1, r"`sudo env PATH=\$PATH`"),
    ((DATA / "ncu_no_permission.txt").read_text(), 1, "under WSL allow all users"),
    ("==WARNING== No kernels were profiled.", 0, "no kernel matched"),
    ("==ERROR== Something that nobody has seen", 1, "Something that nobody has seen"),
    ("RuntimeError: CUDA out of memory\n==WARNING== No kernels were profiled.\n"
     "==ERROR== The application returned an error code (1).", 1, "failed: RuntimeError: CUDA out"),
    ("a lock file of the child's own\n==ERROR== The application returned an error code (1).", 1,
     "failed: a lock file of the child's own"),
    (json.dumps(TOLD), 1, "ncu said nothing"),
    ("a warning of torch's\n==WARNING== No kernels were profiled.", 0, "no kernel matched"),
    ("a warning of torch's\n==ERROR== LaunchFailed\n" + SHUT_DOWN, 9, "^ncu: LaunchFailed$"),
    ("==ERROR== Failed to prepare kernel for profiling\n==ERROR== Unknown Error on device 0.\n"
     + SHUT_DOWN, 9, "^ncu: Failed to prepare kernel for profiling Unknown Error on device 0.$"),
    ("==ERROR== An error was reported by the driver:\n"
     "==ERROR== Cuda driver is not compatible with Nsight Compute.\n"
     "==ERROR== The application returned an error code (11).", 11, "use an older ncu"),
])  # fmt: skip
def test_trouble_is_one_line_that_names_the_cause(
    said: str, code: int, remedy: str, fake: Fake
) -> None:
    fake(*said.splitlines(), code=code, report=False)
    with pytest.raises(ValueError, match=remedy) as caught:
        count(wanted(), str)
    assert "\n" not in str(caught.value)


def test_an_ncu_that_is_missing_or_too_old_is_named(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(version="2021.3.0")
    with pytest.raises(ValueError, match=r"ncu 2021\.3 is too old: use 2022 or later"):
        count(wanted(), str)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ValueError, match="ncu is not on the PATH"):
        count(wanted(), str)


@pytest.mark.parametrize(("changes", "match"), [
    ({"l2": "warm"}, "--single-pass"),
    ({"how": "audit", "l2": "warm"}, "leave out --l2"),
    ({"how": "single", "keep": Path("r.ncu-rep")}, "--keep"),
    ({"how": "audit", "keep": Path("r.ncu-rep")}, "--keep"),
    ({"cells": ()}, "none of these cells"),
    ({"keep": Path("ncu.json/r.ncu-rep")}, "--keep ncu.json/r.ncu-rep: Not a directory"),
    ({"keep": Path("folder.ncu-rep")}, "--keep folder.ncu-rep: Is a directory"),
])  # fmt: skip
def test_wishes_that_do_not_go_together_are_refused_before_anything_is_counted(
    changes: dict[str, Any], match: str, fake: Fake, tmp_path: Path
) -> None:
    commands = fake()
    (tmp_path / "ncu.json").touch()
    (tmp_path / "folder.ncu-rep").mkdir()
    with pytest.raises(ValueError, match=match):
        count(wanted(**changes), str)
    assert not commands.exists()


def test_a_report_is_kept_where_it_was_wished(fake: Fake, tmp_path: Path) -> None:
    fake()
    count(wanted(keep=Path("kept/xqa")), str)
    assert (tmp_path / "kept" / "xqa.ncu-rep").read_text() == PAGE


# --- single passes, audit, calibration --------------------------------------------------------


def test_single_passes_are_a_process_each_and_become_one_record(fake: Fake) -> None:
    commands = fake(pages={"": edited(passes="1")})
    (record,) = count(wanted("single"), str)
    processes = list(map(json.loads, commands.read_text().splitlines()))
    assert len(processes) == len(SINGLE_PASS)
    for words, group in zip(processes, SINGLE_PASS.values(), strict=True):
        assert option(words, "--cache-control") == "none"
        counters = {name for name in option(words, "--metrics").split(",") if "__" in name}
        assert set(names_on("gh100", group).values()) <= counters
        assert (
            not set(names_on("gh100").values()) - set(names_on("gh100", group).values()) & counters
        )
    assert (record["how"]["replay_mode"], record["how"]["cache_control"]) == ("single pass", "none")
    counted = {name for group in SINGLE_PASS.values() for name in group} - {"dram_busy_pct"}
    assert set(record["total"]) == counted
    (kernel,) = record["kernels"]
    assert set(kernel["values"]) == counted | {"dram_busy_pct"}


def test_a_group_that_took_more_than_one_pass_is_refused(fake: Fake) -> None:
    fake()
    with pytest.raises(ValueError, match="took 6 passes here and not one"):
        count(wanted("single"), str)


def test_the_audit_compares_dram_bytes_after_the_flush_and_without(fake: Fake) -> None:
    cold, warm = (edited(passes="1", dram_read_bytes=each) for each in ("33,600,000", "9,000"))
    fake(pages={"warm": warm, "cold": cold})
    (record,) = count(wanted("audit"), str)
    distinct = 8192 * 8 * 2 * 128 * 2
    assert record["distinct_kv_bytes"] == distinct
    assert record["cold_over_distinct"] == round(33_600_000 / distinct, 4)
    assert record["warm_over_distinct"] == round(9_000 / distinct, 4)
    assert record["flushed"]


def test_an_audit_of_cells_takes_two_processes_and_loses_those_alone_that_die(fake: Fake) -> None:
    pages = {"": edited(passes="1")}
    commands = fake(TOLD, pages=pages)
    (record,) = count(wanted("audit", NAME, "xqa_shared_p64"), str)
    assert record["cell"] == NAME
    assert len(commands.read_text().splitlines()) == 2
    fake(TOLD, pages=pages, dies_on="xqa_shared_p64", last=[json.dumps(TOLD)])
    (record,) = count(wanted("audit", NAME, "xqa_shared_p64"), str)
    assert record["cell"] == NAME


def test_a_flush_that_leaves_more_than_two_per_cent_in_the_cache_is_found(fake: Fake) -> None:
    distinct = 8192 * 8 * 2 * 128 * 2
    for share, flushed in ((0.981, True), (0.979, False)):
        read = f"{int(share * distinct):,}"
        fake(pages={"": edited(passes="1", dram_read_bytes=read)})
        (record,) = count(wanted("audit"), str)
        assert record["flushed"] is flushed


def wrong_calibration(counter: str, **changes: Any) -> dict[str, Any]:
    return {"kind": "calibration", "schema": 1, "gpu": GPU.name, "ncu": "2025.3.1",
            "seen": {"cal_ldg": {counter: [1.0, 1.0]}}, "expected": {"cal_ldg": {counter: 2}},
            **changes}  # fmt: skip


def test_what_a_calibration_found_wrong_is_nowhere_in_the_record(fake: Fake) -> None:
    store.append_line(calibrate.CALIBRATIONS, wrong_calibration("ldg"))
    fake()
    (record,) = count(wanted(), str)
    assert (record["calibrated"], record["distrusted"]) == (True, ["ldg"])
    assert "ldg" not in record["total"]
    assert all("ldg" not in kernel["values"] for kernel in record["kernels"])
    assert "ldg" not in record["off"]


def test_an_audit_does_not_rest_on_a_counter_that_was_found_wrong(fake: Fake) -> None:
    store.append_line(calibrate.CALIBRATIONS, wrong_calibration("dram_read_bytes"))
    fake(pages={"": edited(passes="1")})
    with pytest.raises(ValueError, match="--audit rests on dram_read_bytes"):
        count(wanted("audit"), str)


@pytest.mark.parametrize("text", ["n/a", "(!) n/a", "(!) nan", "-nan", "inf", "no data"])
def test_a_counter_that_ncu_could_not_count_is_left_out(text: str, fake: Fake) -> None:
    """As on a GPU without DRAM counters, or in a MIG instance that shares its L2."""
    from pagebench.harness.show.card import counters_card, counters_row

    fake(pages={"": edited(dram_read_bytes=text, dram_busy_pct=text)})
    (record,) = count(wanted(), str)
    assert record["total"].keys() == names_on("gh100").keys() - RATES - {"dram_read_bytes"}
    assert "dram_read_bytes" not in counters_card(record)
    assert counters_row(record)[6:9] == ("", "", "")
    fake(pages={"": edited(dram_read_bytes=text, dram_busy_pct=text, passes="1")})
    with pytest.raises(ValueError, match="--audit needs dram_read_bytes"):
        count(wanted("audit"), str)


def test_calibrate_finds_a_file_that_it_cannot_write_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_count, "find_device", lambda name: GPU)
    monkeypatch.setattr(calibrate, "calibrate", lambda *given: pytest.fail("it counted"))
    with pytest.raises(ValueError, match="Is a directory"):
        cli_count.calibrate(out=tmp_path)


def test_what_ncu_cannot_count_is_neither_right_nor_wrong(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "gpu_facts", lambda device: FACTS)
    monkeypatch.setattr(calibrate, "kernels_on", lambda capability: ("cal_ldg",))
    page = edited(symbol="cal_ldg", dram_read_bytes="n/a", ldg="32,768")
    fake(pages={"": page})
    said: list[str] = []
    record = calibrate.calibrate(GPU, said.append)
    assert "dram_read_bytes" not in {**record["seen"]["cal_ldg"], **record["expected"]["cal_ldg"]}
    assert "ncu cannot count here: dram_read_bytes" in said
    assert "dram_read_bytes" not in calibrate.distrusted(record)
    assert any(line.startswith("ldg: ") for line in record["disagree"])


@pytest.mark.parametrize(
    "changes",
    [
        {"seen": {}},
        {"seen": {"cal_ldg": {"ldg": ["x", 1]}}},
        {"expected": {"cal_ldg": {"no such counter": 1}}},
    ],
)
def test_a_damaged_calibration_is_passed_over(changes: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    store.append_line(file, wrong_calibration("ldg", ncu="1") | changes)
    assert calibrate.newest(GPU.name, "1", (file,)) is None


def test_a_calibration_line_of_another_making_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    store.append_line(file, {"kind": "calibration"})
    store.append_line(file, wrong_calibration("ldg", ncu="1", schema=99))
    store.append_line(file, {"kind": "calibration", "gpu": GPU.name, "ncu": "1", "schema": 1})
    assert calibrate.newest(GPU.name, "1", (file,)) is None


def test_the_newest_calibration_of_that_gpu_and_ncu_counts(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    for gpu, version, date in ((GPU.name, "1", "b"), (GPU.name, "1", "a"), ("other", "1", "c")):
        store.append_line(file, wrong_calibration("ldg", gpu=gpu, ncu=version, started=date))
    found = calibrate.newest(GPU.name, "1", (file,))
    assert found is not None
    assert found["started"] == "b"
    assert calibrate.newest(GPU.name, "2", (file,)) is None


# --- import -----------------------------------------------------------------------------------


def imported(page: str, tmp_path: Path) -> list[dict[str, Any]]:
    file = tmp_path / "page.csv"
    file.write_text(page)
    return count(wanted(import_=file, cells=()), str)


def one_launch(page: str) -> str:
    return "\n".join(page.splitlines()[:3])


def units(page: str, old: str, new: str) -> str:
    head, second, *rest = page.splitlines()
    return "\n".join([head, second.replace(f'"{old}"', f'"{new}"'), *rest])


def test_what_was_counted_once_is_not_stable(tmp_path: Path) -> None:
    (record,) = imported(one_launch(PAGE), tmp_path)
    assert not any(entry["stable"] for entry in record["total"].values())
    from pagebench.harness.counting.baseline import counts_of
    from pagebench.harness.show.card import counters_card, joined, joined_card

    assert not any(counts_of([record]).values())
    card = counters_card(record)
    assert "counted once" in card
    assert "neither calibrated nor its kernels checked" in card
    store.append_line(tmp_path / "c.jsonl", record)
    shown = joined_card(joined(NAME, [tmp_path / "c.jsonl"]))
    assert "counters  on a GPU that the page does not name" in shown


@pytest.mark.parametrize(("page", "match"), [
    (units(PAGE, "byte", "Mbyte"), "is in Mbyte, not byte: export with LC_ALL=C"),
    (edited(ldg="407.552"), "ldg of 407.552 inst: numbers are not of the C locale"),
    (edited(ldg="407.552.123"), "numbers are not of the C locale"),
    (edited(ldg="407.000"), "numbers are not of the C locale"),
    (PAGE.rstrip()[:-4], "cut off"),
    (PAGE.replace("xqa_shared_p16", "no cell"), "bears a cell's name: profile with `page"),
    (PAGE + PAGE.splitlines()[-1].replace("kernel_mha", "other"), "xqa_shared_p16: "),
    (edited(l2_hit_all_pct="9,138"), "numbers are not of the C locale"),
    (edited(l2_hit_all_pct="-91.38"), "l2_hit_all_pct of -91.38 %"),
    (edited(ldg="-407552"), "ldg of -407552 inst"),
    (edited(ldg="1e400"), "ldg of 1e400 inst"),
    (PAGE + PAGE, "several pages in one file: import each by itself"),
    (PAGE.replace("kernel_mha", "kernel\0mha"), "no text: a report is named .ncu-rep, and a page"),
    (PAGE.replace('"CC"', '"CD"'), "no compute capability"),
    (PAGE.replace('"9.0"', '""'), "no compute capability"),
    (PAGE.replace('"9.0"', '"7.5"'), "no counters are mapped for compute capability 7.5; for 8.0"),
    (PAGE.replace('"Grid Size"', '"Size"'), "no raw CSV page"),
    (PAGE.replace("smsp__", "x__").replace("l1tex__", "x__").replace("lts__", "x__")
     .replace("dram__", "x__").replace("sm__", "x__"), "none of our counters"),
    (PAGE[:-400], "cut off"),
    ("", "no raw CSV page"),
])  # fmt: skip
def test_a_page_that_would_be_misread_is_refused_in_one_line(
    page: str, match: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        imported(page, tmp_path)
    assert "\n" not in str(caught.value)
    assert "page.csv: " in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_page_that_a_shell_wrote_in_its_own_encoding_is_read(
    encoding: str, tmp_path: Path
) -> None:
    file = tmp_path / "page.csv"
    file.write_text(PAGE, encoding=encoding)
    (record,) = count(wanted(import_=file, cells=()), str)
    assert record["total"]["ldg"]["value"] == 407_552


def test_unknown_launch_facts_leave_a_card_without_them(tmp_path: Path) -> None:
    from pagebench.harness.show.card import counters_card

    page = PAGE.replace('"launch__registers_per_thread"', '"launch__other"')
    (record,) = imported(page, tmp_path)
    assert "registers" not in counters_card(record)


def test_a_missing_report_is_named_before_a_tool_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.ncu-rep: No such file"):
        count(wanted(import_=tmp_path / "none.ncu-rep", cells=()), str)


def test_a_report_is_read_without_ncu_as_ncu_exports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ncu_report")
    monkeypatch.setenv("PATH", "/nowhere")
    (read,) = count(wanted(import_=DATA / "ncu_xqa_shared_p16.ncu-rep", cells=()), str)
    (exported,) = imported(PAGE, tmp_path)
    assert read["total"] == exported["total"]
    (kernel,), (other,) = read["kernels"], exported["kernels"]
    for name in ("symbol", "grid", "block", "passes"):
        assert kernel[name] == other[name]
    # ncu prints two decimals.
    assert kernel["launch"] == pytest.approx(other["launch"], abs=0.005)
    for name, values in kernel["values"].items():
        assert values == pytest.approx(other["values"][name], abs=0.005)


def test_a_file_that_is_no_report_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ncu_report")
    monkeypatch.setenv("PATH", "/nowhere")
    (tmp_path / "r.ncu-rep").write_bytes(b"no report")
    with pytest.raises(ValueError, match=r"r\.ncu-rep: ncu-report finds no kernels here"):
        count(wanted(import_=tmp_path / "r.ncu-rep", cells=()), str)


def test_a_report_that_no_tool_can_read_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "r.ncu-rep"
    file.write_bytes(b"no report")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(ValueError, match="pip install ncu-report"):
        count(wanted(import_=file, cells=()), str)


def test_counting_says_what_it_refuses_as_a_value_error() -> None:
    def refuse() -> None:
        raise NcuError("no")

    with pytest.raises(ValueError, match="no"):
        counting.as_value_error(refuse)
