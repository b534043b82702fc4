"""Whether a time beats the ceiling that was measured for its bytes, and what then falls."""

from __future__ import annotations

from statistics import median

from msgspec.structs import replace

from pagebench.harness.records.select import Evidence
from pagebench.harness.records.timing import Check, Timing
from pagebench.profiles.ceilings import bandwidth_at

# The probe's interval is 0.2 % wide each way, and two processes of one call differ by 0.4 %.
UNCERTAINTY = 0.005


def beside_ceiling(timing: Timing, evidence: Evidence) -> Timing:
    """The timing with what its GPU was measured to reach for as many bytes, where that is known.

    `ceiling_refuted` is absent where the time does not beat the ceiling and its uncertainty. It is
    true where the needles passed through that very call, so that it read what it should, and false
    where nothing shows it: then the time does not stand.
    """
    ceiling, rate = ceiling_of(timing, evidence), _rate(timing)
    if ceiling is None:
        return timing
    beats = rate is not None and rate > ceiling * (1 + UNCERTAINTY)
    refuted = needles_passed(timing.check) if beats else None
    return replace(timing, ceiling_gbps=round(ceiling, 1), ceiling_refuted=refuted)


def ceiling_of(timing: Timing, evidence: Evidence) -> float | None:
    """GB/s that this GPU reaches when it reads as many bytes; None without a ceilings record."""
    if timing.environment.gpu is None or timing.predicted is None:
        return None
    found = evidence.newest_ceilings(timing.environment)
    return bandwidth_at(found.dram_read, timing.predicted.distinct_kv_bytes) if found else None


def _rate(timing: Timing) -> float | None:
    """Distinct GB/s that came from DRAM; None where the cache may hold them."""
    from_dram = timing.boundary == "run" and timing.l2 == "cold"
    if not from_dram or timing.samples is None or timing.predicted is None:
        return None
    return timing.predicted.distinct_kv_bytes / median(timing.samples.time_us) / 1e3


def needles_passed(check: Check | None) -> bool:
    """Whether needles were sent through the call, and all were found within its tolerance."""
    return (
        check is not None
        and check.error_needles is not None
        and check.error_needles <= check.tolerance
    )
