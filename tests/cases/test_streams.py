"""Work on another stream: what the clock does not enclose has no time."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from fakes import ROOT
from pagebench.harness.cell import Cell
from pagebench.harness.progress import silent
from pagebench.harness.records.timing import ALLOWED_SHARE, Block, Samples
from pagebench.harness.timing.check import Checker
from pagebench.harness.timing.clocks.sampling import NotEnclosed, Sample, refuse_late
from pagebench.harness.timing.findings import NOTHING, Failure, failure_of
from pagebench.harness.timing.measure import measure_cell, refuse_disagreement
from pagebench.harness.timing.options import Options
from pagebench.harness.timing.session import Session
from pagebench.kernels.adapter import Tolerance
from pagebench.kernels.device import CPU, find_device
from pagebench.kernels.probes.faulty import ON_STREAMS, PLANTED
from pagebench.layouts.table import page_table
from pagebench.layouts.tensors import Batch, materialise

SAME_CALLS = Samples((31.0,) * 9, 1.5, (Block(0),), "samples", events_us=(32.0,) * 9,
                     events_floor_us=2.5)  # fmt: skip


def test_a_span_that_events_do_not_enclose_has_no_time() -> None:
    """3acd176 kept a record of 31 us by cupti and 5 us by events side by side."""
    with pytest.raises(Failure) as refused:
        refuse_disagreement(replace(SAME_CALLS, events_us=(5.0,) * 9))
    assert refused.value.status == "rejected"
    assert "31.00 us where events saw 5.00 us" in refused.value.reason
    assert "2.81 us are allowed" in refused.value.reason


@pytest.mark.parametrize("events_us", [28.2, 31.0, 33.8])
def test_what_is_allowed_keeps_its_time(events_us: float) -> None:
    """Or every cell would be refused: the floor and 1 % of the span, up or down."""
    refuse_disagreement(replace(SAME_CALLS, events_us=(events_us,) * 9))


@pytest.mark.parametrize("events_us", [28.1, 33.9])
def test_what_is_more_than_allowed_does_not(events_us: float) -> None:
    """Lost activity too: events that saw more than cupti did."""
    with pytest.raises(Failure):
        refuse_disagreement(replace(SAME_CALLS, events_us=(events_us,) * 9))


def test_one_clock_alone_disagrees_with_nothing() -> None:
    refuse_disagreement(replace(SAME_CALLS, events_us=(), events_floor_us=None))


def test_what_is_allowed_is_what_the_docs_say() -> None:
    text = (ROOT / "docs" / "measuring.md").read_text()
    said = r"`allowed us` is the events clock's floor plus (\d+) % of the span"
    (share,) = re.findall(said, text)
    assert int(share) / 100 == ALLOWED_SHARE


def after(*late_us: float | None, **fields: Any) -> list[Sample]:
    return [Sample(5.0, late_us=late, **fields) for late in late_us]


def test_a_device_that_is_busy_after_the_bracket_refutes_the_time() -> None:
    """3acd176 timed 5 us by events and never asked what the device did afterwards."""
    with pytest.raises(NotEnclosed, match="worked for 86 us after the end of a bracket"):
        refuse_late(after(92, 92, 91, 92, 400), after(6, 6, 7))
    ended = failure_of(NotEnclosed("late"), NOTHING)
    assert (ended.status, ended.reason) == ("rejected", "NotEnclosed: late")


@pytest.mark.parametrize("late", [(6, 6, 7), (9, 8, 15), (6, 6, 900), (36, 36, 37)])
def test_a_slow_host_now_and_then_refutes_nothing(late: tuple[float, ...]) -> None:
    refuse_late(after(*late), after(6, 6, 7))


def test_clocks_that_do_not_ask_are_not_judged() -> None:
    refuse_late(after(None, None), after(None))
    refuse_late(after(900, 900, events_us=5.0), after(6, 6))  # cupti's span decides


# --- The check reads what the call wrote in the order of its stream -------------------------------


class Later:
    """A planted kernel whose output is written when somebody waits for the device: a stream that
    the call's does not wait for."""

    def __init__(self, batch: Batch) -> None:
        self.call = PLANTED["innocentplain"].plan(batch, graph=False)
        self._queued: list[Callable[[], object]] = []

    def run(self) -> None:
        self._queued.append(self.call.run)

    def synchronise(self) -> None:
        while self._queued:
            self._queued.pop(0)()


def test_an_output_that_only_waiting_for_the_device_completes_was_not_written() -> None:
    """3acd176 waited for the whole device before it looked, so it found nothing wrong."""
    cell = Cell.parse("innocentplain_distinct_p16_b2_l100_h4x2_d64")
    batch = materialise(page_table(cell.shape, cell.streams, cell.placement, "cpu"), "page_table")
    later = Later(batch)
    right = Checker(batch, later.call, later.synchronise, Tolerance()).before()
    assert right.failed is None
    call = dataclasses.replace(later.call, run=later.run)
    with pytest.raises(Failure, match="some of the output was not written") as refused:
        Checker(batch, call, later.synchronise, Tolerance()).before()
    assert refused.value.findings.check.failed == "written"


@pytest.mark.parametrize("name", ON_STREAMS)
def test_a_stream_needs_a_gpu(name: str) -> None:
    shape = Cell.parse(f"{name}_distinct_p16_b3_l1013_h8x4_d64").shape
    assert "needs an NVIDIA GPU" in str(ON_STREAMS[name].refuses(shape, CPU))


@pytest.mark.gpu
@pytest.mark.parametrize("clock", ["events", "graph", "cupti"])
@pytest.mark.parametrize("name", ON_STREAMS)
def test_work_on_another_stream_must_wait_and_be_waited_for(name: str, clock: str) -> None:
    """3acd176 gave each of them a time by events. A captured graph keeps both waits or has none."""
    session = Session(find_device("cuda"))
    cell = Cell.parse(f"{name}_distinct_p16_b3_l1013_h8x4_d64")
    record = measure_cell(cell, Options("run", clock, "cold", 0.05), session, silent)
    assert record.status == ("measured" if name.startswith("innocent") else "wrong"), record.reason
