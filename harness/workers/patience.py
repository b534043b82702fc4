"""How long a worker may be silent before it is ended, by its stage; `--patience` changes it."""

from __future__ import annotations

from pagebench.harness.timing.options import Options
from pagebench.kernels.plugin_file import PATIENCE_S as IMPORTING_S

# Seconds. Planning and the first calls may compile a module; `usual` is for every other stage.
PATIENCE_S = {
    "starting": 180.0,
    "importing": IMPORTING_S,
    "planning": 1200.0,
    "first call": 1200.0,
    "second call": 1200.0,
    "usual": 120.0,
}
LEAST_STARTING_S = 60.0  # a process that loads torch from a slow disk
CALLS = 40  # of a slow kernel in a stage: more than a check makes


def set_patience(seconds: float) -> None:
    """Wait so long for every stage, whatever it is; the start of a process keeps its least."""
    for stage in PATIENCE_S:
        PATIENCE_S[stage] = max(seconds, LEAST_STARTING_S if stage == "starting" else 0.0)


def patience(stage: str, options: Options | None = None, call_s: float = 0.0) -> float:
    """The longest silence in a stage. A stage after the second call, which took `call_s`, may make
    CALLS more, sample for as long as was asked, and plan where planning is what is timed."""
    if stage in PATIENCE_S or options is None:
        return PATIENCE_S.get(stage, PATIENCE_S["usual"])
    usual = PATIENCE_S["planning" if options.boundary == "plan" else "usual"]
    return max(usual, CALLS * call_s) + options.seconds
