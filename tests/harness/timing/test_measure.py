"""One cell from name to record on a CPU, and every way in which it ends without a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pagebench.harness.cell import Cell
from pagebench.harness.records.timing import Block, Record, Samples
from pagebench.harness.timing import measure as runs
from pagebench.harness.timing.measure import Failure, Options, Session, measure_cell
from pagebench.kernels import registry
from pagebench.kernels.adapter import Call
from pagebench.kernels.device import CPU, Device
from pagebench.kernels.gather import Gather
from pagebench.kernels.reference import attend
from pagebench.layouts.table import page_table
from pagebench.layouts.tensors import Batch, queries, request_kv
from pagebench.layouts.work import Work

QUICK = Options(clock="wall", seconds=0.05)


def measure(name: str, options: Options = QUICK) -> Record:
    return measure_cell(Cell.parse(name), options, Session(CPU), lambda stage: None)


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
    assert record.check["error_before"] <= record.check["tolerance"]
    assert record.check["error_after"] <= record.check["tolerance"]


def test_hnd_pools_are_read_right() -> None:
    assert measure("gather_distinct_scatter_p16_b2_l100_hnd").status == "measured"


def test_a_record_says_what_was_asked_what_was_predicted_and_where_it_ran() -> None:
    record = measure("gather_shared_scatter_p16_b2_l256")
    assert record.axes["page_size"] == 16
    assert record.predicted["index_entries"] == 32
    assert record.predicted["distinct_kv_bytes"] == 256 * 4096
    assert record.layout == {"distinct_pages": 16, "distinct_tokens": 256, "pool_pages": 17,
                             "unused_entries": 0, "lowering": "page_table"}  # fmt: skip
    assert record.resolved["page_size"] == 16
    assert record.environment["cores"] >= 1
    assert record.environment["flush_bytes"] >= 64 << 20
    assert record.samples is not None


def test_outputs_agree_across_placements_to_the_bit() -> None:
    session = Session(CPU)
    outs = []
    for placement in ("contiguous", "scatter", "block64", "grown16", "churned16"):
        cell = Cell.parse(f"reference_distinct_{placement}_p16_b3_l200_r30")
        adapter = registry.find_kernel("reference")
        batch = runs.build(cell, adapter, QUICK, session.device, {})
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
    table = page_table(cell.shape, cell.sharing, cell.placement, "cpu")
    query = queries(cell.shape, "cpu")[0]
    (keys, values), (other_keys, other_values) = (request_kv(table, r, "cpu") for r in (0, 1))
    right = attend(query, keys, values)
    keys[:wrong], values[:wrong] = other_keys[:wrong], other_values[:wrong]
    error = float((attend(query, keys, values) - right).norm() / right.norm())
    assert error == pytest.approx((2 * wrong / 4096) ** 0.5, rel=0.4)


def test_an_output_that_goes_wrong_while_timed_has_no_time(kernel: Any) -> None:
    calls = [0]

    def drift(batch: Batch, call: Any) -> None:
        calls[0] += 1
        if calls[0] > 2:
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
    assert str(record.reason).startswith("RuntimeError: one line (test_run.py:")


def test_a_cell_that_does_not_fit_is_refused_with_both_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "free_bytes", lambda device: 10**9)
    record = measure("gather_distinct_p16_b64_l65536")
    assert record.status == "refused"
    assert "GB of memory and 1.0 GB are free" in str(record.reason)


def test_plan_cannot_be_measured_where_nothing_is_planned() -> None:
    record = measure("gather_distinct_p16", Options("plan", "wall", "warm"))
    assert record.status == "refused"
    assert "plans nothing" in str(record.reason)


def samples(time_us: float, floor_us: float = 1.0) -> Samples:
    return Samples((time_us,) * 9, floor_us, (Block(0),), "samples")


def work(distinct: int) -> Work:
    return Work(1, distinct, distinct, distinct, distinct, 1, 16.0)


def gpu_session(nominal: float) -> Session:
    session = Session(CPU)
    session.facts["nominal_dram_gbps"] = nominal
    return session


def test_more_distinct_bytes_a_second_than_dram_gives_are_rejected() -> None:
    with pytest.raises(Failure, match=r"5000 GB/s .* 4800 GB/s") as caught:
        runs._plausible(samples(100), work(500_000_000), gpu_session(4800))
    assert caught.value.status == "rejected"
    assert runs._plausible(samples(100), work(470_000_000), gpu_session(4800))


def test_a_warm_or_shared_cell_may_pass_the_dram() -> None:
    assert runs._plausible(samples(100), None, gpu_session(4800))


def test_an_interval_no_longer_than_the_floor_is_rejected_as_empty() -> None:
    with pytest.raises(Failure, match="interval is empty"):
        runs._plausible(samples(2.0, floor_us=2.0), None, gpu_session(4800))


def test_a_stale_graph_is_found() -> None:
    cell = Cell.parse("gather_distinct_p16_b2_l64")
    session, found = Session(CPU), dict[str, Any]()
    adapter = registry.find_kernel("gather")
    batch = runs.build(cell, adapter, QUICK, session.device, found)
    call = adapter.plan(batch, graph=True)
    checker = runs.Checker(batch, call, session, found)
    checker.check_fresh(call.run)  # follows the new plan
    assert found["check"]["error_replanned"] <= 0.01

    assert call.out is not None
    call.run()
    stale = call.out.clone()
    with pytest.raises(Failure, match="newer plan"):
        checker.check_fresh(lambda: call.out.copy_(stale))  # type: ignore[union-attr]


def test_the_oracle_draws_whole_requests_within_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runs.CHECKED_TOKENS, "cpu", 250)
    record = measure("gather_distinct_p16_b8_l100")
    assert (record.check["requests"], record.check["of_requests"]) == (2, 8)


def test_refusals_name_the_device_and_what_would_do() -> None:
    refusal = runs.refusal(Cell.parse("xqa_shared_p16"), CPU)
    assert refusal is not None
    assert "NVIDIA GPU" in refusal
    assert "gather" in refusal
    ampere = Device("cuda", "NVIDIA A100", 0, (8, 0))
    assert "9.0 or newer" in str(runs.refusal(Cell.parse("xqa_shared_p16"), ampere))


@pytest.mark.parametrize(("name", "says"), [
    ("xqa_shared_p17", "16, 32, 64, 128"),
    ("tritontoken_distinct_p16", "1"),
    ("fidecode_distinct_p16_h80x8", "groups"),
    ("fifa3_distinct_p64_e4m3", "bf16 or fp16"),
    ("fidecode_distinct_p1_hnd", "leave out hnd"),
    ("xqa_shared_p16_d72", "multiples of 16"),
])  # fmt: skip
def test_shape_refusals_say_what_would_be_taken(name: str, says: str) -> None:
    hopper = Device("cuda", "NVIDIA H200", 0, (9, 0))
    assert says in str(runs.refusal(Cell.parse(name), hopper))


@pytest.mark.parametrize("word", ["x1", "y1"])
@pytest.mark.parametrize("kernel", [name for name, _ in registry.ADAPTERS if "triton" not in name])
def test_kernels_that_plant_nothing_name_those_that_do(kernel: str, word: str) -> None:
    hopper = Device("cuda", "NVIDIA H200", 0, (9, 0))
    said = str(runs.refusal(Cell.parse(f"{kernel}_distinct_p64_{word}"), hopper))
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
    assert "mine carries no planted work" in str(runs.refusal(planted, CPU))
    monkeypatch.setattr(Mine, "plants", True, raising=False)
    assert runs.refusal(planted, CPU) is None


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
    reason = runs.refusal(Cell.parse("theirs_distinct_p16"), CPU)
    assert f"kernel theirs does not load: {says}" in str(reason)
