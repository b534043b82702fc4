"""What was measured: the GPU, the software, the resolved kernel and its code.

Two measurements may be put together only where these agree; what differs is data here, and
`show.identities` words it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pagebench.harness.environment import Environment
from pagebench.harness.records.base import Resolved
from pagebench.harness.records.caveats import Differing
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.rounds import Rounds
from pagebench.harness.records.timing import Timing

Something = TypeVar("Something")
Identity = Mapping[str, str]  # by field, `library torch` or `resolved splits`; unknown is absent

MODEL = ("gpu", "sm_count", "capability", "mig", "mig_slice", "cpu")
OF_GPU = tuple(name for name in MODEL if name != "cpu")  # its host may be another
SOFTWARE = ("driver", "cuda")
OTHERS = ("device", "power_limit_w", "ecc", "memory_bus_bits", "torch_threads")
OURS = "pagebench"  # two versions of it measure alike, and the commit stands in the record
NO_SLICE = "the whole GPU"


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that two measurements do not share, and both values."""

    field: str
    one: str
    other: str


def of_environment(environment: Environment) -> dict[str, str]:
    """What the environment says of a measurement's identity."""
    names = (*MODEL, *SOFTWARE, *OTHERS[1:], "uuid")
    found = {name: _text(getattr(environment, name)) for name in names}
    if environment.gpu and environment.mig is not None:
        found["mig_slice"] = environment.mig_slice or (None if environment.mig else NO_SLICE)
    libraries = {f"library {k}": v for k, v in environment.versions.items() if k != OURS}
    variables = environment.variables
    listed = " ".join(f"{name}={value}" for name, value in (variables or {}).items())
    set_here = None if variables is None else listed or "none"
    return _known({**found, **libraries, "variables": set_here})


def of_call(resolved: Resolved, binary: str | None) -> dict[str, str]:
    """What ran: all that the adapter resolved (kernel, splits, grid), and the code."""
    told = {f"resolved {name}": _text(value) for name, value in resolved.items()}
    return _known({**told, "binary": binary})


def of_timing(timing: Timing) -> dict[str, str]:
    asked = {"device": timing.device, "kernel file": timing.asked.kernel_sha}
    environment = of_environment(timing.environment)
    return _known(environment | asked) | of_call(timing.resolved, timing.binary)


def of_counters(counters: Counters) -> dict[str, str]:
    return of_environment(counters.environment) | of_call(counters.resolved, counters.binary)


def of_rounds(rounds: Rounds, at: int) -> dict[str, str]:
    """The identity of one of the interleaved cells."""
    resolved = rounds.resolved[at] if at < len(rounds.resolved) else {}
    binary = rounds.binary[at] if at < len(rounds.binary) else None
    file = _known({"kernel file": rounds.kernel_sha})
    return of_environment(rounds.environment) | of_call(resolved, binary) | file


def _known(found: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in found.items() if value is not None}


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def differences(
    one: Identity, other: Identity, without: Iterable[str] = ()
) -> tuple[Difference, ...]:
    """The fields that both know and do not share, but for those in `without`.

    A field that one side does not know says nothing: records of old schemas lack some. Hashes of
    two kinds (`text:`, `sass:`) cannot be compared.
    """
    passed = set(without)
    return tuple(
        Difference(name, one[name], other[name])
        for name in one
        if name in other and name not in passed and one[name] != other[name]
        if name != "binary" or _kind(one[name]) == _kind(other[name])
    )


def told(found: Iterable[Difference | Differing]) -> str:
    """Both values of everything that differs, for an error or a line of progress."""
    return ", ".join(f"{each.field} {each.one} and {each.other}" for each in found)


def is_binary_known(one: Identity, other: Identity) -> bool:
    """Whether both sides have a hash of their code, of one kind."""
    return "binary" in one and "binary" in other and _kind(one["binary"]) == _kind(other["binary"])


def _kind(binary: str) -> str:
    return binary.partition(":")[0]


def apart(one: Environment, other: Environment) -> tuple[Difference, ...]:
    """How two environments' GPUs differ as models: ceilings and counters of one are not the
    other's."""
    found = differences(of_environment(one), of_environment(other))
    return tuple(each for each in found if each.field in (MODEL if one.gpu is None else OF_GPU))


def in_software(one: Environment, other: Environment) -> tuple[Difference, ...]:
    """How the software of two environments differs, and what is set to change its speed."""
    found = differences(of_environment(one), of_environment(other))
    named = (*SOFTWARE, "variables")
    return tuple(d for d in found if d.field in named or d.field.startswith("library "))


def distinct(identities: Sequence[Identity]) -> list[list[Difference]]:
    """For each identity, the fields in which the identities are not all alike.

    `one` is its own value (empty where it does not know), `other` the first that differs.
    """
    names = dict.fromkeys(name for identity in identities for name in identity)
    values = {name: [identity.get(name, "") for identity in identities] for name in names}
    differing = [name for name in names if len({v for v in values[name] if v}) > 1]
    return [
        [
            Difference(
                name, values[name][at], next(v for v in values[name] if v and v != values[name][at])
            )
            for name in differing
        ]
        for at in range(len(identities))
    ]


def groups(items: Iterable[tuple[Something, Identity]]) -> list[list[Something]]:
    """Items whose identities do not differ from the first of their group, in order."""
    found: list[tuple[Identity, list[Something]]] = []
    for item, identity in items:
        for first, members in found:
            if not differences(first, identity):
                members.append(item)
                break
        else:
            found.append((identity, [item]))
    return [members for _, members in found]
