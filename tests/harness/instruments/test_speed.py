"""How fast the suite is held to be, and what this machine is said to hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import pagebench_here
from pagebench.harness.cli.report import plain_table
from pagebench.harness.environment import Environment
from pagebench.harness.instruments import doctor, speed
from pagebench.harness.progress import silent
from pagebench.harness.records import store
from pagebench.harness.records.speed import Speed
from pagebench.kernels.adapter import Refusal
from pagebench.kernels.device import CPU


def test_a_list_is_held_by_its_median_and_all_else_by_its_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("_table_builder", "_reporter"):
        monkeypatch.setattr(speed, name, lambda *of: lambda: None)
    monkeypatch.setattr(speed, "_pagebench", lambda *words: None)
    found = {each.what: each for each in speed.speeds(CPU, len, silent)}
    assert {len(each.all_seconds) for each in found.values()} == {5}
    listed = found.pop("pagebench list --suite pages")
    assert (listed.statistic, listed.limit_s) == ("median", 0.4)
    assert {each.statistic for each in found.values()} == {"best"}
    assert found["report of 10,000 records"].limit_s == 2.0


def test_the_statistic_decides_whether_a_limit_is_kept() -> None:
    seconds, here = [0.5, 0.3, 0.5], Environment()
    assert speed.Waited("it", 0.4).took(seconds, here).is_kept
    assert not speed.Waited("it", 0.4, "median").took(seconds, here).is_kept


def test_a_profile_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_pagebench", lambda *words: None)
    (found,) = speed._profiled(CPU, Environment(), silent)
    assert isinstance(found, Speed)
    assert len(found.all_seconds) == 1


def test_a_report_reads_and_draws_what_its_file_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "REPORT_RECORDS", 3)
    table = speed._reporter(tmp_path / "many.jsonl", plain_table)()
    assert len(str(table).splitlines()) == 1 + 3


def test_a_disk_that_is_full_is_one_sentence_and_leaves_what_was_there(tmp_path: Path) -> None:
    """3acd176 wrote it in place."""
    path = tmp_path / "many.jsonl"
    path.write_text("what was there")
    store.part_of(path).symlink_to("/dev/full")
    with pytest.raises(store.StoreError, match="No space left on device"):
        speed._reporter(path, plain_table)
    assert path.read_text() == "what was there"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("out", "said"),
    [("/dev/full", "not a regular file"), ("a.txt", "is not a results file"), (".", "Is a dir")],
)
def test_a_file_that_cannot_take_the_records_is_found_before_anything_is_measured(
    out: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3acd176 measured for half a minute first, and appended to any file."""
    (tmp_path / "a.txt").write_text("a text of one's own")
    monkeypatch.setattr(speed, "speeds", lambda *_: pytest.fail("it measures"))
    words = ("doctor", "--speed", "--device", "cpu", "--out", out)
    done = pagebench_here(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert said in done.stderr
    assert (tmp_path / "a.txt").read_text() == "a text of one's own"


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        ((None, Refusal("it takes page sizes 64, not 1", "shape")), "runs"),
        ((Refusal("64 is too large", "shape"), Refusal("no GPU", "device")), "no GPU"),
        ((Refusal("no GPU", "device"), Refusal("1 is too small", "shape")), "no GPU"),
        ((Refusal("one of both", "shape"), Refusal("other", "shape")), "one of both"),
        ((Refusal("a sentence that takes long"), Refusal("x", "shape")), "a sentence that takes"),
    ],
)
def test_the_doctor_says_what_another_page_size_would_not_mend(
    reasons: tuple[Refusal | None, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(reasons)
    monkeypatch.setattr(doctor, "refusal", lambda cell, device: next(left))
    assert doctor._verdict("gather", CPU).startswith(said)
