"""Every kernel and clock on a real GPU. Run with `make test` where there is one."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import TESTS, pagebench
from pagebench.harness.cell import Cell
from pagebench.harness.progress import silent
from pagebench.harness.records import store
from pagebench.harness.records.counters import Counters
from pagebench.harness.timing.measure import measure_cell
from pagebench.harness.timing.options import Options, default_options
from pagebench.harness.timing.refuse import refusal
from pagebench.harness.timing.rounds import measure_rounds
from pagebench.harness.timing.session import Session
from pagebench.harness.workers.worker import Pool
from pagebench.kernels.device import find_device
from pagebench.kernels.registry import find_kernel
from pagebench.layouts.table import page_table

pytestmark = pytest.mark.gpu

KERNELS = {
    "reference": (1, 16), "gather": (1, 16), "fidecode": (1, 16, 64), "fitc": (1, 16, 64),
    "fifa3": (1, 64), "xqa": (16, 32, 64, 128), "tritontoken": (1,), "tritonrow": (1, 16, 128),
    "tritontile": (1, 16, 64, 128),
}  # fmt: skip
LAYOUTS = (
    "distinct_scatter_b5_l777_r60", "shared_block128_b7_l1500", "prefix50_churned128_b4_l2048_r20",
    "distinct_grown128_b3_l999_w4096",
)  # fmt: skip
CASES = [f"{kernel}_{layout}_p{page}" for kernel, pages in KERNELS.items() for page in pages
         for layout in LAYOUTS]  # fmt: skip
QUICK = 0.1


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(find_device())


def runnable(name: str) -> Cell:
    cell = Cell.parse(name)
    reason = refusal(cell, find_device())
    if reason:
        pytest.skip(reason)
    return cell


@pytest.mark.parametrize("name", CASES)
def test_kernels_are_right_on_poisoned_permuted_and_ragged_pools(
    name: str, session: Session
) -> None:
    options = replace(default_options(session.device), seconds=QUICK)
    record = measure_cell(runnable(name), options, session, silent)
    assert record.status == "measured", record.reason


@pytest.mark.parametrize(
    "name", [f"{kernel}_distinct_scatter_p{pages[-1]}" for kernel, pages in KERNELS.items()]
)
def test_calls_repeat_to_the_bit(name: str) -> None:
    from pagebench.layouts.tensors import materialise

    cell = runnable(name)
    adapter = find_kernel(cell.kernel)
    table = page_table(cell.shape, cell.streams, cell.placement, "cuda")
    call = adapter.plan(materialise(table, adapter.lowering(cell.shape)), graph=False)
    assert call.out is not None
    call.run()
    first = call.out.clone()
    for _ in range(20):
        call.run()
        assert (call.out == first).all()


@pytest.mark.parametrize("kernel", ["fidecode_distinct_p1", "xqa_distinct_p16",
                                    "tritontile_distinct_p16", "fitc_distinct_p64"])  # fmt: skip
def test_a_captured_graph_follows_a_newer_plan(kernel: str, session: Session) -> None:
    options = Options(clock="graph", seconds=QUICK)
    record = measure_cell(runnable(kernel), options, session, silent)
    assert record.status == "measured", record.reason
    assert record.check is not None
    assert record.check.error_replanned is not None
    assert record.check.error_replanned <= record.check.tolerance


def test_a_captured_graph_that_holds_an_old_plan_is_found(session: Session) -> None:
    options = Options(clock="graph", seconds=QUICK)
    cell = Cell.parse("reference_distinct_p16_b2_l256")
    record = measure_cell(cell, options, session, silent)
    assert record.status == "wrong"
    assert "planned for other lengths" in str(record.reason)


@pytest.mark.parametrize("placement", ["contiguous", "scatter", "block128", "churned1", "grown1"])
def test_tables_are_the_same_on_the_gpu_as_on_the_cpu(placement: str) -> None:
    cell = Cell.parse(f"reference_distinct_{placement}_p1_b7_l3000_r30")
    here, there = (
        page_table(cell.shape, cell.streams, cell.placement, device) for device in ("cpu", "cuda")
    )
    assert (here.pages == there.pages.cpu()).all()


def test_cold_and_warm_are_two_states(session: Session) -> None:
    cell = runnable("fidecode_distinct_p1_b2")
    times = []
    for l2 in ("cold", "warm"):
        record = measure_cell(cell, Options(l2=l2, seconds=1), session, silent)
        assert record.samples is not None
        times.append(sorted(record.samples.time_us)[len(record.samples.time_us) // 2])
    assert times[1] < times[0]


def test_the_profiler_sees_the_kernel_that_the_adapter_promised() -> None:
    cell = runnable("fidecode_distinct_p1")
    with Pool(find_device()) as pool:
        record = pool.measure(cell, Options(clock="cupti", seconds=QUICK), silent)
    assert record.samples is not None, record.reason
    assert "BatchDecodeWithPagedKVCacheKernel" in record.samples.kernels[0]
    assert "MergeStates" in record.samples.kernels[1]
    # Programmatic dependent launch starts the merge before the decode has ended, so the busy time
    # of the two may exceed their span.
    assert len(record.samples.sum_us) == len(record.samples.time_us)
    gaps = [e - s for e, s in zip(record.samples.events_us, record.samples.time_us, strict=True)]
    floor = record.samples.events_floor_us
    assert floor is not None
    assert -floor < sorted(gaps)[len(gaps) // 2] < 2 * floor


@pytest.mark.parametrize("words", ["x8", "y2000", "x8_y2000"])
def test_planted_work_changes_no_answer(words: str, session: Session) -> None:
    cell = runnable(f"tritontile_distinct_p16_{words}")
    record = measure_cell(cell, Options(seconds=QUICK), session, silent)
    assert record.status == "measured", record.reason
    assert ("planted_loads" in record.resolved) is ("x" in words)
    assert ("planted_ns" in record.resolved) is ("y" in words)


def test_cells_are_interleaved_there_and_back(session: Session) -> None:
    cells = (runnable("fidecode_distinct_p1_b2"), runnable("fidecode_distinct_p1_b4"))
    rounds = measure_rounds(cells, Options(), session, silent)
    assert rounds.status == "measured", rounds.reason
    assert all(len(each) == 4 for each in rounds.rounds)
    assert isinstance(rounds.throttle, tuple)
    assert rounds.spin_mhz
    assert rounds.environment.sm_count


def test_ceilings_lie_just_under_what_the_hardware_is_built_for() -> None:
    """Four schedulers an SM issue one instruction a cycle each; DRAM has its bus and clock."""
    from pagebench.harness.instruments.ceilings import measure_ceilings
    from pagebench.kernels.device import multiprocessors

    device = find_device()
    found = measure_ceilings(device, print)
    max_sm_mhz, nominal = found.environment.max_sm_mhz, found.environment.nominal_dram_gbps
    assert max_sm_mhz
    assert nominal
    peak_ginst = 4 * multiprocessors(device.torch_name) * max_sm_mhz / 1e3
    rates, launch = found.rates, found.launch_us
    assert rates["issue_ginst"].saturated
    assert 0.8 * peak_ginst <= rates["issue_ginst"].value <= 1.001 * peak_ginst
    assert rates["fma_gflops"].value <= 64 * 1.001 * peak_ginst
    best = max(point.gbps for point in found.dram_read)
    assert 0.8 * nominal <= best <= nominal
    assert rates["l2_read_gbps"].value > best
    assert launch is not None
    assert 0 < launch.further < launch.first


def profiled(tmp_path: Path, *words: str, preload: str = "") -> subprocess.CompletedProcess[str]:
    out = str(tmp_path / "counters.jsonl")
    return pagebench("profile", *words, "--out", out, LD_PRELOAD=preload)


def test_where_the_driver_refuses_counters_one_line_has_the_remedy(tmp_path: Path) -> None:
    """The refusal is ours, the driver's own code of it, and the rest is Nsight Compute's doing."""
    shim, source = tmp_path / "deny.so", TESTS / "deny_profiler.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    done = profiled(tmp_path, "tritontile_distinct_p64", preload=str(shim))
    assert done.returncode == 2, done.stderr
    assert "NVreg_RestrictProfilingToAdminUsers=0" in done.stderr.strip().splitlines()[-1]
    assert not (tmp_path / "counters.jsonl").exists()


@pytest.mark.parametrize("order", [1, -1])
def test_a_cell_that_crashes_under_the_profiler_costs_its_own_record(
    order: int, tmp_path: Path
) -> None:
    own = str(TESTS / "crashing_kernel.py")
    cells = ("tritontile_distinct_p64", "crashing_distinct_p16")[::order]
    done = profiled(tmp_path, *cells, "--kernel", own)
    assert done.returncode == 1, done.stderr
    assert "crashed: crashing_distinct_p16: " in done.stderr
    (counted,) = store.read([tmp_path / "counters.jsonl"], Counters).of(Counters)
    assert counted.cell == "tritontile_distinct_p64"


KILLING = """
import os, signal
from pagebench.kernels.gather import Gather

class Killing(Gather):
    name = "killing"

    def plan(self, batch, *, graph):
        os.kill(os.getpid(), signal.SIGKILL)

ADAPTER = Killing()
"""


@pytest.mark.parametrize("order", [1, -1])
def test_a_cell_that_kills_the_profiled_process_costs_its_own_record(
    order: int, tmp_path: Path
) -> None:
    """It says no word: what is known of its end is Nsight Compute's."""
    (tmp_path / "own.py").write_text(KILLING)
    cells = ("tritontile_distinct_p64", "killing_distinct_p16")[::order]
    done = profiled(tmp_path, *cells, "--kernel", str(tmp_path / "own.py"))
    assert done.returncode == 1, done.stderr
    assert "crashed: killing_distinct_p16: " in done.stderr
    (counted,) = store.read([tmp_path / "counters.jsonl"], Counters).of(Counters)
    assert counted.cell == "tritontile_distinct_p64"


# --- The code that ran ----------------------------------------------------------------------------

CODE_OF = {
    "fidecode_distinct_p16_b4_l1024": "library", "fitc_distinct_p16_b4_l1024": "library",
    "fifa3_distinct_p64_b4_l1024": "library", "xqa_distinct_p16_b4_l1024": "library",
    "tritontoken_distinct_p1_b4_l1024": "cubin", "tritonrow_distinct_p16_b4_l1024": "cubin",
    "tritontile_distinct_p16_b4_l1024": "cubin",
}  # fmt: skip


@pytest.mark.parametrize("name", CODE_OF)
def test_the_code_that_ran_is_hashed(name: str, session: Session) -> None:
    """`fatbin:` where this machine has no cuobjdump, neither CUDA's nor Triton's."""
    record = measure_cell(
        runnable(name), replace(default_options(session.device), seconds=QUICK), session, silent
    )
    assert record.status == "measured"
    assert record.no_binary is None
    assert record.binary is not None
    kinds = (CODE_OF[name], "fatbin") if CODE_OF[name] == "library" else (CODE_OF[name],)
    assert record.binary.startswith(kinds)


@pytest.mark.parametrize("kernel", ["xqa", "tritontile", "fidecode"])
def test_pages_that_are_compiled_in_are_other_code_and_lengths_are_not(
    kernel: str, session: Session
) -> None:
    def code(layout: str) -> str | None:
        return measure_cell(
            runnable(f"{kernel}_{layout}"),
            replace(default_options(session.device), seconds=QUICK), session, silent,
        ).binary  # fmt: skip

    small, shorter, large = map(
        code, ("distinct_p16_b4_l1024", "distinct_p16_b4_l1008", "distinct_p64_b4_l1024")
    )
    assert small == shorter
    assert (small == large) == (kernel == "fidecode")
