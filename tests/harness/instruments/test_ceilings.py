"""Ceilings without a GPU: the probes' machine code, what is recorded, and what is refused.

The ceilings here are round numbers made up for arithmetic; none was measured.
"""

from __future__ import annotations

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

from pagebench.harness.errors import UserError
from pagebench.harness.instruments import ceilings as measuring
from pagebench.harness.instruments.ceilings import COMPUTE, by_warps, launches, measure_ceilings
from pagebench.harness.records.ceilings import MeasuredCeilings
from pagebench.harness.records.codec import from_json
from pagebench.kernels.device import CPU, Device
from pagebench.kernels.probes import ceilings as probes
from pagebench.kernels.probes.cubin import compile_cubin
from pagebench.profiles.ceilings import Ceilings, Point

GPU = "NVIDIA H200"
CURVE = [{"bytes_read": 2**20, "gbps": 4000.0, "saturated": True}]
OLD = {"kind": "ceilings", "schema": 1, "gpu": GPU, "dram_read": CURVE, "environment": {"gpu": GPU}}
NEW = OLD | {
    "schema": 2,
    "l2_read_gbps": {"value": 8000.0, "by_warps": {"8": 8000.0}, "saturated": True},
    "issue_ginst": {"value": 1000.0, "by_warps": {"8": 1000.0}, "saturated": True},
    "fma_gflops": {"value": 64000.0, "by_warps": {"8": 64000.0}, "saturated": True},
    "matrix_gflops": {"value": 409600.0, "by_warps": {"8": 409600.0}, "saturated": False},
    "launch_us": {
        "first": 3.0,
        "further": 1.0,
        "by_launches": {"1": 3.0, "2": 4.0},
        "saturated": True,
    },
}


def ceilings_of(line: dict[str, Any]) -> Ceilings:
    record = from_json(line)
    assert isinstance(record, MeasuredCeilings)
    return record.ceilings()


CEILINGS = ceilings_of(NEW)


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
@pytest.mark.parametrize(
    ("kernel", "work"),
    [
        ("ceil_fma", {"FFMA": 512}),
        ("ceil_issue", {"FFMA": 256, "LOP3": 256}),
        ("ceil_matrix", {"HMMA": 64}),
    ],
)
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


class Launched:
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
    module: Any = Launched()
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
    module: Any = Launched()
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
    module: Any = Launched()
    probes.empty(module, 4)()
    assert len(module.seen) == 4


# --- records ----------------------------------------------------------------------------------


def test_every_schema_is_read_and_a_later_one_is_refused() -> None:
    old = ceilings_of(OLD)
    assert (old.rates, old.launch_us) == ({}, None)
    assert old.dram_read == CEILINGS.dram_read == (Point(2**20, 4000.0, True),)
    assert CEILINGS.rates["l2_read_gbps"].value == 8000.0
    assert not CEILINGS.rates["matrix_gflops"].saturated
    assert CEILINGS.launch_us == (3.0, 1.0)
    with pytest.raises(ValueError, match="schema 5; this pagebench reads 1 to 4"):
        ceilings_of(NEW | {"schema": 5})


@pytest.mark.parametrize(
    "damaged",
    [
        {"launch_us": 3},
        {"dram_read": "x"},
        {"dram_read": [{}]},
        {"l2_read_gbps": 3},
        {"l2_read_gbps": {"by_warps": {}, "saturated": True}},
    ],
)
def test_a_damaged_record_is_refused_in_one_line(damaged: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="a ceilings record: ") as caught:
        ceilings_of(NEW | damaged)
    assert "\n" not in str(caught.value)


def test_a_rate_is_the_best_and_saturates_when_the_last_doubling_gains_nothing() -> None:
    found = by_warps({8: 500.0, 16: 990.0, 32: 985.04})
    assert (found.value, found.saturated) == (990.0, True)
    assert found.by_warps == {8: 500.0, 16: 990.0, 32: 985.0}
    assert not by_warps({8: 500.0, 16: 950.0, 32: 985.0}).saturated


def test_a_further_launch_costs_the_slope_of_the_last_doubling() -> None:
    found = launches({1: 2.7, 2: 4.0, 4: 6.0, 8: 10.0})
    assert (found.first, found.further, found.saturated) == (2.7, 1.0, True)
    assert not launches({1: 2.7, 2: 4.0, 4: 6.0, 8: 8.0}).saturated  # still getting cheaper
    assert not launches({1: 3.0, 2: 3.0, 4: 3.0, 8: 3.0}).saturated


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
    with pytest.raises(UserError, match="ceilings need an NVIDIA GPU; those of another machine"):
        measure_ceilings(CPU, print)


def test_without_nvcc_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("no such file: nvcc")

    monkeypatch.setattr(subprocess, "run", absent)
    with pytest.raises(UserError, match=r"^ceilings\.cu needs nvcc: no such file: nvcc$"):
        measure_ceilings(Device("cuda", GPU, 0, (9, 0)), print)
