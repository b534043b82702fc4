"""The Triton kernels against the reference, under Triton's interpreter: no GPU is needed.

Triton reads TRITON_INTERPRET when it is first imported, and other tests of the same pytest
process compile real kernels. So this file runs itself once, in a process of its own, for all
cases; each test then asserts its own line of what came back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from pagebench.kernels.device import CPU, Device
from pagebench.kernels.triton_decode import (
    MAX_SPLITS,
    TRITONROW,
    TRITONTILE,
    TRITONTOKEN,
    TritonDecode,
    Tuning,
)
from pagebench.layouts.placement import Placement
from pagebench.layouts.shape import Shape
from pagebench.layouts.sharing import Sharing

SCATTER = Placement("scatter")
DISTINCT = Sharing("distinct")
# Outputs are a mean of values of variance 1 over at least 40 tokens, stored in q's dtype: an ulp of
# bf16 below 1 is 2**-8. Our weights are rounded to it too (fp32 under the interpreter).
TOLERANCE = {"bf16": 2**-8, "fp16": 2**-11, "e4m3": 2**-8}


@dataclass(frozen=True)
class Case:
    """A tile is 16 tokens and a split 2 tiles unless said, so that 100 tokens make 4 splits."""

    mode: str
    page_size: int
    kv_len: int = 100
    dtype: str = "bf16"
    kv_layout: str = "NHD"
    ragged_percent: int = 60
    prefix: int = 0
    kv_heads: int = 2
    q_heads: int = 4
    head_dim: int = 64
    tiles: int = 2
    shortened: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        words = (f"{key}={value}" for key, value in asdict(self).items() if key not in ("mode",))
        changed = [w for w, (k, v) in zip(words, list(asdict(self).items())[1:], strict=True)
                   if k == "page_size" or v != getattr(type(self), k, None)]
        return " ".join([self.mode, *changed])

    @property
    def shape(self) -> Shape:
        return Shape(
            batch=3,
            kv_len=self.kv_len,
            page_size=self.page_size,
            q_heads=self.q_heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            dtype=self.dtype,
            kv_layout=self.kv_layout,
            ragged_percent=self.ragged_percent,
        )

    @property
    def adapter(self) -> TritonDecode:
        tuning = Tuning(block_n=16, least_tiles=self.tiles, programs=10**6)
        return TritonDecode(f"triton{self.mode}", self.mode, tuning)


PAGED = [Case(mode, page) for mode in ("row", "tile") for page in (1, 4, 16, 64, 128)]
CASES = (
    Case("token", 1),
    *PAGED,
    *(Case(mode, 16, kv_layout="HND") for mode in ("row", "tile")),
    *(Case(mode, page, dtype=dtype) for mode, page in (("token", 1), ("row", 16), ("tile", 4))
      for dtype in ("fp16", "e4m3")),
    *(Case(mode, page, kv_len=200, prefix=80, ragged_percent=10)
      for mode, page in (("token", 1), ("row", 64), ("tile", 64))),
    # An even number of tiles and of splits: nothing is masked.
    *(Case(mode, page, kv_len=64, ragged_percent=0) for mode, page in (("token", 1), ("tile", 8))),
    # One split: stage 1 writes the output itself.
    *(Case(mode, page, tiles=7) for mode, page in (("token", 1), ("row", 16), ("tile", 16))),
    # 24 query heads a KV head: more than tl.dot's least tile, and no power of two.
    Case("row", 16, q_heads=24, kv_heads=1),
    Case("tile", 16, q_heads=3, kv_heads=3, head_dim=128),
    # Replanned: the first request loses splits, the second all but one token.
    *(Case(mode, page, shortened=(33, 1, 40))
      for mode, page in (("token", 1), ("row", 16), ("tile", 16))),
)


def run_case(case: Case) -> float:
    """Worst error of one planned call, after replanning where the case says so."""
    import numpy as np
    from pagebench.kernels.reference import expected_output
    from pagebench.layouts.table import page_table
    from pagebench.layouts.tensors import materialise

    adapter, shape = case.adapter, case.shape
    sharing = Sharing("prefix", case.prefix) if case.prefix else DISTINCT
    table = page_table(shape, sharing, SCATTER, "cpu")
    batch = materialise(table, adapter.lowering(shape))
    call = adapter.plan(batch, graph=False)
    assert call.out is not None
    call.run()
    if case.shortened:
        batch = batch.with_lengths(np.minimum(table.lengths, case.shortened))
        call.replan(batch)
        call.out.fill_(float("nan"))
        call.run()
    error = (call.out.float() - expected_output(batch, range(shape.batch))).abs().max()
    return float(error)


def main() -> None:
    for case in CASES:
        try:
            outcome: object = run_case(case)
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        sys.stdout.write(json.dumps({"case": case.name, "outcome": outcome}) + "\n")


@pytest.fixture(scope="module")
def outcomes() -> dict[str, object]:
    """By case: the worst error, or a failure's text."""
    if find_spec("triton") is None:
        pytest.skip("triton is not installed")
    done = subprocess.run(
        [sys.executable, __file__],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = (json.loads(line) for line in done.stdout.splitlines())
    return {line["case"]: line["outcome"] for line in lines}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_agrees_with_reference(case: Case, outcomes: dict[str, object]) -> None:
    outcome = outcomes[case.name]
    assert isinstance(outcome, float), outcome
    assert outcome <= TOLERANCE[case.dtype]  # false for NaN too


if __name__ == "__main__":
    main()
