"""What a kernel prints under a profiler is no report of ours."""

from __future__ import annotations

import json
from pathlib import Path

from fakes import pagebench

LOUD = """
import json
import os
from pagebench.kernels.adapter import Call
from pagebench.kernels.gather import Gather

class Loud(Gather):
    name = "loud"

    def plan(self, batch, *, graph):
        call = super().plan(batch, graph=graph)
        stray = {"cell": "loud_distinct_p16_b2_l64", "resolved": {"splits": 99}}
        for descriptor in (1, 2):
            os.write(descriptor, (json.dumps(stray) + "\\n").encode())
        os.write(2, f"sees {os.environ.get('PAGEBENCH_NONCE')}\\n".encode())
        return call

ADAPTER = Loud()
"""


def test_a_report_begins_with_what_a_kernel_does_not_know(tmp_path: Path) -> None:
    """3acd176 marked no report: the JSON that a kernel printed under ncu merged with ours."""
    (tmp_path / "loud.py").write_text(LOUD)
    words = ("once", "loud_distinct_p16_b2_l64", "--device", "cpu", "--kernel", "loud.py")
    done = pagebench(*words, cwd=tmp_path, PAGEBENCH_NONCE="f00")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("f00{")
    assert json.loads(line.removeprefix("f00"))["resolved"]["splits"] == 1
    assert "sees None" in done.stderr
    assert '"splits": 99' in done.stderr
    plain = pagebench(*words, cwd=tmp_path)
    assert json.loads(plain.stdout)["cell"] == "loud_distinct_p16_b2_l64"
