"""Results files made up for comparisons: processes of a cell round given times. Nothing was
measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pagebench.harness.axes import Axes
from pagebench.harness.environment import Environment
from pagebench.harness.records import store
from pagebench.harness.records.base import Record
from pagebench.harness.records.counters import Counters, How, Kernel, PredictedCounters
from pagebench.harness.records.timing import Asked, Block, Samples, Timing

HERE = Environment(
    gpu="NVIDIA H200", uuid="GPU-11111111-2222", sm_count=132, capability=(9, 0), mig=False,
    driver="580.1", cuda="13.0", power_limit_w=700.0, ecc=True, memory_bus_bits=6144,
    versions={"torch": "2.13.0", "triton": "3.9.0"}, variables={}, commit="a" * 40,
    other_processes=0, flush_bytes=2**28,
)  # fmt: skip
CELL = "mine_distinct_p16"
AXES = Axes(
    kernel="mine", sharing="distinct", placement="contiguous", page_size=16, batch=8,
    kv_len=4096, ragged_percent=0, seed=0, table_tokens=4096, q_heads=16, kv_heads=8,
    head_dim=128, dtype="bf16", kv_layout="NHD", planted_loads=0, planted_ns=0,
)  # fmt: skip
NOISE = (0.0004, -0.0011, 0.0007, 0.0, -0.0003)  # between processes
SAME_CODE, OTHER_CODE = "cubin:1111", "cubin:2222"


def timing(time_us: float, process: int = 0, cell: str = CELL, **fields: Any) -> Timing:
    """One process: 40 samples round that time, at 1980 MHz."""
    told: dict[str, Any] = {
        "boundary": "run", "clock": "events", "l2": "cold", "status": "measured", "axes": AXES,
        "device": "cuda", "asked": Asked(seconds=2.0, device="cuda:0"), "process": process,
        "started": f"2026-12-01T10:00:{process:02}+00:00", "environment": HERE,
        "samples": samples(time_us), "resolved": {"kernel": "k", "splits": 4},
        "binary": SAME_CODE,
    }  # fmt: skip
    return Timing(cell=cell, **told | fields)


def samples(*levels_us: float, mhz: int = 1980, throttle: tuple[str, ...] = ()) -> Samples:
    """Samples in turn round each of the levels."""
    count = 40
    times = [levels_us[i % len(levels_us)] * (1 + 0.0005 * (i % 7)) for i in range(count)]
    block = Block(0, sm_mhz=mhz, memory_mhz=3201, throttle=throttle, spin_mhz=mhz)
    return Samples(time_us=tuple(times), floor_us=2.5, blocks=(block,), stopped="samples")


def side(time_us: float, cell: str = CELL, *, count: int = 5, **fields: Any) -> list[Timing]:
    """Processes with the usual noise between them."""
    return [timing(time_us * (1 + NOISE[n % 5]), n, cell, **fields) for n in range(count)]


def later(timings: Sequence[Timing]) -> list[Timing]:
    """The same on the next day."""
    return [replace(each, started=each.started.replace("12-01", "12-02")) for each in timings]


def failed(status: str, process: int = 9, **fields: Any) -> Timing:
    """A process without times."""
    told = {"samples": None, "status": status, "reason": f"{status} on purpose"}
    return timing(1.0, process, **told | fields)


def counters(registers: int = 128, symbols: Sequence[str] = ("k",), **counts: float) -> Counters:
    """Counters of the cell, each count the same in two launches, in every kernel."""
    values = {name: (value, value) for name, value in counts.items()}
    kernels = [
        Kernel(symbol=symbol, grid="(8, 1, 1)", block="(128, 1, 1)",
               launch={"registers": registers, "shared_bytes": 1024}, values=values)
        for symbol in symbols
    ]  # fmt: skip
    predicted = PredictedCounters(
        index_entries=1, distinct_kv_bytes=1, read_kv_bytes=1, compulsory_bytes=1, flop=1
    )
    how = How(chip="gh100", launches=2, l2="cold")
    return Counters(
        cell=CELL, axes=AXES, predicted=predicted, kernels=tuple(kernels), how=how,
        environment=HERE,
    )  # fmt: skip


def written(path: Path, *records: Record) -> Path:
    store.append(path, *records)
    return path
