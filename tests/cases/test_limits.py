"""What no launch or memory can hold is refused before a worker starts, with the limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes import TESTS, pagebench, pagebench_here
from pagebench.harness.cell import Cell
from pagebench.harness.escape import brief_line
from pagebench.harness.timing.measure import _device_bytes
from pagebench.harness.timing.memory import amount, device_bytes, least_pages, refuse_size
from pagebench.harness.timing.refuse import refusal
from pagebench.kernels.device import CPU, Device
from pagebench.kernels.registry import find_kernel
from pagebench.layouts.placement import pool_pages

GB = 10**9
H200 = Device("cuda", "NVIDIA H200", 0, (9, 0), memory_bytes=150_754_820_096)
L40S = Device("cuda", "NVIDIA L40S", 0, (8, 9), memory_bytes=48 * GB)
A100 = Device("cuda", "NVIDIA A100", 0, (8, 0), memory_bytes=85 * GB)
LIMITED = """
from pagebench.kernels.gather import Gather

print("imported")

class Limited(Gather):
    name = "limited"

    def refuses(self, shape, device):
        if shape.batch > 12:
            return "limited has 12 slots, not " + str(shape.batch) + ": use b12 or less"

    def plan(self, batch, *, graph):
        raise SystemExit("a worker was started")

ADAPTER = Limited()
"""


def reason(cell: str, device: Device = H200, boundary: str = "run") -> str:
    return str(refusal(Cell.parse(cell), device, boundary) or "")


@pytest.mark.parametrize(
    "cell",
    [
        "xqa_shared_p16_b65536_l64",
        "tritonrow_shared_p16_b65536_l64",
        "tritontile_shared_p16_b65536_l64",
        "tritontoken_shared_p1_b65536_l64",
        "gather_shared_p16_b65536_l64",
    ],
)
def test_more_requests_than_a_grid_has_blocks_are_refused_with_the_limit(cell: str) -> None:
    """3acd176 started a worker, and XQA and Triton failed there with "invalid argument"."""
    said = reason(cell)
    assert "takes up to 65,535 requests" in said
    assert "not 65,536: use a smaller batch" in said
    assert "65,535" not in reason(cell.replace("b65536", "b65535"))


def test_list_and_run_refuse_them_beforehand(tmp_path: Path) -> None:
    """3acd176 listed this cell as "runs" on a GPU; `run` wrote a crash to its file."""
    cell = "xqa_shared_p16_b65536_l64"
    listed = pagebench_here("list", cell, "--json")
    assert "65,535" in json.loads(listed.stdout)["reason"]
    done = pagebench_here("run", cell, "--out", str(tmp_path / "a.jsonl"))
    assert done.returncode == 2
    assert "65,535" in done.stderr
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.parametrize(
    ("cell", "device", "says"),
    [
        ("tritonrow_shared_p16_b1_l64_h16x8_d256", L40S, "101,376 bytes of shared memory"),
        ("tritonrow_shared_p16_b1_l64_h64x1_d256", A100, "166,912 bytes of shared memory"),
        ("tritonrow_shared_p16_b1_l64_h128x1_d256", H200, "232,448 bytes of shared memory"),
        ("tritonrow_shared_p16_b40000_l64_h1024x8", H200, "elements in its splits' outputs"),
        ("tritonrow_shared_p65536_b1_l65536_h256x256", H200, "elements in a page"),
        ("tritonrow_shared_p1_b32768_l65536", H200, "entries in its page table"),
        ("xqa_shared_p16_b65535_l1048576", H200, "entries in its page table"),
        ("fifa3_shared_p16_b4000_l64_h128x8", H200, "pairs in its plan's workspace"),
        ("fidecode_shared_p65536_b1_l65536_h256x256", H200, "elements in a page"),
    ],
)
def test_other_limits_of_a_launch_are_refused_with_the_number(
    cell: str, device: Device, says: str
) -> None:
    """3acd176 found each of these by a crash, or by an offset that wrapped past 2^31."""
    assert says in reason(cell, device)
    assert ": use " in reason(cell, device)


@pytest.mark.parametrize(
    ("cell", "device"),
    [
        ("tritonrow_shared_p16_b1_l64_h16x8_d256", H200),
        ("tritonrow_shared_p16_b1_l64_h16x8_d256", A100),
        ("tritonrow_shared_p16_b1_l64_h128x1_d128", L40S),
        ("tritonrow_shared_p16_b1_l64_h64x1_d256", H200),
    ],
)
def test_what_fits_shared_memory_is_not_refused_for_it(cell: str, device: Device) -> None:
    assert "shared memory" not in reason(cell, device)


def test_a_limit_of_ones_own_kernel_is_said_before_a_worker_starts(tmp_path: Path) -> None:
    """The adapter says it through `refuses`; 3acd176 asked it too, and this keeps it so."""
    (tmp_path / "mine.py").write_text(LIMITED)
    own = ("--kernel", "mine.py", "--device", "cpu")
    listed = pagebench_here("list", "limited_shared_p16_b13_l64", *own, cwd=tmp_path)
    assert "limited has 12 slots, not 13: use b12 or less" in listed.stdout
    done = pagebench_here(
        *("run", "limited_shared_p16_b13_l64", *own, "--out", "a.jsonl"), cwd=tmp_path
    )
    assert done.returncode == 2
    assert "limited_shared_p16_b13_l64: limited has 12 slots" in done.stderr
    assert not (tmp_path / "a.jsonl").exists()


# --- Sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("gather_distinct_p16_b65536_l16777216", "it needs 4.5 PB of memory, more than any"),
        ("xqa_distinct_p16_b65536_l16777216", "it needs 4.5 PB of memory, more than any"),
        ("reference_distinct_p1_b1024_l16777216_h1x1_d64", "an int32 index takes up to"),
        ("reference_shared_p16_b1_l16777216_h1024x1024_d1024", "493.7 TB of memory"),
    ],
)
def test_impossible_sizes_are_refused_in_list_and_before_a_worker(cell: str, says: str) -> None:
    """3acd176 listed b65536_l16777216 as "runs"; `run` refused it from a worker."""
    listed = pagebench_here("list", cell, "--device", "cpu")
    assert says in listed.stdout
    done = pagebench_here("run", cell, "--device", "cpu")
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_more_than_the_device_has_is_refused() -> None:
    """Planning alone needs no pool. 3acd176 asked only a worker."""
    cell, adapter = Cell.parse("fidecode_distinct_p16_b64_l1048576"), find_kernel("fidecode")
    said = str(refuse_size(cell, adapter, H200, "run"))
    assert "GB of memory and NVIDIA H200 has 150.8 GB: use a smaller batch" in said
    assert refuse_size(cell, adapter, H200, "plan") is None
    assert "NVIDIA H200 has 150.8 GB" in reason("tritonrow_distinct_p16_b64_l1048576")
    assert reason("tritonrow_distinct_p16_b16_l1048576") == ""


def test_where_no_memory_is_known_only_the_impossible_is_refused() -> None:
    unknown = Device("cuda", "?", 0, (9, 0))
    assert "memory" not in reason("tritonrow_distinct_p16_b64_l1048576", unknown)
    assert "PB of memory" in reason("tritonrow_distinct_p16_b65536_l16777216", unknown)


@pytest.mark.parametrize(
    "name",
    [
        "gather_distinct_p16_b3_l1000",
        "gather_shared_p16_b3_l1000",
        "gather_prefix50_p16_b3_l1000",
        "gather_distinct_p16_b3_l1000_r50",
        "gather_prefix50_p16_b3_l4000_r50",
        "gather_distinct_block128_p16_b3_l1000",
        "gather_distinct_churned128_p16_b3_l1000",
    ],
)
def test_the_size_known_beforehand_is_no_larger_than_the_cells(name: str) -> None:
    """Else a cell that fits would be refused."""
    cell, adapter = Cell.parse(name), find_kernel("gather")
    pages = pool_pages(cell.placement, cell.streams)
    assert pages / 3 < least_pages(cell) <= pages
    workspace = adapter.workspace_bytes(cell.shape)
    beforehand = device_bytes(cell.shape, least_pages(cell), workspace, "cpu", "run")
    assert beforehand <= _device_bytes(cell, cell.streams, adapter, CPU, "run")


def test_amounts_are_told_in_the_unit_that_fits() -> None:
    assert [amount(n) for n in (10**8, 10**9, 3 * 10**13, 2 * 10**16, 10**19)] == [
        *("0.1 GB", "1.0 GB", "30.0 TB", "20.0 PB", "10,000.0 PB")
    ]


def test_list_still_loads_neither_torch_nor_numpy_for_a_gpu() -> None:
    """The GPU's memory comes from NVML."""
    code = "\n".join(
        (
            f"import sys; sys.path.insert(0, {str(TESTS)!r})",
            "from types import SimpleNamespace",
            "from fakes import nvml",
            "memory = {'nvmlDeviceGetMemoryInfo': SimpleNamespace(total=48 * 10**9, used=0)}",
            "gpu = nvml.Gpu('GPU-1', 'NVIDIA L40S', (8, 9), memory)",
            "before = set(sys.modules)",
            "nvml.install([gpu])",
            "from pagebench.harness.cli.main import app",
            "app(['list', 'tritonrow_distinct_p16_b64_l1048576'], standalone_mode=False)",
            "print('loaded', *sys.modules)",
        )
    )
    environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], text=True, capture_output=True, env=environment
    )
    assert "and NVIDIA L40S has 48.0 GB" in done.stdout, done.stderr


# --- Names ----------------------------------------------------------------------------------------

LONG = "z" * 120_000


@pytest.mark.parametrize(
    "words",
    [
        ("list", LONG),
        ("list", f"xqa_{LONG}"),
        ("list", f"gather_distinct_p16{'_b2' * 40_000}"),
        ("run", LONG, "--suite", "smoke"),
        ("list", "--suite", LONG),
        ("list", "--device", LONG),
        ("list", "--kernel", LONG),
        ("run", "gather_distinct_p16", "--device", "cpu", "--out", LONG),
        ("run", "gather_distinct_p16", "--device", "cpu", "--clock", LONG),
        ("judge", LONG, "b", "--device", "cpu"),
        ("attack", LONG, "a", "b"),
        ("show", LONG),
        ("report", LONG),
        ("once", LONG),
        (LONG,),
    ],
    ids=lambda words: " ".join(word[:20] for word in words),
)
def test_a_long_name_is_echoed_once_and_cut(words: tuple[str, ...]) -> None:
    """3acd176 printed a name of 120 kB twice; a file of that name was a traceback."""
    done = pagebench_here(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr) < 600
    assert done.stderr.count("characters)") == 1
    assert done.stderr.count("z" * 40) <= 1


def test_pytest_cuts_them_too() -> None:
    done = subprocess.run(
        *([sys.executable, "-m", "pytest", "--benchmark-only", "--suite", LONG],),
        text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 4
    assert len(done.stderr) < 600


def test_what_a_person_reads_stays_whole() -> None:
    line = f"no records in /somewhere/{'a' * 150}/runs.jsonl: use --out"
    assert brief_line(line) == line
    assert brief_line("a, b: " * 3000).endswith("(18,000 characters)")


def test_usual_names_are_echoed_as_before() -> None:
    said = pagebench("list", "xqa_shaerd_p16").stderr
    assert said.startswith("xqa_shaerd_p16: unknown word shaerd; did you mean shared?")
