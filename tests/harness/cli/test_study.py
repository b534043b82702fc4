"""The study command: what it refuses, and that a bug of ours is none of the user's errors."""

from __future__ import annotations

from pathlib import Path
from shutil import copy

import pytest

from fakes import RESULTS
from pagebench.harness.cli import study as command
from pagebench.harness.errors import UserError
from pagebench.harness.study import sections

SMOKE = RESULTS / "cpu" / "smoke.jsonl"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A results file that a study could draw."""
    return Path(copy(SMOKE, tmp_path / "a.jsonl"))


@pytest.mark.parametrize("bug", [KeyError("cells"), ValueError("zip() argument 2 is shorter")])
def test_a_bug_of_ours_is_raised_as_it_is(
    bug: Exception, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(recorded: object) -> None:
        raise bug

    monkeypatch.setattr(sections, "study", broken)
    with pytest.raises(type(bug)) as raised:
        command.study([file], file.parent)
    assert raised.value is bug


@pytest.mark.parametrize(
    ("missing", "kind"),
    [
        ("matplotlib", UserError),
        ("pagebench.harness.study.lost", ModuleNotFoundError),
    ],
)
def test_a_package_that_is_not_installed_is_named_unless_it_is_ours(
    missing: str, kind: type[Exception], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(recorded: object) -> None:
        raise ModuleNotFoundError(f"No module named '{missing}'", name=missing)

    monkeypatch.setattr(sections, "study", absent)
    with pytest.raises(kind, match=missing):
        command.study([file], file.parent)


def test_what_does_not_go_together_is_refused(file: Path) -> None:
    with pytest.raises(UserError, match="name results files to draw from, or --measure this GPU"):
        command.study(None, file.parent)
    with pytest.raises(UserError, match="--measure makes its own records"):
        command.study([file], file.parent, measure=True)
    with pytest.raises(UserError, match=r"give the folder that study\.html and study\.md go to"):
        command.study([file], file.parent / "study.html")
