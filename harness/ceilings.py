"""Measure this GPU's ceilings with probes that are shown to saturate."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pagebench.harness import store
from pagebench.harness.clock import EventClock, Rule, measure, warm_up
from pagebench.harness.run import Session
from pagebench.harness.stats import summarise
from pagebench.kernels.device import Device, multiprocessors
from pagebench.profiles.ceilings import Point, bandwidth_at, is_saturated

CEILINGS_SCHEMA = 1
SIZES = tuple(2**power for power in range(24, 34))  # 17 MB to 8.6 GB
TILES = (2048, 4096, 8192)  # float32 elements a program reads at a time
PROGRAMS_A_SM = 8


def dram_curve(device: Device, progress: Callable[[str], None]) -> dict[str, Any]:
    """A ceilings record: the best bandwidth at each size, over tile sizes, and if it saturates.

    Raises ValueError where there is no GPU or no Triton.
    """
    if device.kind != "cuda":
        raise ValueError("ceilings are a GPU's; there is none here")
    session = Session(device)
    points = []
    for size in SIZES:
        by_tile = [_gbps(session, size, tile) for tile in TILES]
        points.append(Point(size, max(by_tile), is_saturated(by_tile)))
        progress(f"{size / 1e6:,.0f} MB: {max(by_tile):,.0f} GB/s")
    return {
        "kind": "ceilings",
        "schema": CEILINGS_SCHEMA,
        "gpu": device.name,
        "dram_read": [
            {"bytes_read": p.bytes_read, "gbps": round(p.gbps, 1), "saturated": p.saturated}
            for p in points
        ],
        "tiles": list(TILES),
        "environment": session.facts_now(),
    }


def _gbps(session: Session, size: int, tile: int) -> float:
    """Bandwidth of one probe, by events from a cold cache."""
    run = probe(size, tile, session.device.torch_name)
    warm_up(run, session.monitor, session.synchronise)
    flush = session.prepare("cold", run)
    samples = measure(EventClock(), run, flush, session.monitor, Rule(least=20, seconds=0.5))
    return size / summarise(samples.time_us, find_modes=False).median_us / 1e3


def probe(size: int, tile: int, device: str) -> Callable[[], object]:
    """A call that reads `size` bytes once."""
    import torch

    from pagebench.kernels.triton_probe import stream_read

    count = size // 4
    source = torch.randn(count, device=device)
    programs = min(-(-count // tile), max(1, multiprocessors(device)) * PROGRAMS_A_SM)
    sums = torch.empty(programs, device=device)
    return lambda: stream_read[(programs,)](source, sums, count, TILE=tile, num_warps=4)


def newest_points(gpu: str, files: Iterable[Path]) -> list[Point]:
    """The newest measured curve of that GPU model in the files; empty where there is none."""
    found: list[Point] = []
    for line in store.read_kind(files, "ceilings"):
        if line["gpu"] == gpu:
            found = [Point(**point) for point in line["dram_read"]]
    return found


__all__ = ["bandwidth_at", "dram_curve", "newest_points", "probe"]
