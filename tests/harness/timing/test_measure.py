"""One cell from name to record on a CPU, and every way in which it ends without a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace as struct_replace

from pagebench.harness.cell import Cell
from pagebench.harness.progress import silent
from pagebench.harness.records import store
from pagebench.harness.records.timing import Check, Layout, Timing
from pagebench.harness.timing import oracle, refuse
from pagebench.harness.timing.check import Checker
from pagebench.harness.timing.findings import Failure, Findings
from pagebench.harness.timing.measure import measure_cell, prepare, refuse_implausible
from pagebench.harness.timing.once import call_once
from pagebench.harness.timing.options import Options
from pagebench.harness.timing.refuse import refusal
from pagebench.harness.timing.rounds import measure_rounds
from pagebench.harness.timing.session import Session
from pagebench.harness.timing.watch import Watch
from pagebench.kernels import registry
from pagebench.kernels.adapter import Call, Tolerance, first, needs_package
from pagebench.kernels.device import CPU, Device
from pagebench.kernels.gather import Gather
from pagebench.kernels.reference import attend
from pagebench.layouts.table import page_table
from pagebench.layouts.tensors import Batch, materialise, queries, request_kv

HOPPER = Device("cuda", "NVIDIA H200", 0, (9, 0))
QUICK = Options(clock="wall", seconds=0.05)


def measure(name: str, options: Options = QUICK) -> Timing:
    return measure_cell(Cell.parse(name), options, Session(CPU), silent)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Batch, Call], Any]], None]:
    """Install a kernel `broken`: gather, but for what `spoil(batch, call)` runs after it."""

    def install(spoil: Callable[[Batch, Call], Any]) -> None:
        class Broken(Gather):
            name = "broken"

            def plan(self, batch: Batch, *, graph: bool) -> Call:
                call = super().plan(batch, graph=graph)

                def run() -> None:
                    call.run()
                    spoil(batch, call)

                return replace(call, run=run)

        monkeypatch.setitem(registry._from_files, "broken", Broken())

    return install


@pytest.mark.parametrize("kernel_word", ["reference", "gather"])
@pytest.mark.parametrize("rest", ["distinct_p1", "shared_scatter_p16", "prefix50_block32_p16",
                                  "distinct_p7_r50", "distinct_churned16_p16_e4m3_h4x2",
                                  "distinct_p16_fp16_d64_w1024"])  # fmt: skip
def test_cpu_kernels_are_right_on_every_layout(kernel_word: str, rest: str) -> None:
    record = measure(f"{kernel_word}_{rest}_b3_l300")
    assert record.status == "measured", record.reason
    check = record.check
    assert check is not None
    assert check.error_before is not None
    assert check.error_after is not None
    assert max(check.error_before, check.error_after) <= check.tolerance


def test_hnd_pools_are_read_right() -> None:
    assert measure("gather_distinct_scatter_p16_b2_l100_hnd").status == "measured"


def test_a_record_says_what_was_asked_what_was_predicted_and_where_it_ran() -> None:
    record = measure("gather_shared_scatter_p16_b2_l256")
    assert record.axes.page_size == 16
    assert record.predicted is not None
    assert record.predicted.index_entries == 32
    assert record.predicted.distinct_kv_bytes == 256 * 4096
    assert record.layout == Layout(
        distinct_pages=16,
        distinct_tokens=256,
        pool_pages=17,
        unused_entries=0,
        lowering="page_table",
    )
    assert record.resolved["page_size"] == 16
    assert record.environment.cores
    assert record.environment.flush_bytes
    assert record.environment.flush_bytes >= 64 << 20
    assert record.samples is not None


def test_outputs_agree_across_placements_to_the_bit() -> None:
    outs = []
    for placement in ("contiguous", "scatter", "block64", "grown16", "churned16"):
        cell = Cell.parse(f"reference_distinct_{placement}_p16_b3_l200_r30")
        adapter = registry.find_kernel("reference")
        table = page_table(cell.shape, cell.streams, cell.placement, "cpu")
        batch = materialise(table, adapter.lowering(cell.shape))
        call = adapter.plan(batch, graph=False)
        call.run()
        assert call.out is not None
        outs.append(call.out.clone())
    assert all((out == outs[0]).all() for out in outs)


def test_a_wrong_output_has_no_time(kernel: Any) -> None:
    kernel(lambda batch, call: call.out[1].mul_(1.02))
    record = measure("broken_distinct_p16_b2_l64")
    assert (record.status, record.samples) == ("wrong", None)
    assert "before timing" in str(record.reason)


@pytest.mark.parametrize("wrong", [4, 64])
def test_wrong_tokens_move_an_output_by_the_root_of_their_share(wrong: int) -> None:
    """What docs/measuring.md says that the tolerance lets pass: 2 k / n, within its scatter."""
    cell = Cell.parse("reference_distinct_p16_b2_l4096")
    table = page_table(cell.shape, cell.streams, cell.placement, "cpu")
    query = queries(cell.shape, "cpu")[0]
    (keys, values), (other_keys, other_values) = (request_kv(table, r, "cpu") for r in (0, 1))
    right = attend(query, keys, values)
    keys[:wrong], values[:wrong] = other_keys[:wrong], other_values[:wrong]
    error = float((attend(query, keys, values) - right).norm() / right.norm())
    assert error == pytest.approx((2 * wrong / 4096) ** 0.5, rel=0.4)


def test_an_output_that_goes_wrong_while_timed_has_no_time(
    kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    look = Watch.look
    monkeypatch.setattr(Watch, "look", lambda watch: (looks.append(1), look(watch)))

    def drift(batch: Batch, call: Any) -> None:
        if looks:
            call.out.mul_(1.02)

    kernel(drift)
    record = measure("broken_distinct_p16_b2_l64")
    assert record.status == "wrong"
    assert "after timing" in str(record.reason)


def test_an_output_that_is_not_written_is_wrong(kernel: Any) -> None:
    kernel(lambda batch, call: call.out[0, 0].fill_(float("inf")))
    record = measure("broken_distinct_p16_b2_l64")
    assert record.status == "wrong"
    assert "not written" in str(record.reason)


def test_reading_past_a_request_is_poisoned_not_merely_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Overreading(Gather):
        name = "overreading"

        def plan(self, batch: Batch, *, graph: bool) -> Call:
            from dataclasses import replace as changed

            longer = changed(batch.lowered, lengths=batch.lowered.lengths + 1)
            return super().plan(changed(batch, lowered=longer), graph=True)

    monkeypatch.setitem(registry._from_files, "overreading", Overreading())
    record = measure("overreading_distinct_p16_b2_l60")
    assert (record.status, record.samples) == ("poisoned", None)


def test_an_exception_is_a_crashed_cell_with_one_line(kernel: Any) -> None:
    def fail(batch: Batch, call: Any) -> None:
        raise RuntimeError("one line\nand hints")

    kernel(fail)
    record = measure("broken_distinct_p16_b2_l64")
    assert record.status == "crashed"
    assert str(record.reason).startswith("RuntimeError: one line (test_measure.py:")


def test_a_cell_that_does_not_fit_is_refused_with_both_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refuse, "free_bytes", lambda device: 10**9)
    record = measure("gather_distinct_p16_b2_l65536")
    assert record.status == "refused"
    assert "GB of memory and 1.0 GB are free" in str(record.reason)


def test_plan_cannot_be_measured_where_nothing_is_planned() -> None:
    record = measure("gather_distinct_p16", Options("plan", "wall", "warm"))
    assert record.status == "refused"
    assert "plans nothing" in str(record.reason)


def gpu_session(nominal: float) -> Session:
    session = Session(CPU)
    session.environment = struct_replace(session.environment, nominal_dram_gbps=nominal)
    return session


def test_more_distinct_bytes_a_second_than_dram_gives_are_rejected() -> None:
    with pytest.raises(Failure, match=r"5000 GB/s .* 4800 GB/s") as caught:
        refuse_implausible(100, 1.0, 500_000_000, gpu_session(4800))
    assert caught.value.status == "rejected"
    refuse_implausible(100, 1.0, 470_000_000, gpu_session(4800))


def test_a_warm_or_shared_cell_may_pass_the_dram() -> None:
    refuse_implausible(100, 1.0, None, gpu_session(4800))


def test_an_interval_no_longer_than_the_floor_is_rejected_as_empty() -> None:
    with pytest.raises(Failure, match="interval is empty"):
        refuse_implausible(2.0, 2.0, None, gpu_session(4800))


def test_a_stale_graph_is_found() -> None:
    cell = Cell.parse("gather_distinct_p16_b2_l64")
    adapter = registry.find_kernel("gather")
    table = page_table(cell.shape, cell.streams, cell.placement, "cpu")
    batch = materialise(table, adapter.lowering(cell.shape))
    call = adapter.plan(batch, graph=True)
    checker = Checker(batch, call, lambda: None, Tolerance())
    error = checker.again(call.run).error_replanned  # follows the new plan
    assert error is not None
    assert error <= 0.01

    assert call.out is not None
    call.run()
    stale = call.out.clone()
    with pytest.raises(Failure, match="by the captured graph"):
        checker.again(lambda: call.out.copy_(stale))  # type: ignore[union-attr]


def test_the_oracle_draws_whole_requests_within_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(oracle.CHECKED_TOKENS, "cpu", 250)
    record = measure("gather_distinct_p16_b8_l100")
    assert record.check is not None
    assert (record.check.requests, record.check.of_requests) == (2, 8)


def test_refusals_name_the_device_and_what_would_do() -> None:
    reason = refusal(Cell.parse("xqa_shared_p16"), CPU)
    assert reason is not None
    assert "NVIDIA GPU" in reason
    assert "gather" in reason
    ampere = Device("cuda", "NVIDIA A100", 0, (8, 0))
    assert "9.0 or newer" in str(refusal(Cell.parse("xqa_shared_p16"), ampere))


@pytest.mark.parametrize(("name", "says"), [
    ("xqa_shared_p17", "16, 32, 64, 128"),
    ("tritontoken_distinct_p16", "1"),
    ("fidecode_distinct_p16_h80x8", "groups"),
    ("fifa3_distinct_p64_e4m3", "bf16 or fp16"),
    ("fidecode_distinct_p1_hnd", "leave out hnd"),
    ("xqa_shared_p16_d72", "multiples of 16"),
])  # fmt: skip
def test_shape_refusals_say_what_would_be_taken(name: str, says: str) -> None:
    assert says in str(refusal(Cell.parse(name), HOPPER))


@pytest.mark.parametrize(
    ("name", "boundary", "device", "kind"),
    [
        ("xqa_shared_p17", "run", CPU, "shape"),
        ("fidecode_distinct_p1_d72", "run", CPU, "shape"),
        ("xqa_shared_p16_d24", "run", CPU, "shape"),
        ("fidecode_distinct_p1_hnd", "run", CPU, "shape"),
        ("tritonrow_distinct_p24", "run", CPU, "shape"),
        ("tritontoken_distinct_p1_hnd", "run", CPU, "shape"),
        ("reference_distinct_p16_hnd", "run", CPU, "shape"),
        ("tritontile_distinct_p64_x9_l64", "run", HOPPER, "shape"),
        ("fifa3_distinct_p1", "run", Device("cuda", "NVIDIA B200", 0, (10, 0)), "device"),
        ("xqa_shared_p16", "run", Device("cuda", "?", 0, (11, 0)), "device"),
        ("xqa_shared_p16", "run", CPU, "device"),
        ("xqa_shared_p16", "run", Device("cuda", "NVIDIA A100", 0, (8, 0)), "device"),
        ("gather_distinct_p16", "plan", CPU, "boundary"),
        ("gather_distinct_p16_x8", "run", CPU, "shape"),
    ],
)
def test_a_refusal_says_of_which_kind_it_is(
    name: str, boundary: str, device: Device, kind: str
) -> None:
    reason = refusal(Cell.parse(name), device, boundary)
    assert reason is not None
    assert reason.kind == kind


def test_what_is_not_installed_is_refused_as_a_package() -> None:
    reason = needs_package("mine", "no_such_module", "no-such-package")
    assert reason is not None
    assert reason.kind == "package"
    assert first(None, reason) is reason


def test_a_plain_sentence_of_an_adapter_is_of_its_own_kind(
    staged: type[Staged], monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell.parse("staged_distinct_p16")
    monkeypatch.setattr(staged, "refuses", lambda self, shape, device: "not today")
    reason = refusal(cell, CPU)
    assert (reason, reason and reason.kind) == ("not today", "adapter")
    monkeypatch.setattr(staged, "refuses", lambda self, shape, device: 1 / 0)
    reason = refusal(cell, CPU)
    assert reason is not None
    assert reason.kind == "crashed"
    assert "staged.refuses() crashed: ZeroDivisionError" in reason


def test_a_kernel_that_is_gone_is_refused_as_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._from_files, "gone", Gather())
    cell = Cell.parse("gone_distinct_p16")
    monkeypatch.delitem(registry._from_files, "gone")
    reason = refusal(cell, CPU)
    assert reason is not None
    assert reason.kind == "kernel"


@pytest.mark.parametrize("word", ["x1", "y1"])
@pytest.mark.parametrize("kernel", [name for name, _ in registry.ADAPTERS if "triton" not in name])
def test_kernels_that_plant_nothing_name_those_that_do(kernel: str, word: str) -> None:
    said = str(refusal(Cell.parse(f"{kernel}_distinct_p64_{word}"), HOPPER))
    assert said.startswith(f"{kernel} carries no planted work")
    assert said.endswith("tritontoken, tritonrow, tritontile")


def test_a_kernel_file_that_does_not_say_that_it_plants_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Mine:
        name, has_plan = "mine", False

        def refuses(self, shape: object, device: object) -> None:
            return None

    monkeypatch.setitem(registry._from_files, "mine", Mine())
    planted = Cell.parse("mine_distinct_p16_x1")
    assert "mine carries no planted work" in str(refusal(planted, CPU))
    monkeypatch.setattr(Mine, "plants", True, raising=False)
    assert refusal(planted, CPU) is None


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("pagebench.kernels.gather:Gather", "Gather is a class: give an instance"),
        ("pagebench.kernels.gather:NAMES", "AttributeError"),
        ("pagebench.kernels.adapter:needs_gpu", "needs_gpu has no name, has_plan, lowering"),
    ],
)
def test_a_package_that_offers_no_adapter_is_refused_and_says_why(
    target: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_installed", lambda: {"theirs": target})
    reason = refusal(Cell.parse("theirs_distinct_p16"), CPU)
    assert f"kernel theirs does not load: {says}" in str(reason)


# --- What was learnt survives a failure -----------------------------------------------------------


def learnt(record: Timing | Findings) -> list[str]:
    """Which findings there are, in the order in which they are made."""
    made = ("predicted", "layout", "resolved", "check")
    return [name for name in made if getattr(record, name)]


class Staged(Gather):
    """Fails in one of its methods."""

    name = "staged"
    fails = ""

    def plan(self, batch: Batch, *, graph: bool) -> Call:
        if self.fails == "plan":
            raise RuntimeError("no plan")
        call = super().plan(batch, graph=graph)
        calls = [0]

        def run() -> None:
            calls[0] += 1
            if self.fails == "run":
                raise RuntimeError("no run")
            call.run()
            if self.fails == "output" and calls[0] == 3:
                assert call.out is not None
                call.out.mul_(2)

        return replace(call, run=run)


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> type[Staged]:
    monkeypatch.setitem(registry._from_files, "staged", Staged())
    return Staged


STAGES = [
    ("lowering", "crashed", []),
    ("refuses", "refused", []),
    ("memory", "refused", ["predicted"]),
    ("table", "crashed", ["predicted"]),
    ("plan", "crashed", ["predicted", "layout"]),
    ("run", "crashed", ["predicted", "layout", "resolved"]),
    ("output", "wrong", ["predicted", "layout", "resolved", "check"]),
    ("timing", "crashed", ["predicted", "layout", "resolved", "check"]),
    ("nothing", "measured", ["predicted", "layout", "resolved", "check"]),
]


def fail_at(stage: str, staged: type[Staged], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "fails", stage)
    if stage == "lowering":
        monkeypatch.setattr(staged, "lowering", lambda self, shape: "pages")
    if stage == "refuses":
        monkeypatch.setattr(staged, "refuses", lambda self, shape, device: "not today")
    if stage == "memory":
        monkeypatch.setattr(refuse, "free_bytes", lambda device: 1)
    if stage == "timing":
        monkeypatch.setattr("pagebench.harness.timing.clocks.sampling.warm_up", lambda *_: 1 / 0)
    if stage == "table":
        monkeypatch.setattr("pagebench.harness.timing.measure.check", lambda table: 1 / 0)


@pytest.mark.parametrize(("stage", "status", "found"), STAGES)
def test_a_record_keeps_what_was_learnt_before_it_failed(
    stage: str, status: str, found: list[str], staged: type[Staged], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at(stage, staged, monkeypatch)
    record = measure("staged_distinct_p16_b2_l64")
    assert (record.status, learnt(record)) == (status, found), record.reason


def test_a_wrong_output_keeps_the_error_that_it_was_off_by(
    staged: type[Staged], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at("output", staged, monkeypatch)
    record = measure("staged_distinct_p16_b2_l64")
    assert isinstance(record.check, Check)
    assert record.check.error_before == pytest.approx(1.0, rel=0.05)
    assert record.check.error_after is None


@pytest.mark.parametrize(("stage", "status", "found"), STAGES[:-3])
def test_what_is_called_once_is_told_with_what_was_learnt_before_it_failed(
    stage: str, status: str, found: list[str], staged: type[Staged], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at(stage, staged, monkeypatch)
    (told,) = call_once((Cell.parse("staged_distinct_p16_b2_l64"),), CPU)
    made = [name for name in ("predicted", "layout", "resolved", "check") if getattr(told, name)]
    assert (told.status, made) == (status, found), told.reason


def test_what_is_called_once_is_told_with_its_prediction() -> None:
    (told,) = call_once((Cell.parse("gather_distinct_p16_b2_l64"),), CPU)
    assert (told.status, told.reason) == (None, None)
    assert told.predicted is not None
    assert told.predicted.distinct_kv_bytes == 2 * 64 * 4096


@pytest.mark.parametrize(("stage", "status", "found"), STAGES[1:])
def test_rounds_keep_what_was_learnt_of_each_cell(
    stage: str, status: str, found: list[str], staged: type[Staged], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at(stage, staged, monkeypatch)
    names = ("gather_distinct_p16_b2_l64", "staged_distinct_p16_b2_l64")
    cells = tuple(map(Cell.parse, names))
    rounds = measure_rounds(cells, QUICK, Session(CPU), silent)
    assert (rounds.status, rounds.cells) == (status, names), rounds.reason
    assert bool(rounds.resolved[1]) is ("resolved" in found)
    assert (rounds.check[1] is not None) is ("check" in found)
    if stage not in ("memory", "table"):  # of those the first cell fails too
        assert rounds.resolved[0]["page_size"] == 16
        assert rounds.check[0] is not None


def test_preparing_returns_what_it_found() -> None:
    ready = prepare(Cell.parse("gather_distinct_p16_b2_l64"), QUICK, Session(CPU), silent)
    assert learnt(ready.findings) == ["predicted", "layout", "resolved", "check"]
    with pytest.raises(AttributeError):
        ready.findings.check = None  # type: ignore[misc]


ODD: dict[str, tuple[object, bool]] = {
    "nothing": (None, False),
    "a list": ([1, 2], False),
    "a mapping": ({"a": 1}, False),
    "a NumPy number": (np.int64(3), False),
    "a tensor": (torch.tensor(2), False),
    "not a number": (float("nan"), False),
    "a number": (2.5, True),
    "a truth": (True, True),
}


@pytest.mark.parametrize("what", ODD)
def test_whatever_an_adapter_resolved_is_recorded_or_named(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3acd176 lost the whole sweep of a NumPy number, and its later cells."""
    value, is_plain = ODD[what]

    class Odd(Gather):
        name = "odd"

        def plan(self, batch: Batch, *, graph: bool) -> Call:
            resolved: Any = {"splits": value}
            return replace(super().plan(batch, graph=graph), resolved=resolved)

    monkeypatch.setitem(registry._from_files, "odd", Odd())
    store.append(tmp_path / "odd.jsonl", measure("odd_distinct_p16_b2_l64"))
    (again,) = store.read([tmp_path / "odd.jsonl"]).of(Timing)
    assert again.status == ("measured" if is_plain else "crashed")
    assert is_plain or "resolved['splits'] is " in str(again.reason)
