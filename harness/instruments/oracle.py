"""Is the oracle to be believed? Measure wrong kernels and innocent ones over many seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pagebench.harness.cell import Cell
from pagebench.harness.progress import Progress
from pagebench.harness.records.oracle import FOUND, Oracle, OracleRun
from pagebench.harness.records.timing import Timing
from pagebench.harness.timing.options import Options
from pagebench.harness.workers.worker import Pool
from pagebench.kernels.probes.faulty import FAULTY_PREFIX, ON_STREAMS, PLANTED
from pagebench.kernels.registry import is_shipped

SMALL = "distinct_p16_b3_l1013_h8x4_d64"
# What differs from SMALL: a page must be full to be lost by a remainder, a token alone in its page,
# the number of pages odd.
OTHERWISE = {
    "faultylastpage": "distinct_p16_b3_l1008_h8x4_d64",
    "faultynewest": "distinct_p16_b3_l1009_h8x4_d64",
    "faultyoddpages": "distinct_p16_b3_l1000_h8x4_d64",
}
RATES_ONLY = ("faultyrarely",)  # no run must find it
RATES_IN_LONGER, LONG = ("faultyotherkey", "faultykeyheads"), 8192  # nor these, in LONG contexts
INNOCENT = (
    SMALL,
    "distinct_p16_b3_l64_h8x4_d64",
    "distinct_p16_b1_l1_h8x4_d64",
    "distinct_p1_b2_l300_h4x1_d32",
    "distinct_p16_b5_l777_h8x4_d64_r50",
    "distinct_p16_b2_l2048_h4x2_d128_e4m3",
    "distinct_p16_b2_l2048_h4x2_d128_fp16",
    "shared_p16_b4_l500_h8x4_d64",
)
# How little is found, in longer contexts.
LITTLE = ("one", "four", "page", "replaced", "onehead", "lsebase", "otherkey", "keyheads")
LONGER = (
    "distinct_p16_b2_l8192_h4x2_d64",
    "distinct_p16_b2_l8192_h4x2_d64_e4m3",
    "distinct_p16_b1_l32768_h2x1_d128",
)
# For a GPU: more than 2^31 elements in each pool.
LARGE = "distinct_p16_b17_l131072_h8x8_d128"
IN_LARGE = ("faultywraps", "faultyone", "faultypage", "faultyonehead", "innocentplain")


@dataclass(frozen=True, slots=True)
class Trial:
    """A cell without its seed, and how it must end: `wrong`, `right`, or None if that is open."""

    cell: Cell
    expected: str | None = None

    def seeded(self, seed: int) -> Cell:
        return Cell.parse(f"{self.cell.name}_s{seed}")


def planted(device_kind: str) -> tuple[Trial, ...]:
    """The kernels that are wrong on purpose and the innocent ones; on a GPU also in a large pool,
    and on streams of their own."""
    large, streams = (IN_LARGE, tuple(ON_STREAMS)) if device_kind == "cuda" else ((), ())
    cells = [
        *(f"{name}_{shape}" for name in PLANTED for shape in _shapes(name)),
        *(f"{FAULTY_PREFIX}{name}_{shape}" for shape in LONGER for name in LITTLE),
        *(f"{name}_{LARGE}" for name in large),
        *(f"{name}_{SMALL}" for name in streams),
    ]
    return tuple(trial(Cell.parse(name)) for name in cells)


def _shapes(name: str) -> tuple[str, ...]:
    return (OTHERWISE.get(name, SMALL),) if name.startswith(FAULTY_PREFIX) else INNOCENT


def trial(cell: Cell) -> Trial:
    """What a cell's kernel must end as: ours are right, but for those that are wrong on purpose."""
    if cell.kernel.startswith(FAULTY_PREFIX):
        is_open = cell.kernel in RATES_ONLY or (
            cell.kernel in RATES_IN_LONGER and cell.shape.kv_len >= LONG
        )
        return Trial(cell, None if is_open else "wrong")
    return Trial(cell, "right" if is_shipped(cell.kernel) else None)


def try_oracle(
    trials: Sequence[Trial], seeds: int, options: Options, pool: Pool, progress: Progress
) -> Iterator[Oracle]:
    """The record of each trial, measured with the seeds 1 to `seeds`."""
    for each in trials:
        timings = []
        for seed in range(1, seeds + 1):
            progress(f"{each.cell.name}: seed {seed} of {seeds}")
            timings.append(pool.measure(each.seeded(seed), options, lambda stage: None))
        yield _record(each, timings, options)


def _record(trial: Trial, timings: Sequence[Timing], options: Options) -> Oracle:
    return Oracle(
        cell=trial.cell.name,
        device=timings[0].device,
        expected=trial.expected,
        runs=tuple(_run(seed, timing) for seed, timing in enumerate(timings, start=1)),
        kernel_sha=options.kernel_sha,
        environment=timings[-1].environment,
    )


def _run(seed: int, timing: Timing) -> OracleRun:
    if timing.status not in (*FOUND, "measured"):
        return OracleRun(seed=seed, status=timing.status, reason=timing.reason)
    failed = timing.check.failed if timing.check else None
    return OracleRun(seed=seed, status=timing.status, failed=failed)


def quick(options: Options) -> Options:
    """The shortest sampling: the times are not kept."""
    return replace(options, seconds=0.05)
