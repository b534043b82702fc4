"""Does the flush make the cache cold? Count the bytes read from DRAM after it and without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from pagebench.harness.cell import Cell
from pagebench.harness.counting.profile import Request, profile_single_pass
from pagebench.harness.counting.trust import calibration_of
from pagebench.harness.errors import UserError
from pagebench.harness.progress import Progress
from pagebench.harness.records.audit import Audit, DramRead
from pagebench.harness.records.counters import Counters

READ = "dram_read_bytes"


def audit_flush(cells: Sequence[Cell], request: Request, progress: Progress) -> list[Audit]:
    """Compare bytes read from DRAM with the cells' distinct bytes, after the flush and without it.

    ncu uses one pass and no cache control, so the cache is in the state that timing sees. A cell
    that failed has no record. UserError where the bytes cannot be counted, or a calibration found
    their counter wrong.
    """
    cold, warm = (
        profile_single_pass(cells, replace(request, l2=l2), progress, ("dram",))
        for l2 in ("cold", "warm")
    )
    again = {counted.cell: counted for counted in warm}
    audits = [_audit(each, again[each.cell]) for each in cold if each.cell in again]
    return _trusted(audits, progress)


def _audit(cold: Counters, warm: Counters) -> Audit:
    return Audit(
        cell=cold.cell,
        distinct_kv_bytes=cold.predicted.distinct_kv_bytes,
        dram_read_bytes=DramRead(cold=_dram_read(cold), warm=_dram_read(warm)),
        how=warm.how,
        environment=warm.environment,
    )


def _dram_read(counted: Counters) -> float:
    """The bytes read from DRAM; UserError where ncu could not count them."""
    value = counted.value(READ)
    if value is None:
        raise UserError(f"an audit needs {READ}, which ncu cannot count on this GPU")
    return value


def _trusted(audits: Sequence[Audit], progress: Progress) -> list[Audit]:
    """The audits, each with whether its counter is calibrated; all must be of one GPU and one ncu.

    UserError where the calibration found the counter wrong.
    """
    if not audits:
        return []
    calibration = calibration_of(audits[0].environment, audits[0].how, progress)
    if calibration and READ in calibration.distrusted:
        raise UserError(f"an audit needs {READ}, which the calibration on this GPU found wrong")
    return [structs.replace(each, calibrated=calibration is not None) for each in audits]
