"""A stand-in for ncu on the PATH."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes import TESTS
from fakes.ncu_pages import HERE, PAGE, TOLD, Fake
from pagebench.harness.counting import profile


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Puts the stand-in on the PATH; call it with what the next processes are to do."""
    tool = tmp_path / "bin" / "ncu"
    tool.parent.mkdir()
    source = (TESTS / "fake_ncu.py").read_text()
    tool.write_text(f"#!{sys.executable}\n{source}")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    monkeypatch.setattr(profile, "environment", lambda device: HERE)
    monkeypatch.chdir(tmp_path)

    def plan(*told: dict[str, Any] | str, **changes: Any) -> Path:
        say = [line if isinstance(line, str) else json.dumps(line) for line in told or (TOLD,)]
        wanted = {"version": "2025.3.1", "pages": {"": PAGE}, "say": say, "code": 0, "report": True}
        tool.with_name("ncu.json").write_text(json.dumps(wanted | changes))
        return tool.with_name("commands.jsonl")

    return plan
