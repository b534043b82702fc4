"""What a number depends on besides its cell: device, clocks, versions, commit, neighbours."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from msgspec import Struct

from pagebench.kernels.device import Device
from pagebench.kernels.nvml import NVML_CLOCK_MEM, NVML_CLOCK_SM, watched
from pagebench.profiles.dram import nominal_dram_gbps

# Code in a process of its own. Without -P it would import a folder named torch from where it runs.
PYTHON = (sys.executable, "-P", "-c")
# The command line in such a process: its script need not be on the PATH.
PAGEBENCH = (*PYTHON, "from pagebench.harness.cli.main import main; main()")
PACKAGES = {
    "pagebench": "pagebench",
    "torch": "torch",
    "triton": "triton",
    "flashinfer": "flashinfer-python",
    "cupti": "cupti-python",
}
BUSY = 1.5  # load per core above which other work was running
CHANGES_SPEED = re.compile(
    r"(CUDA|CUDNN|CUBLAS|CUBLASLT|CUTLASS|CUTE|TRITON|FLASHINFER|NVCC|TORCHINDUCTOR|XQA)_"
    r"|NVIDIA_TF32_OVERRIDE$|PYTORCH_\w*ALLOC|TORCH_(CUDA|ALLOW|COMPILE|CUDNN|BLAS)\w*"
    r"|(OMP|MKL|OPENBLAS|NUMEXPR)_NUM_THREADS$|(OMP|KMP|GOMP)_\w+|MALLOC_\w+|LD_PRELOAD$"
)
# These choose a device or a place; the device that was chosen stands in the record.
ONLY_CHOOSE = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_VERSION"}
PATH = re.compile(r"(?:~|file:/)?/[^\s:;,=]*")
# Written by `make offline-bundle`, for a machine that has the tree but not its .git.
COMMIT_FILE = Path(".gpubox/commit")


class Environment(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The machine, the software and the neighbours. Fields that are unknown, or do not apply to
    this kind of device, are absent.

    `flush_bytes` is what the flush reads; `other_processes` and `load` are read at each record.
    `mig_slice` is the slice's profile (`1g.18gb`). `integrated` says that the GPU uses the memory
    of the machine, `processes_hidden` that other users of the GPU cannot be seen; then
    `bytes_used_before` and `percent_busy_before` say how it was before this process used it.
    `variables` are those of the process that change speed.
    """

    versions: Mapping[str, str] = {}
    commit: str | None = None
    dirty: bool | None = None
    os: str | None = None
    gpu: str | None = None
    uuid: str | None = None
    capability: tuple[int, int] | None = None
    sm_count: int | None = None
    driver: str | None = None
    cuda: str | None = None
    memory_bus_bits: int | None = None
    max_memory_mhz: int | None = None
    max_sm_mhz: int | None = None
    nominal_dram_gbps: float | None = None
    power_limit_w: float | None = None
    ecc: bool | None = None
    mig: bool | None = None
    mig_slice: str | None = None
    integrated: bool | None = None
    flush_bytes: int | None = None
    other_processes: int | None = None
    processes_hidden: bool | None = None
    bytes_used_before: int | None = None
    percent_busy_before: int | None = None
    cpu: str | None = None
    cores: int | None = None
    torch_threads: int | None = None
    load: float | None = None
    variables: Mapping[str, str] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether other work was running on the cores; False where that is unknown."""
        return bool(self.load and self.cores and self.load > BUSY * self.cores)

    @property
    def gpu_name(self) -> str:
        """The first 12 characters of a GPU's UUID, enough to distinguish it; empty for a CPU."""
        return (self.uuid or "")[:12]


@cache
def versions() -> dict[str, str]:
    """Installed versions of Python and PACKAGES; packages that are not installed are left out."""
    found = {"python": platform.python_version()}
    for name, package in PACKAGES.items():
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            continue
    return found


def variables(given: Mapping[str, str]) -> dict[str, str]:
    """Variables that change speed, by name. Of a path only the last part is kept: the rest names
    users and machines."""
    wanted = (name for name in sorted(given) if CHANGES_SPEED.match(name))
    return {name: _unplaced(given[name]) for name in wanted if name not in ONLY_CHOOSE}


def _unplaced(value: str) -> str:
    """The value with every absolute path in it cut to its last part; `set` where none is left."""
    kept = PATH.sub(lambda path: path[0].rstrip("/").rpartition("/")[2], value)
    return kept or ("set" if value else "")


@cache
def commit() -> dict[str, Any]:
    """`commit` and `dirty` of the tree that holds this module, from git or the bundle's note."""
    root = Path(__file__).resolve().parent.parent
    head = _git(root, "rev-parse", "HEAD")
    if head and _git(root, "rev-parse", "--show-toplevel") == str(root):
        return {"commit": head, "dirty": bool(_git(root, "status", "--porcelain"))}
    note = root / COMMIT_FILE
    if note.is_file():
        head, _, state = note.read_text().strip().partition(" ")
        return {"commit": head, "dirty": state == "dirty"}
    return {"commit": None, "dirty": None}


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def environment(device: Device) -> Environment:
    """Everything that stays the same while a worker lives."""
    facts = _cpu() if device.kind == "cpu" else gpu_facts(device)
    system = f"{platform.system()} {platform.machine()}"
    return Environment(
        versions=versions(), **commit(), os=system, variables=variables(os.environ), **facts
    )


def environment_seen(device: Device) -> Environment:
    """The part of it that is known without torch: what another process would measure with."""
    facts = {"cpu": _cpu_name()} if device.kind == "cpu" else gpu_facts(device)
    return Environment(versions=versions(), variables=variables(os.environ), **facts)


def _cpu() -> dict[str, Any]:
    import torch

    cores = len(os.sched_getaffinity(0))
    return {"cpu": _cpu_name(), "cores": cores, "torch_threads": torch.get_num_threads()}


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def gpu_facts(device: Device) -> dict[str, Any]:
    """Name, UUID, driver, clocks, power limit, ECC and MIG, through NVML.

    Without NVML, what was found with the device.
    """
    known = {"gpu": device.name, "uuid": device.uuid or None, "capability": device.capability}
    seen = watched(device)
    if seen is None:
        return known
    nvml, gpu = seen
    bus = nvml.read("nvmlDeviceGetMemoryBusWidth", gpu.whole)
    clock = nvml.read("nvmlDeviceGetMaxClockInfo", gpu.whole, NVML_CLOCK_MEM)
    milliwatts = nvml.read("nvmlDeviceGetEnforcedPowerLimit", gpu.whole)
    ecc, mig = nvml.read("nvmlDeviceGetEccMode", gpu.whole), nvml.is_cut(gpu.whole)
    # A slice has a part of the bandwidth, and NVML does not say which.
    whole = bus and clock and not mig and not gpu.is_slice
    return known | {
        "uuid": gpu.uuid or None,
        "driver": nvml.read("nvmlSystemGetDriverVersion"),
        "cuda": _cuda(nvml.read("nvmlSystemGetCudaDriverVersion")),
        "memory_bus_bits": bus,
        "max_memory_mhz": clock,
        "max_sm_mhz": nvml.read("nvmlDeviceGetMaxClockInfo", gpu.whole, NVML_CLOCK_SM),
        "nominal_dram_gbps": nominal_dram_gbps(bus, clock) if whole else None,
        "power_limit_w": milliwatts / 1000 if milliwatts else None,
        "ecc": None if ecc is None else bool(ecc[0]),
        "mig_slice": nvml.profile(gpu),
        "mig": mig or (True if gpu.is_slice else mig),
    }


def bandwidth_of(device: Device) -> float | None:
    """Nominal DRAM bandwidth in GB/s; None for a CPU, or where NVML is missing or cannot tell."""
    found = None if device.kind == "cpu" else gpu_facts(device).get("nominal_dram_gbps")
    return None if found is None else float(found)


def _cuda(number: int | None) -> str | None:
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def neighbours(device: Device) -> dict[str, Any]:
    """How many processes outside this run's process group have work on the GPU, as fields of an
    environment. This process must have a context there.

    Where NVML does not list this process, they are hidden, as in a container: nobody can be seen.
    """
    seen = watched(device)
    found = seen and seen[0].read("nvmlDeviceGetComputeRunningProcesses", seen[1].handle)
    pids = [process.pid for process in found or ()]
    if os.getpid() not in pids:
        return {"other_processes": None, "processes_hidden": True}
    return {"other_processes": sum(not _is_ours(pid) for pid in pids)}


def usage(device: Device) -> dict[str, int | None]:
    """What the GPU is doing, as fields of an environment: asked before this process uses it."""
    seen = watched(device)
    if seen is None:
        return {}
    nvml, gpu = seen
    memory = nvml.read("nvmlDeviceGetMemoryInfo", gpu.handle)
    rates = nvml.read("nvmlDeviceGetUtilizationRates", gpu.whole)
    return {
        "bytes_used_before": None if memory is None else int(memory.used),
        "percent_busy_before": None if rates is None else int(rates.gpu),
    }


def _is_ours(pid: int) -> bool:
    try:
        return os.getpgid(pid) == os.getpgrp()
    except OSError:
        return False
