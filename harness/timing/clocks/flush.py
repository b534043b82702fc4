"""Emptying the last-level cache."""

from __future__ import annotations

from pathlib import Path

from pagebench.harness.timing.clocks.sampling import Run

FLUSH_OVER_CACHE = 4  # a partitioned L2 holds lines twice, and replacement is not exact
LEAST_CPU_FLUSH, MOST_CPU_FLUSH = 64 << 20, 512 << 20


def make_flush(device_kind: str) -> tuple[Run, int]:
    """A call that empties the last-level cache, and the bytes it reads.

    It only reads, so it leaves no dirty lines whose write-back would be charged to the next call.
    """
    import torch

    if device_kind == "cuda":
        size = FLUSH_OVER_CACHE * torch.cuda.get_device_properties().L2_cache_size
    else:
        size = min(max(2 * _cpu_cache_bytes(), LEAST_CPU_FLUSH), MOST_CPU_FLUSH)
    buffer = torch.zeros(size // 4, dtype=torch.float32, device=device_kind)
    total = torch.zeros((), dtype=torch.float32, device=device_kind)
    return lambda: torch.sum(buffer, dim=0, out=total), size


def _cpu_cache_bytes() -> int:
    """The largest cache of the first core in bytes, from sysfs; 0 where unknown."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text.rstrip("KM")) << (20 if text.endswith("M") else 10))
    return max(sizes)
