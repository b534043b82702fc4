"""Cells interleaved in one process, on the CPU."""

from __future__ import annotations

import pytest

from pagebench.harness.cell import Cell
from pagebench.harness.progress import silent
from pagebench.harness.timing.options import Options
from pagebench.harness.timing.rounds import ROUNDS, build_order, measure_rounds
from pagebench.harness.timing.session import Session
from pagebench.kernels.device import CPU

SMALL = tuple(f"gather_distinct_p16_b2_l{tokens}" for tokens in (64, 128, 256))


@pytest.mark.parametrize("count", [2, 3])
def test_cells_are_interleaved_there_and_back_and_checked(count: int) -> None:
    cells = tuple(map(Cell.parse, SMALL[:count]))
    found = measure_rounds(cells, Options(clock="wall"), Session(CPU), silent)
    assert found.status == "measured", found.reason
    assert len(found.rounds) == ROUNDS
    assert all(len(each) == 2 * count for each in found.rounds)
    assert len(found.check) == count
    for check in found.check:
        assert check is not None
        assert check.error_after is not None
        assert check.error_after <= check.tolerance


def test_cells_of_which_one_is_refused_have_no_times() -> None:
    cells = (Cell.parse("gather_distinct_p16"), Cell.parse("xqa_shared_p16"))
    found = measure_rounds(cells, Options(clock="wall"), Session(CPU), silent)
    assert found.status == "refused"
    assert found.rounds == ()


def test_every_second_process_builds_in_the_other_order() -> None:
    assert [list(build_order(3, process)) for process in (0, 1, 2)] == [
        [0, 1, 2],
        [2, 1, 0],
        [0, 1, 2],
    ]
