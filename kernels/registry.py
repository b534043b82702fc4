"""Every kernel by name. To add one, write its file and add one line here.

Installed packages add kernels through the entry-point group `pagebench.kernels`, and
`--kernel FILE.py` adds a file's `ADAPTER`. Both are found by name like our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from operator import index
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, cast

from pagebench.kernels.adapter import Adapter, Loads
from pagebench.kernels.foreign import foreign, told
from pagebench.kernels.plugin_file import PATIENCE_S, FileFailed, forgotten_on_failure, run_file
from pagebench.layouts.shape import Shape

ADAPTERS = (
    ("reference", "pagebench.kernels.reference:ADAPTER"),
    ("gather", "pagebench.kernels.gather:ADAPTER"),
    ("fidecode", "pagebench.kernels.flashinfer.adapter:FIDECODE"),
    ("fitc", "pagebench.kernels.flashinfer.adapter:FITC"),
    ("fifa3", "pagebench.kernels.flashinfer.adapter:FIFA3"),
    ("xqa", "pagebench.kernels.xqa.adapter:ADAPTER"),
    ("tritontoken", "pagebench.kernels.triton.adapter:TRITONTOKEN"),
    ("tritonrow", "pagebench.kernels.triton.adapter:TRITONROW"),
    ("tritontile", "pagebench.kernels.triton.adapter:TRITONTILE"),
)

# Kernels that are wrong on purpose, and innocent ones beside them. Nothing lists them.
PLANTED, PLANTED_IN = ("faulty", "innocent"), "pagebench.kernels.probes.faulty"

MEMBERS = ("name", "has_plan", "lowering", "refuses", "workspace_bytes", "plan")
_from_files: dict[str, Adapter] = {}


class KernelError(ValueError):
    """A kernel that cannot be found or loaded, or whose formula of loads fails."""


@cache
def _installed() -> dict[str, str]:
    """Kernels of other packages.

    Finding them reads the metadata of every package, 0.3 s in a full environment. So it waits until
    a word is not one of our own kernels.
    """
    from importlib.metadata import entry_points

    return {entry.name: entry.value for entry in entry_points(group="pagebench.kernels")}


def _target(name: str) -> str | None:
    if name.startswith(PLANTED):
        return f"{PLANTED_IN}:{name}"
    return dict(ADAPTERS).get(name) or _installed().get(name)


def is_shipped(name: str) -> bool:
    """Whether the kernel is one of this package, planted ones too."""
    return name in dict(ADAPTERS) or name.startswith(PLANTED)


def kernel_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys([*dict(ADAPTERS), *_installed(), *_from_files]))


def plants(adapter: Adapter) -> bool:
    """Whether a kernel does planted work; without the attribute `plants` it does not."""
    with foreign():
        return bool(getattr(adapter, "plants", False))


def planting_kernels() -> tuple[str, ...]:
    """Our own kernels that do planted work."""
    return tuple(name for name, _ in ADAPTERS if plants(find_kernel(name)))


def loads_of(
    name: str, shape: Shape, resolved: Mapping[str, Any], capability: tuple[int, int] | None
) -> Loads:
    """What a call of that kernel loads, by its adapter's formula; `Loads()` where it has none.

    KernelError where the kernel does not load or its formula fails.
    """
    adapter = find_kernel(name)
    try:
        with foreign():
            formula = getattr(adapter, "loads", None)
            if formula is None or not resolved:
                return Loads()
            return _counted(formula(shape, resolved, capability))
    except Exception as error:
        raise KernelError(f"{name}.loads(): {told(error)}") from error


def _counted(found: object) -> Loads:
    """Loads with each number an int of this platform's records. Errors say what is no such."""
    if not isinstance(found, Loads):
        raise TypeError(f"it returns {type(found).__name__}; return adapter.Loads")
    given = (found.ldg, found.decode_ldg, found.merge_bytes)
    counts = [count if count is None else index(count) for count in given]
    for count in counts:
        if count is not None and not 0 <= count < 2**63:
            raise ValueError(f"it returns {count:.4g}; give None, 0 or more")
    grids = tuple((index(x), index(y), index(z)) for x, y, z in found.grids)
    return Loads(counts[0], counts[1], counts[2], grids)


def is_kernel(name: str) -> bool:
    return name in _from_files or _target(name) is not None


@cache
def _load(target: str) -> Adapter:
    module, _, attribute = target.partition(":")
    return cast(Adapter, getattr(import_module(module), attribute))


def find_kernel(name: str) -> Adapter:
    """The adapter of that name; KernelError where there is none or its package fails to load."""
    if name in _from_files:
        return _from_files[name]
    target = _target(name)
    if target is None:
        raise KernelError(f"no kernel {name}; there are {', '.join(kernel_names())}")
    try:
        with foreign():
            adapter = _load(target)
            wrong = _wrong(adapter, target.partition(":")[2])
    except Exception as error:
        raise KernelError(f"kernel {name} does not load: {told(error)}{_where(error)}") from error
    if wrong:
        raise KernelError(f"kernel {name} does not load: {wrong}")
    return adapter


def _where(error: Exception) -> str:
    """Where it was raised, ` (module.py:12)`; empty if that is Python's import or this module."""
    passed_over = (__file__, "<frozen", import_module.__code__.co_filename)
    every = extract_tb(error.__traceback__)
    frames = [frame for frame in every if not frame.filename.startswith(passed_over)]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def _wrong(adapter: object, name: str) -> str | None:
    """Why an object of that name is not an adapter, and what would be right; None if it is one."""
    if isinstance(adapter, type):
        return f"{name} is a class: give an instance, {name} = {adapter.__name__}()"
    missing = [member for member in MEMBERS if not hasattr(adapter, member)]
    return f"{name} has no {', '.join(missing)}" if missing else None


def is_name(word: str) -> bool:
    """Whether a kernel may have that name: [a-z0-9], and not digits alone."""
    return word.isascii() and word.isalnum() and word.islower()


def add_kernel_file(path: Path, patience_s: float | None = PATIENCE_S) -> str:
    """Load the `ADAPTER` of a Python file and return its name.

    KernelError where the file is missing, fails, takes longer than `patience_s`, has no adapter, or
    its name is taken or invalid.
    """
    try:
        if not path.is_file():
            raise KernelError(f"--kernel {path}: no such file")
        with forgotten_on_failure(path.resolve().parent):
            name, adapter = _adapter_in(run_file(path, patience_s))
    except OSError as error:
        raise KernelError(f"--kernel {path}: {error.strerror}") from error
    except FileFailed as error:
        raise KernelError(f"--kernel {path}{error}") from error
    _from_files[name] = adapter
    return name


def _adapter_in(module: ModuleType) -> tuple[str, Adapter]:
    """The module's ADAPTER and its name. FileFailed where it has none, or an unusable one."""
    try:
        with foreign():
            if not hasattr(module, "ADAPTER"):
                raise FileFailed(": the file defines no ADAPTER")
            adapter = cast(Adapter, module.ADAPTER)
            wrong, name = _wrong(adapter, "ADAPTER"), str(getattr(adapter, "name", ""))
    except Exception as error:
        if isinstance(error, FileFailed):
            raise
        raise FileFailed(f": ADAPTER: {told(error)}") from error
    if wrong:
        raise FileFailed(f": {wrong}")
    if not is_name(name) or is_kernel(name):
        raise FileFailed(f": the name {name[:40]} is taken or invalid; use a new one of [a-z0-9]")
    return name, adapter
