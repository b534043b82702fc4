"""What XQA loads by its source."""

from __future__ import annotations

import pytest

from pagebench.harness.cell import Cell
from pagebench.kernels.xqa.loads import xqa_ldg


def test_the_formula_gives_the_seed_studys_ratio_on_its_own_gpu() -> None:
    """2.38 times the loads at page 16 against 64, which the seed measured on sm_120."""
    loads = {
        page: xqa_ldg(Cell.parse(f"xqa_shared_p{page}").shape, 1, (12, 0)) for page in (16, 64)
    }
    assert loads[16] / loads[64] == pytest.approx(2.38, abs=0.01)
