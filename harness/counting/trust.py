"""Which counters to trust, according to the newest calibration of a GPU and ncu."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from pagebench.harness.cell import Cell
from pagebench.harness.counting.profile import Request, profile
from pagebench.harness.environment import Environment
from pagebench.harness.progress import Progress
from pagebench.harness.records import identity, store
from pagebench.harness.records.calibration import Calibration
from pagebench.harness.records.counters import Counters, How
from pagebench.kernels.device import Device

CALIBRATIONS = Path("runs/calibration.jsonl")


def of_model(
    gpu: str | None, ncu: str | None, files: Sequence[Path] = (CALIBRATIONS,)
) -> list[Calibration]:
    """The calibrations of that GPU's name and ncu version, the newest last.

    Records that are damaged, or of another version of pagebench, are skipped.
    """
    found = store.read_whole([path for path in files if path.exists()], Calibration)
    return [each for each in found if (each.gpu, each.ncu) == (gpu, ncu)]


def calibration_of(environment: Environment, how: How, progress: Progress) -> Calibration | None:
    """The newest calibration for that GPU model and ncu, or None, which `progress` reports; so are
    newer ones of another model of that name, and software that another was made under."""
    named = of_model(environment.gpu, how.ncu)
    mine = [each for each in named if not identity.apart(each.environment, environment)]
    if named and named[-1] not in mine:
        apart = identity.apart(named[-1].environment, environment)
        progress(f"the calibration of this GPU model is of another: {identity.told(apart)}")
    if not mine:
        progress("counters are not calibrated on this GPU and ncu: run pagebench calibrate")
        return None
    if differs := identity.in_software(mine[-1].environment, environment):
        progress(f"the calibration was made under other software: {identity.told(differs)}")
    return mine[-1]


def without_distrusted(counted: Sequence[Counters], progress: Progress) -> list[Counters]:
    """The records without counters that the newest calibration found wrong.

    All records must be of one GPU and one ncu.
    """
    if not counted:
        return []
    calibration = calibration_of(counted[0].environment, counted[0].how, progress)
    if calibration is None:
        return list(counted)
    wrong = calibration.distrusted
    return [replace(each.without(wrong), calibrated=True) for each in counted]


def counted_and_trusted(
    cells: Sequence[Cell], device: Device, progress: Progress
) -> list[Counters]:
    """All counters of the cells, without those that the newest calibration found wrong.

    UserError, with a remedy, where they cannot be counted.
    """
    return without_distrusted(profile(cells, Request(device), progress), progress)
