"""What an adapter returns is checked when it is planned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes import pagebench_here

SOURCE = """
from dataclasses import replace
import torch
from pagebench.kernels.gather import Gather

class Odd(Gather):
    name = "odd"

    def plan(self, batch, *, graph):
        call = super().plan(batch, graph=graph)
        return replace(call, PLANNED)

    OTHER

ADAPTER = Odd()
"""


@pytest.mark.parametrize(
    ("planned", "other", "says"),
    [
        ("out=call.out.float()", "", "out has dtype torch.float32; the query's is torch.bfloat16"),
        ("out=call.out[:1]", "", "out has shape (1, 16, 128); the query's is (2, 16, 128)"),
        ("out=None", "", "out is NoneType; give a tensor like the query"),
        ("symbols='decode'", "", "symbols is str; give a tuple of str"),
        ("symbols=(1,)", "", "symbols[0] is int; give str"),
        ("resolved=None", "", "resolved is NoneType; give a dict"),
        ("resolved={1: 2}", "", "resolved has the key 1, int; give str"),
        ("run=None", "", "run is NoneType; give a function"),
        ("", "def workspace_bytes(self, shape): return -1", "workspace_bytes() is -1; give 0 or"),
        ("", "def workspace_bytes(self, shape): return 1.5", "workspace_bytes() is float; give"),
    ],
)
def test_a_bad_value_is_named_and_costs_its_own_cell(
    planned: str, other: str, says: str, tmp_path: Path
) -> None:
    """3acd176 measured an fp32 output of a bf16 query, and lost the sweep of others."""
    (tmp_path / "odd.py").write_text(SOURCE.replace("PLANNED", planned).replace("OTHER", other))
    words = ["run", "odd_distinct_p16_b2_l64", "gather_distinct_p16_b2_l64", "--kernel", "odd.py"]
    done = pagebench_here(
        *words, "--device", "cpu", "--seconds", "0.05", "--out", "r.jsonl", cwd=tmp_path
    )
    assert done.returncode == 1
    first, second = map(json.loads, (tmp_path / "r.jsonl").read_text().splitlines())
    assert first["status"] == "crashed"
    assert says in first["reason"]
    assert second["status"] == "measured"
