"""The command line that drives ncu, and which ncu it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagebench.profiles import ncu
from pagebench.profiles.metrics import LAUNCH
from pagebench.profiles.ncu import NcuError, Setting


def test_an_old_or_a_missing_ncu_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NcuError, match="not on the PATH"):
        ncu.find_ncu()
    tool = tmp_path / "ncu"
    tool.write_text("#!/bin/sh\necho 'Version 2021.3.1.0 (build 1)'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(NcuError, match=r"2021\.3 is too old"):
        ncu.find_ncu()


def test_the_command_leaves_clocks_alone_and_says_what_it_does_to_caches() -> None:
    words = ncu.command(Path("ncu"), Setting(), ["a.sum"], Path("r"), ["child"])
    text = " ".join(words)
    assert "--clock-control none" in text
    assert "--cache-control all" in text
    assert "--profile-from-start off" in text
    assert f"a.sum,{LAUNCH['registers']}" in text
    assert words[-1] == "child"
    warm = ncu.command(Path("ncu"), Setting(cold=False), [], Path("r"), [])
    assert "--cache-control none" in " ".join(warm)
