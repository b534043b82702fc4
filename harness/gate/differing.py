"""The discrete layer: in what two sides differ without any noise, and which cause each would be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import asdict

from pagebench.harness.axes import Axes
from pagebench.harness.gate.outcome import Differs, Key
from pagebench.harness.gate.sides import Process, Side
from pagebench.harness.judging.binary import same_binary
from pagebench.harness.judging.work import TRAFFIC, work_of
from pagebench.harness.records import identity
from pagebench.harness.records.counters import Kernel

REFUSED = "what is compared"  # of a field in which two measurements may not differ
# A hash of a GPU's code says all only where the host's code stands outside the bracket.
ON_DEVICE = ("events", "graph", "cupti")
OF_HOST = ("library python", "library cupti", "torch_threads", "variables")
OF_MACHINE = ("uuid", "driver", "cuda", "power_limit_w", "ecc", "memory_bus_bits")
# They are of the code unless its hash says that it is the same.
SOURCES = ("library ", "kernel file")
RESOURCES = ("registers", "shared_bytes")


def cause_of(field: str) -> str:
    """Of which cause a difference in that field of an identity would be."""
    if field in (*identity.MODEL, "device"):
        return REFUSED
    if field in OF_MACHINE:
        return "hardware"
    return "method" if field in OF_HOST else "code"


def not_comparable(base: Process, head: Process) -> tuple[Differs, ...]:
    """In what two processes differ that no ratio may bridge: the device, and what a name means."""
    found = (
        Differs(each.field, each.one, each.other, of=cause_of(each.field))
        for each in identity.differences(base.identity, head.identity)
    )
    return (*(each for each in found if each.of == REFUSED), *_axes(base, head))


def _axes(base: Process, head: Process) -> Iterator[Differs]:
    if base.axes and head.axes:
        yield from _differs(_texts(base.axes), _texts(head.axes), REFUSED)


def keys_apart(base: Key, head: Key) -> tuple[Differs, ...]:
    """In what two measurements of one cell are not one measurement."""
    return tuple(_differs(_of_key(base), _of_key(head), REFUSED))


def _of_key(key: Key) -> dict[str, str]:
    return _texts(key) | {"beside": " ".join(key.beside) or "nothing"}


def differing(base: Side, head: Side) -> tuple[Differs, ...]:
    """All else in which the sides' first processes differ, and their counters' kernels."""
    one, other = base.first, head.first
    known = identity.differences(one.identity, other.identity)
    found = [Differs(d.field, d.one, d.other, of=cause_of(d.field)) for d in known]
    found += _differs(one.method, other.method, "method")
    found += _differs(_launched(base), _launched(head), "code")
    return tuple(each for each in found if each.of != REFUSED)


def _differs(one: Mapping[str, str], other: Mapping[str, str], of: str) -> Iterator[Differs]:
    for field in one:
        if field in other and one[field] != other[field]:
            yield Differs(field, one[field], other[field], of=of)


def _texts(fields: Axes | Key) -> dict[str, str]:
    return {name: str(value) for name, value in asdict(fields).items()}


def _launched(side: Side) -> dict[str, str]:
    """The kernels of a call: by the clock that sees them, and by the counters."""
    counters = side.counted
    if counters is None:
        symbols = side.first.kernels
        return _kernels(symbols) if symbols else {}
    kernels = counters.kernels
    named = {name: [_resource(k, name) for k in kernels] for name in RESOURCES}
    named |= {"grid": [k.grid for k in kernels], "block": [k.block for k in kernels]}
    known = {name: ", ".join(values) for name, values in named.items() if all(values)}
    return _kernels([k.symbol for k in kernels]) | known


def _kernels(symbols: Sequence[str]) -> dict[str, str]:
    return {"kernels": str(len(symbols)), "symbols": ", ".join(symbols)}


def _resource(kernel: Kernel, name: str) -> str:
    value = kernel.launch.get(name)
    return "" if value is None else f"{value:g}"


def work_changed(base: Side, head: Side) -> dict[str, float | None]:
    """Stable counts of the timed calls that changed, head over base; None from zero. Traffic is not
    exact, so it is none of them."""
    one, other = base.counted, head.counted
    if one is None or other is None:
        return {}
    changed = work_of(one.total, other.total, {}, same_binary(one, other)).changed
    return {name: times for name, times in changed.items() if name not in TRAFFIC}


def same_code(key: Key, base: Process, head: Process, found: Sequence[Differs]) -> bool | None:
    """Whether both ran the same code, planned alike; None where that is not known."""
    discrete = [d.field for d in found if d.of == "code" and not d.field.startswith(SOURCES)]
    if discrete:
        return False
    on_device = base.state.environment.gpu is None or key.clock in ON_DEVICE
    is_whole = key.boundary == "run" and on_device
    known = identity.is_binary_known(base.identity, head.identity)
    return True if is_whole and known else None


def sorted_by(found: Sequence[Differs], is_same: bool | None) -> tuple[Differs, ...]:
    """The differences; versions of libraries and files are no cause where the code is the same."""
    return tuple(
        Differs(d.field, d.one, d.other, of="method")
        if is_same and d.field.startswith(SOURCES)
        else d
        for d in found
    )


def causes_of(found: Sequence[Differs], is_same: bool | None, *, clock: bool) -> tuple[str, ...]:
    """What may have moved a time, given the differences, and whether the clock moved too."""
    kinds = {each.of for each in found} | ({"hardware"} if clock else set())
    named = tuple(name for name in ("code", "method", "hardware") if name in kinds)
    return named or (("noise",) if is_same else ("unknown",))
