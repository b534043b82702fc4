"""How fast pagebench itself is: a profile that cannot be timed costs a line alone."""

from __future__ import annotations

import subprocess

import pytest

from pagebench.harness.environment import Environment
from pagebench.harness.instruments import speed
from pagebench.kernels.device import Device

HERE = Environment()


def test_where_nothing_can_be_profiled_doctor_says_why_and_times_the_rest() -> None:
    said: list[str] = []
    absent = Device("cuda", "an absent GPU", 99, (9, 0))
    assert list(speed._profiled(absent, HERE, said.append)) == []
    assert len(said) == 1
    assert said[0].startswith("no profile to time: device cuda:99: ")


def test_a_profile_that_is_killed_without_a_word_costs_the_doctor_that_line_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(*words: str) -> None:
        raise subprocess.CalledProcessError(-9, list(words), stderr="")

    monkeypatch.setattr(speed, "_pagebench", killed)
    said: list[str] = []
    assert list(speed._profiled(Device("cuda", "", 0, (9, 0)), HERE, said.append)) == []
    assert "died with <Signals.SIGKILL: 9>" in said[0]
