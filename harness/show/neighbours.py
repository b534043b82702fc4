"""Who else used the machine while a cell was timed, in words."""

from __future__ import annotations

from pagebench.harness.environment import Environment
from pagebench.harness.records.caveats import OthersOnGpu, hidden_processes
from pagebench.harness.show.caveats import caveat

BUSY = 1.5  # load per core above which other work was running


def neighbours_of(facts: Environment) -> list[str]:
    """What a reader must know of them; nothing where nobody was there."""
    found, load, cores = [], facts.load, facts.cores
    if load and cores and load > BUSY * cores:
        found.append(f"the machine was busy (load {load:.1f} on {cores} cores)")
    if facts.other_processes:
        found.append(caveat(OthersOnGpu(facts.other_processes)))
    if hidden := hidden_processes([facts]):
        found.append(caveat(hidden))
    return found
