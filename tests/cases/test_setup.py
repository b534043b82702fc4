"""What a first call needs, and what setting a machine up does when it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes import ROOT
from fakes.nvml import A100, H200, Gpu, install, processes
from pagebench.harness import environment as facts
from pagebench.harness.environment import gpu_facts, neighbours, usage
from pagebench.harness.instruments import first_call, offline
from pagebench.harness.timing.refuse import free_bytes, refuse_memory
from pagebench.kernels.device import CPU, Device, find_device

GB = 10**9
CLOCKED = {"nvmlDeviceGetMemoryBusWidth": 5120, "nvmlDeviceGetMaxClockInfo": 1593}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a machine in this process: takes what `install` takes."""
    monkeypatch.setattr(os.path, "exists", os.path.exists)
    monkeypatch.setitem(sys.modules, "pynvml", sys)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return install


# --- Memory that is the machine's -----------------------------------------------------------------


@pytest.mark.parametrize(("integrated", "fits"), [(1, True), (0, False)])
def test_memory_that_gives_way_is_free_where_the_gpu_uses_the_machines(
    integrated: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3acd176 refused 9 GB where 23 were available, because CUDA counts the page cache as used."""
    import torch

    properties = SimpleNamespace(is_integrated=integrated)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (GB // 1000, 128 * GB))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    gpu = Device("cuda", "NVIDIA GB10", 0, (12, 1))
    assert free_bytes(gpu) == pytest.approx(free_bytes(CPU) if fits else GB // 1000, rel=0.2)
    assert (refuse_memory(GB // 500, gpu) is None) is fits


# --- Slices ---------------------------------------------------------------------------------------


def cut(uuid: str) -> tuple[Gpu, Gpu]:
    whole = Gpu(A100.uuid, A100.name, (8, 0), {**CLOCKED, "nvmlDeviceGetMigMode": [1, 1]})
    return whole, Gpu(uuid, f"{A100.name} MIG 2g.20gb", (8, 0), parent=whole.uuid)


@pytest.mark.parametrize("listed", ["0", A100.uuid, "MIG-7777", None])
def test_a_slice_has_no_nominal_bandwidth_and_is_named(
    listed: str | None, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3acd176 compared a slice that the index 0 opens with the whole GPU's bandwidth."""
    whole, part = cut("MIG-7777aaaa-0000-0000-0000-000000000007")
    here((whole,), (part,))
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    found = gpu_facts(find_device())
    assert found["nominal_dram_gbps"] is None
    assert (found["mig"], found["mig_slice"], found["uuid"]) == (True, "2g.20gb", part.uuid)


def test_a_slice_that_nvml_does_not_list_has_no_nominal_bandwidth_either(here: Any) -> None:
    whole, _ = cut("MIG-7")
    here((whole,))
    found = gpu_facts(find_device())
    assert (found["nominal_dram_gbps"], found["mig_slice"]) == (None, "not known")


def test_a_whole_gpu_keeps_its_bandwidth(here: Any) -> None:
    here((Gpu(H200.uuid, H200.name, answers={**CLOCKED, "nvmlDeviceGetMigMode": [0, 0]}),))
    found = gpu_facts(find_device())
    assert found["nominal_dram_gbps"] == pytest.approx(2039, abs=1)
    assert (found["mig"], found["mig_slice"]) == (False, None)


# --- Hidden processes -----------------------------------------------------------------------------

LIST = "nvmlDeviceGetComputeRunningProcesses"


@pytest.mark.parametrize("pids", [(), (1,), None], ids=["empty", "others only", "not answered"])
def test_a_list_without_our_own_context_shows_nobody_and_says_so(
    pids: tuple[int, ...] | None, here: Any
) -> None:
    """3acd176 read an empty list as nobody."""
    here((Gpu(H200.uuid, H200.name, answers={} if pids is None else {LIST: processes(*pids)}),))
    assert neighbours(find_device()) == {"other_processes": None, "processes_hidden": True}


def test_a_list_with_our_own_context_is_believed(here: Any) -> None:
    here((Gpu(H200.uuid, H200.name, answers={LIST: processes(os.getpid(), 1)}),))
    assert neighbours(find_device()) == {"other_processes": 1}


def test_memory_and_utilisation_are_told_where_processes_are_hidden(here: Any) -> None:
    from pagebench.harness.environment import Environment
    from pagebench.harness.show.neighbours import neighbours_of

    answers = {
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=12 * GB, total=141 * GB),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=40),
    }
    here((Gpu(H200.uuid, H200.name, answers=answers),))
    found = find_device()
    told = Environment(**neighbours(found), **usage(found))
    assert neighbours_of(told) == [
        "cannot see who else is on the GPU: before, 12.0 GB were in use and it was 40 % busy"
    ]
    assert facts.Environment().processes_hidden is None


# --- What a first call needs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "user", "said"),
    [
        ("RmProfilingAdminOnly: 1", 1000, "NVreg_RestrictProfilingToAdminUsers=0"),
        ("RmProfilingAdminOnly: 1", 0, "CAP_SYS_ADMIN"),
        ("RmProfilingAdminOnly: 0", 1000, "all users may count"),
        ("Other: 1", 1000, "not known"),
        (None, 1000, "not known"),
    ],
)
def test_who_may_count_is_read_from_the_driver(
    line: str | None, user: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3acd176's `doctor` said nothing of it."""
    params = tmp_path / "params"
    if line:
        params.write_text(f"Mobile: 0\n{line}\n")
    monkeypatch.setattr(first_call, "PARAMS", params)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert said in first_call.first_call(CPU)["counters"]


def test_a_missing_compiler_and_old_packages_come_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(first_call, "CUDA_HOME", str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    assert "set CUDA_HOME" in first_call.first_call(CPU)["compiler"]
    (tmp_path / "nvcc").touch(mode=0o755)
    assert first_call.first_call(CPU)["compiler"] == str(tmp_path / "nvcc")
    monkeypatch.setattr(first_call, "version", lambda name: "0.6.2+cpu")
    found = first_call.first_call(Device("cuda", "NVIDIA H200"))
    assert found["flashinfer-python"].startswith("0.6.2+cpu is too old: pip install 'flashinfer")
    assert "built without CUDA" in found["torch"]


# --- The bundle -----------------------------------------------------------------------------------


def test_wheels_are_those_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """3acd176 fetched wheels of x86_64 whatever the target."""
    said: list[list[str]] = []
    monkeypatch.setattr(offline.subprocess, "run", lambda words, check: said.append(words))
    offline._download(Path("wheels"), "3.12", ["msgspec"], "aarch64")
    (words,) = said
    asked = [word for flag, word in pairwise(words) if flag == "--platform"]
    assert asked
    assert all(word.endswith("_aarch64") for word in asked)
    assert "manylinux1_x86_64" in offline.platforms("x86_64")


def enter(box: Path) -> subprocess.CompletedProcess[str]:
    (box / "tmp").mkdir(exist_ok=True)
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", ". .gpubox/enter.sh && echo goes on"],
        cwd=box,
        env={**os.environ, "TMPDIR": str(box / "tmp")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A tree with a bundle whose only wheel is for a machine that does not exist."""
    wheels = tmp_path / ".gpubox" / "wheels"
    wheels.mkdir(parents=True)
    with zipfile.ZipFile(wheels / "odd-1.0-cp311-cp311-manylinux_2_28_sparc.whl", "w") as wheel:
        wheel.writestr("odd.py", "")
    (tmp_path / "tree").mkdir()
    packed = ["tar", "czf", ".gpubox/flashinfer-0.tgz", "tree"]
    subprocess.run(packed, cwd=tmp_path, check=True)
    (tmp_path / ".gpubox/commit").write_text("0 clean\n")
    (tmp_path / ".gpubox/enter.sh").write_text(offline.ENTER)
    return tmp_path


def test_a_set_up_that_failed_fails_again(box: Path) -> None:
    """3acd176 went on the second time: the failed set-up was marked as done."""
    for _ in range(2):
        done = enter(box)
        assert done.returncode != 0
        assert "goes on" not in done.stdout
        assert "could not be set up" in done.stderr
        assert not list((box / "tmp").rglob(".done"))


def test_a_bundle_of_another_machines_kind_says_so_before_pip_does(box: Path) -> None:
    (box / ".gpubox/machine").write_text("sparc\n")
    done = enter(box)
    assert done.returncode != 0
    assert "this bundle is for sparc" in done.stderr
    assert "TARGET_MACHINE=" in done.stderr


def test_a_python_that_is_too_old_is_named_before_anything_is_fetched(tmp_path: Path) -> None:
    """3acd176 fetched 4.6 GB first."""
    real = Path(sys.executable).resolve()
    (tmp_path / "bin").mkdir()
    old = tmp_path / "bin/python3"
    # A Python that says it is 3.10, and makes no environment.
    old.write_text(
        f'#!/bin/bash\n[ "$1" = -c ] || {{ echo "fetched"; exit 3; }}\n'
        f'exec {real} -c "import sys; sys.version_info = (3, 10, 9); $2"\n'
    )
    old.chmod(0o755)
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    (tmp_path / "pyproject.toml").touch()
    done = subprocess.run(
        ["make", "install"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{old.parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "pagebench needs Python 3.11 or newer; python3 is 3.10" in done.stderr
    assert "fetched" not in done.stdout
    assert not (tmp_path / ".venv").exists()


def test_links_for_the_type_checker_are_made_in_a_path_with_a_space(tmp_path: Path) -> None:
    """3acd176's `make check` failed there."""
    tree = tmp_path / "a tree"
    tree.mkdir()
    (tree / "Makefile").write_text((ROOT / "Makefile").read_text())
    subprocess.run(["make", "build/types"], cwd=tree, check=True, capture_output=True)
    assert (tree / "build/types/pagebench/kernels").readlink() == tree / "kernels"
