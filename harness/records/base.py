"""What all records share: one frozen typed struct for each kind, and where it was made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta, Struct

from pagebench.harness.environment import Environment

Json = dict[str, Any]  # a JSON object before it has a type


# What an adapter says that a call resolved to; the keys are the adapter's own.
Resolved = Mapping[str, str | int | float | bool]


# A kernel and words, as any cell's name: nothing a shell or a terminal would take for more.
CellName = Annotated[str, Meta(pattern=r"^[a-z0-9]+(_[a-z0-9]+)*$(?!\n)", max_length=400)]


class Part(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A part of a record. A field at its default is not written: absent means no value."""


class PredictedWork(Part, frozen=True, kw_only=True):
    """`layouts.work.Work` as recorded. Early records lack the two optional fields."""

    index_entries: int
    distinct_kv_bytes: int
    read_kv_bytes: int
    compulsory_bytes: int
    flop: int
    read_bytes: int | None = None
    sectors_per_request: float | None = None


class Record(Part, frozen=True, kw_only=True, tag_field="kind"):
    """One line of a results file. `written` is UTC, ISO 8601: when the line went to disk."""

    environment: Environment = Environment()
    written: str | None = None

    @property
    def date(self) -> str:
        """When it was made; empty, which sorts first, where the record does not say."""
        return self.written or ""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A step from one schema number to the next: `changes` is its line in the kind's history.

    `apply` takes the whole JSON object of the old number and returns that of the next.
    """

    changes: str
    apply: Callable[[Json], Json]


def as_it_was(line: Json) -> Json:
    """The object unchanged: for new fields that old lines lack."""
    return line


IDENTITY = (
    "the environment holds variables, MIG slice, integrated memory, hidden processes, use before"
)
