"""The module that `pytest --benchmark-only` collects: one benchmark for each cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pagebench.harness.plugin.pytest_plugin import REPLAY, extra_info
from pagebench.harness.progress import silent
from pagebench.harness.timing.options import default_options
from pagebench.kernels.device import find_device

if TYPE_CHECKING:
    from pagebench.harness.cell import Cell
    from pagebench.harness.workers.worker import Pool


@pytest.mark.benchmark(timer=REPLAY)
def test_cell(
    pagebench_cell: Cell, pagebench_boundary: str, pagebench_pool: Pool, benchmark: Any
) -> None:
    options = default_options(find_device(), pagebench_boundary)
    timing = pagebench_pool.measure(pagebench_cell, options, silent)
    if timing.status == "refused":
        pytest.skip(str(timing.reason))
    if timing.samples is None:
        pytest.fail(f"{timing.status}: {timing.reason}", pytrace=False)
    REPLAY.replay(benchmark, timing.samples, extra_info(timing))
