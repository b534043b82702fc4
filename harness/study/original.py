"""Figures of the original study, to compare with those of this GPU.

Source of every constant: "The 25% Page-Size Slowdown That Wasn't", measured on one RTX 5060 Ti
(sm_120, 16 GB) with FlashInfer 0.6.6 and PyTorch 2.9.1+cu128. Its tables are lost; these
figures are from its prose.
"""

GPU = "RTX 5060 Ti"
# For the top of a page.
SOURCE = "“The 25% Page-Size Slowdown That Wasn't”"
KEPT = (
    "Only that study's text remains: its figures are quoted from the text, and its tables and "
    "records are lost. A cell is empty where the text gives no figure."
)

# FlashInfer decode over a million indices, contiguous and scattered.
GATHER_CONTIGUOUS_MS = 10.1418
GATHER_SCATTER_MS = 10.2409
# Scatter over contiguous, minimum and maximum over all footprints.
GATHER_GB = (0.03, 8.59)
GATHER_LEAST_PCT = -1.0
GATHER_MOST_PCT = 1.3

# Both layouts under Nsight Compute: DRAM throughput of its peak, L2 hits, sectors per request.
GATHER_DRAM_PCT = 96
GATHER_L2_HIT_PCT = 0.7
GATHER_SECTORS_PER_REQUEST = 15.6

# FlashInfer's plan(), about the same over that range of indices.
PLAN_MS = 0.26
PLAN_LEAST_INDICES = 64
PLAN_MOST_INDICES = 2_097_152

# XQA, shared KV, 32 requests of 8,192: page 16 over page 64, and the range of L2 hits.
SHARED_LDG_RATIO = 2.38
SHARED_TIME_PCT = 9.6
SHARED_L2_HIT_PCT = (95, 97)

# XQA, distinct KV, 8 requests of 4,096: the same at every page size.
DISTINCT_TIME_US = 327
DISTINCT_DRAM_PCT = 95

# Counters of the headline cells when they were profiled again.
REPLAY_LDG_PCT = 0.0
REPLAY_DRAM_PCT = 0.2

# What its prose says about our contrasts, in our words for verdicts.
VERDICTS = {
    "negative": "absent",
    "block128": "absent",
    "positive": "exposed",
    "vanishing": "hidden",
}
