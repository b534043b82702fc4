"""Count cells under Nsight Compute, as many in one profiled process as it can take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from msgspec import structs

from pagebench.harness.cell import Cell
from pagebench.harness.counting.kernels import counters_of
from pagebench.harness.counting.process import ProcessDied, Profiled, profiled
from pagebench.harness.environment import PAGEBENCH, environment
from pagebench.harness.errors import UserError, as_user_error
from pagebench.harness.progress import Progress
from pagebench.harness.records.counters import Counters, How, Kernel
from pagebench.harness.records.store import StoreError, check_writable
from pagebench.harness.timing.once import Called
from pagebench.kernels.device import Device
from pagebench.profiles.counters import CountError
from pagebench.profiles.metrics import SINGLE_PASS, ChipError, chip_of, names_on
from pagebench.profiles.ncu import NcuError, Setting, find_ncu, ncu_version

LAUNCHES = 2  # every cell is counted twice: counters that do not repeat are not used
COMPLAINTS = (NcuError, CountError, ChipError)  # errors of `profiles`, with texts for users


@dataclass(frozen=True, slots=True)
class Request:
    """How to count cells: `l2` is the state of the cache before each of their `launches`.

    `keep` is the file to copy ncu's report to, that of the first process that counted.
    """

    device: Device
    launches: int = LAUNCHES
    l2: str = "cold"
    keep: Path | None = None
    kernel_file: Path | None = None


@as_user_error(*COMPLAINTS)
def profile(cells: Sequence[Cell], request: Request, progress: Progress) -> list[Counters]:
    """All counters of the cells. UserError, with a remedy, where nothing can be counted.

    A cell that failed, or ran other kernels than it promised, loses only its own record, and
    `progress` reports why. Cells lost because another cell broke the device or killed the process
    are counted in another process.
    """
    if request.l2 == "warm":
        raise UserError(
            "ncu flushes the caches before each pass, so no cell can be warm: add --single-pass"
        )
    asked = replace(request, keep=_report_path(request.keep))
    return _Count(asked, Setting(), progress).of(cells)


@as_user_error(*COMPLAINTS)
def profile_single_pass(
    cells: Sequence[Cell],
    request: Request,
    progress: Progress,
    groups: Sequence[str] = tuple(SINGLE_PASS),
) -> list[Counters]:
    """Counters in groups of one pass, one process per group: nothing is saved or replayed.

    The caches are as the cell's own preparation leaves them. The groups of a cell become one
    record; a cell that failed in any of them has none. UserError, with a remedy, where nothing can
    be counted or a group needs more than one pass.
    """
    if request.keep:
        raise UserError("--keep saves one report of all counters: leave out --single-pass")
    parts = defaultdict[str, list[Counters]](list)
    for group in groups:
        setting = Setting(cold=False, metrics=SINGLE_PASS[group])
        for counted in _Count(request, setting, progress).of(cells):
            _refuse_replay(counted, group)
            parts[counted.cell].append(counted)
    whole = (each for each in parts.values() if len(each) == len(groups))
    return [_merged(each) for each in whole if _are_alike(each, progress)]


def _report_path(keep: Path | None) -> Path | None:
    """The report's file, with ncu's suffix; UserError before counting if it is not writable."""
    if keep is None:
        return None
    if keep.suffix != ".ncu-rep":
        keep = keep.with_name(keep.name + ".ncu-rep")
    with as_user_error(StoreError, prefix="--keep "):
        check_writable(keep)
    return keep


# --- process after process ------------------------------------------------------------------------


class _Count:
    """Counts cells with one setting of ncu, in as many processes as it takes."""

    def __init__(self, request: Request, setting: Setting, progress: Progress) -> None:
        device = request.device
        if device.kind != "cuda" or device.capability is None:
            raise UserError(
                "counters need an NVIDIA GPU; `pagebench import FILE` reads a report from elsewhere"
            )
        chip = chip_of(device.capability)
        self._request, self._setting, self._progress = request, setting, progress
        self._names = names_on(chip, setting.metrics)
        self._how = How(
            ncu=ncu_text(),
            chip=chip,
            replay_mode="kernel",
            cache_control=setting.cache_control,
            clock_control="none",
            l2=request.l2,
            launches=request.launches,
        )
        self._environment = environment(device)

    def of(self, cells: Sequence[Cell]) -> list[Counters]:
        """The records of the cells that could be counted. NcuError where no process counts any."""
        counted, left = list[Counters](), list(cells)
        keep, before = self._request.keep, None
        while left:
            began = perf_counter()
            try:
                process = self._process(left, keep)
            except NcuError as error:
                culprit, before = _culprit(left, error, before), error
                if not counted and (culprit is None or len(left) == 1):
                    raise
                self._progress(_blamed(culprit, left, error))
                left = [cell for cell in left if culprit and cell is not culprit]
                continue
            seconds = round(perf_counter() - began, 2)
            how = structs.replace(self._how, elapsed_s=seconds, cells=len(left))  # of this process
            counted += self._records(left, process, how)
            # Each process takes at least its first cell, so fewer are left every time.
            left = [cell for cell in left[1:] if _is_lost(process.told.get(cell.name))]
            keep = None if process.rows else keep
        return counted

    def _process(self, cells: Sequence[Cell], keep: Path | None) -> Profiled:
        named = [cell.name for cell in cells]
        child = _child(named, self._request)
        return profiled(child, self._setting, self._names, self._progress, cells=named, keep=keep)

    def _records(self, cells: Sequence[Cell], process: Profiled, how: How) -> Iterator[Counters]:
        for cell in cells:
            said = process.told.get(cell.name)
            if said is None or said.reason:
                self._progress(_failed(cell, said))
                continue
            try:
                counted = counters_of(cell, process.rows, said, how, self._environment)
            except CountError as error:
                self._progress(f"wrong: {cell.name}: {error}")
                continue
            if counted.predicted.failed:
                self._progress(f"{cell.name}: loads are not predicted: {counted.predicted.failed}")
            if grids := counted.predicted.other_grids:
                told = f"the formula is of grid {grids[0]}, and {grids[1]} was launched"
                self._progress(f"{cell.name}: loads are not predicted: {told}")
            yield counted


def ncu_text() -> str:
    """The version of the ncu on the PATH, as 2025.3.1; NcuError where there is none."""
    return ".".join(map(str, ncu_version(find_ncu())))


def _child(cells: Sequence[str], request: Request) -> list[str]:
    options = {
        "--launches": str(request.launches),
        "--l2": request.l2,
        "--device": request.device.torch_name,
    }
    if request.kernel_file:
        options["--kernel"] = str(request.kernel_file)
    words = [word for option in options.items() for word in option]
    return [*PAGEBENCH, "once", *cells, "--keep-going", *words]


def _culprit(cells: Sequence[Cell], error: NcuError, before: NcuError | None) -> Cell | None:
    """The cell that ended the process: the first without a report, else the first that crashed.

    None where no cell is to blame: ncu's own trouble, or the same message twice before any cell
    reported, since a cell that kills its process leaves no message.
    """
    if not isinstance(error, ProcessDied):
        return None
    if not error.told and not error.silent and str(error) == str(before):
        return None
    silent = [cell for cell in cells if cell.name not in error.told]
    crashed = [c for c in cells if c.name in error.told and error.told[c.name].status == "crashed"]
    return next(iter(silent + crashed), None)


def _blamed(culprit: Cell | None, cells: Sequence[Cell], error: NcuError) -> str:
    """A line that says what was lost and why, with the cell's own reason where it gave one."""
    if culprit is None:
        return f"not counted: {', '.join(cell.name for cell in cells)}: {error}"
    said = error.told.get(culprit.name) if isinstance(error, ProcessDied) else None
    return f"crashed: {culprit.name}: {said.reason if said and said.reason else error}"


def _is_lost(said: Called | None) -> bool:
    """Whether another cell broke it: then it is counted again."""
    return said is not None and said.status == "lost"


def _failed(cell: Cell, said: Called | None) -> str:
    if said is None:
        return f"lost: {cell.name}: the process reported nothing about it"
    again = "; counting it again" if _is_lost(said) else ""
    return f"{said.status}: {cell.name}: {said.reason}{again}"


# --- groups of one pass ---------------------------------------------------------------------------


def _refuse_replay(counted: Counters, group: str) -> None:
    """UserError for more than one pass: later passes would find the caches of earlier ones."""
    passes = {kernel.passes for kernel in counted.kernels}
    if passes != {1}:
        taken = ", ".join(map(str, sorted(passes, key=str)))
        raise UserError(f"the counters of {group} took {taken} passes here, not one")


def _are_alike(parts: Sequence[Counters], progress: Progress) -> bool:
    """Whether the same kernels ran in every group; if not, `progress` reports it."""
    alike = len({tuple(kernel.symbol for kernel in part.kernels) for part in parts}) == 1
    if not alike:
        progress(f"wrong: {parts[0].cell}: its groups of counters ran different kernels")
    return alike


def _merged(parts: Sequence[Counters]) -> Counters:
    """The groups of one cell as one record; `elapsed_s` is the sum over their processes."""
    first = parts[0]
    seconds = round(sum(part.how.elapsed_s or 0 for part in parts), 2)
    return structs.replace(
        first,
        how=structs.replace(first.how, replay_mode="single pass", elapsed_s=seconds),
        kernels=tuple(map(_merged_kernel, zip(*(part.kernels for part in parts), strict=True))),
    )


def _merged_kernel(parts: Sequence[Kernel]) -> Kernel:
    values = {name: counts for part in parts for name, counts in part.values.items()}
    return structs.replace(parts[0], values=values)
