"""Two files of records: what became of each measurement from the base to the head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from pagebench.harness.gate.differing import keys_apart
from pagebench.harness.gate.outcome import BASE, HEAD, STATUSES, Comparison, Ended, Key, Row
from pagebench.harness.gate.pair import Pair, tested_pairs
from pagebench.harness.gate.sides import Side, sides
from pagebench.harness.gate.times import SWEEP_ERROR, holm, noise_of, tested
from pagebench.harness.records.store import Stored

WORST_FIRST = list(STATUSES)


def compare(base: Stored, head: Stored) -> Comparison:
    """What became of each measurement, the worst first; those that are tested share one error."""
    one, other = File.of(base, BASE), File.of(head, HEAD)
    pairs = [Pair(key, one.sides[key], other.sides[key]) for key in one.sides if key in other.sides]
    untested, left = tested_pairs(pairs)
    rows = [*untested, *_tested(left), *_apart(one, other)]
    return Comparison(
        rows=tuple(sorted(rows, key=lambda row: (WORST_FIRST.index(row.status), row.key))),
        together=len(left),
        error=SWEEP_ERROR,
        refused=len({*one.refused, *other.refused} - {*one.sides, *other.sides}),
        is_older=_is_older(pairs),
    )


@dataclass(frozen=True, slots=True)
class File:
    """What a file says of each measurement, and why it could not run others."""

    name: str
    sides: Mapping[Key, Side]
    refused: Mapping[Key, str]

    @classmethod
    def of(cls, stored: Stored, name: str) -> File:
        every = sides(stored, name)
        there = {key: side for key, side in every.items() if side.is_there}
        return cls(name, there, {k: s.refusal for k, s in every.items() if s.refusal is not None})

    def of_cell(self, cell: str, but: Mapping[Key, Side]) -> list[Key]:
        """The measurements of a cell that are not in the other file."""
        return [key for key in self.sides if key.cell == cell and key not in but]

    def alone(self, key: Key, status: str, other: File) -> Row:
        """A row of this file alone, with why the other could not run it, where it says so."""
        refusal = other.refused.get(key)
        why = [Ended(other.name, "refused", refusal)] if refusal is not None else []
        side = self.sides[key]
        one, two = (side.times, None) if self.name == BASE else (None, side.times)
        return Row(key=key, status=status, base=one, head=two, caveats=(*why, *side.ended[:1]))


def _tested(pairs: Sequence[Pair]) -> list[Row]:
    usual = noise_of((pair.base, pair.head) for pair in pairs)
    found = [tested(pair.base, pair.head, usual) for pair in pairs]
    errors = holm([each.p for each in found])
    told = zip(pairs, found, errors, strict=True)
    return [pair.row(each, error) for pair, each, error in told]


def _apart(one: File, other: File) -> Iterator[Row]:
    """Measurements of one file. A cell that both have, in no way that both have, is refused."""
    common = {key.cell for key in one.sides if key in other.sides}
    for cell in dict.fromkeys(key.cell for key in (*one.sides, *other.sides)):
        gone, new = one.of_cell(cell, other.sides), other.of_cell(cell, one.sides)
        both = [] if cell in common else list(zip(gone, new, strict=False))
        for before, after in both:
            yield Row(key=after, status="REFUSED", differs=keys_apart(before, after))
        yield from (one.alone(key, "MISSING", other) for key in gone[len(both) :])
        yield from (other.alone(key, "NEW", one) for key in new[len(both) :])


def _is_older(pairs: Sequence[Pair]) -> bool:
    """Whether all of the head was measured before any of the base."""
    before, after = (
        [each.date for each in chain.from_iterable(side.processes for side in every)]
        for every in ([p.base for p in pairs], [p.head for p in pairs])
    )
    return bool(before and after) and max(after) < min(before)
