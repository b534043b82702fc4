"""The code that ran stands in the record, and no adapter's mistake about it costs a cell."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from fakes import pagebench_here
from fakes.ncu_pages import recorded
from pagebench.harness.cell import Cell
from pagebench.harness.judging.binary import same_binary
from pagebench.harness.progress import silent
from pagebench.harness.records import store
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.timing import Timing
from pagebench.harness.timing.measure import measure_cell
from pagebench.harness.timing.options import default_options
from pagebench.harness.timing.session import Session
from pagebench.kernels import registry
from pagebench.kernels.device import Device
from pagebench.profiles.cubin_code import cubin_hash

NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
needs_nvcc = pytest.mark.skipif(not os.access(NVCC, os.X_OK), reason="nvcc is not installed")
KERNEL = """
from pathlib import Path
from pagebench.kernels.adapter import Call
from pagebench.kernels.gather import ADAPTER as GATHER

class Mine:
    name, has_plan = "mine", False
    lowering, refuses = GATHER.lowering, GATHER.refuses
    workspace_bytes = GATHER.workspace_bytes
    def plan(self, batch, *, graph):
        found = GATHER.plan(batch, graph=graph)
        return Call(found.run, found.out, found.replan, found.resolved, (), {code})

ADAPTER = Mine()
"""
SOURCE = 'extern "C" __global__ void mine(float* x) {{ x[threadIdx.x] *= {}; }}'
QUICK = dataclasses.replace(default_options(Device("cpu", "cpu")), seconds=0.05)
CELL = "mine_distinct_p16_b2_l64_h4x4_d64"


def measured(tmp_path: Path, code: str) -> Timing:
    """The record of a kernel whose `Call.code` is that expression."""
    path = tmp_path / "mine.py"
    path.write_text(KERNEL.replace("{code}", code))
    with patch.dict(registry._from_files):
        registry.add_kernel_file(path)
        return measure_cell(Cell.parse(CELL), QUICK, Session(Device("cpu", "cpu")), silent)


def cubin(where: Path, factor: str, *options: str) -> Path:
    where.mkdir(parents=True, exist_ok=True)
    (where / "mine.cu").write_text(SOURCE.format(factor))
    words = [NVCC, "-arch=sm_90", "-cubin", *options, "-o", "mine.cubin", "mine.cu"]
    subprocess.run(words, cwd=where, check=True, capture_output=True)
    return where / "mine.cubin"


@needs_nvcc
def test_the_record_holds_a_hash_of_the_code_that_a_plug_in_gives(tmp_path: Path) -> None:
    """3acd176 knew a module's name at most: two builds of one name were one binary."""
    builds = (
        cubin(tmp_path / "one", "2"),
        cubin(tmp_path / "two" / "deeper", "2", "-lineinfo"),
        cubin(tmp_path / "three", "3"),
    )
    one, again, other = (
        measured(tmp_path, f"lambda: [Path({str(each)!r}).read_bytes()]").binary for each in builds
    )
    assert one is not None
    assert one.startswith("cubin:")
    assert one == again
    assert one != other


@needs_nvcc
def test_the_command_line_records_it_too(tmp_path: Path) -> None:
    build = cubin(tmp_path, "2")
    (tmp_path / "mine.py").write_text(
        KERNEL.replace("{code}", f"lambda: [Path({str(build)!r}).read_bytes()]")
    )
    words = ("--device", "cpu", "--kernel", "mine.py", "--out", "out.jsonl", "--seconds", "0.05")
    done = pagebench_here("run", CELL, *words, cwd=tmp_path)
    (record,) = store.read([tmp_path / "out.jsonl"], Timing).of(Timing)
    assert record.binary == f"cubin:{cubin_hash(build.read_bytes())}", done.stderr


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("lambda: [b'no code']", "ELF"),
        ("lambda: 1 / 0", "division by zero"),
        ("lambda: exit(3)", "SystemExit"),
        ("lambda: [3]", "int"),
        ("lambda: 3", "int"),
        ("7", "not callable"),
        ("lambda: [Path('absent.so')]", "No such file"),
        ("lambda: [Path(__file__)]", "ELF"),
        ("lambda: [None]", "NoneType"),
    ],
)
def test_code_that_cannot_be_read_is_absent_with_a_reason_and_the_cell_is_measured(
    code: str, why: str, tmp_path: Path
) -> None:
    record = measured(tmp_path, code)
    assert record.status == "measured"
    assert record.binary is None
    assert why in (record.no_binary or "")


@pytest.mark.parametrize("code", ["None", "lambda: []", "lambda: ()"])
def test_a_plug_in_that_says_nothing_of_its_code_is_unknown(code: str, tmp_path: Path) -> None:
    record = measured(tmp_path, code)
    assert (record.status, record.binary, record.no_binary) == ("measured", None, None)


# --- Two cells ------------------------------------------------------------------------------------


def counted(binary: str | None, module: str = "m", symbol: str = "kernel") -> Counters:
    first = recorded()[0]
    kernels = (replace(first.kernels[0], symbol=symbol),)
    return replace(first, resolved={"module": module}, binary=binary, kernels=kernels)


def test_one_module_name_with_another_hash_is_another_binary() -> None:
    """3acd176 compared the names: a module built anew from other source was the same."""
    assert not same_binary(counted("library:00"), counted("library:11")).module
    assert not same_binary(counted("cubin:00"), counted("cubin:11")).module


def test_one_hash_is_one_binary_whatever_its_names() -> None:
    """3acd176 called a module of another name another binary."""
    same = same_binary(counted("cubin:00", "a", "k1"), counted("cubin:00", "b", "k2"))
    assert same.differs == ()


def test_another_kernel_of_one_library_is_another_kernel() -> None:
    """Its hash is of all that the library holds."""
    same = same_binary(counted("library:00", "a", "k1"), counted("library:00", "b", "k2"))
    assert same.differs == ("symbol",)


@pytest.mark.parametrize("other", [None, "fatbin:00"])
def test_where_hashes_cannot_be_compared_names_decide(other: str | None) -> None:
    assert same_binary(counted("library:00"), counted(other)).module
    assert not same_binary(counted("library:00"), counted(other, "else")).module
