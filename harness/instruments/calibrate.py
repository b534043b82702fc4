"""Count kernels of known loads, to see what each counter includes on this GPU and ncu."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from pagebench.harness.counting.process import profiled
from pagebench.harness.counting.profile import COMPLAINTS, ncu_text
from pagebench.harness.environment import PYTHON, environment
from pagebench.harness.errors import UserError, as_user_error
from pagebench.harness.progress import Progress
from pagebench.harness.records.calibration import Calibration
from pagebench.kernels.device import Device
from pagebench.kernels.probes.calibration import (
    COUNTED,
    EXPECTED,
    READ_LOADS,
    SECTOR_BYTES,
    SECTORS,
    kernels_on,
)
from pagebench.profiles.counters import KernelRow
from pagebench.profiles.metrics import chip_of, names_on
from pagebench.profiles.ncu import Setting

# Counters of requests. Calibration finds out whether they include cp.async.
SEEN_OR_NOT = ("l1_requests",)
WANTED = (*COUNTED, *SEEN_OR_NOT, "l1_sectors", "l2_sectors", "dram_read_bytes")
Seen = dict[str, tuple[float, ...]]  # by counter, one value per launch


@as_user_error(*COMPLAINTS)
def calibrate(device: Device, progress: Progress) -> Calibration:
    """What each counter shows of every kernel, beside what it should show.

    UserError, with a remedy, where the kernels cannot be counted.
    """
    if device.kind != "cuda" or device.capability is None:
        raise UserError("calibration needs an NVIDIA GPU")
    chip = chip_of(device.capability)
    names = names_on(chip, WANTED)
    code = f"from pagebench.kernels.probes.calibration import main; main({device.index})"
    rows = profiled([*PYTHON, code], Setting(metrics=WANTED), names, progress).rows
    table = {kernel: _seen(kernel, rows, names) for kernel in kernels_on(device.capability)}
    uncounted = {name for seen in table.values() for name in names.keys() - seen.keys()}
    if uncounted:
        progress(f"ncu cannot count here: {', '.join(sorted(uncounted))}")
    return Calibration(
        gpu=device.name,
        chip=chip,
        ncu=ncu_text(),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        seen=table,
        expected={kernel: expected(kernel, seen) for kernel, seen in table.items()},
        environment=environment(device),
    )


def _seen(kernel: str, rows: Sequence[KernelRow], names: Iterable[str]) -> Seen:
    """Counters with a value in both launches of that kernel; UserError for another number."""
    mine = [row for row in rows if row.symbol.startswith(kernel)]
    if len(mine) != 2:
        raise UserError(f"calibration saw {len(mine)} launches of {kernel}; it needs 2")
    columns = {name: [row.values.get(name) for row in mine] for name in names}
    found = {
        name: tuple(value for value in values if value is not None)
        for name, values in columns.items()
    }
    return {name: values for name, values in found.items() if len(values) == len(mine)}


def expected(kernel: str, names: Iterable[str]) -> dict[str, int]:
    """What the kernel executes and reads, by counter; 0 where it has no such instruction."""
    names = set(names)
    found = {name: EXPECTED[kernel].get(name, 0) for name in COUNTED}
    if kernel in READ_LOADS:
        sectors = READ_LOADS[kernel] * SECTORS
        found |= {
            "l1_sectors": 0 if kernel == "cal_bulk" else sectors,  # TMA bypasses the tags of L1
            "l2_sectors": sectors,
            "dram_read_bytes": sectors * SECTOR_BYTES,
        }
    return {name: count for name, count in found.items() if name in names}


def sees_async(calibration: Calibration) -> dict[str, bool]:
    """Whether a request counter includes each kind of asynchronous copy."""
    return {
        f"{name} of {kernel}": calibration.seen[kernel][name][0] > 0
        for name in SEEN_OR_NOT
        for kernel in ("cal_async_ca", "cal_async_cg", "cal_bulk")
        if kernel in calibration.seen and name in calibration.seen[kernel]
    }
