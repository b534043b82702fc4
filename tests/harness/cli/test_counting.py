"""The commands that count: what they refuse, what old spellings are called now, how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes import DATA, H200, pagebench
from fakes.ncu_pages import GPU, NAME, PAGE, TOLD, Fake, edited
from pagebench.harness.cli import baseline as cli_baseline
from pagebench.harness.cli import counting as cli
from pagebench.harness.errors import UserError
from pagebench.harness.records import store
from pagebench.harness.records.audit import Audit
from pagebench.harness.records.counters import Counters

THREE = str(DATA / "ncu_three_cells.csv")
COUNTERS = str(H200 / "counters.jsonl")
OTHER = "xqa_shared_p64"


@pytest.fixture
def gpu(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A GPU that takes every cell, and a stand-in for its ncu."""
    for module in (cli, cli_baseline):
        monkeypatch.setattr(module, "device_and_kernel", lambda device, kernel: GPU)
    monkeypatch.setattr(cli, "refusal", lambda cell, device: None)
    monkeypatch.setattr(cli, "refuse_named", lambda *given: None)
    return fake


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "now"),
    [
        (["--import", "F"], "profile --import is now: pagebench import F"),
        (["--audit", NAME], f"profile --audit is now: pagebench audit {NAME}"),
        (["--audit", "--suite", "pages"], "is now: pagebench audit --suite pages"),
        (["--save-baseline", "B", NAME], f"is now: pagebench baseline save B {NAME}"),
        (["--check-baseline", "B", NAME], f"is now: pagebench baseline check B {NAME}"),
        (
            ["--save-baseline", "B", "--suite", "pages"],
            "profile --save-baseline is now: pagebench baseline save B --suite pages",
        ),
    ],
)
def test_an_old_spelling_is_answered_with_the_new_one(
    words: list[str], now: str, in_tmp: Path
) -> None:
    done = pagebench("profile", *words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith(now)
    assert list(in_tmp.iterdir()) == []


def test_an_old_spelling_is_not_offered() -> None:
    shown = pagebench("profile", "--help").stdout
    assert "--single-pass" in shown
    assert not [option for option in ("--import", "--audit", "-baseline") if option in shown]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["audit", NAME, "--device", "cpu"], "counting needs an NVIDIA GPU; without one, `page"),
        (["audit"], "name a cell or a suite"),
        (["profile", NAME, "--device", "cpu"], "`pagebench import FILE` reads what was counted"),
        (["import", "none.csv"], "none.csv: No such file"),
        (["import", THREE, "--out", "/dev/null/x"], "/dev/null/x: Not a directory"),
        (["baseline", "save", "/dev/full", NAME], "/dev/full: not a regular file"),
        (["baseline", "save", "/dev/null/b", NAME], "/dev/null/b: Not a directory"),
        (["baseline", "save", "b.json", NAME, "--device", "cpu"], "counting needs an NVIDIA GPU"),
        (["baseline", "save", "b.json"], "name a cell or a suite"),
        (["baseline", "check", "none.json", NAME], "none.json: No such file"),
        (["baseline", "check", "/dev/null", NAME], "/dev/null is not a baseline"),
        (["baseline", "save", "b.json", "--counters", "none.jsonl"], "none.jsonl: No such file"),
        (["baseline", "save", "b.json", "--counters", COUNTERS, "--out", "x"], "leave out --out"),
        (
            ["baseline", "save", "b.json", "xqa_shared_p16_b3", "--counters", COUNTERS],
            "no counters of xqa_shared_p16_b3 in ",
        ),
        (["baseline", "save"], "Missing argument 'FILE'"),
        (["baseline"], "Missing command"),
    ],
)
def test_what_is_wrong_is_one_line_and_leaves_nothing_behind(
    words: list[str], says: str, in_tmp: Path
) -> None:
    done = pagebench(*words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert says in line
    assert not [path for path in in_tmp.rglob("*") if path.is_file()]


# --- import ---------------------------------------------------------------------------------------


def test_import_takes_every_cell_of_a_page(in_tmp: Path) -> None:
    done = pagebench("import", THREE, "--out", "c.jsonl")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("3 records in c.jsonl\n")
    found = store.read([in_tmp / "c.jsonl"], Counters).of(Counters)
    assert found[0].cell == "fidecode_distinct_p1"
    assert all(each.written for each in found)
    (one,) = map(
        json.loads,
        pagebench("import", str(DATA / "ncu_xqa_shared_p16.csv"), "--json").stdout.splitlines(),
    )
    assert one["total"]["ldg"] == {"value": 407_552, "stable": True, "spread": 0}
    assert one["how"]["imported"] is True


def test_a_bug_in_reading_a_page_shows_its_traceback_and_is_not_no_counters(in_tmp: Path) -> None:
    """The kernel file plants it: what it breaks is ours."""
    (in_tmp / "plant.py").write_text(
        "from pagebench.kernels.gather import Gather\n"
        "from pagebench.profiles import ncu_page\n"
        "def number(text):\n"
        "    raise ValueError('planted')\n"
        "ncu_page.number = number\n"
        "class Own(Gather):\n"
        "    name = 'own'\n"
        "ADAPTER = Own()\n"
    )
    done = pagebench("import", THREE, "--kernel", "plant.py")
    assert (done.returncode, done.stdout) == (70, "")
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1] == "ValueError: planted"


# --- profile and audit ----------------------------------------------------------------------------


def test_profile_appends_what_it_counts_and_draws_it(
    gpu: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu()
    assert cli.profile(names=[NAME], out=Path("c.jsonl")) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(NAME)
    assert shown.endswith("1 record in c.jsonl\n")
    (found,) = store.read([tmp_path / "c.jsonl"], Counters).of(Counters)
    assert found.value("ldg") == 407_552


def test_a_cell_that_was_lost_makes_the_exit_code_one(
    gpu: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu(TOLD, {"cell": OTHER, "status": "crashed", "reason": "out of memory"})
    assert cli.profile(names=[NAME, OTHER], out=Path("c.jsonl"), as_json=True) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["cell"] == NAME


def test_warm_needs_single_passes(gpu: Fake, tmp_path: Path) -> None:
    commands = gpu()
    with pytest.raises(UserError, match="add --single-pass"):
        cli.profile(names=[NAME], out=Path("c.jsonl"), l2="warm")
    assert not commands.exists()
    gpu(pages={"": edited(passes="1")})
    assert cli.profile(names=[NAME], out=Path("c.jsonl"), l2="warm", single_pass=True) == 0


@pytest.mark.parametrize(("share", "code"), [(0.99, 0), (0.9, 1)])
def test_the_audit_says_of_which_cell_the_flush_leaves_something_in_l2(
    share: float, code: int, gpu: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    distinct = 8192 * 8 * 2 * 128 * 2
    gpu(pages={"": edited(passes="1", dram_read_bytes=f"{int(share * distinct):,}")})
    assert cli.audit(names=[NAME], out=Path("a.jsonl")) == code
    said = capsys.readouterr()
    words = f"{NAME}: DRAM reads {share:.1%} of the distinct bytes after the flush, {share:.1%} wit"
    assert said.out.startswith(words)
    assert (f"{NAME}: the flush does not evict it from L2" in said.err) is bool(code)
    (found,) = store.read([tmp_path / "a.jsonl"], Audit).of(Audit)
    assert found.is_flushed is not bool(code)


# --- baseline -------------------------------------------------------------------------------------


def test_a_baseline_is_saved_and_checked_from_recorded_counters_without_a_gpu(in_tmp: Path) -> None:
    saved = pagebench("baseline", "save", "b.json", "--counters", COUNTERS)
    assert (saved.returncode, saved.stdout) == (0, "")
    assert saved.stderr.endswith(" kernels in b.json\n")
    kept = json.loads((in_tmp / "b.json").read_text())
    assert kept["counts"] == json.loads((H200 / "baseline.json").read_text())["counts"]
    for cells in ([], [NAME], ["xqa", "shared"]):
        done = pagebench("baseline", "check", "b.json", *cells, "--counters", COUNTERS)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == "every count equals that of b.json\n"
    first = next(key for key in kept["counts"] if f" {NAME} " in key)
    kept["counts"][first]["ldg"] += 1
    (in_tmp / "b.json").write_text(json.dumps(kept))
    done = pagebench("baseline", "check", "b.json", NAME, "--counters", COUNTERS)
    assert done.returncode == 1
    assert "ldg was 407,553 and is 407,552" in done.stderr


def test_a_baseline_of_some_cells_holds_those_alone(in_tmp: Path) -> None:
    pagebench("baseline", "save", "b.json", NAME, "--counters", COUNTERS)
    keys = json.loads((in_tmp / "b.json").read_text())["counts"]
    assert {key.split()[1] for key in keys} == {NAME}


def test_a_baseline_is_saved_of_what_is_counted_and_checked_by_counting_again(
    gpu: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu()
    assert cli_baseline.save(Path("b.json"), names=[NAME], out=Path("c.jsonl")) == 0
    assert capsys.readouterr().err.endswith("1 record in c.jsonl\n1 kernel in b.json\n")
    assert cli_baseline.check(Path("b.json"), names=[NAME], out=Path("c.jsonl")) == 0
    assert capsys.readouterr().err.endswith("every count equals that of b.json\n")
    gpu(pages={"": edited(PAGE, ldg="407,553")})
    assert cli_baseline.check(Path("b.json"), names=[NAME], out=Path("c.jsonl")) == 1
    assert "ldg was 407,552 and is 407,553" in capsys.readouterr().err
    assert len(store.read([tmp_path / "c.jsonl"], Counters).of(Counters)) == 3


def test_a_baseline_is_not_written_where_a_cell_was_lost(
    gpu: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu(TOLD, {"cell": OTHER, "status": "crashed", "reason": "out of memory"})
    out = Path("c.jsonl")
    assert cli_baseline.save(Path("b.json"), names=[NAME, OTHER], out=out) == 1
    assert "b.json: not written: some cells were not counted" in capsys.readouterr().err
    assert not (tmp_path / "b.json").exists()


def test_that_a_baseline_cannot_be_written_is_known_before_counting(
    gpu: Fake, tmp_path: Path
) -> None:
    commands = gpu()
    (tmp_path / "b.json.part").mkdir()
    with pytest.raises(UserError, match="Is a directory"):
        cli_baseline.save(Path("b.json"), names=[NAME])
    (tmp_path / "b.json").write_text("no JSON")
    with pytest.raises(UserError, match="is not a baseline"):
        cli_baseline.check(Path("b.json"), names=[NAME])
    assert not commands.exists()
