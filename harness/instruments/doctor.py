"""What this machine has and lacks, in words that a user can act on."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from typing import Any

import msgspec

from pagebench.harness.cell import Cell
from pagebench.harness.environment import Environment, environment
from pagebench.harness.instruments.first_call import first_call
from pagebench.harness.timing.monitor import Monitor
from pagebench.harness.timing.refuse import refusal
from pagebench.kernels.device import Device
from pagebench.kernels.registry import kernel_names

# Every kernel takes one of these page sizes, so what it still refuses is due to device or package.
PAGES = (64, 1)


def examine(device: Device) -> dict[str, dict[str, Any]]:
    """Sections of findings, each a name and what was found, as plain data for text and JSON."""
    block = Monitor(device).block(0)
    return {
        "device": {"device": str(device), **_why(device), **_flat(environment(device))},
        "now": {
            "SM clock MHz": block.sm_mhz or "not read",
            "memory clock MHz": block.memory_mhz or "not read",
            "throttled": ", ".join(block.throttle) or "no",
        },
        "kernels": {name: _verdict(name, device) for name in kernel_names()},
        "instruments": _instruments(device),
        "first call": first_call(device),
    }


def _why(device: Device) -> dict[str, str]:
    return {"no GPU": device.why} if device.why else {}


def _flat(facts: Environment) -> dict[str, Any]:
    """What is known of the machine, with one entry per version."""
    known: dict[str, Any] = msgspec.to_builtins(facts)
    versions = known.pop("versions", {})
    return known | {f"version of {name}": text for name, text in versions.items()}


def _verdict(name: str, device: Device) -> str:
    """`runs`, or the reason why not, first one that another page size would not change."""
    reasons = [refusal(Cell.parse(f"{name}_distinct_p{page}"), device) for page in PAGES]
    if None in reasons:
        return "runs"
    found = [reason for reason in reasons if reason]
    lasting = [reason for reason in found if reason.kind != "shape"]
    return str((lasting or found)[0])


def _instruments(device: Device) -> dict[str, str]:
    gpu = "usable" if device.kind == "cuda" else (device.why or "no NVIDIA GPU here")
    return {
        "wall clock": "usable",
        "events and graph clocks": gpu,
        "cupti clock": gpu if find_spec("cupti") else "cupti-python is not installed",
        "Nsight Compute": shutil.which("ncu") or "ncu is not on the PATH",
    }
