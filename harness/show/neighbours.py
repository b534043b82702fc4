"""Who else used the machine while a cell was timed, in words."""

from __future__ import annotations

from pagebench.harness.environment import Environment
from pagebench.harness.records.caveats import OthersOnGpu
from pagebench.harness.show.caveats import caveat

BUSY = 1.5  # load per core above which other work was running


def neighbours_of(facts: Environment) -> list[str]:
    """What a reader must know of them; nothing where nobody was there."""
    found, load, cores = [], facts.load, facts.cores
    if load and cores and load > BUSY * cores:
        found.append(f"the machine was busy (load {load:.1f} on {cores} cores)")
    if facts.other_processes:
        found.append(caveat(OthersOnGpu(facts.other_processes)))
    if facts.processes_hidden:
        found.append(f"cannot see who else is on the GPU{_before(facts)}")
    return found


def _before(facts: Environment) -> str:
    used, busy = facts.bytes_used_before, facts.percent_busy_before
    told = [
        *([] if used is None else [f"{used / 1e9:.1f} GB were in use"]),
        *([] if busy is None else [f"it was {busy} % busy"]),
    ]
    return f": before, {' and '.join(told)}" if told else ""
