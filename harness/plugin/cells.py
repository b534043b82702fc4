"""What `pytest --benchmark-only` collects: one benchmark a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pagebench.harness.cell import Cell
from pagebench.harness.plugin.pytest_plugin import REPLAY, extra_info
from pagebench.harness.timing.measure import default_options
from pagebench.kernels.device import find_device

if TYPE_CHECKING:
    from pagebench.harness.workers.worker import Pool


@pytest.mark.benchmark(timer=REPLAY)
def test_cell(
    pagebench_cell: str, pagebench_boundary: str, pagebench_pool: Pool, benchmark: Any
) -> None:
    options = default_options(find_device(), pagebench_boundary)
    record = pagebench_pool.measure(Cell.parse(pagebench_cell), options, lambda stage: None)
    if record.status == "refused":
        pytest.skip(str(record.reason))
    if record.samples is None:
        pytest.fail(f"{record.status}: {record.reason}", pytrace=False)
    REPLAY.replay(benchmark, record.samples, extra_info(record))
