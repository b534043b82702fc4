"""Ceilings without a GPU: the probes' machine code, records of both schemas, and what binds.

The ceilings here are round numbers made up for arithmetic; none was measured.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes import H200
from pagebench.harness.cell import Cell
from pagebench.harness.counting.predict import State
from pagebench.harness.instruments import ceilings as measuring
from pagebench.harness.instruments.ceilings import (
    COMPUTE,
    diagnose,
    measure_ceilings,
    newest_ceilings,
)
from pagebench.harness.judging import judge as judging
from pagebench.harness.records import store
from pagebench.harness.show import card
from pagebench.harness.timing.measure import Options
from pagebench.harness.workers.interleave import Interleaved
from pagebench.kernels.device import CPU, Device
from pagebench.kernels.probes import ceilings as probes
from pagebench.kernels.probes.cubin import compile_cubin
from pagebench.profiles.ceilings import (
    Ceilings,
    Point,
    binding_sentence,
    critical_path,
    launch_entry,
    rate_entry,
    read_ceilings,
)

GPU = "NVIDIA H200"
ON_H200 = State({"gpu": GPU}, "cold")
CURVE = [{"bytes_read": 2**20, "gbps": 4000.0, "saturated": True}]
OLD = {"kind": "ceilings", "schema": 1, "gpu": GPU, "dram_read": CURVE, "environment": {"gpu": GPU}}
NEW = OLD | {
    "schema": 2,
    "l2_read_gbps": {"value": 8000.0, "by_warps": {}, "saturated": True},
    "issue_ginst": {"value": 1000.0, "by_warps": {}, "saturated": True},
    "fma_gflops": {"value": 64000.0, "by_warps": {}, "saturated": True},
    "matrix_gflops": {"value": 409600.0, "by_warps": {}, "saturated": False},
    "launch_us": {"first": 3.0, "further": 1.0, "by_launches": {}, "saturated": True},
}
CEILINGS = read_ceilings(NEW)


# --- the probes' machine code -----------------------------------------------------------------


def has_tools() -> bool:
    return shutil.which("nvcc") is not None and bool(_disassembler())


def _disassembler() -> Path | None:
    triton = pytest.importorskip("triton", reason="its wheel carries nvdisasm")
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    return tool if tool.exists() else None


@cache
def loops(arch: tuple[int, int]) -> dict[str, list[str]]:
    """The instructions of each probe's one loop, in order, opcode and operands."""
    with tempfile.TemporaryDirectory() as scratch:
        cubin = compile_cubin(probes.SOURCE, arch, Path(scratch))
        words = [str(_disassembler()), "-c", str(cubin)]
        text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    sections = re.split(r"\.section\s+\.text\.(\w+)", text)[1:]
    return {name: _loop(body) for name, body in zip(sections[::2], sections[1::2], strict=True)}


def _loop(body: str) -> list[str]:
    """From the target of the one backward branch that is no trap at the end, to that branch."""
    labels, found, instructions = dict[str, int](), list[list[str]](), list[str]()
    for line in body.splitlines():
        if named := re.match(r"\s*(\.L_\w+):", line):
            labels[named[1]] = len(instructions)
        elif code := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z].*?) *;", line):
            instructions.append(code[1])
            target = re.search(r"BRA.*`\((\.L_\w+)\)", line)
            begin = labels.get(target[1]) if target else None
            if begin is not None and begin < len(instructions) - 1:
                found.append(instructions[begin:])
    return max(found, key=len, default=[])


def opcodes(loop: list[str]) -> Counter[str]:
    return Counter(instruction.split()[0].split(".")[0] for instruction in loop)


archs = pytest.mark.parametrize("arch", [(8, 0), (9, 0), (12, 0)])
tools = pytest.mark.skipif(not has_tools(), reason="nvcc is not installed")


@tools
@archs
@pytest.mark.parametrize(("kernel", "work"), [
    ("ceil_fma", {"FFMA": 512}),
    ("ceil_issue", {"FFMA": 256, "LOP3": 256}),
    ("ceil_matrix", {"HMMA": 64}),
])  # fmt: skip
def test_a_round_holds_the_work_that_is_claimed_and_under_two_per_cent_else(
    arch: tuple[int, int], kernel: str, work: dict[str, int]
) -> None:
    found = opcodes(loops(arch)[kernel])
    found.pop("NOP", None)  # between products, sm_120's assembler puts one
    assert work.items() <= found.items()
    assert sum(work.values()) == probes.INSTRUCTIONS[kernel]
    control = found.total() - sum(work.values())
    assert control <= (0.1 if kernel == "ceil_matrix" else 0.02) * sum(work.values())


@tools
@archs
def test_products_are_of_the_shape_whose_flop_are_counted(arch: tuple[int, int]) -> None:
    products = [text for text in loops(arch)["ceil_matrix"] if text.startswith("HMMA")]
    assert {text.split()[0] for text in products} == {"HMMA.16816.F32.BF16"}
    accumulators = {text.split()[1] for text in products}
    assert len(accumulators) == 8


@tools
@archs
def test_chains_depend_on_themselves_alone(arch: tuple[int, int]) -> None:
    """Eight registers are written, each 64 times, and each FFMA adds to what it wrote last."""
    written = Counter(t.split()[1] for t in loops(arch)["ceil_fma"] if t.startswith("FFMA"))
    assert sorted(written.values()) == [64] * 8
    for text in loops(arch)["ceil_fma"]:
        if text.startswith("FFMA"):
            target, *sources = re.findall(r"\bR\d+", text)
            assert target in sources


@tools
@archs
def test_all_loads_of_a_tile_are_under_way_before_one_is_used(arch: tuple[int, int]) -> None:
    names = [text.split()[0] for text in loops(arch)["ceil_l2"]]
    wide = [at for at, name in enumerate(names) if name == "LDG.E.128.STRONG.GPU"]
    assert len(wide) == len([n for n in names if n.startswith("LDG")]) == probes.L2_LOADS
    assert wide[-1] < names.index("FADD")


@tools
def test_the_empty_kernel_does_nothing() -> None:
    assert loops((9, 0))["ceil_empty"] == []


class Launches:
    """Stands for a loaded cubin and keeps what is launched."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def launch(self, *words: Any) -> None:
        self.seen.append(words)


def tensor(nbytes: int) -> Any:
    return SimpleNamespace(nbytes=nbytes, data_ptr=lambda: 4096)


@pytest.mark.parametrize(
    ("kernel", "warps"),
    [(kernel, warps) for kernel in probes.INSTRUCTIONS for warps in probes.WARPS[kernel]],
)
def test_a_call_does_the_same_work_however_many_warps_share_it(kernel: str, warps: int) -> None:
    module: Any = Launches()
    probe = probes.instructions(module, kernel, 132, warps, tensor(4))
    probe.run()
    ((name, blocks, threads, _, rounds),) = module.seen
    assert (name, blocks * threads) == (kernel, 132 * 32 * warps)
    assert threads <= 512
    assert probe.work == 132 * warps * rounds * probes.INSTRUCTIONS[kernel]
    assert probe.work == 132 * 16384 * probes.INSTRUCTIONS[kernel]


@pytest.mark.parametrize(
    ("warps", "window"),
    [(warps, mib << 20) for mib in (3, 20, 24) for warps in probes.l2_warps(132, mib << 20)],
)
def test_the_l2_probe_stays_in_its_window_and_counts_its_bytes(warps: int, window: int) -> None:
    module: Any = Launches()
    probe = probes.l2_read(module, 132, warps, tensor(window), tensor(4))
    probe.run()
    ((_, blocks, threads, _, rounds, _, tiles),) = module.seen
    tile = threads * probes.L2_LOADS * 16
    assert blocks * threads == 132 * 32 * warps
    assert 0 < blocks * tiles * tile <= window
    assert probe.work == blocks * rounds * tiles * tile
    assert 2**31 < probe.work <= 2**32
    assert rounds * tiles < 2**31


def test_a_small_l2_holds_fewer_warps_of_the_probe() -> None:
    assert probes.l2_warps(132, 20 << 20) == (8, 16, 32, 64)
    assert probes.l2_warps(80, 2 << 20) == (8,)


def test_launches_are_counted() -> None:
    module: Any = Launches()
    probes.empty(module, 4)()
    assert len(module.seen) == 4


# --- records ----------------------------------------------------------------------------------


def test_both_schemas_are_read_and_a_later_one_is_refused() -> None:
    old = read_ceilings(OLD)
    assert (old.rates, old.launch_us) == ({}, None)
    assert old.dram_read == CEILINGS.dram_read == (Point(2**20, 4000.0, True),)
    assert CEILINGS.rates["l2_read_gbps"].value == 8000.0
    assert not CEILINGS.rates["matrix_gflops"].saturated
    assert CEILINGS.launch_us == (3.0, 1.0)
    with pytest.raises(ValueError, match="schema 3; this pagebench reads 1 to 2"):
        read_ceilings(NEW | {"schema": 3})


@pytest.mark.parametrize("damaged", [
    {"launch_us": 3}, {"dram_read": "x"}, {"dram_read": [{}]}, {"l2_read_gbps": 3},
])  # fmt: skip
def test_a_damaged_record_is_refused_in_one_line(damaged: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="a ceilings record is damaged: "):
        read_ceilings(NEW | damaged)


def test_a_rate_is_the_best_and_saturates_when_the_last_doubling_gains_nothing() -> None:
    entry = rate_entry({8: 500.0, 16: 990.0, 32: 985.0})
    assert entry == {
        "value": 990.0,
        "by_warps": {"8": 500.0, "16": 990.0, "32": 985.0},
        "saturated": True,
    }
    assert not rate_entry({8: 500.0, 16: 950.0, 32: 985.0})["saturated"]


def test_a_further_launch_costs_the_slope_of_the_last_doubling() -> None:
    entry = launch_entry({1: 2.7, 2: 4.0, 4: 6.0, 8: 10.0})
    assert (entry["first"], entry["further"], entry["saturated"]) == (2.7, 1.0, True)
    assert not launch_entry({1: 2.7, 2: 4.0, 4: 6.0, 8: 8.0})["saturated"]  # still getting cheaper
    assert not launch_entry({1: 3.0, 2: 3.0, 4: 3.0, 8: 3.0})["saturated"]


def fake_times(session: Any, run: Any, l2: str) -> tuple[float, float]:
    return 103.0, 3.0


def test_a_rate_is_work_over_time_without_the_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_time_us", fake_times)
    session: Any = None
    probe = probes.Probe(lambda: None, 10**9)
    assert measuring._rate(session, probe) == 10**9 / 100 / 1e3  # G a second


def test_every_compute_ceiling_has_its_kernel_and_its_term() -> None:
    assert {kernel for kernel, _ in COMPUTE.values()} == set(probes.INSTRUCTIONS)
    assert set(COMPUTE) | {"l2_read_gbps"} == set(CEILINGS.rates)


# --- refusals ---------------------------------------------------------------------------------


def test_without_a_gpu_there_is_one_line() -> None:
    with pytest.raises(ValueError, match="ceilings are a GPU's; there is none here"):
        measure_ceilings(CPU, print)


def test_without_nvcc_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("no such file: nvcc")

    monkeypatch.setattr(subprocess, "run", absent)
    with pytest.raises(ValueError, match=r"^ceilings\.cu needs nvcc: no such file: nvcc$"):
        measure_ceilings(Device("cuda", GPU, 0, (9, 0)), print)


# --- what binds -------------------------------------------------------------------------------


def counted(**values: float) -> dict[str, dict[str, Any]]:
    return {name: {"value": value, "stable": True} for name, value in values.items()}


WORK = counted(
    dram_read_bytes=4e8, l2_sectors=1e7, instructions=2e7, fma_instructions=1e7,
    tensor_instructions=5e5,
)  # fmt: skip


def test_each_term_is_its_work_over_its_ceiling() -> None:
    path = critical_path(WORK, 2, CEILINGS, 105.0)
    assert path is not None
    assert path.terms_us == pytest.approx(
        {"launch": 4.0, "DRAM": 97.0, "L2": 40.0, "issue": 20.0, "FMA": 10.0, "tensor": 5.0}
    )  # DRAM's 100 us were timed with one launch of 3 us
    assert path.path_us == pytest.approx(101.0)
    assert path.share == pytest.approx(101 / 105)
    assert (path.binding, path.unknown, path.unsaturated) == ("DRAM", (), ("tensor",))


def test_the_sentence_can_be_checked() -> None:
    path = critical_path(WORK, 2, CEILINGS, 105.0)
    assert path is not None
    assert binding_sentence(path) == (
        "DRAM 97.0 us, L2 40.0 us, issue 20.0 us, FMA 10.0 us, tensor 5.0 us (unsaturated), "
        "launch 4.0 us; T 101.0 us, 96.2% of the 105.0 measured by events: DRAM binds"
    )


@pytest.mark.parametrize(("changes", "binding"), [
    ({"l2_sectors": 1e8}, "L2"), ({"instructions": 2e8}, "issue"),
    ({"tensor_instructions": 2e7}, "tensor"), ({"fma_instructions": 2e8}, "FMA"),
])  # fmt: skip
def test_the_largest_term_binds(changes: dict[str, float], binding: str) -> None:
    path = critical_path(WORK | counted(**changes), 1, CEILINGS)
    assert path is not None
    assert (path.binding, path.share) == (binding, None)


def test_many_kernels_of_little_work_are_bound_by_their_launches() -> None:
    path = critical_path(counted(instructions=1e6), 8, CEILINGS, 11.0)
    assert path is not None
    assert (path.terms_us["launch"], path.binding) == (10.0, "launch")


@pytest.mark.parametrize(("time_us", "binding"), [(112.0, "DRAM"), (113.0, "latency")])
def test_latency_binds_where_the_path_explains_under_ninety_per_cent(
    time_us: float, binding: str
) -> None:
    path = critical_path(WORK, 2, CEILINGS, time_us)
    assert path is not None
    assert path.binding == binding
    assert ("the rest is waiting" in binding_sentence(path)) is (binding == "latency")


@pytest.mark.parametrize(("share", "us", "by_share"), [(99.0, 99.99, ("L2",)), (20.0, 40.0, ())])
def test_the_l2_term_is_the_slices_busy_share_where_that_is_more(
    share: float, us: float, by_share: tuple[str, ...]
) -> None:
    path = critical_path(
        WORK, 2, CEILINGS, 105.0, {"value": share, "stable": False}
    )  # less 4 launching
    assert path is not None
    assert path.terms_us["L2"] == pytest.approx(us)
    assert path.by_share == by_share
    assert path.unstable == by_share
    assert path.binding == ("L2" if by_share else "DRAM")
    assert ("its busy share of the time" in binding_sentence(path)) is bool(by_share)


def test_terms_that_tie_bind_together() -> None:
    path = critical_path(WORK, 2, CEILINGS, 105.0, {"value": 97.0, "stable": True})
    assert path is not None
    assert path.binding == "L2 or DRAM"  # 98.0 and 97.0 us


def ceilings_in(files: list[Path]) -> list[dict[str, Any]]:
    return list(store.read_kind(files, "ceilings"))


def kernel(instructions: float, share: float | None) -> dict[str, Any]:
    values = {"instructions": [instructions] * 2, "l2_slice_pct": [share, share]}
    return {"values": values, "unstable": []}


def test_a_busy_share_is_the_calls_only_if_its_first_kernel_nearly_is_the_call() -> None:
    found = measuring._l2_slice([kernel(96.0, 90.0), kernel(4.0, 1.0)])
    assert found == {"value": 90.0, "stable": True}
    assert measuring._l2_slice([kernel(60.0, 90.0), kernel(40.0, 1.0)]) is None
    assert measuring._l2_slice([kernel(96.0, None)]) is None


@pytest.mark.skipif(not H200.exists(), reason="the records are not installed")
@pytest.mark.parametrize(("name", "binds"), [
    ("study", ["latency", "latency", "DRAM", "DRAM"]),
    ("study_other_gpu", ["latency", "L2", "DRAM", "DRAM"]),
    ("study_third_gpu", ["latency", "latency", "DRAM", "DRAM"]),
])  # fmt: skip
def test_on_three_h200s_dram_binds_pages_of_64_and_more_and_those_of_16_are_just_under_the_rule(
    name: str, binds: list[str]
) -> None:
    (ceilings,) = store.read_kind([H200 / f"{name}.jsonl"], "ceilings")
    doses = {line["regime"]: line for line in store.read_kind([H200 / f"{name}.jsonl"], "dose")}
    counted = {r["cell"]: r for r in store.read_kind([H200 / f"{name}.jsonl"], "counters")}
    dose = doses["distinct"]
    paths = [
        diagnose(counted[cell], ON_H200, time_us, [ceilings])
        for cell, (_, time_us, _) in zip(dose["cells"], dose["time_us"], strict=True)
    ]
    assert [path and path.binding for path in paths] == binds
    assert paths[0] is not None
    assert paths[0].share == pytest.approx(0.894, abs=0.005)


def test_an_unstable_counter_diagnoses_and_is_marked() -> None:
    path = critical_path(WORK | {"l2_sectors": {"value": 1e7, "stable": False}}, 1, CEILINGS)
    assert path is not None
    assert path.unstable == ("L2",)
    assert "L2 40.0 us (unstable)" in binding_sentence(path)


def test_what_was_not_counted_is_not_known() -> None:
    path = critical_path(counted(dram_read_bytes=1000, instructions=1e6), 1, CEILINGS)
    assert path is not None
    assert path.unknown == ("DRAM", "L2", "tensor", "FMA")  # a thousand bytes: below the curve
    assert binding_sentence(path).endswith("; not known: DRAM, L2, tensor, FMA")


def test_dram_is_as_saturated_as_the_point_above_its_bytes() -> None:
    points = (Point(2**20, 3000.0, True), Point(2**30, 4000.0, False))
    path = critical_path(WORK, 1, Ceilings(points, CEILINGS.rates, (3.0, 1.0)))
    assert path is not None
    assert "DRAM" in path.unsaturated


def test_without_launch_or_counters_nothing_is_said() -> None:
    assert critical_path(WORK, 1, read_ceilings(OLD)) is None
    assert critical_path({}, 1, CEILINGS) is None


# --- where it is shown ------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    store.append_line(tmp_path / "c.jsonl", NEW)
    return [H200 / "pages.jsonl", H200 / "counters.jsonl", tmp_path / "c.jsonl"]


def test_the_newest_ceilings_of_that_gpu_are_taken(files: list[Path]) -> None:
    store.append_line(files[-1], OLD)
    store.append_line(files[-1], NEW | {"environment": {"gpu": "another"}})
    found = newest_ceilings({"gpu": GPU}, ceilings_in(files))
    assert found is not None
    assert found.launch_us is None
    assert newest_ceilings({"gpu": "a third"}, ceilings_in(files)) is None


def test_the_very_gpus_ceilings_come_before_newer_ones_of_its_model(files: list[Path]) -> None:
    here, there = ({"gpu": GPU, "uuid": uuid} for uuid in ("GPU-1", "GPU-2"))
    store.append_line(files[-1], NEW | {"environment": here, "written": "2026-01-01"})
    store.append_line(files[-1], OLD | {"environment": there, "written": "2026-01-02"})
    of_one, of_other = (newest_ceilings(gpu, ceilings_in(files)) for gpu in (here, there))
    assert of_one is not None
    assert of_other is not None
    assert (of_one.launch_us is None, of_other.launch_us is None) == (False, True)


def test_a_card_says_what_binds_where_it_has_time_counters_and_ceilings(files: list[Path]) -> None:
    joined = card.joined("xqa_distinct_p64_b32_l8192", files)
    (line,) = [text for text in card.joined_card(joined).splitlines() if "binds" in text]
    assert line == f"  binds     {joined['binds']['sentence']}"
    read = joined["counters"]["total"]["dram_read_bytes"]["value"]
    assert joined["binds"]["terms_us"]["DRAM"] == pytest.approx(read / 4000 / 1e3 - 3)
    assert json.loads(json.dumps(joined))["binds"]["binding"] == "DRAM"
    assert card.joined("xqa_distinct_p64_b32_l8192", files[:2])["binds"] is None


@pytest.mark.parametrize(("gpu", "l2"), [("another", "cold"), (GPU, "warm")])
def test_another_gpu_or_state_of_the_cache_is_not_diagnosed(
    gpu: str, l2: str, files: list[Path]
) -> None:
    counters = next(store.read_kind([H200 / "counters.jsonl"], "counters"))
    assert diagnose(counters, ON_H200, 225.0, ceilings_in(files)) is not None
    assert diagnose(counters, State({"gpu": gpu}, l2), 225.0, ceilings_in(files)) is None


def test_a_verdict_takes_the_binding_of_cell_b_from_its_own_times(files: list[Path]) -> None:
    group = Interleaved((Cell.parse("xqa_shared_p16"), Cell.parse("xqa_shared_p64")), 1)
    group.add({
        "status": "measured", "environment": {"gpu": GPU}, "resolved": [{}, {}], "floor_us": 2.5,
        "rounds": [[900.0, 200.0, 210.0, 900.0]],
    })  # fmt: skip
    path = judging.path_of(group, Options(), files)
    assert path is not None
    assert "of the 205.0 measured" in binding_sentence(path)
    assert judging.path_of(group, Options(l2="warm"), files) is None
    assert judging.path_of(group, Options(), files[:2]) is None


def test_the_table_of_ceilings_shows_every_one() -> None:
    rows = card.ceiling_rows(NEW)
    names = [row[0] for row in rows]
    assert names == [
        "launch_us, first", "launch_us, further", "l2_read_gbps", "issue_ginst", "fma_gflops",
        "matrix_gflops", "dram_read_gbps of 1 MB",
    ]  # fmt: skip
    assert rows[5][1:] == ("409,600", "warps an SM: ", "False")
