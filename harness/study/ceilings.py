"""Measured ceilings, and the bandwidth of contiguous distinct cells, which read each byte once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pagebench.harness.cell import Cell
from pagebench.harness.judging.beside import as_data
from pagebench.harness.judging.ceiling import UNCERTAINTY, needles_passed
from pagebench.harness.records import identity
from pagebench.harness.records.caveats import CEILINGS, Apart
from pagebench.harness.records.ceilings import ByWarps, Launches, MeasuredCeilings
from pagebench.harness.show.caveats import caveat
from pagebench.harness.show.text import share
from pagebench.harness.study import figures
from pagebench.harness.study.figures import Figure
from pagebench.harness.study.numbers import commands_of, gb_of, note, time_text
from pagebench.harness.study.read import Recorded, Timed, gpus_of
from pagebench.harness.study.section import Section, Table, table_of
from pagebench.profiles.ceilings import Point, bandwidth_at

NO_CEILINGS = "No measured ceilings in these files: `pagebench ceilings --out FILE`."
REACHED = ("cell", "MB", "time us", "GB/s", "of nominal", "of the ceiling", "note")
SCALARS = ("ceiling", "value", "by warps per SM, or by launches", "saturated")
RATE_NAMES = {
    "l2_read_gbps": "L2 read, GB/s",
    "issue_ginst": "issue, 10^9 warp instructions per second",
    "fma_gflops": "FMA, GFLOP/s",
    "matrix_gflops": "mma.sync bf16, GFLOP/s",
}


def ceilings(recorded: Recorded) -> Section:
    """The newest ceilings, and how close cells come to them."""
    measured = recorded.ceilings[-1] if recorded.ceilings else None
    points = measured.dram_read if measured else ()
    cells = _streaming(recorded)
    if not points and not cells:
        return Section("ceilings", "Ceilings", missing=NO_CEILINGS)
    measuring = ("pagebench ceilings",) if measured else ()
    return Section(
        "ceilings",
        "Ceilings",
        tables=(*_measured_tables(measured), *_reached_tables(measured, cells)),
        figures=(_figure(measured, cells),),
        commands=(*measuring, *commands_of(cells.values())),
        missing="" if points else NO_CEILINGS,
    )


def _streaming(recorded: Recorded) -> dict[str, Timed]:
    """The newest timing of every contiguous distinct cell, by name."""
    names = {
        timing.cell
        for _, timing in recorded.timings()
        if timing.boundary == "run"
        and (timing.axes.sharing, timing.axes.placement) == ("distinct", "contiguous")
    }
    ordered = sorted(names, key=_kernel_page_tokens)
    return {name: found for name in ordered for found in recorded.timed([name]).values()}


def _kernel_page_tokens(name: str) -> tuple[str, int, int, str]:
    cell = Cell.parse(name)
    return cell.kernel, cell.shape.page_size, cell.shape.batch * cell.shape.kv_len, name


# --- Measured -------------------------------------------------------------------------------------


def _measured_tables(measured: MeasuredCeilings | None) -> tuple[Table, ...]:
    """DRAM's curve and the other ceilings that the record has."""
    if measured is None:
        return ()
    gpus = (gpus_of(measured),)
    curve = table_of(
        "DRAM read bandwidth",
        ("MB read", "GB/s", "saturated"),
        list(map(_point_row, measured.dram_read)),
        gpus=gpus,
    )
    launch = [_launch_row(measured.launch_us)] if measured.launch_us else []
    scalars = [*(_rate_row(name, rate) for name, rate in measured.rates.items()), *launch]
    others = table_of("Other ceilings", SCALARS, scalars, gpus=gpus)
    return tuple(table for table in (curve, others) if table.rows)


def _point_row(point: Point) -> tuple[str, ...]:
    return f"{point.bytes_read / 1e6:,.0f}", f"{point.gbps:,.0f}", _yes(point.saturated)


def _yes(saturated: bool) -> str:
    return "yes" if saturated else "no"


def _rate_row(name: str, rate: ByWarps) -> tuple[str, ...]:
    return RATE_NAMES[name], f"{rate.value:,.6g}", _steps(rate.by_warps), _yes(rate.saturated)


def _launch_row(launch: Launches) -> tuple[str, ...]:
    cost = f"first {launch.first:,.6g}, further {launch.further:,.6g}"
    return "launch, us", cost, _steps(launch.by_launches), _yes(launch.saturated)


def _steps(values: Mapping[int, float]) -> str:
    return ", ".join(f"{count}: {value:,.6g}" for count, value in values.items())


# --- Reached --------------------------------------------------------------------------------------


def _reached_tables(
    measured: MeasuredCeilings | None, cells: Mapping[str, Timed]
) -> tuple[Table, ...]:
    if not cells:
        return ()
    return (
        table_of(
            "Bandwidth reached; each distinct KV byte counts once",
            REACHED,
            [_reached_row(cell, found, measured) for cell, found in cells.items()],
            gpus=[gpus_of(found, measured) for found in cells.values()],
        ),
    )


def _reached_row(cell: str, found: Timed, measured: MeasuredCeilings | None) -> tuple[str, ...]:
    apart = identity.apart(measured.environment, found.environment) if measured else ()
    points = measured.dram_read if measured and not apart else ()
    ceiling = bandwidth_at(points, found.work.distinct_kv_bytes)
    said = Apart(CEILINGS, (), as_data(apart), refused=True)
    return (
        cell,
        f"{1e3 * gb_of(found):,.1f}",
        time_text(found),
        f"{found.gbps:,.0f}",
        share(found.of_nominal),
        _of_ceiling(found, ceiling),
        "; ".join(filter(None, (note(found), caveat(said) if apart else ""))),
    )


def _of_ceiling(found: Timed, ceiling: float | None) -> str:
    """The share of the ceiling; above it and its uncertainty, which of the two falls."""
    if not ceiling:
        return ""
    reached = f"{found.gbps / ceiling:.1%}"
    if found.timing.l2 != "cold" or found.gbps <= ceiling * (1 + UNCERTAINTY):
        return reached
    falls = "refuted" if needles_passed(found.timing.check) else "the time does not stand"
    return f"{reached}: {falls}"


def _figure(measured: MeasuredCeilings | None, cells: Mapping[str, Timed]) -> Figure:
    series: dict[str, list[tuple[float, float]]] = {}
    throttled = []
    for found in cells.values():
        place = (1e3 * gb_of(found), found.gbps)
        axes = found.timing.axes
        series.setdefault(f"{axes.kernel} p{axes.page_size}", []).append(place)
        if found.samples.throttle:
            throttled.append(place)
    alt = (
        "Bandwidth of contiguous distinct cells by the bytes they must read, one marker per "
        "kernel and page size, with the nominal bandwidth and the measured ceiling if there is "
        "one. +: the GPU throttled. Numbers are in the tables."
    )
    curve = [(p.bytes_read / 1e6, p.gbps) for p in (measured.dram_read if measured else ())]
    drawn = figures.bandwidth(alt, series, curve, _nominal(cells), throttled)
    return replace(drawn, gpus=tuple(gpus_of(found, measured) for found in cells.values()))


def _nominal(cells: Mapping[str, Timed]) -> float | None:
    known = (found.environment.nominal_dram_gbps for found in cells.values())
    return next(filter(None, known), None)
