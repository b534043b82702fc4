"""What a first call needs besides the device, and the remedy for each thing that lacks."""

from __future__ import annotations

import os
import re
import shutil
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from pagebench.kernels.device import Device, torch_without_cuda

PARAMS = Path("/proc/driver/nvidia/params")
CUDA_HOME = "/usr/local/cuda"
REQUIREMENT = re.compile(r"([\w.-]+?)\s*>=\s*([\d.]+)")


def first_call(device: Device) -> dict[str, str]:
    """What was found, and where something lacks, what to do."""
    return {
        "compiler": _compiler(),
        "counters": _permission(),
        "torch": _torch(device),
        **_packages(),
    }


def _compiler() -> str:
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), CUDA_HOME]
    paths = [f"{home}/bin/nvcc" for home in homes if home]
    found = next(filter(os.path.exists, paths), None) or shutil.which("nvcc")
    lacks = "no nvcc: kernels that FlashInfer compiles fail at their first call"
    return found or f"{lacks}; install the CUDA toolkit, or set CUDA_HOME to where it is"


def _permission() -> str:
    try:
        lines = PARAMS.read_text().splitlines()
    except OSError:
        return "not known: the driver's parameters cannot be read"
    if "RmProfilingAdminOnly: 0" in lines:
        return "all users may count"
    if "RmProfilingAdminOnly: 1" not in lines:
        return "not known: the driver does not say who may count"
    if os.geteuid() == 0:
        return "only administrators may count; in a container this also needs CAP_SYS_ADMIN"
    remedy = "options nvidia NVreg_RestrictProfilingToAdminUsers=0"
    return f"only administrators may count: run as root, or put '{remedy}' into /etc/modprobe.d"


def _torch(device: Device) -> str:
    try:
        found = version("torch")
    except PackageNotFoundError:
        return "not installed: pip install torch"
    if torch_without_cuda() and (device.kind == "cuda" or device.is_broken):
        return f"{found} was built without CUDA: install a build from download.pytorch.org/whl"
    return found


def _packages() -> dict[str, str]:
    """Those of the extra `gpu`, by name."""
    wanted = [each for each in requires("pagebench") or () if 'extra == "gpu"' in each]
    found = [match for each in wanted if (match := REQUIREMENT.match(each))]
    return {match[1]: _package(match[1], match[2]) for match in found}


def _package(name: str, least: str) -> str:
    remedy = f"pip install '{name}>={least}'"
    try:
        found = version(name)
    except PackageNotFoundError:
        return f"not installed: {remedy}"
    return found if _number(found) >= _number(least) else f"{found} is too old: {remedy}"


def _number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3])
