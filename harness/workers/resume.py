"""What a file already holds of what is to be measured, and why the rest is measured again.

A record counts as done if it was made as it would be made now: by the same kernel file, on the same
device, with the same software, variables and options.
"""

from __future__ import annotations

from pagebench.harness.environment import environment_seen
from pagebench.harness.records import identity, store
from pagebench.harness.records.identity import Difference, Identity
from pagebench.harness.records.rounds import Rounds
from pagebench.harness.records.timing import Timing
from pagebench.harness.timing.interleaved import Interleaved
from pagebench.harness.timing.options import Options
from pagebench.harness.workers.bench import Bench
from pagebench.kernels.device import Device

Why = tuple[str | Difference, ...]  # words or what differs; empty where nothing does


def identity_now(device: Device, options: Options) -> Identity:
    """What a measurement would record of its identity now, as far as it is known without torch."""
    seen = identity.of_environment(environment_seen(device)) | {"device": device.kind}
    return seen | ({"kernel file": options.kernel_sha} if options.kernel_sha else {})


def why_again(timing: Timing, options: Options, now: Identity) -> Why:
    """Why the record is not what would be measured now."""
    if timing.status == "crashed":
        return ("it crashed",)
    asked = timing.asked
    words = []
    if (asked.kernel is None) != (options.kernel_file is None) or (
        options.kernel_sha and asked.kernel_sha is None
    ):
        words.append("another kernel file")
    elif asked.kernel_sha != options.kernel_sha:
        words.append("another content of the kernel file")
    if asked.seconds != options.seconds:
        words.append(f"--seconds {asked.seconds:g}")
    return (*words, *identity.differences(identity.of_timing(timing), now, ["kernel file"]))


def resumed(group: Interleaved, bench: Bench) -> Why:
    """Give the group the processes that the file holds of it, those of its last run.

    Returns why others are measured again. A process that crashed is tried again.
    """
    if not bench.out.exists():
        return ()
    now = identity_now(bench.device, bench.options)
    names = tuple(cell.name for cell in group.cells)
    key = (names, bench.options.clock, bench.options.l2)
    every = store.read([bench.out], Rounds).of(Rounds)
    for rounds in _last_run([r for r in every if (r.cells, r.clock, r.l2) == key]):
        if rounds.status == "crashed":
            return ("it crashed",)
        if why := _why_again(rounds, bench.options, now):
            return why
        if rounds.process != len(group.measured):
            return ()
        group.add(rounds)
    return ()


def _why_again(rounds: Rounds, options: Options, now: Identity) -> Why:
    found = identity.differences(identity.of_environment(rounds.environment), now)
    if rounds.kernel_sha != options.kernel_sha:
        return ("another content of the kernel file", *found)
    return found


def _last_run(every: list[Rounds]) -> list[Rounds]:
    """The processes since the last first one, the newest of each number."""
    firsts = [at for at, rounds in enumerate(every) if rounds.process == 0]
    newest = {rounds.process: rounds for rounds in every[firsts[-1] if firsts else 0 :]}
    return [newest[process] for process in sorted(newest)]
