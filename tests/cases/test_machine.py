"""The machine is told as it is: GPUs that a driver, a variable or a container hides."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes import TESTS
from fakes.nvml import A100, DRIVER_FILE, H200, L40S, Gpu, NVMLError, install
from pagebench.harness.environment import bandwidth_of, gpu_facts
from pagebench.harness.timing.monitor import Monitor
from pagebench.kernels import device as devices
from pagebench.kernels.device import CPU, Device, DeviceError, find_device, look_for_device
from pagebench.kernels.visible import visible

SLICE = Gpu(
    *("MIG-d0000000-4444-0000-0000-000000000004", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", (8, 0)),
    parent=A100.uuid,
)
THREE = "install((A100, L40S, H200), (SLICE,))"
MISMATCH = "RM has detected an NVML/RM version mismatch."
BROKEN = f"install((A100,), fails={MISMATCH!r})"
NO_LIBRARY = (
    "install((A100,)); del sys.modules['pynvml']; "
    "sys.meta_path.insert(0, type('No', (), {'find_spec': staticmethod(lambda name, *_: "
    "exec('raise ModuleNotFoundError(name)') if name == 'pynvml' else None)}))"
)


def pagebench(machine: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command line on a machine, which is a statement that makes it."""
    lines = (
        f"import sys; sys.path.insert(0, {str(TESTS)!r})",
        "from fakes.nvml import *",
        f"SLICE = {SLICE!r}",
        machine,
        "from pagebench.harness.cli.main import main",
        "main()",
    )
    environment = {**os.environ, **variables}
    if "CUDA_VISIBLE_DEVICES" not in variables:
        environment.pop("CUDA_VISIBLE_DEVICES", None)
    return subprocess.run(
        [sys.executable, "-P", "-c", "\n".join(lines), *words],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a machine in this process: takes what `install` takes."""
    monkeypatch.setattr(os.path, "exists", os.path.exists)
    monkeypatch.setitem(sys.modules, "pynvml", sys)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return install


# --- CUDA_VISIBLE_DEVICES -------------------------------------------------------------------------

UUIDS = ["GPU-aaaa1", "GPU-aabb2", "GPU-cccc3"]


@pytest.mark.parametrize(
    ("listed", "shown"),
    [
        (None, [0, 1, 2]),
        ("2,1", [2, 1]),
        (" 2 , 1 ", [2, 1]),
        ("GPU-cccc3", [2]),
        ("GPU-cc", [2]),
        ("GPU-aa", []),
        ("GPU-cc,GPU-aa,GPU-aabb", [2]),
        ("GPU-aaaa,GPU-aaaa1", []),
        ("gpu-cccc3", []),
        ("NoDevFiles", []),
        ("none", []),
        ("", []),
        (",0", []),
        ("0,,1", [0]),
        ("9", []),
        ("3", []),
        ("0,9,1", [0]),
        ("0,-1,1", [0]),
        ("-1", []),
        ("-1,0", []),
        ("0,0", []),
        ("1,0,1", []),
        ("0,1,+0", []),
        ("+1", [1]),
        ("1gpu", [1]),
        ("1gpu2,2ampere", [1, 2]),
        ("gpu1", []),
        ("0x1", [0]),
        ("٢", []),
        ("0,GPU-cccc3", [0]),
        ("GPU-cccc3,0", [2]),
        ("MIG-dd", [3]),
        ("MIG-dd,MIG-ee", [3]),
        ("MIG-dd,0", [3]),
        ("MIG-ff", []),
        ("99999999999999999999", []),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(listed: str | None, shown: list[int]) -> None:
    """3acd176 gave a traceback for six values of ten, and for one a GPU that CUDA hides."""
    assert visible(listed, UUIDS, ["MIG-dd4", "MIG-ee5"]) == shown


@pytest.mark.parametrize(
    ("listed", "name"),
    [
        ("2,1", "NVIDIA H200"),
        ("GPU-c2", "NVIDIA H200"),
        ("GPU-a1", "CPU"),
        ("MIG-d0", "NVIDIA A100-SXM4-80GB MIG 1g.10gb"),
        ("none", "CPU"),
        ("0,0", "CPU"),
        ("1gpu", "NVIDIA L40S"),
        ("", "CPU"),
    ],
)
def test_a_command_that_needs_no_gpu_reads_it_too(listed: str, name: str) -> None:
    """3acd176's `list` ended in a traceback for most of them."""
    done = pagebench(THREE, "list", "xqa_shared_p16", CUDA_VISIBLE_DEVICES=listed)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.split("\n")[0].endswith(f" on {name}")


def test_what_hides_the_gpus_is_said(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    here((A100, L40S, H200))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    found = find_device()
    assert found == CPU
    assert found.why == "CUDA_VISIBLE_DEVICES='-1' hides all 3 NVIDIA GPUs of this machine"
    with pytest.raises(DeviceError, match="hides all 3 NVIDIA GPUs"):
        find_device("cuda")


def test_every_query_goes_to_the_device_of_that_uuid(
    here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3acd176 found NVML's handles by reading the variable again at each place."""

    def clocked(gpu: Gpu, mhz: int) -> Gpu:
        return Gpu(gpu.uuid, gpu.name, answers={"nvmlDeviceGetClockInfo": mhz})

    here((clocked(A100, 1410), clocked(L40S, 2520), clocked(H200, 1980)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-c2,GPU-a14")
    first, second = find_device("cuda:0"), find_device("cuda:1")
    assert [first.uuid, second.uuid] == [H200.uuid, L40S.uuid]
    # What is shown afterwards does not move a device that was found before.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert [Monitor(each).block(0).sm_mhz for each in (first, second)] == [1980, 2520]
    assert gpu_facts(second)["uuid"] == L40S.uuid


# --- A driver that fails --------------------------------------------------------------------------


class FakeCuda:
    """torch on a machine with one GPU."""

    version = SimpleNamespace(cuda="13.0")
    __version__ = "2.13.0"

    def __init__(self, count: int = 1, *, runs: bool = False) -> None:
        properties = SimpleNamespace(
            name=H200.name, major=9, minor=0, uuid=H200.uuid.removeprefix("GPU-")
        )
        self.cuda = SimpleNamespace(
            is_initialized=lambda: runs,
            device_count=lambda: count,
            get_device_properties=lambda index: properties,
        )


def test_where_nvml_fails_torch_is_asked(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """3acd176 said that there is no NVIDIA GPU on this machine."""
    here((H200,), fails=MISMATCH)
    monkeypatch.setitem(sys.modules, "torch", FakeCuda())
    found = find_device()
    assert found == Device("cuda", "NVIDIA H200", 0, (9, 0))
    assert found.uuid == H200.uuid
    facts = gpu_facts(found)
    assert facts == {"gpu": "NVIDIA H200", "uuid": H200.uuid, "capability": (9, 0)}
    assert bandwidth_of(found) is None
    assert not Monitor(found).reads


def test_where_nvml_is_not_installed_torch_is_asked_and_nothing_else_needs_it(
    here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3acd176 found the GPU and then died of the missing import."""
    here((H200,))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "torch", FakeCuda())
    found = find_device()
    assert found.uuid == H200.uuid
    assert gpu_facts(found)["gpu"] == "NVIDIA H200"
    assert bandwidth_of(found) is None
    assert Monitor(found).block(0).sm_mhz is None


def test_one_gpu_that_is_lost_is_no_reason_to_say_there_is_none(
    here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another failure of the same kind: NVML starts, and a GPU does not answer."""
    library = here((A100, H200))

    def lost(index: int) -> Gpu:
        raise NVMLError("GPU is lost")

    library.__dict__["nvmlDeviceGetHandleByIndex"] = lost
    monkeypatch.setitem(sys.modules, "torch", FakeCuda(0))
    assert look_for_device().is_broken
    with pytest.raises(DeviceError, match="NVML says: GPU is lost; torch sees no GPU either"):
        find_device()


def test_torch_that_has_started_cuda_says_which_gpu_is_which(
    here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process may have numbered them the fastest first, which NVML does not know."""
    here((A100, L40S, H200))
    monkeypatch.setitem(sys.modules, "torch", FakeCuda(runs=True))
    assert find_device().uuid == H200.uuid


@pytest.mark.parametrize("machine", [BROKEN, NO_LIBRARY], ids=["mismatch", "no binding"])
def test_a_failing_driver_is_never_called_no_gpu_and_the_cpu_is_not_measured(
    machine: str, tmp_path: Path
) -> None:
    """3acd176 measured the CPU, as `make bench` does, and exited with 0."""
    out = tmp_path / "out.jsonl"
    ran = pagebench(machine, "run", "--suite", "smoke", "--out", str(out))
    assert ran.returncode == 2
    assert "no GPU can be used: NVML" in ran.stderr
    assert "--device cpu" in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert not out.exists()
    listed = pagebench(machine, "list", "xqa_shared_p16")
    assert listed.returncode == 0
    assert "NVML" in listed.stdout
    assert "there is no NVIDIA GPU" not in ran.stderr + listed.stdout + listed.stderr


def test_nvmls_own_words_reach_the_user() -> None:
    done = pagebench(BROKEN, "list", "xqa_shared_p16")
    assert MISMATCH.rstrip(".") in " ".join(done.stdout.split())


def test_a_container_without_gpu_sees_its_hosts_driver_and_is_a_cpu(
    here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here((), fails="NVML Shared Library Not Found")
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/proc/driver/nvidia")
    monkeypatch.setitem(sys.modules, "torch", FakeCuda(0))
    assert find_device() == CPU
    monkeypatch.setattr(os.path, "exists", lambda path: path == DRIVER_FILE)
    with pytest.raises(DeviceError, match="NVML Shared Library Not Found"):
        find_device()


def test_gpus_that_are_hidden_on_purpose_need_no_working_driver(
    here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here((A100,), fails=MISMATCH)
    monkeypatch.setitem(sys.modules, "torch", FakeCuda(0))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert find_device() == CPU
    assert devices.NO_GPU not in find_device().why


# --- Cells that lack a GPU ------------------------------------------------------------------------

NO_DRIVER = "install((), has_driver=False)"


def test_cells_refused_for_want_of_a_gpu_are_said_and_end_with_2(tmp_path: Path) -> None:
    """3acd176 timed the CPU cells beside six refused ones, and exited with 0."""
    words = ("run", "distinct", "p64", "b8", "--suite", "kernels", "--seconds", "0.05")
    done = pagebench(NO_DRIVER, *words, "--out", str(tmp_path / "a.jsonl"))
    assert done.returncode == 2
    assert "refused for want of a GPU: there is no NVIDIA GPU on this machine" in done.stderr
    assert "reference_distinct_p64" in done.stdout
    asked = pagebench(NO_DRIVER, *words, "--device", "cpu", "--out", str(tmp_path / "b.jsonl"))
    assert asked.returncode == 0
    assert "for want of a GPU" not in asked.stderr


def test_a_sentence_of_ones_own_kernel_counts_too() -> None:
    from pagebench.harness.cell import Cell
    from pagebench.harness.timing.refuse import lacks_gpu, refusal
    from pagebench.kernels.adapter import Refusal

    xqa, huge = Cell.parse("xqa_distinct_p16"), Cell.parse("xqa_distinct_p7")
    assert lacks_gpu(xqa, CPU, refusal(xqa, CPU))
    assert not lacks_gpu(huge, CPU, refusal(huge, CPU))
    gather = Cell.parse("gather_distinct_p16")
    assert not lacks_gpu(gather, CPU, refusal(gather, CPU))
    assert lacks_gpu(gather, CPU, Refusal("gather wants a card"))
