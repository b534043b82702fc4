"""The bandwidth probe under Triton's interpreter: it reads everything, once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

SCRIPT = """
import torch
from pagebench.harness.instruments.ceilings import probe

torch.manual_seed(0)
source = torch.randn(5000)
run = probe(source, 256, 8)
run()
tensors = [c.cell_contents for c in run.__closure__ if isinstance(c.cell_contents, torch.Tensor)]
(sums,) = [tensor for tensor in tensors if tensor is not source]
assert torch.allclose(sums.sum(), source.sum(), atol=1e-2), (sums.sum(), source.sum())
print("read", len(source), "by", len(sums))
"""


def test_the_probe_reads_every_element_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        text=True,
        capture_output=True,
    )
    assert done.stdout.strip() == "read 5000 by 8", done.stderr[-2000:]
