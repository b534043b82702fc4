"""One codec for all records: JSON to a typed struct through its kind's upgrades, and back.

A kind's schema number is one more than its upgrades. Each change of a record's shape is a new
upgrade, so the number moves; `pagebench.harness.records.codec.history` lists them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pagebench.harness.records import (
    attack,
    audit,
    calibration,
    ceilings,
    counters,
    dose,
    oracle,
    planted,
    rounds,
    speed,
    timing,
    verdict,
)
from pagebench.harness.records.base import Json, Record, Upgrade


@dataclass(frozen=True, slots=True)
class Kind:
    """A record's type, and the steps to it from every older schema number."""

    record: type[Record]
    upgrades: tuple[Upgrade, ...]

    @property
    def schema(self) -> int:
        return len(self.upgrades) + 1


KINDS = {
    "timing": Kind(timing.Timing, timing.UPGRADES),
    "rounds": Kind(rounds.Rounds, rounds.UPGRADES),
    "counters": Kind(counters.Counters, counters.UPGRADES),
    "calibration": Kind(calibration.Calibration, calibration.UPGRADES),
    "audit": Kind(audit.Audit, audit.UPGRADES),
    "ceilings": Kind(ceilings.MeasuredCeilings, ceilings.UPGRADES),
    "verdict": Kind(verdict.Verdict, verdict.UPGRADES),
    "dose": Kind(dose.Dose, dose.UPGRADES),
    "attack": Kind(attack.Attack, attack.UPGRADES),
    "oracle": Kind(oracle.Oracle, oracle.UPGRADES),
    "planted": Kind(planted.Planted, planted.UPGRADES),
    "speed": Kind(speed.Speed, speed.UPGRADES),
}
MOST_SHOWN = 60  # characters of what a file says, in a message about it
OLD_NAMES = {"group": "rounds"}


def kind_of(value: Mapping[str, Any]) -> str:
    """The kind by today's name; empty where the object has no kind."""
    name = value.get("kind")
    return OLD_NAMES.get(name, name) if isinstance(name, str) else ""


def kind_name(record: Record) -> str:
    """The kind that a record's line names."""
    return next(name for name, kind in KINDS.items() if kind.record is type(record))


def called(name: str) -> str:
    """`a timing record`, `an attack record`."""
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name} record"


# --- Reading JSON ---------------------------------------------------------------------------------

MOST_DEPTH = 50  # of objects in each other; no record comes near
MOST = 2**63  # a count beyond it is no count


def decode(line: str) -> Any:
    """JSON without names given twice, NaN, and numbers out of range; ValueError says which."""
    try:
        value = json.loads(line, object_pairs_hook=_once, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("not a JSON record: it is nested too deep") from None
    _check_numbers(value, "$", 0)
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field `{twice[:MOST_SHOWN]}` stands there twice")
    return found


def _refuse_constant(word: str) -> None:
    raise ValueError("NaN and Infinity are not JSON")


def _check_numbers(value: Any, path: str, depth: int) -> None:
    if depth > MOST_DEPTH:
        raise ValueError("not a JSON record: it is nested too deep")
    if isinstance(value, dict):
        for name, field in value.items():
            _check_numbers(field, f"{path}.{name[:MOST_SHOWN]}", depth + 1)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            if not isinstance(item, float) or not -MOST < item < MOST:
                _check_numbers(item, f"{path}[{number}]", depth + 1)
    elif isinstance(value, int | float) and not -MOST < value < MOST:
        raise ValueError(f"a number out of range - at `{path}`")


def to_json(record: Record) -> Json:
    """The record as plain data, with its schema number after the kind."""
    fields = msgspec.to_builtins(record, str_keys=True)
    kind = fields.pop("kind")
    if not fields.get("environment"):
        fields.pop("environment", None)
    return {"kind": kind, "schema": KINDS[kind].schema, **fields}


def encode(record: Record) -> str:
    """One line of JSON. ValueError for NaN, which msgspec's own encoder would write as null."""
    return json.dumps(to_json(record), separators=(",", ":"), allow_nan=False)


def from_json(value: Json) -> Record:
    """A record of any schema so far. ValueError for a damaged or newer one, KeyError for a kind
    that is not in KINDS."""
    name = kind_of(value)
    kind = KINDS[name]
    schema = value.get("schema")
    if type(schema) is not int or not 1 <= schema <= kind.schema:
        raise ValueError(
            f"{called(name)} of schema {str(schema)[:MOST_SHOWN]}; this pagebench reads 1 to "
            f"{kind.schema}"
        )
    try:
        return msgspec.convert(_upgraded(value, schema, kind), kind.record, str_keys=True)
    except KeyError as error:  # an upgrade met what is not there, or has another type
        raise ValueError(f"{called(name)} of schema {schema} lacks {error}") from error
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise ValueError(
            f"{called(name)} of schema {schema} is damaged: a field has the wrong type - "
            f"at `{_culprit(value, schema, kind)}`"
        ) from error
    except ValueError as error:
        at = "" if "at `$" in str(error) else f" - at `{_culprit(value, schema, kind)}`"
        raise ValueError(f"{called(name)}: {error}{at}") from error


class _Watched(dict[str, Any]):
    """An object that notes in `log` the path of each field that an upgrade asks for."""

    def __init__(self, fields: Json, path: str, log: list[str]) -> None:
        super().__init__(fields)
        self._path, self._log = path, log

    def __getitem__(self, name: str) -> Any:
        self._log.append(f"{self._path}.{name}")
        return self._watch(super().__getitem__(name), self._log[-1])

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if self.keys() & {name} else default

    def _watch(self, value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return _Watched(value, path, self._log)
        if isinstance(value, list):
            return [self._watch(item, f"{path}[{n}]") for n, item in enumerate(value)]
        return value


def _culprit(value: Json, schema: int, kind: Kind) -> str:
    """The path of the field at which the upgrades stop."""
    log: list[str] = ["$"]
    try:
        _upgraded(_Watched(value, "$", log), schema, kind)
    except (TypeError, AttributeError, LookupError, ArithmeticError, ValueError):
        return log[-1]
    return "$"


def _upgraded(value: Json, schema: int, kind: Kind) -> Json:
    for upgrade in kind.upgrades[schema - 1 :]:
        value = upgrade.apply(value)
    return {name: field for name, field in value.items() if name != "schema"}


def history(name: str) -> list[str]:
    """What changed with each schema number of a kind, the first one included."""
    changes = (upgrade.changes for upgrade in KINDS[name].upgrades)
    return ["1: the first", *(f"{number}: {text}" for number, text in enumerate(changes, 2))]


def json_schema(name: str) -> Json:
    """The JSON Schema of a kind's lines as they are written today."""
    kind = KINDS[name]
    schema = json.loads(json.dumps(msgspec.json.schema(kind.record)))  # tuples become lists
    body = schema["$defs"][kind.record.__name__]
    body["properties"] = {
        "kind": body["properties"].pop("kind"),
        "schema": {"const": kind.schema},
        **body["properties"],
    }
    body["required"] = ["kind", "schema", *(f for f in body["required"] if f != "kind")]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"pagebench {name} record, schema {kind.schema}",
        "$comment": "; ".join(history(name)),
        **schema,
    }
