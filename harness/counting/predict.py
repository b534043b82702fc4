"""Counters records: made, read, predicted anew, found again, and whether two ran one binary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.records import store
from pagebench.kernels.adapter import Loads
from pagebench.kernels.registry import KernelError, find_kernel, kernel_names, loads_of
from pagebench.layouts.work import predict
from pagebench.profiles import ncu
from pagebench.profiles.counters import (
    KernelRow,
    by_call,
    expect,
    ratios,
    stability,
    summary,
    totals,
    unstable,
)
from pagebench.profiles.metrics import METRICS, metric

COUNTERS_SCHEMA = 1
PARTS = {
    "cell": str, "axes": dict, "resolved": dict, "predicted": dict, "total": dict, "ratios": dict,
    "off": list, "kernels": list, "how": dict, "environment": dict,
}  # fmt: skip
KERNEL = {"symbol": str, "grid": str, "block": str, "launch": dict, "values": dict}
# Measured over predicted may be off by this much before the card flags it.
LDG_MARGIN, DRAM_MARGIN = 0.01, 0.02
OWN_BYTES = 0.12e6  # of code, constants and spills, which no layout predicts: they come on top


@dataclass(frozen=True, slots=True)
class State:
    """Where and how something was timed: the GPU, in its environment, and the state of the L2."""

    environment: Mapping[str, Any]
    l2: str

    def holds(self, counters: Mapping[str, Any]) -> bool:
        """Whether counters are of that GPU model and state: those of others say nothing of it."""
        counted_on = counters["environment"].get("gpu")
        return bool(
            counted_on == self.environment.get("gpu") and counters["how"].get("l2") == self.l2
        )


def counters_record(
    cell: Cell,
    rows: Sequence[KernelRow],
    said: Mapping[str, Any],
    how: dict[str, Any],
    facts: dict[str, Any],
) -> dict[str, Any]:
    """One JSON line of a cell: kernels, totals with stability, ratios, prediction, what is off.

    `said` is what the profiled process told of it. CountError where other kernels ran.
    """
    kernels = by_call(ncu.rows_of(rows, cell.name), how["launches"])
    expect(kernels, said.get("symbols", ()))
    found = {
        name: {"value": median(values), **asdict(stability(metric(name).kind, values))}
        for name, values in totals(kernels).items()
    }
    predicted = predict_counters(cell, said.get("resolved", {}), facts, how)
    return {
        "kind": "counters",
        "schema": COUNTERS_SCHEMA,
        "cell": cell.name,
        "axes": cell.axes(),
        "resolved": said.get("resolved", {}),
        "predicted": predicted,
        "total": found,
        "ratios": ratios_of(found),
        "off": off(plain(found), predicted),
        "kernels": summary(kernels),
        "how": how,
        "environment": facts,
    }


def plain(total: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The values of a record's totals."""
    return {name: float(entry["value"]) for name, entry in total.items()}


def ratios_of(total: Mapping[str, Mapping[str, Any]]) -> dict[str, float | str]:
    return ratios(plain(total))


def predict_counters(
    cell: Cell,
    resolved: dict[str, Any],
    environment: Mapping[str, Any],
    how: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What the counters should show, from the layout and, for a known GPU, kernel source.

    Counted with ncu's cache control, which is its default, a merge kernel too begins cold.
    """
    capability = tuple(environment.get("capability") or ())
    shape, kind = cell.shape, find_kernel(cell.kernel).lowering(cell.shape)
    work = predict(shape, cell.sharing, kind)
    known = (capability[0], capability[1]) if len(capability) == 2 else None
    loads, failed = _loads(cell, resolved, known)
    flushed = (how or {}).get("cache_control", "all") == "all"
    merged = loads.merge_bytes if flushed else 0
    predictable = cell.sharing.kind == "distinct" and merged is not None
    return (
        asdict(work)
        | failed
        | {
            "ldg": loads.ldg,
            "decode_ldg": loads.decode_ldg,
            "dram_read_bytes": work.read_bytes + (merged or 0) if predictable else None,
        }
    )


def _loads(
    cell: Cell, resolved: Mapping[str, Any], capability: tuple[int, int] | None
) -> tuple[Loads, dict[str, str]]:
    """What the kernel's source says, or why its formula fails: that must cost no count."""
    try:
        return loads_of(cell.kernel, cell.shape, resolved, capability), {}
    except KernelError as error:
        return Loads(ldg=None, merge_bytes=None), {"failed": str(error)}


def read_counters(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Counters records under today's tolerances, the newest last.

    ValueError for one that this pagebench cannot read.
    """
    return map(_repeats_anew, store.read_kind(files, "counters", _unreadable))


def _unreadable(record: dict[str, Any]) -> str | None:
    """Why a line is no counters record, None if it is one: a hand or a disk may have been at it."""
    wrong = _wrong(record)
    return f"a counters record {wrong}; this pagebench cannot read it" if wrong else None


def _wrong(record: dict[str, Any]) -> str | None:
    missing = [name for name in ("schema", *PARTS) if name not in record]
    if missing:
        return f"lacks {', '.join(missing)}"
    if record["schema"] != COUNTERS_SCHEMA:
        return f"has schema {record['schema']}, not {COUNTERS_SCHEMA}"
    improper = [name for name, kind in PARTS.items() if not isinstance(record[name], kind)]
    if not improper:
        strange = record["total"].keys() - {known.name for known in METRICS}
        if strange:
            return f"counts {', '.join(sorted(strange))}"
        improper = _improper(record)
    return f"has no proper {', '.join(improper)}" if improper else None


def _improper(record: dict[str, Any]) -> list[str]:
    """Parts that are of the right type and yet no card could be made of them."""
    kernels, total = record["kernels"], record["total"]
    proper = {
        "how": {"launches", "chip"} <= record["how"].keys(),
        "axes": {"kernel", "page_size"} <= record["axes"].keys(),
        "total": all(isinstance(entry, dict) and "value" in entry for entry in total.values()),
        "kernels": all(_is_kernel(kernel, total) for kernel in kernels) and _are_alike(kernels),
    }
    return [name for name, is_proper in proper.items() if not is_proper]


def _is_kernel(kernel: object, counted: Iterable[str]) -> bool:
    """Whether it has what a card and a total are made of: of all `counted` a number a launch."""
    return (
        isinstance(kernel, dict)
        and "passes" in kernel
        and all(isinstance(kernel.get(name), kind) for name, kind in KERNEL.items())
        and all(map(_are_numbers, kernel["values"].values()))
        and all(None not in kernel["values"].get(name, [None]) for name in counted)
    )


def _are_numbers(values: object) -> bool:
    """A number for every launch, None where ncu has none."""
    return isinstance(values, list) and all(
        value is None or type(value) in (int, float) for value in values
    )


def _are_alike(kernels: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there are kernels, and all their counters are of as many launches, one or more."""
    launches = {len(values) for kernel in kernels for values in kernel["values"].values()}
    return len(launches) == 1 and 0 not in launches


def predicted_anew(record: dict[str, Any]) -> dict[str, Any]:
    """A counters record under today's formulas, which may be better than its own.

    A kernel that is not registered here keeps its prediction.
    """
    if record["axes"]["kernel"] not in kernel_names():
        return record
    cell = Cell.parse(record["cell"])
    predicted = predict_counters(cell, record["resolved"], record["environment"], record["how"])
    return record | {"predicted": predicted, "off": off(plain(record["total"]), predicted)}


def _repeats_anew(record: dict[str, Any]) -> dict[str, Any]:
    """What repeats, from each launch's value: a stored spread is rounded."""
    total = {
        name: entry | asdict(stability(metric(name).kind, _of_launches(record, name)))
        for name, entry in record["total"].items()
    }
    kernels = [kernel | {"unstable": unstable(kernel["values"])} for kernel in record["kernels"]]
    return record | {"total": total, "kernels": kernels}


def _of_launches(record: dict[str, Any], name: str) -> list[float]:
    columns = [kernel["values"][name] for kernel in record["kernels"]]
    return [float(sum(values)) for values in zip(*columns, strict=True)]


def over_predicted(record: Mapping[str, Any], name: str) -> float | None:
    """A counter of the call over its prediction; None where either is not known."""
    wanted, entry = record["predicted"].get(name), record["total"].get(name)
    return float(entry["value"] / wanted) if wanted and entry else None


def decode_over_predicted(record: Mapping[str, Any]) -> float | None:
    """The same of the decode kernel's LDG, which may be predicted where the call's is not."""
    wanted = record["predicted"].get("decode_ldg")
    counted = record["kernels"][0]["values"].get("ldg", [None])[0]
    return float(counted / wanted) if wanted and counted else None


def off(measured: Mapping[str, float], predicted: Mapping[str, Any]) -> list[str]:
    """Counters whose measurement over prediction is further from 1 than its margin."""
    margins = {"ldg": (LDG_MARGIN, 0.0), "dram_read_bytes": (DRAM_MARGIN, OWN_BYTES)}
    return [
        name
        for name, (share, least) in margins.items()
        if predicted.get(name)
        and name in measured
        and abs(measured[name] - predicted[name]) > max(share * predicted[name], least)
    ]


def without(record: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The record less those counters, in its totals, ratios and every kernel."""
    total = {name: entry for name, entry in record["total"].items() if name not in names}
    kernels = [
        kernel
        | {
            "values": {name: v for name, v in kernel["values"].items() if name not in names},
            "unstable": [name for name in kernel.get("unstable", ()) if name not in names],
        }
        for kernel in record["kernels"]
    ]
    return record | {
        "total": total,
        "ratios": ratios_of(total),
        "kernels": kernels,
        "off": [name for name in record["off"] if name not in names],
        "distrusted": list(names),
    }


def newest_counters(
    cells: Sequence[Cell], files: Sequence[Path], state: State | None = None
) -> list[dict[str, Any]] | None:
    """The newest counters of each cell; None where one has none.

    With a state, of that GPU, else of its model, in that state of the cache.
    """
    lines: Iterable[dict[str, Any]] = read_counters(files)
    if state:
        lines = filter(state.holds, store.of_gpu(lines, state.environment))
    newest = {line["cell"]: line for line in lines}
    if not all(cell.name in newest for cell in cells):
        return None
    return [newest[cell.name] for cell in cells]


def same_binary(one: dict[str, Any], other: dict[str, Any]) -> dict[str, bool]:
    """Whether two cells ran the same kernel with the same resources: page sizes may not.

    `module` is what was compiled: XQA has one a page size, whose kernels all have one name.
    """
    first, second = one["kernels"], other["kernels"]
    told = [record["resolved"].get("module") for record in (one, other)]
    return {
        "module": told[0] == told[1] if all(told) else _compiled(one) == _compiled(other),
        "symbol": [k["symbol"] for k in first] == [k["symbol"] for k in second],
        "launch": [(k["grid"], k["block"]) for k in first]
        == [(k["grid"], k["block"]) for k in second],
        "resources": [k["launch"] for k in first] == [k["launch"] for k in second],
    }


def _compiled(record: dict[str, Any]) -> tuple[str, object]:
    """What a module is compiled for, where a record is older than its name."""
    axes = record["axes"]
    per_page = axes["kernel"].startswith(("xqa", "triton"))
    return axes["kernel"], axes["page_size"] if per_page else None
