"""Figures of the study that this suite began from, to stand beside a GPU's own.

Source of every constant: "The 25% Page-Size Slowdown That Wasn't", measured on one RTX 5060 Ti
(sm_120, 16 GB) with FlashInfer 0.6.6 and PyTorch 2.9.1+cu128. Its tables are lost; these figures
stand in its prose, quoted before each group.
"""

GPU = "RTX 5060 Ti"

# "At the largest one-million-index cell, contiguous measured 10.1418 ms and scatter 10.2409 ms"
GATHER_CONTIGUOUS_MS = 10.1418
GATHER_SCATTER_MS = 10.2409
# "Across footprints from 0.03 to 8.59 GB, maximal scatter changed FlashInfer decode by -1.0% to
# +1.3%"
GATHER_GB = (0.03, 8.59)
GATHER_LEAST_PCT = -1.0
GATHER_MOST_PCT = 1.3

# "Contiguous and scattered runs both sustained about 96% of peak DRAM throughput, both had 0.7% L2
# hit rate, and both issued the same 15.6 sectors per request"
GATHER_DRAM_PCT = 96
GATHER_L2_HIT_PCT = 0.7
GATHER_SECTORS_PER_REQUEST = 15.6

# "measured the FlashInfer plan() call at roughly 0.26 ms from 64 through 2,097,152 entries"
PLAN_MS = 0.26
PLAN_LEAST_INDICES = 64
PLAN_MOST_INDICES = 2_097_152

# "The page-16 kernel executed 2.38x as many global-load instructions as page 64 and ran 9.6%
# longer", batch 32 and KV length 8,192; "L2 hit rate rose to about 95-97%"
SHARED_LDG_RATIO = 2.38
SHARED_TIME_PCT = 9.6
SHARED_L2_HIT_PCT = (95, 97)

# "kernel time stayed at about 327 us", "at roughly 95% of peak DRAM throughput", batch 8 and KV
# length 4,096
DISTINCT_TIME_US = 327
DISTINCT_DRAM_PCT = 95

# "Reprofiling reproduced the load count exactly and DRAM-read bytes within 0.2%"
REPLAY_LDG_PCT = 0.0
REPLAY_DRAM_PCT = 0.2
