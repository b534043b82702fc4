"""Kernels that are right now and then: in another thread, in another buffer, when not hurried."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from threading import Thread

import pytest

from pagebench.harness.cell import Cell
from pagebench.harness.progress import silent
from pagebench.harness.timing.measure import measure_cell
from pagebench.harness.timing.options import Options
from pagebench.harness.timing.session import Session
from pagebench.kernels import registry
from pagebench.kernels.adapter import Call
from pagebench.kernels.device import CPU
from pagebench.kernels.probes.faulty import Planted
from pagebench.kernels.probes.seen import attention
from pagebench.layouts.tensors import Batch

SOON_S = 0.05  # longer than a small call takes, and than what lies between two of them


def in_a_thread(call: Call) -> Call:
    """Nobody waits for the thread."""

    def late() -> None:
        time.sleep(SOON_S)
        call.run()

    return replace(call, run=lambda: Thread(target=late).start())


def in_two_buffers(call: Call) -> Call:
    """Each second answer is written where nobody looks."""
    assert call.out is not None
    out, calls = call.out.clone(), [0]

    def run() -> None:
        call.run()
        calls[0] += 1
        if calls[0] % 2:
            out.copy_(call.out)

    return replace(call, run=run, out=out)


def when_not_hurried(call: Call) -> Call:
    """A call that comes soon after another does nothing."""
    ended = [0.0]

    def run() -> None:
        if time.perf_counter() - ended[0] > SOON_S:
            call.run()
        ended[0] = time.perf_counter()

    return replace(call, run=run)


class Altered(Planted):
    """The innocent kernel, with its call altered."""

    def __init__(self, alter: Callable[[Call], Call]) -> None:
        super().__init__("own", attention)
        self._alter = alter

    def plan(self, batch: Batch, *, graph: bool) -> Call:
        return self._alter(super().plan(batch, graph=graph))


@pytest.mark.parametrize("alter", [in_a_thread, in_two_buffers, when_not_hurried])
def test_what_is_not_written_when_the_call_returns_is_wrong(
    alter: Callable[[Call], Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question forgets the output first, so none is an older answer."""
    monkeypatch.setitem(registry._from_files, "own", Altered(alter))
    cell = Cell.parse("own_distinct_p16_b2_l100_h2x1_d64")
    record = measure_cell(cell, Options("run", "wall", "cold", 0.05), Session(CPU), silent)
    assert (record.status, record.check and record.check.failed) == ("wrong", "written")


def test_the_same_kernel_unaltered_has_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._from_files, "own", Altered(lambda call: call))
    cell = Cell.parse("own_distinct_p16_b2_l100_h2x1_d64")
    record = measure_cell(cell, Options("run", "wall", "cold", 0.05), Session(CPU), silent)
    assert record.status == "measured", record.reason
