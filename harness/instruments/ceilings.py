"""Measure this GPU's ceilings with probes that are shown to saturate."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagebench.harness.counting.predict import State
from pagebench.harness.records import store
from pagebench.harness.timing.clocks.sampling import EventClock, Rule, measure, warm_up
from pagebench.harness.timing.measure import Session, free_bytes
from pagebench.harness.timing.stats import summarise
from pagebench.kernels.device import Device, multiprocessors
from pagebench.kernels.probes import ceilings as probes
from pagebench.kernels.probes.cubin import Module, compile_cubin
from pagebench.profiles.ceilings import (
    CEILINGS_SCHEMA,
    FLOP_AN_FFMA,
    FLOP_AN_MMA,
    Ceilings,
    CriticalPath,
    critical_path,
    is_saturated,
    launch_entry,
    rate_entry,
    read_ceilings,
)
from pagebench.profiles.counters import median_of

if TYPE_CHECKING:
    from torch import Tensor

SIZES = tuple(2**power for power in range(22, 34))  # 4 MB to 8.6 GB
# The DRAM probe: float32 elements that a program reads at a time, and programs an SM. Short reads
# need small tiles to reach every SM, long ones large tiles to keep the DRAM busy.
SHORT_BELOW = 2**27
SHORT_PROBES = (2048, (8, 16, 32))
LONG_PROBES = (8192, (2, 4, 8))
NEARLY_ALL = 0.95  # of a call's instructions: then its first kernel's rates are the call's
RULE = Rule(least=20, seconds=0.2)
WARM_UP_S = 0.03
# The ceilings of instructions: the probe's kernel, and what one of its instructions counts for.
COMPUTE = {
    "issue_ginst": ("ceil_issue", 1),
    "fma_gflops": ("ceil_fma", FLOP_AN_FFMA),
    "matrix_gflops": ("ceil_matrix", FLOP_AN_MMA),
}


def measure_ceilings(device: Device, progress: Callable[[str], None]) -> dict[str, Any]:
    """A ceilings record. ValueError, in one line, where there is no GPU, no Triton or no nvcc."""
    if device.kind != "cuda" or device.capability is None:
        raise ValueError(
            "ceilings are a GPU's; there is none here: those of another machine are read from its "
            "file, by `pagebench show NAME FILE...` or --counters of judge and dose"
        )
    if find_spec("triton") is None:
        raise ValueError("the DRAM probe needs Triton: pip install triton")
    with tempfile.TemporaryDirectory() as scratch:
        try:
            cubin = compile_cubin(probes.SOURCE, device.capability, Path(scratch))
            session = Session(device)
            module = Module(cubin)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
    return {
        "kind": "ceilings",
        "schema": CEILINGS_SCHEMA,
        "gpu": device.name,
        "launch_us": _launch(session, module, progress),
        "l2_read_gbps": _l2_read(session, module, progress),
        **{name: _compute(session, module, name, progress) for name in COMPUTE},
        "dram_read": _dram_read(session, progress),
        "environment": session.facts_now(),
    }


def _launch(session: Session, module: Module, progress: Callable[[str], None]) -> dict[str, Any]:
    times = {n: _time_us(session, probes.empty(module, n), "warm")[0] for n in probes.LAUNCHES}
    entry = launch_entry(times)
    progress(f"launch_us: {entry['first']}, each further {entry['further']}")
    return entry


def _l2_read(session: Session, module: Module, progress: Callable[[str], None]) -> dict[str, Any]:
    import torch

    device = session.device.torch_name
    size = torch.cuda.get_device_properties(device).L2_cache_size // probes.L2_SHARE
    window = torch.ones(size // 4, device=device)
    sink = torch.zeros(1, device=device)
    count = multiprocessors(device)
    by_warps = {
        warps: _rate(session, probes.l2_read(module, count, warps, window, sink))
        for warps in probes.l2_warps(count, window.nbytes)
    }
    return _told("l2_read_gbps", by_warps, progress) | {"window_bytes": window.nbytes}


def _compute(
    session: Session, module: Module, name: str, progress: Callable[[str], None]
) -> dict[str, Any]:
    import torch

    device = session.device.torch_name
    kernel, flop = COMPUTE[name]
    sink = torch.zeros(1, device=device)
    count = multiprocessors(device)
    by_warps = {
        warps: flop * _rate(session, probes.instructions(module, kernel, count, warps, sink))
        for warps in probes.WARPS[kernel]
    }
    return _told(name, by_warps, progress)


def _told(name: str, by_warps: dict[int, float], progress: Callable[[str], None]) -> dict[str, Any]:
    entry = rate_entry(by_warps)
    progress(f"{name}: {entry['value']:,.0f}")
    return entry


def _rate(session: Session, probe: probes.Probe) -> float:
    """Work a nanosecond, the clock's floor taken off: the launch is a term of its own."""
    time_us, floor_us = _time_us(session, probe.run, "warm")
    return probe.work / (time_us - floor_us) / 1e3


def _time_us(session: Session, run: Callable[[], object], l2: str) -> tuple[float, float]:
    """Median by events, and the clock's floor."""
    warm_up(run, session.monitor, session.synchronise, WARM_UP_S)
    prepare = session.prepare(l2, run)
    samples = measure(EventClock(), run, prepare, session.monitor, RULE)
    return summarise(samples.time_us, find_modes=False).median_us, samples.floor_us


def _dram_read(session: Session, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """The best bandwidth at each size that memory holds, over programs, and if it saturates."""
    import torch

    free = free_bytes(session.device) or 0
    sizes = [size for size in SIZES if size <= free // 2]
    source = torch.randn(max(sizes) // 4, device=session.device.torch_name)
    curve = []
    for size in sizes:
        tile, programs = SHORT_PROBES if size < SHORT_BELOW else LONG_PROBES
        calls = [probe(source[: size // 4], tile, count) for count in programs]
        gbps = [size / _time_us(session, call, "cold")[0] / 1e3 for call in calls]
        progress(f"dram_read of {size / 1e6:,.0f} MB: {max(gbps):,.0f} GB/s")
        curve.append(
            {"bytes_read": size, "gbps": round(max(gbps), 1), "saturated": is_saturated(gbps)}
        )
    return curve


def probe(source: Tensor, tile: int, programs_an_sm: int) -> Callable[[], object]:
    """A call that reads `source`, float32 [n], once."""
    import torch

    from pagebench.kernels.probes.stream import stream_read

    count, device = len(source), source.device
    programs = min(-(-count // tile), max(1, multiprocessors(device)) * programs_an_sm)
    sums = torch.empty(programs, device=device)
    return lambda: stream_read[(programs,)](source, sums, count, TILE=tile, num_warps=4)


Lines = Iterable[Mapping[str, Any]]


def newest_ceilings(environment: Mapping[str, Any], lines: Lines) -> Ceilings | None:
    """The last of that GPU's ceilings records, else of its model's, if there is one."""
    found = store.of_gpu(lines, environment)
    return read_ceilings(found[-1]) if found else None


def diagnose(
    counters: Mapping[str, Any], state: State, time_us: float, ceilings: Lines
) -> CriticalPath | None:
    """What binds a call that took `time_us` in that state.

    `ceilings` are records: its own GPU's come before others of the model. None where counters or
    ceilings of the same model, or counters of the same state of the cache, are missing.
    """
    if not state.holds(counters):
        return None
    found, kernels = newest_ceilings(state.environment, ceilings), counters["kernels"]
    if found is None:
        return None
    return critical_path(counters["total"], len(kernels), found, time_us, _l2_slice(kernels))


def _l2_slice(kernels: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """How busy the L2 slices were in the call's first kernel, if that is nearly all of the call."""
    share = median_of(kernels[0], "l2_slice_pct")
    executed = [(each["values"].get("instructions") or [None])[0] for each in kernels]
    if share is None or None in executed:
        return None
    if executed[0] < NEARLY_ALL * sum(executed):
        return None
    return {"value": share, "stable": "l2_slice_pct" not in kernels[0].get("unstable", ())}
