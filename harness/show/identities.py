"""In what measurements differ, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from pagebench.harness.records.caveats import Differing
from pagebench.harness.records.identity import Difference

WORDS = {
    "gpu": "GPU",
    "uuid": "UUID",
    "cpu": "CPU",
    "cuda": "CUDA",
    "sm_count": "SMs",
    "mig_slice": "slice",
    "mig": "MIG",
    "ecc": "ECC",
    "power_limit_w": "power limit W",
    "memory_bus_bits": "memory bus bits",
    "torch_threads": "torch threads",
}
Some = TypeVar("Some", bound=Difference | Differing)
MOST_TOLD = 4  # fields in one note; the record holds the others
LESS_TOLD = {"gpu": ("sm_count", "capability", "memory_bus_bits", "power_limit_w", "uuid")}
MOST_CHARACTERS = 60


def word(field: str) -> str:
    """A field as it is said: `library torch` is torch, `resolved splits` is splits."""
    return WORDS.get(field, field.removeprefix("library ").removeprefix("resolved "))


def own(values: Sequence[Difference]) -> str:
    """What tells a measurement from others of its cell: its own values of what differs."""
    kept = _told(values)
    said = [f"{word(each.field)} {_short(each.one) or 'unknown'}" for each in kept[:MOST_TOLD]]
    return ", ".join(said) + _more(len(kept))


def between(found: Iterable[Difference | Differing]) -> str:
    """Both values of everything that differs."""
    kept = _told(tuple(found))
    said = [f"{word(d.field)} {_short(d.one)} and {_short(d.other)}" for d in kept[:MOST_TOLD]]
    return ", ".join(said) + _more(len(kept))


def because(found: Sequence[str | Difference]) -> str:
    """Why records are not taken for what would be measured now: then and now of what differs."""
    differing = [each for each in found if isinstance(each, Difference)]
    words = [each for each in found if isinstance(each, str)]
    kept = _told(differing)
    then = [f"{word(d.field)} was {_short(d.one)}, is {_short(d.other)}" for d in kept[:MOST_TOLD]]
    return ", ".join([*words, *then]) + _more(len(kept))


def _told(values: Sequence[Some]) -> list[Some]:
    """Those worth telling: where the GPU differs, its own properties follow from it."""
    fields = {each.field for each in values}
    passed = {less for field in fields for less in LESS_TOLD.get(field, ())}
    return [each for each in values if each.field not in passed]


def _more(count: int) -> str:
    return f" and {count - MOST_TOLD} more" if count > MOST_TOLD else ""


def _short(value: str) -> str:
    return value if len(value) <= MOST_CHARACTERS else f"{value[:MOST_CHARACTERS]}..."
