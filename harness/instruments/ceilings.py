"""Measure this GPU's ceilings with probes, and check that the probes saturate."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pagebench.harness.errors import UserError, as_user_error
from pagebench.harness.progress import Progress
from pagebench.harness.records.ceilings import ByWarps, Launches, MeasuredCeilings
from pagebench.harness.timing.clocks.events import EventClock
from pagebench.harness.timing.clocks.sampling import Rule, measure, warm_up
from pagebench.harness.timing.refuse import free_bytes
from pagebench.harness.timing.session import Session
from pagebench.harness.timing.stats import summarise
from pagebench.kernels.device import Device, multiprocessors
from pagebench.kernels.probes import ceilings as probes
from pagebench.kernels.probes.cubin import Module, compile_cubin
from pagebench.profiles.ceilings import (
    FLOP_AN_FFMA,
    FLOP_AN_MMA,
    Point,
    is_saturated,
    launches_saturated,
)

if TYPE_CHECKING:
    from torch import Tensor

SIZES = tuple(2**power for power in range(22, 34))  # 4 MB to 8.6 GB
# The DRAM probe: float32 elements that a program reads at a time, and programs per SM. Short reads
# need small tiles to reach every SM, long reads need large tiles to keep the DRAM busy.
SHORT_BELOW = 2**27
SHORT_PROBES = (2048, (8, 16, 32))
LONG_PROBES = (8192, (2, 4, 8))
RULE = Rule(least=20, seconds=0.2)
WARM_UP_S = 0.03
# The ceilings of instructions: the probe's kernel, and the FLOP (or 1) of one of its instructions.
COMPUTE = {
    "issue_ginst": ("ceil_issue", 1),
    "fma_gflops": ("ceil_fma", FLOP_AN_FFMA),
    "matrix_gflops": ("ceil_matrix", FLOP_AN_MMA),
}


def measure_ceilings(device: Device, progress: Progress) -> MeasuredCeilings:
    """Measure all ceilings of a GPU. UserError where there is no GPU, no Triton or no nvcc."""
    if device.kind != "cuda" or device.capability is None:
        raise UserError(
            "ceilings need an NVIDIA GPU; those of another machine are read from its results file "
            "by `pagebench show NAME FILE...`, or with --counters of judge and dose"
        )
    if find_spec("triton") is None:
        raise UserError("the DRAM probe needs Triton: pip install triton")
    with tempfile.TemporaryDirectory() as scratch, as_user_error(RuntimeError):  # torch's own too
        cubin = compile_cubin(probes.SOURCE, device.capability, Path(scratch))
        session = Session(device)
        module = Module(cubin)

    def compute(name: str) -> ByWarps:
        return _compute(session, module, name, progress)

    return MeasuredCeilings(
        gpu=device.name,
        launch_us=_launch(session, module, progress),
        l2_read_gbps=_l2_read(session, module, progress),
        issue_ginst=compute("issue_ginst"),
        fma_gflops=compute("fma_gflops"),
        matrix_gflops=compute("matrix_gflops"),
        dram_read=_dram_read(session, progress),
        environment=session.environment_now(),
    )


def _launch(session: Session, module: Module, progress: Progress) -> Launches:
    found = launches(
        {n: _time_us(session, probes.empty(module, n), "warm")[0] for n in probes.LAUNCHES}
    )
    progress(f"launch_us: {found.first}, each further {found.further}")
    return found


def launches(us_by_launches: Mapping[int, float]) -> Launches:
    """Launch cost in us by the number of launches of a call, and whether it saturates."""
    return Launches(
        by_launches={count: round(us, 3) for count, us in us_by_launches.items()},
        saturated=launches_saturated(us_by_launches),
    )


def _l2_read(session: Session, module: Module, progress: Progress) -> ByWarps:
    import torch

    device = session.device.torch_name
    size = torch.cuda.get_device_properties(device).L2_cache_size // probes.L2_SHARE
    window = torch.ones(size // 4, device=device)
    sink = torch.zeros(1, device=device)
    count = multiprocessors(device)
    reached = {
        warps: _rate(session, probes.l2_read(module, count, warps, window, sink))
        for warps in probes.l2_warps(count, window.nbytes)
    }
    found = by_warps(reached, window.nbytes)
    progress(f"l2_read_gbps: {found.value:,.0f}")
    return found


def _compute(session: Session, module: Module, name: str, progress: Progress) -> ByWarps:
    import torch

    device = session.device.torch_name
    kernel, flop = COMPUTE[name]
    sink = torch.zeros(1, device=device)
    count = multiprocessors(device)
    found = by_warps(
        {
            warps: flop * _rate(session, probes.instructions(module, kernel, count, warps, sink))
            for warps in probes.WARPS[kernel]
        }
    )
    progress(f"{name}: {found.value:,.0f}")
    return found


def by_warps(reached: Mapping[int, float], window_bytes: int | None = None) -> ByWarps:
    """A rate in G per second by warps per SM, and whether the probe saturates."""
    return ByWarps(
        by_warps={warps: round(value, 1) for warps, value in reached.items()},
        saturated=is_saturated([reached[warps] for warps in sorted(reached)]),
        window_bytes=window_bytes,
    )


def _rate(session: Session, probe: probes.Probe) -> float:
    """Work per nanosecond without the clock's floor, because the launch is a separate term."""
    time_us, floor_us = _time_us(session, probe.run, "warm")
    return probe.work / (time_us - floor_us) / 1e3


def _time_us(session: Session, run: Callable[[], object], l2: str) -> tuple[float, float]:
    """The median time and the clock's floor, both in us by CUDA events."""
    warm_up(run, session.monitor, session.synchronise, WARM_UP_S)
    prepare = session.prepare(l2, run)
    samples = measure(EventClock(), run, prepare, session.monitor, RULE)
    return summarise(samples.time_us, find_modes=False).median_us, samples.floor_us


def _dram_read(session: Session, progress: Progress) -> tuple[Point, ...]:
    """The best bandwidth over numbers of programs, at each size that fits half the free memory."""
    import torch

    free = free_bytes(session.device) or 0
    sizes = [size for size in SIZES if size <= free // 2]
    source = torch.randn(max(sizes) // 4, device=session.device.torch_name)
    return tuple(_point(session, source[: size // 4], progress) for size in sizes)


def _point(session: Session, source: Tensor, progress: Progress) -> Point:
    size = source.nbytes
    tile, programs = SHORT_PROBES if size < SHORT_BELOW else LONG_PROBES
    calls = [probe(source, tile, count) for count in programs]
    gbps = [size / _time_us(session, call, "cold")[0] / 1e3 for call in calls]
    progress(f"dram_read of {size / 1e6:,.0f} MB: {max(gbps):,.0f} GB/s")
    return Point(size, round(max(gbps), 1), is_saturated(gbps))


def probe(source: Tensor, tile: int, programs_an_sm: int) -> Callable[[], object]:
    """A call that reads `source`, float32 [n], once."""
    import torch

    from pagebench.kernels.probes.stream import stream_read

    count, device = len(source), source.device
    programs = min(-(-count // tile), max(1, multiprocessors(device)) * programs_an_sm)
    sums = torch.empty(programs, device=device)
    return lambda: stream_read[(programs,)](source, sums, count, TILE=tile, num_warps=4)
