"""Who else used the machine while a cell was timed, in words."""

from __future__ import annotations

from pagebench.harness.environment import Environment
from pagebench.harness.records.caveats import OthersOnGpu, hidden_processes
from pagebench.harness.show.caveats import caveat


def neighbours_of(facts: Environment) -> list[str]:
    """What a reader must know of them; nothing where nobody was there."""
    found = []
    if facts.is_busy:
        found.append(f"the machine was busy (load {facts.load:.1f} on {facts.cores} cores)")
    if facts.other_processes:
        found.append(caveat(OthersOnGpu(facts.other_processes)))
    if hidden := hidden_processes([facts]):
        found.append(caveat(hidden))
    return found
