"""Counters under our own names, and what Nsight Compute calls them on each chip.

Names are checked against NVIDIA's metric tables of six chips (tests/data/metrics.json.gz). A
counter's kind says how closely it must repeat to be stable: a `count` exactly, `traffic` within
0.2 %, a `rate` within 2 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# From compute capability to the chip whose metric table NVIDIA's tools use.
CHIPS = {
    (8, 0): "ga100",
    (8, 6): "ga102",
    (8, 9): "ad102",
    (9, 0): "gh100",
    (10, 0): "gb100",
    (12, 0): "gb202",
}
TOLERANCE = {"count": 0.0, "traffic": 0.002, "rate": 0.02}


class ChipError(ValueError):
    """A GPU whose counters are not mapped here; the message lists the capabilities that are."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One counter. `ncu` is Nsight Compute's name with its suffix.

    `elsewhere` holds the name on chips where it differs, None where the chip lacks the counter.
    """

    name: str
    unit: str
    kind: str
    meaning: str
    ncu: str
    elsewhere: Mapping[str, str | None] = field(default_factory=dict)

    def on(self, chip: str) -> str | None:
        return self.elsewhere.get(chip, self.ncu)


NO_TMA = dict.fromkeys(("ga100", "ga102", "ad102"))
METRICS = (
    Metric(
        "instructions", "inst", "count", "warp instructions executed", "smsp__inst_executed.sum"
    ),
    Metric(
        "tensor_instructions",
        "inst",
        "count",
        "warp instructions of the tensor pipe",
        "smsp__inst_executed_pipe_tensor.sum",
    ),
    Metric(
        "fma_instructions",
        "inst",
        "count",
        "warp instructions of the FMA pipe",
        "smsp__inst_executed_pipe_fma.sum",
    ),
    Metric(
        "ldg",
        "inst",
        "count",
        "global loads to registers (LDG), predicated-off warps included",
        "smsp__inst_executed_op_global_ld.sum",
    ),
    Metric(
        "ldg_active",
        "inst",
        "count",
        "LDG that had a lane on",
        "smsp__inst_executed_op_global_ld_pred_on_any.sum",
    ),
    Metric(
        "ldgsts",
        "inst",
        "count",
        "global loads to shared memory (LDGSTS, cp.async)",
        "smsp__inst_executed_op_ldgsts.sum",
    ),
    Metric(
        "ldgsts_active",
        "inst",
        "count",
        "LDGSTS that had a lane on",
        "smsp__inst_executed_op_ldgsts_pred_on_any.sum",
    ),
    Metric(
        "tma",
        "inst",
        "count",
        "TMA loads: tensor and bulk copies to shared memory",
        "smsp__inst_executed_op_tma_ld.sum",
        NO_TMA,
    ),
    Metric(
        "local_loads",
        "inst",
        "count",
        "local loads (LDL): spills, indexed register arrays",
        "smsp__inst_executed_op_local_ld.sum",
    ),
    Metric(
        "local_stores", "inst", "count", "local stores (STL)", "smsp__inst_executed_op_local_st.sum"
    ),
    Metric(
        "l1_requests",
        "request",
        "count",
        "L1 requests of global loads (LDG and LDGSTS)",
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    ),
    Metric(
        "l1_sectors",
        "sector",
        "count",
        "32-byte sectors those requests ask for",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    ),
    Metric(
        "l2_requests",
        "request",
        "traffic",
        "L2 read requests from the SMs",
        "lts__t_requests_srcunit_tex_op_read.sum",
    ),
    Metric(
        "l2_sectors",
        "sector",
        "traffic",
        "L2 sectors read by the SMs",
        "lts__t_sectors_srcunit_tex_op_read.sum",
    ),
    Metric(
        "l2_hits",
        "sector",
        "traffic",
        "L2 sectors read by the SMs that hit",
        "lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum",
    ),
    Metric(
        "l2_misses",
        "sector",
        "traffic",
        "L2 sectors read by the SMs that missed",
        "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum",
    ),
    Metric(
        "l2_hit_all_pct",
        "%",
        "rate",
        "L2 hit rate of all sources; on big dies the link between L2 halves counts too",
        "lts__t_sector_hit_rate.pct",
    ),
    Metric(
        "l2_slice_pct",
        "%",
        "rate",
        "busiest stage of the L2 slices, share of its peak",
        "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    Metric(
        "dram_read_bytes",
        "byte",
        "traffic",
        "bytes read from DRAM",
        "dram__bytes_read.sum",
        {"gb202": "dram__bytes_op_read.sum"},
    ),
    Metric(
        "dram_write_bytes",
        "byte",
        "traffic",
        "bytes written to DRAM",
        "dram__bytes_write.sum",
        {"gb202": "dram__bytes_op_write.sum"},
    ),
    Metric(
        "dram_busy_pct",
        "%",
        "rate",
        "share of cycles the DRAM was busy, not of its bytes",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    Metric(
        "issue_pct",
        "%",
        "rate",
        "share of cycles a scheduler issued",
        "smsp__issue_active.avg.pct_of_peak_sustained_active",
    ),
    Metric(
        "tensor_pct",
        "%",
        "rate",
        "share of cycles the tensor pipe was busy",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    ),
    Metric(
        "fma_pct",
        "%",
        "rate",
        "share of cycles the FMA pipe was busy",
        "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    ),
    Metric(
        "warps_pct",
        "%",
        "rate",
        "achieved occupancy: warps resident, share of the most",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
    ),
)

LAUNCH = {
    "registers": "launch__registers_per_thread",
    "shared_bytes": "launch__shared_mem_per_block",
    "blocks_by_registers": "launch__occupancy_limit_registers",
    "blocks_by_shared": "launch__occupancy_limit_shared_mem",
    "blocks_by_warps": "launch__occupancy_limit_warps",
    "waves": "launch__waves_per_multiprocessor",
}
PASSES = "profiler__replayer_passes"

# Each group needs one pass on all six chips. Nothing is saved or replayed, so the caches are as the
# call found them.
SINGLE_PASS = {
    "loads": ("instructions", "ldg", "ldgsts", "tma", "dram_read_bytes"),
    "dram": ("dram_read_bytes", "dram_busy_pct"),
    "l2": ("l2_requests", "l2_sectors"),
    "hits": ("l2_hits",),
    "misses": ("l2_misses",),
}


def chip_of(capability: tuple[int, int]) -> str:
    """The chip whose metric table applies: its own, else the newest of the same major version.

    ChipError where none of that major version is mapped.
    """
    if capability in CHIPS:
        return CHIPS[capability]
    major = [known for known in CHIPS if known[0] == capability[0]]
    if major:
        return CHIPS[max(major)]
    known = ", ".join(f"{a}.{b}" for a, b in CHIPS)
    asked = ".".join(map(str, capability))
    raise ChipError(f"no counters are mapped for compute capability {asked}, only for {known}")


def names_on(chip: str, wanted: tuple[str, ...] | None = None) -> dict[str, str]:
    """Our names to ncu's on that chip: all, or those `wanted`. Absent counters are left out."""
    found = {metric.name: metric.on(chip) for metric in METRICS}
    return {name: ncu for name, ncu in found.items() if ncu and (wanted is None or name in wanted)}


_BY_NAME = {metric.name: metric for metric in METRICS}


def metric(name: str) -> Metric:
    """The counter of that name; KeyError for an unknown name."""
    return _BY_NAME[name]
