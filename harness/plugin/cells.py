"""The module that `pytest --benchmark-only` collects: one benchmark for each cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pagebench.harness.escape import visible
from pagebench.harness.plugin.pytest_plugin import NO_GPU, STORE, of_cell
from pagebench.harness.plugin.storing import refuse_foreign
from pagebench.harness.progress import silent
from pagebench.harness.timing.options import default_options
from pagebench.harness.timing.refuse import lacks_gpu, refusal

if TYPE_CHECKING:
    from pagebench.harness.cell import Cell
    from pagebench.harness.workers.worker import Pool


def test_cell(
    pagebench_cell: Cell,
    pagebench_boundary: str,
    pagebench_pool: Pool,
    benchmark: Any,
    request: pytest.FixtureRequest,
) -> None:
    refuse_foreign(benchmark)
    device = pagebench_pool.device
    options = default_options(device, pagebench_boundary)
    if reason := refusal(pagebench_cell, device, pagebench_boundary):
        lacked = lacks_gpu(pagebench_cell, device, reason)
        request.node.user_properties.append((NO_GPU, lacked))
        pytest.skip(visible(str(reason)))
    timing = pagebench_pool.measure(pagebench_cell, options, silent)
    if timing.status == "refused":
        pytest.skip(visible(str(timing.reason)))
    if timing.samples is None:
        pytest.fail(visible(f"{timing.status}: {timing.reason}"), pytrace=False)
    request.config.stash[STORE].put(benchmark, of_cell(timing, device.name))
