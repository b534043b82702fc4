"""What `--json` prints: a record as plain data, with what follows from it.

The keys stay the same even if a record's field is renamed. An unknown value is null, where a table
has an empty cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from pagebench.harness.gate.outcome import STATUSES, Comparison, Row
from pagebench.harness.judging.explain import conclude
from pagebench.harness.records.attack import Attack, Variant
from pagebench.harness.records.audit import Audit
from pagebench.harness.records.base import Json, Record
from pagebench.harness.records.calibration import Calibration
from pagebench.harness.records.ceilings import MeasuredCeilings
from pagebench.harness.records.codec import to_json
from pagebench.harness.records.counters import Counters
from pagebench.harness.records.dose import Dose, Step
from pagebench.harness.records.identity import Difference
from pagebench.harness.records.planted import Planted
from pagebench.harness.records.speed import Speed
from pagebench.harness.records.timing import Timing
from pagebench.harness.records.verdict import Verdict
from pagebench.harness.show import gate, sentences
from pagebench.harness.show.card import Against, Card
from pagebench.harness.show.caveats import caveats
from pagebench.harness.show.timings import row
from pagebench.profiles.ceilings import RATES, CriticalPath

if TYPE_CHECKING:  # what is shipped is parsed when it is imported
    from pagebench.harness.contrasts import Contrast, Ladder


def record_json(record: Record) -> Json:
    """The record as it stands in a file."""
    return to_json(record)


def _data(value: object) -> Any:
    return msgspec.to_builtins(value, str_keys=True)


# --- Timings and counters -------------------------------------------------------------------------


PREDICTED = ("ldg", "decode_ldg", "dram_read_bytes")  # null if not predicted


def timing_json(timing: Timing) -> Json:
    """A row, with what identifies the measurement."""
    return asdict(row(timing)) | {
        "process": timing.process,
        "started": timing.started,
        "environment": _data(timing.environment),
        "axes": _data(timing.axes),
        "predicted": _data(timing.predicted) or {},
    }


def counters_json(counters: Counters) -> Json:
    """The record, with totals, ratios, and what did not repeat or is off its prediction."""
    found = to_json(counters)
    kernels = [
        told | {"unstable": kernel.unstable}
        for told, kernel in zip(found["kernels"], counters.kernels, strict=True)
    ]
    total = {name: asdict(count) for name, count in counters.total.items()}
    return found | {
        "predicted": dict.fromkeys(PREDICTED) | found["predicted"],
        "total": total,
        "ratios": counters.ratios,
        "off": counters.off,
        "kernels": kernels,
        "calibrated": counters.calibrated,
    }


def card_json(card: Card, against: Against | None = None) -> Json:
    found = {
        "cell": card.cell,
        "ceiling_gbps": card.ceiling_gbps,
        "timing": card.timing and timing_json(card.timing),
        "resolved": dict(card.resolved),
        "counters": card.counters and counters_json(card.counters),
        "binds": card.path and path_json(card.path),
        "apart": {
            "counters": apart_json(card.apart),
            "ceiling": apart_json(card.ceilings_apart),
        },
    }
    return found | ({"against": against_json(against)} if against else {})


def against_json(against: Against) -> Json:
    same = against.same.items()
    return {
        "cell": against.cell,
        "of": against.of,
        "same": same,
        "ratio": dict(against.ratio),
        "apart": apart_json(against.apart),
    }


def apart_json(found: Sequence[Difference]) -> Json:
    """Both values of each field that two measurements do not share."""
    return {each.field: [each.one, each.other] for each in found}


def path_json(path: CriticalPath) -> Json:
    return asdict(path) | {
        "binding": sentences.binding(path),
        "path_us": path.path_us,
        "share": path.share,
        "sentence": sentences.binding_line(path),
    }


# --- Conclusions ----------------------------------------------------------------------------------

OPTIONAL = ("predicted", "why", "time", "time_us", "floors", "work", "cause", "path")


def verdict_json(verdict: Verdict) -> Json:
    """The record, with its headline and its grounds in words."""
    return _renamed(to_json(verdict), word="verdict", predicts="predicted", optional=OPTIONAL) | {
        "headline": sentences.headline(verdict),
        "because": sentences.verdict_lines(verdict),
        "status": verdict.status,
        "path": verdict.path and path_json(verdict.path),
    }


def _renamed(found: Json, optional: tuple[str, ...] = (), **names: str) -> Json:
    """With some fields renamed, and null for `optional` fields that are absent."""
    return dict.fromkeys(optional) | {names.get(key, key): value for key, value in found.items()}


def dose_json(dose: Dose) -> Json:
    """The record, with what the time follows in data and words; times are sorted, in us."""
    found, concluded = to_json(dose), conclude(dose)
    del found["times"], found["steps"]
    return found | {
        "time_us": [[us.least_us, us.middle_us, us.most_us] for us in dose.times],
        "steps_us": list(map(_ends, dose.steps)),
        "counters": {name: list(values) for name, values in dose.counters.items()},
        "follows": list(map(list, concluded.follows)),
        "untested": list(map(list, concluded.untested)),
        "because": sentences.dose_reasons(dose),
        "notes": caveats(dose.caveats),
    }


def _ends(step: Step) -> list[float]:
    return [step.low_us, step.middle_us, step.high_us]


def attack_json(attack: Attack) -> Json:
    """The record, with its grounds in words."""
    return _renamed(to_json(attack), how="attack") | {
        "because": sentences.attack_lines(attack),
        "variants": list(map(_variant, attack.variants)),
    }


def _variant(variant: Variant) -> Json:
    return {
        "cells": list(variant.cells),
        "time": _data(variant.time),
        "delta_us": _ends(variant.delta),
        "work": {variant.work.name: variant.work.amount},
    }


def contrast_json(contrast: Contrast) -> Json:
    """The contrast with the names of its cells."""
    return {
        "name": contrast.name,
        "knob": contrast.knob,
        "one": contrast.one.name,
        "other": contrast.other.name,
        "predicts": contrast.predicts,
        "why": contrast.why,
    }


def ladder_json(ladder: Ladder) -> Json:
    """The ladder with the names of its cells."""
    cells = [cell.name for cell in ladder.cells]
    return {"name": ladder.name, "knob": ladder.knob, "cells": cells}


def planted_json(planted: Planted) -> Json:
    """The record, with whether each row is right."""
    found = to_json(planted)
    rows = [
        told | {"instrument": sentences.instrument(row), "right": row.is_right}
        for told, row in zip(found["rows"], planted.rows, strict=True)
    ]
    return {"detectable": None} | found | {"rows": rows, "found_all": planted.found_all}


# --- Comparisons ----------------------------------------------------------------------------------


def row_json(row: Row) -> Json:
    """The row, with null for what it has not, and its reasons in words."""
    found: Json = {name: _data(getattr(row, name)) for name in Row.__struct_fields__}
    key = found.pop("key")
    return {"beside": [], **key} | found | {"why": gate.why(row)}


def comparison_json(found: Comparison) -> Json:
    """How many rows have each status, and how they were tested."""
    counts = {status: len(found.of(status)) for status in STATUSES}
    told = {name: value for name, value in _data(found).items() if name != "rows"}
    return {"summary": told | {"statuses": counts}}


# --- Instruments ----------------------------------------------------------------------------------


def audit_json(audit: Audit) -> Json:
    return to_json(audit) | {
        "cold_over_distinct": audit.cold_over_distinct,
        "warm_over_distinct": audit.warm_over_distinct,
        "flushed": audit.is_flushed,
    }


def calibration_json(calibration: Calibration, sees_async: Mapping[str, bool]) -> Json:
    """The record, with what disagrees and which request counters see cp.async."""
    return to_json(calibration) | {
        "sees_async": dict(sees_async),
        "disagree": sentences.calibration_lines(calibration),
    }


def ceilings_json(ceilings: MeasuredCeilings) -> Json:
    """The record, with the best of each rate and the cost of launches."""
    found = to_json(ceilings)
    if launch := ceilings.launch_us:
        found["launch_us"] |= {"first": launch.first, "further": launch.further}
    for name in RATES:
        if rate := ceilings.rates.get(name):
            found[name] |= {"value": rate.value}
    return found


def speed_json(speed: Speed) -> Json:
    return to_json(speed) | {"seconds": speed.seconds}
