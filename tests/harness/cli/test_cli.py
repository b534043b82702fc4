"""The command line as a user meets it: one clear line, the right exit code, nothing lost."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from fakes import DATA, pagebench, pagebench_here
from pagebench.harness import cell as cells
from pagebench.harness.cli import main as cli
from pagebench.harness.cli import options
from pagebench.harness.cli import report as reporting
from pagebench.harness.cli.counting import _countable
from pagebench.harness.environment import PAGEBENCH
from pagebench.harness.errors import UserError
from pagebench.harness.records import store
from pagebench.harness.records.timing import Timing
from pagebench.kernels.device import Device, find_device

NO_GPU = pytest.mark.skipif(find_device().kind == "cuda", reason="says what a laptop says")


SMALL = "distinct_p16_b2_l64"
OFF_KERNEL = """
from dataclasses import replace
from pagebench.kernels.gather import Gather

class Off(Gather):
    name = "off"

    def plan(self, batch, *, graph):
        call = super().plan(batch, graph=graph)
        return replace(call, run=lambda: (call.run(), call.out.mul_(2)))

ADAPTER = Off()
"""
LADDER = [f"gather_distinct_p{page}_b2_l64" for page in (4, 8, 16)]
BAD = [
    (["run", "xqa_shared_p17"], "16, 32, 64, 128"),
    (["run", "xqa_shared_q16"], "unknown word q16"),
    (["run", "gather_distinct_p0"], "page_size is 0"),
    (["run"], "pagebench list"),
    (["run", "--suite", "pagse"], "pages"),
    (["run", "gather", "e4m3", "--suite", "smoke"], "has all of: e4m3 gather"),
    (["run", f"gather_{SMALL}", "--resume"], "--out"),
    (["run", f"gather_{SMALL}", "--clock", "sundial"], "wall, events"),
    (["run", f"gather_{SMALL}", "--l2", "tepid"], "cold, warm"),
    (["run", f"gather_{SMALL}", "--boundary", "edge"], "run or plan"),
    (["run", f"gather_{SMALL}", "--boundary", "plan"], "plans nothing"),
    (["run", f"gather_{SMALL}", "--device", "tpu"], "auto, cpu, cuda"),
    (["run", f"gather_{SMALL}", "--seconds", "soon"], "number"),
    (["run", f"gather_{SMALL}", "--processes", "0"], "1"),
    (["run", f"gather_{SMALL}", "--kernel", "nowhere.py"], "no such file"),
    (["run", f"gather_{SMALL}", "--out", "/proc/none/x.jsonl"], "/proc/none"),
    (["run", f"gather_{SMALL}", "--out", "/dev/full"], "/dev/full: not a regular file"),
    (["ceilings", "--device", "cpu"], "those of another machine are read from"),
    (["calibrate", "--device", "cpu"], "needs the NVIDIA GPU that counts; without one"),
    (["profile", "xqa_shared_p16", "--device", "cpu"], "pagebench import FILE"),
    (["profile", f"gather_{SMALL}", "--device", "cpu"], "counting needs an NVIDIA GPU"),
    (["profile", "--suite", "pages", "--device", "cpu"], "counting needs an NVIDIA GPU"),
    (["judge", "all", "--device", "cpu"], "judge all needs an NVIDIA GPU; `pagebench study"),
    (["dose", "shared", "--device", "cpu"], "dose shared needs an NVIDIA GPU; `pagebench study"),
    (["selftest", "--device", "cpu"], "selftest needs an NVIDIA GPU; `pagebench study FILE...`"),
    (
        ["judge", "xqa_shared_p16", "xqa_shared_p64", "--device", "cpu"],
        "on the CPU use reference or gather; `pagebench study FILE...`",
    ),
    (["show", f"gather_{SMALL}"], f"in runs/; `pagebench run gather_{SMALL}` makes one, or name"),
    (["report", "nowhere.jsonl"], "No such file"),
    (["import", "/dev/null"], "/dev/null: "),
    (["import", "page.csv", "--out", "/dev/null/x"], "/dev/null/x: Not a directory"),
    (["baseline", "save", "/dev/full", "xqa_shared_p16"], "not a regular file"),
    (["baseline", "save", "/dev/null/b", "xqa_shared_p16"], "Not a directory"),
    (["baseline", "check", "none.json", "xqa_shared_p16"], "none.json: No such"),
    (["profile", "--import", "page.csv"], "profile --import is now: pagebench import page.csv"),
    (
        ["judge", f"gather_{SMALL}", "gather_distinct_p8_b2_l64", "--counters", "/dev/null"],
        "no counters of both cells in /dev/null",
    ),
    (["dose", *LADDER, "--counters", "/dev/null"], "no counters of all cells in /dev/null"),
    (["dose", *LADDER, "--counters", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
    (["once", "gather_distinct"], "page size"),
    (["frobnicate"], "no command frobnicate; there are list, run, once, report, doctor"),
    (["jugde", "all"], "no command jugde; did you mean judge?"),
    (["run", f"mykernel_{SMALL}"], "no kernel mykernel here: name its file with --kernel"),
    ([], "Missing command"),
]


def test_a_process_of_its_own_takes_no_module_from_where_one_works(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise SystemExit('not the one installed')")
    done = pagebench("list", cwd=tmp_path, PYTHONSAFEPATH="")
    assert done.returncode == 0, done.stderr


def test_what_was_printed_before_another_file_failed_reaches_the_pipe() -> None:
    """Buffered, as stdout to a pipe is."""
    code = (
        "from pagebench.harness.cli import main as cli\n"
        "from pagebench.harness.records.store import StoreError\n"
        "def app(**_):\n"
        "    print('a card')\n"
        "    raise StoreError('b.json: No space left on device')\n"
        "cli.app = app\n"
        "cli.main()"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", code], env=env, text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (2, "a card\n")
    assert done.stderr == "b.json: No space left on device\n"


def is_one_line(done: subprocess.CompletedProcess[str], says: str) -> None:
    lines = [line for line in done.stderr.splitlines() if "[wall" not in line]
    assert done.returncode == 2, done.stderr
    assert len(lines) == 1, done.stderr
    assert says in lines[0]
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("words", "says"), BAD, ids=lambda value: " ".join(value)[:40])
def test_bad_input_is_one_line_on_stderr_and_exit_code_2(
    words: list[str], says: str, tmp_path: Path
) -> None:
    is_one_line(pagebench_here(*words, cwd=tmp_path), says)


@pytest.mark.parametrize(("words", "says"), [BAD[0], BAD[13], BAD[-1]], ids=str)
def test_so_it_is_in_a_process_of_its_own(words: list[str], says: str, tmp_path: Path) -> None:
    is_one_line(pagebench(*words, cwd=tmp_path), says)


# --- Bugs of ours ---------------------------------------------------------------------------------


def _seek() -> None:
    """An OSError that is neither of a file that somebody named nor of the output."""
    raise OSError(errno.ESPIPE, os.strerror(errno.ESPIPE))


BUGS: dict[str, Callable[[], object]] = {
    "ValueError: invalid literal": lambda: int("three"),
    "KeyError: 'dram'": lambda: {"l2": 1}["dram"],
    "ValueError: zip() argument 2 is longer": lambda: list(zip("a", "bc", strict=True)),
    "TypeError": lambda: len(3),  # type: ignore[arg-type]
    "OSError: [Errno 29] Illegal seek": _seek,
    "FileNotFoundError: [Errno 2]": lambda: Path("a-file-of-ours").read_text(),
}


@pytest.mark.parametrize("says", BUGS)
def test_a_bug_of_ours_shows_its_traceback_and_exits_70(
    says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagebench.harness.cli.listing.find_suite", lambda name: BUGS[says]())
    done = pagebench_here("list", "--suite", "smoke")
    assert done.returncode == 70
    assert done.stderr.startswith("Traceback (most recent call last):")
    assert done.stderr.strip().splitlines()[-1].startswith(says)


@pytest.mark.parametrize("says", BUGS)
def test_a_bug_in_a_table_is_no_bad_record(says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting.tables, "row", lambda timing: BUGS[says]())
    done = pagebench_here("report", str(DATA / "timing_schema1.jsonl"))
    assert (done.returncode, done.stdout) == (70, "")
    assert "in report" in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith(says)


def test_a_bug_exits_70_in_a_process_of_its_own_too() -> None:
    code = (
        "from pagebench.harness.cli import main as cli\n"
        "def app(**_):\n"
        "    print('half a table')\n"
        "    raise KeyError('dram')\n"
        "cli.app = app\n"
        "cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (70, "half a table\n")
    assert done.stderr.strip().splitlines()[-1] == "KeyError: 'dram'"


def test_what_the_user_can_put_right_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise UserError(f"no suite {name}:\n  not today")

    monkeypatch.setattr("pagebench.harness.cli.listing.find_suite", refuse)
    done = pagebench_here("list", "--suite", "smoke")
    assert (done.returncode, done.stderr) == (2, "no suite smoke: not today\n")


def test_an_interrupt_exits_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pagebench.harness.cli.listing.find_suite", interrupt)
    done = pagebench_here("list", "--suite", "smoke")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_name_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read, words = [], cells.read_words
    for module in (cells, options):
        monkeypatch.setattr(module, "read_words", lambda name: read.append(name) or words(name))
    done = pagebench_here("list", f"gather_{SMALL}", f"reference_{SMALL}", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert read == [f"gather_{SMALL}", f"reference_{SMALL}"]


# --- Commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", cli.ROOMS)
def test_every_command_is_where_it_is_looked_for(room: str) -> None:
    module = import_module(f"pagebench.harness.cli.{room}")
    functions = [command.__name__.strip("_") for command in getattr(module, "COMMANDS", ())]
    assert (*functions, *getattr(module, "GROUPS", ())) == cli.ROOMS[room]
    assert tuple(cli.commands_of(room)) == cli.ROOMS[room]


def test_no_file_of_commands_is_left_out() -> None:
    files = {path.stem for path in Path(cli.__file__).parent.glob("*.py")}
    assert files - {"main", "options", "streams"} == set(cli.ROOMS)


def test_help_names_every_command() -> None:
    text = pagebench_here("--help").stdout
    assert re.findall(r"(?m)^  (\w+)  ", text.partition("Commands:")[2]) == list(cli.ROOM_OF)


def test_a_list_of_cells_waits_for_nothing_that_it_does_not_need() -> None:
    code = (
        "import sys; from pagebench.harness.cli.main import app; "
        "app(['list', '--suite', 'pages', '--device', 'cpu'], standalone_mode=False); "
        "print('loaded', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], text=True, capture_output=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "pagebench.kernels.xqa.adapter" in loaded, done.stderr
    assert not {"torch", "numpy", "scipy", "rich"} & loaded
    assert not {name for name in loaded if name.startswith("pagebench.harness.records")}


def listed(stdout: int, buffered: str = "") -> tuple[int, str]:
    """Exit code and stderr of `pagebench list` that writes there."""
    done = subprocess.run(
        [*PAGEBENCH, "list"], stdout=stdout, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONUNBUFFERED": buffered},
    )  # fmt: skip
    os.close(stdout)
    return done.returncode, done.stderr


@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_reader_that_leaves_is_no_failed_cell(buffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert listed(writer, buffered) == (141, "")


def test_output_that_finds_no_room_is_one_line() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    assert listed(full) == (2, "output: No space left on device\n")


@NO_GPU
def test_a_cell_named_outright_that_cannot_run_here_says_what_can(tmp_path: Path) -> None:
    done = pagebench_here("run", "xqa_shared_p16", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "NVIDIA GPU" in done.stderr
    assert not (tmp_path / "runs").exists()


@NO_GPU
def test_a_sweep_in_which_nothing_was_measured_ends_with_2_and_keeps_its_reasons(
    tmp_path: Path,
) -> None:
    done = pagebench_here(
        "run", "xqa", "p128", "--suite", "pages", "--out", "r.jsonl", cwd=tmp_path
    )
    assert done.returncode == 2
    assert "nothing was measured" in done.stderr
    records = store.read([tmp_path / "r.jsonl"], Timing).of(Timing)
    assert [record.status for record in records] == ["refused"] * 3
    assert all("NVIDIA GPU" in str(record.reason) for record in records)


def test_a_measured_cell_gives_a_row_and_a_record(tmp_path: Path) -> None:
    done = pagebench("run", f"gather_{SMALL}", "--device", "cpu", "--seconds", "0.1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"pagebench run gather_{SMALL} --device cpu" in done.stdout
    (path,) = (tmp_path / "runs").glob("*.jsonl")
    (record,) = store.read([path], Timing).of(Timing)
    assert record.status == "measured"
    assert str(path.relative_to(tmp_path)) in done.stdout


def test_a_page_is_drawn_from_what_was_measured(tmp_path: Path) -> None:
    words = [f"gather_{SMALL}", "--device", "cpu", "--seconds", "0.1", "--out", "r.jsonl"]
    assert pagebench_here("run", *words, cwd=tmp_path).returncode == 0
    done = pagebench_here("study", "r.jsonl", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "runs/study.html\nruns/study.md\n"), done.stderr
    assert (tmp_path / "runs" / "study.html").read_text().startswith("<!doctype html>")
    assert f"| gather_{SMALL} |" in (tmp_path / "runs" / "study.md").read_text()


def test_a_sweep_with_a_wrong_cell_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "off.py").write_text(OFF_KERNEL)
    words = ["run", f"off_{SMALL}", f"gather_{SMALL}", "--device", "cpu", "--seconds", "0.1"]
    done = pagebench(*words, "--kernel", "off.py", "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["status"] for row in rows] == ["wrong", "measured"]
    assert rows[0]["time_us"] is None
    assert f"off_{SMALL}: wrong" in done.stderr.replace(" [wall, cold]", "")


def test_list_gives_every_cell_and_why(tmp_path: Path) -> None:
    done = pagebench_here("list", "--suite", "pages", "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "What does page size cost" in lines[0]
    assert len(lines) == 2 + 24
    assert all("needs an NVIDIA GPU" in line for line in lines[2:])
    rows = pagebench_here("list", "--suite", "smoke", "--json", cwd=tmp_path).stdout.splitlines()
    assert all(json.loads(row)["runs"] for row in rows)


def test_the_version_is_told(tmp_path: Path) -> None:
    done = pagebench_here("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "pagebench 0.1.0\n")


def test_a_file_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# mine\n")
    done = pagebench_here("run", f"gather_{SMALL}", "--out", "notes.md", cwd=tmp_path)
    assert done.returncode == 2
    assert "not a results file" in done.stderr
    assert (tmp_path / "notes.md").read_text() == "# mine\n"


def test_show_names_two_files_and_counts_the_rest(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for letter in "abcde":
        (tmp_path / "runs" / f"{letter}.jsonl").touch()
    done = pagebench_here("show", f"gather_{SMALL}", cwd=tmp_path)
    assert done.returncode == 2
    assert "in runs/a.jsonl, runs/b.jsonl and 3 more files; `pagebench run" in done.stderr


def test_a_kernel_of_ones_own_has_a_card(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OFF_KERNEL.replace("mul_(2)", "mul_(1)"))
    words = [f"off_{SMALL}", "--kernel", "own.py"]
    ran = pagebench_here("run", *words, "--device", "cpu", "--seconds", "0.1", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "\n1 record in runs/" in ran.stdout
    done = pagebench_here("show", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "  time " in done.stdout


OLD_GPU = Device("cuda", "Tesla T4", 0, (7, 5))


def test_cells_none_of_which_can_be_counted_are_refused_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(UserError, match=r"none of 3 cells can run here: xqa needs compute"):
        _countable(["xqa", "p128"], "pages", OLD_GPU)
    assert capsys.readouterr().err == ""


def test_cells_some_of_which_can_be_counted_say_where_the_reasons_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cells = _countable(["shared"], "kernels", OLD_GPU)
    assert {cell.kernel for cell in cells} == {"reference", "gather"}
    assert "cells cannot run here; `pagebench list shared --suite kernels` says why" in (
        capsys.readouterr().err
    )


def test_once_tells_a_wrong_kernel_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "off.py").write_text(OFF_KERNEL)
    done = pagebench_here(
        "once", f"off_{SMALL}", "--kernel", "off.py", "--device", "cpu", cwd=tmp_path
    )
    assert done.returncode == 1
    wrong = rf"wrong: off_{SMALL}: before timing, the output of request \d, head \d+, has"
    assert re.match(wrong, done.stderr)
    assert done.stderr.count("\n") == 1


def test_resuming_judges_what_the_file_holds(tmp_path: Path) -> None:
    (tmp_path / "off.py").write_text(OFF_KERNEL)
    words = ["run", f"off_{SMALL}", "--kernel", "off.py", "--device", "cpu", "--out", "r.jsonl"]
    assert pagebench_here(*words, "--seconds", "0.1", cwd=tmp_path).returncode == 1
    again = pagebench_here(*words, "--seconds", "0.1", "--resume", cwd=tmp_path)
    assert again.returncode == 1
    assert "1 of 1 are already in r.jsonl" in again.stderr
    assert "--kernel off.py" in again.stdout


def test_list_alone_gives_the_suites_with_their_questions(tmp_path: Path) -> None:
    text = pagebench_here("list", cwd=tmp_path).stdout
    for word in ("smoke", "placements", "pages", "plan", "kernels", "models", "xqa", "?"):
        assert word in text


def test_once_makes_one_checked_call_and_no_record(tmp_path: Path) -> None:
    done = pagebench_here("once", f"gather_{SMALL}", "--device", "cpu", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert told["cell"] == f"gather_{SMALL}"
    assert told["check"]["error_before"] < 0.01
    assert list(tmp_path.iterdir()) == []


def test_doctor_says_which_kernels_run(tmp_path: Path) -> None:
    found = json.loads(pagebench_here("doctor", "--device", "cpu", "--json", cwd=tmp_path).stdout)
    assert found["kernels"]["gather"] == "runs"
    assert "NVIDIA GPU" in found["kernels"]["xqa"]


def test_report_draws_what_was_recorded_in_three_forms(tmp_path: Path) -> None:
    # Long enough for six samples, the least with an interval, on a machine as busy as it may be.
    words = ["run", f"gather_{SMALL}", "--seconds", "5", "--device", "cpu"]
    pagebench_here(*words, "--processes", "2", "--out", "r.jsonl", cwd=tmp_path)
    assert f"gather_{SMALL}" in pagebench_here("report", "r.jsonl", cwd=tmp_path).stdout
    text = pagebench_here("report", "r.jsonl", "--markdown", cwd=tmp_path).stdout
    assert text.startswith("- ")
    assert "\n| cell |" in text
    row = json.loads(
        pagebench_here("report", "r.jsonl", "--json", cwd=tmp_path).stdout.splitlines()[0]
    )
    assert row["low_us"] <= row["time_us"] <= row["high_us"]
    repeats = pagebench_here("report", "r.jsonl", "--repeats", cwd=tmp_path).stdout
    assert "spread of medians" in repeats


def test_progress_away_from_a_terminal_is_plain_and_says_what_remains(tmp_path: Path) -> None:
    words = ["run", "gather_shared_p16_b4_l1024", "gather_distinct_p1_b4_l1024"]
    done = pagebench(*words, "--seconds", "0.1", "--device", "cpu", cwd=tmp_path)
    assert "\x1b" not in done.stderr
    lines = done.stderr.splitlines()
    assert lines[0].startswith("gather_shared_p16_b4_l1024 [wall, cold]: starting (2 left")
    assert any(
        line.startswith("gather_distinct_p1_b4_l1024") and "1 left, about" in line for line in lines
    )


NO_CALL = OFF_KERNEL.replace("return replace(call, run=lambda: (call.run(), call.out.mul_(2)))", "")
WRONG_LOWERING = """
from pagebench.kernels.gather import Gather

class Off(Gather):
    name = "off"

    def lowering(self, shape):
        return "pages"

ADAPTER = Off()
"""


REFUSES_BADLY = WRONG_LOWERING.replace("lowering(self, shape)", "refuses(self, shape, device)")
REFUSES_BADLY = REFUSES_BADLY.replace('"pages"', "str(shape.page_sizes)")


@pytest.mark.parametrize(
    ("source", "code", "says"),
    [
        (NO_CALL, 1, "off.plan() must return a Call, not NoneType"),
        (WRONG_LOWERING, 1, "must return token_indices or csr_pages or page_table, not pages"),
        ("x = 1", 2, "the file defines no ADAPTER"),
        (OFF_KERNEL.replace("Off()", "Off"), 2, "a class: give an instance, ADAPTER = Off()"),
        (REFUSES_BADLY, 2, f"off_{SMALL}: off.refuses() crashed: AttributeError: 'Shape' object"),
    ],
)
def test_a_kernel_file_is_told_what_its_adapter_must_do(
    source: str, code: int, says: str, tmp_path: Path
) -> None:
    (tmp_path / "off.py").write_text(source)
    done = pagebench_here(
        "run", f"off_{SMALL}", "--kernel", "off.py", "--device", "cpu", cwd=tmp_path
    )
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_list_says_of_a_kernel_that_it_crashed_when_asked(tmp_path: Path) -> None:
    (tmp_path / "off.py").write_text(REFUSES_BADLY)
    done = pagebench_here("list", f"off_{SMALL}", "--kernel", "off.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "off.refuses() crashed: AttributeError" in done.stdout
    assert "(off.py:8)" in done.stdout
