"""The study from records: sections of words, tables and figures, the seed's figures beside ours.

Every number is computed from the records or stands in `seed`. A section without records says what
would make them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from pagebench.harness.cell import Cell
from pagebench.harness.show import timings as report
from pagebench.harness.study import figures
from pagebench.harness.study.concluded import attacks, dose, planted, verdicts
from pagebench.harness.study.figures import Figure
from pagebench.harness.study.original_tables import (
    distinct,
    gather,
    nsight,
    plan,
    replay,
    xqa_pages,
)
from pagebench.harness.study.read import Line, Recorded, Timed, all_gpus, device_name, gpus_of
from pagebench.harness.study.section import (
    Section,
    Table,
    commands_of,
    gb_of,
    named_for,
    note,
    table_of,
    time_text,
    told_apart,
)
from pagebench.profiles.ceilings import Point, bandwidth_at

QUESTION = "Did page size reach the kernel, and does the kernel care?"


@dataclass(frozen=True, slots=True)
class Study:
    """The page's content; `device` is the model that all records are of, `gpus` which of it."""

    device: str
    gpus: tuple[str, ...]
    sections: tuple[Section, ...]


def study(recorded: Recorded) -> Study:
    """All sections, in the page's order."""
    device, gpus = device_name(recorded), all_gpus(recorded)
    drawn = tuple(told_apart(named_for(_made(make, recorded), device), gpus) for make in MAKERS)
    return Study(device, gpus, (*drawn, reproduce(drawn)))


def _made(make: Callable[[Recorded], Section], recorded: Recorded) -> Section:
    """A section; ValueError where a record is not of the shape that is drawn."""
    try:
        return make(recorded)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{make.__name__}: a record that cannot be drawn: {error!r}") from error


# --- Environment ----------------------------------------------------------------------------------

FACTS = (("gpu", "device"), ("uuid", "UUID"), ("driver", "driver"), ("cuda", "CUDA"),
         ("power_limit_w", "power limit W"), ("max_sm_mhz", "SM MHz"),
         ("max_memory_mhz", "memory MHz"), ("nominal_dram_gbps", "nominal DRAM GB/s"))  # fmt: skip


def environment(recorded: Recorded) -> Section:
    """One row a GPU and commit, with the clocks seen while timing."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for source, facts in recorded.environments():
        groups.setdefault(_facts(facts), []).append(source)
    rows = tuple((*row, ", ".join(dict.fromkeys(found))) for row, found in groups.items())
    headings = (*(heading for _, heading in FACTS), "versions", "commit", "records")
    text = (*_clocks_seen(recorded), *_left_out(recorded))
    missing = "" if rows else "No record in these files names its environment."
    table = table_of("Where and with what the records were made", headings, rows)
    return Section("environment", "Environment", text, (table,) if rows else (), missing=missing)


def _facts(facts: Line) -> tuple[str, ...]:
    known = {"gpu": facts.get("cpu", ""), **facts}
    values = [known.get(name) for name, _ in FACTS]
    text = ("" if value is None else _plain(value) for value in values)
    versions = ", ".join(f"{name} {value}" for name, value in facts.get("versions", {}).items())
    dirty = " with changes" if facts.get("dirty") else ""
    return (*text, versions, f"{(facts.get('commit') or 'unknown')[:12]}{dirty}")


def _plain(value: Any) -> str:
    return f"{value:.0f}" if isinstance(value, float) else str(value)


def _left_out(recorded: Recorded) -> tuple[str, ...]:
    counts = ", ".join(f"{count} {reason}" for reason, count in recorded.left_out.items())
    return (f"Timings in these files that are not drawn: {counts}.",) if counts else ()


def _clocks_seen(recorded: Recorded) -> tuple[str, ...]:
    seen = [
        clock
        for _, record in recorded.timings()
        for block in (record.samples.blocks if record.samples else ())
        if (clock := block.spin_mhz or block.sm_mhz)
    ]
    if not seen:
        return ()
    return (f"SM clock while timing: {min(seen)} to {max(seen)} MHz, median {median(seen):.0f}.",)


# --- Ceilings -------------------------------------------------------------------------------------

REACHED = ("cell", "MB", "time us", "GB/s", "of nominal", "of the ceiling", "note")


def ceilings(recorded: Recorded) -> Section:
    """Bandwidth measured and reached: contiguous distinct cells, which read every byte once."""
    line = recorded.ceilings[-1] if recorded.ceilings else None
    points = [Point(**point) for point in line["dram_read"]] if line else []
    cells = _streaming(recorded)
    if not points and not cells:
        return Section("ceilings", "Ceilings", missing=NO_CEILINGS)
    tables = (*(_curve_table(line, points),) * bool(points), *_scalars(line),
              *(_reached_table(line, cells, points),) * bool(cells))  # fmt: skip
    commands = (*(("pagebench ceilings",) if line else ()), *commands_of(cells.values()))
    return Section("ceilings", "Ceilings", tables=tables, figures=(_curve(line, cells, points),),
                   commands=commands, missing="" if points else NO_CEILINGS)  # fmt: skip


NO_CEILINGS = "No measured ceilings in these files: `pagebench ceilings --out FILE`."


def _streaming(recorded: Recorded) -> dict[str, Timed]:
    """The newest timing of every contiguous distinct cell, by name."""
    names = {
        record.cell for _, record in recorded.timings()
        if record.boundary == "run"
        and (record.axes["sharing"], record.axes["placement"]) == ("distinct", "contiguous")
    }  # fmt: skip
    ordered = sorted(names, key=_kernel_page_bytes)
    return {name: found for name in ordered for found in recorded.timed([name]).values()}


def _kernel_page_bytes(name: str) -> tuple[str, int, int]:
    cell = Cell.parse(name)
    return cell.kernel, cell.shape.page_size, cell.shape.batch * cell.shape.kv_len


def _curve_table(line: Line | None, points: Sequence[Point]) -> Table:
    rows = tuple(
        (f"{point.bytes_read / 1e6:,.0f}", f"{point.gbps:,.0f}", "yes" if point.saturated else "no")
        for point in points
    )
    headings = ("MB read", "GB/s", "shown to saturate")
    return table_of("DRAM read bandwidth", headings, rows, gpus=(gpus_of(line),))


def _scalars(line: Line | None) -> tuple[Table, ...]:
    """Ceilings other than the curve, where the record has them (schema 2)."""
    names = ("l2_read_gbps", "issue_ginst", "fma_gflops", "matrix_gflops", "launch_us")
    rows = [_scalar(name, line[name]) for name in names if line and name in line]
    headings = ("ceiling", "value", "by warps an SM, or launches", "shown to saturate")
    return (table_of("Other ceilings", headings, rows, gpus=(gpus_of(line),)),) if rows else ()


CEILING_NAMES = {
    "l2_read_gbps": "L2 read, GB/s",
    "issue_ginst": "issue, 10^9 warp instructions a second",
    "fma_gflops": "FMA, GFLOP/s",
    "matrix_gflops": "mma.sync bf16, GFLOP/s",
    "launch_us": "launch, us",
}


def _scalar(name: str, entry: Mapping[str, Any]) -> tuple[str, ...]:
    """One ceiling: its numbers, those of each step of parallelism, and whether it saturates."""
    values = (f"{part} {entry[part]:,.6g}" for part in ("value", "first", "further")
              if part in entry)  # fmt: skip
    steps = (
        f"{count}: {value:,.6g}"
        for part in entry.values() if isinstance(part, Mapping)
        for count, value in part.items()
    )  # fmt: skip
    saturated = "yes" if entry["saturated"] else "no"
    value = ", ".join(values).removeprefix("value ")
    return CEILING_NAMES[name], value, ", ".join(steps), saturated


def _reached_table(line: Line | None, cells: Mapping[str, Timed], points: Sequence[Point]) -> Table:
    rows = []
    for cell, found in cells.items():
        of_nominal = report.row(found.record).of_nominal
        ceiling = bandwidth_at(points, int(found.record.predicted["distinct_kv_bytes"]))
        rows.append((
            cell, f"{1e3 * gb_of(found):,.1f}", time_text(found), f"{found.gbps:,.0f}",
            "" if of_nominal is None else f"{of_nominal:.1%}",
            f"{found.gbps / ceiling:.1%}" if ceiling else "", note(found),
        ))  # fmt: skip
    gpus = [gpus_of(found, line) for found in cells.values()]
    return table_of("Bandwidth reached, every distinct KV byte counted once", REACHED, rows,
                    gpus=gpus)  # fmt: skip


def _curve(line: Line | None, cells: Mapping[str, Timed], points: Sequence[Point]) -> Figure:
    series: dict[str, list[tuple[float, float]]] = {}
    throttled = []
    for found in cells.values():
        place = (1e3 * gb_of(found), found.gbps)
        series.setdefault("{kernel} p{page_size}".format_map(found.record.axes), []).append(place)
        samples = found.record.samples
        if samples and any(block.throttle for block in samples.blocks):
            throttled.append(place)
    nominal = [value for found in cells.values()
               if (value := found.record.environment.get("nominal_dram_gbps"))]  # fmt: skip
    drawn = figures.bandwidth(
        "Bandwidth that contiguous distinct cells reach over the bytes they must read, a mark a "
        "kernel and page size, under the nominal bandwidth and, where it was measured, the "
        "ceiling. A + on a mark: the GPU throttled meanwhile. Numbers are in the tables.",
        series, [(p.bytes_read / 1e6, p.gbps) for p in points], nominal[0] if nominal else None,
        throttled,
    )  # fmt: skip
    return replace(drawn, gpus=tuple(gpus_of(found, line) for found in cells.values()))


# --- Two modes ------------------------------------------------------------------------------------

MODES = ("cell", "fast us", "slow us", "slow share", "samples", "file")


def modes(recorded: Recorded) -> Section:
    """Raw samples of the cells that lie in two modes: a difference between those is no effect."""
    found = list(_bimodal(recorded))
    if not found:
        return Section("modes", "Cells in two modes",
                       missing="No timing in these files has two modes.")  # fmt: skip
    rows = tuple(
        (timed.record.cell, f"{m.fast_us:.2f}", f"{m.slow_us:.2f}", f"{m.slow_share:.0%}",
         str(timed.summary.count), timed.file)
        for timed in found if (m := timed.summary.modes)
    )  # fmt: skip
    drawn = tuple(_strip(number, timed) for number, timed in enumerate(found))
    table = table_of("Modes by the dip test", MODES, rows, gpus=[timed.gpu for timed in found])
    return Section("modes", "Cells in two modes", tables=(table,), figures=drawn,
                   commands=commands_of(found))  # fmt: skip


def _bimodal(recorded: Recorded) -> Iterable[Timed]:
    for run in recorded.runs:
        for boundary in ("run", "plan"):
            names = [cell for where, cell in run.records if where == boundary]
            for timed in run.timed(names, boundary).values():
                if timed.summary.modes:
                    yield timed


def _strip(number: int, timed: Timed) -> Figure:
    samples, found = timed.record.samples, timed.summary.modes
    assert samples
    assert found
    alt = f"{timed.record.cell}, {timed.file}: samples in time order, two modes"
    drawn = figures.strip(f"modes-{number}", alt, samples.time_us, found)
    return replace(drawn, gpus=(timed.gpu,))


# --- Reproduce ------------------------------------------------------------------------------------


def reproduce(sections: Sequence[Section]) -> Section:
    """Every command that makes a record of this page, once, by the section that first uses it."""
    first: dict[str, str] = {}
    for section in sections:
        for command in section.commands:
            first.setdefault(command, section.title)
    rows = tuple((title, command) for command, title in first.items())
    table = table_of(
        "Each command appends to the file that `--out` names", ("for", "command"), rows
    )
    return Section("reproduce", "How to reproduce each row", tables=(table,))


MAKERS = (verdicts, environment, gather, nsight, plan, xqa_pages, distinct, replay, dose, attacks,
          ceilings, modes, planted)  # fmt: skip
