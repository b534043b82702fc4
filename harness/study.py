"""The study from records: sections of words, tables and figures, the seed's figures beside ours.

Every number is computed from the records or stands in `seed`. A section without records says what
would make them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from pagebench.harness import figures, report, seed
from pagebench.harness.contrasts import CONTRASTS, PLANTED, Contrast
from pagebench.harness.dose import follows
from pagebench.harness.figures import Figure
from pagebench.harness.recorded import Line, Recorded, Timed, device_name
from pagebench.harness.section import (
    THIS,
    Section,
    Table,
    commands_of,
    gb_of,
    table_of,
    time_text,
)
from pagebench.harness.seed_tables import distinct, gather, nsight, plan, replay, xqa_pages
from pagebench.harness.stats import Summary
from pagebench.profiles.ceilings import Point, bandwidth_at

QUESTION = "Did page size reach the kernel, and does the kernel care?"
SHAPES = {
    "absent": "○",
    "hidden": "◐",
    "exposed": "●",
    "unexplained": "▲",
    "confounded": "✕",
    "floor": "▁",
    "unclear": "?",
}


@dataclass(frozen=True, slots=True)
class Study:
    """The page's content; `device` is what all records are of."""

    device: str
    sections: tuple[Section, ...]


def study(recorded: Recorded) -> Study:
    """All sections, in the page's order."""
    device = device_name(recorded)
    drawn = tuple(_fill_device(_made(make, recorded), device) for make in MAKERS)
    return Study(device, (*drawn, reproduce(drawn)))


def _made(make: Callable[[Recorded], Section], recorded: Recorded) -> Section:
    """A section; ValueError where a record is not of the shape that is drawn."""
    try:
        return make(recorded)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{make.__name__}: a record that cannot be drawn: {error!r}") from error


def _fill_device(section: Section, device: str) -> Section:
    """Tables that compare have the device's name in place of THIS."""
    tables = tuple(
        replace(table, headings=tuple(device if h == THIS else h for h in table.headings))
        for table in section.tables
    )
    return replace(section, tables=tables)


# --- Verdicts -------------------------------------------------------------------------------------


def newest_verdicts(recorded: Recorded) -> dict[tuple[str, str], Line]:
    """The newest verdict of each two cells."""
    return {(line["cells"][0], line["cells"][1]): line for line in recorded.verdicts}


def _failed(line: Line) -> bool:
    return line["predicted"] not in (None, line["verdict"])


NO_VERDICTS = "No verdict in these files: `pagebench judge NAME` makes one; `pagebench judge` lists"


def headlines(recorded: Recorded) -> Section:
    """Verdicts as sentences, failed predictions first."""
    found = sorted(newest_verdicts(recorded).values(), key=lambda line: not _failed(line))
    text = (*((PATH,) if found else ()), *map(_headline, found))
    missing = "" if text else f"{NO_VERDICTS} the contrasts."
    return Section("verdicts", "What came out", text, missing=missing)


PATH = (
    "The critical path T is the launch plus the longest of what the counted work would take alone "
    "at each measured ceiling; where it explains less than 90 % of the time, latency binds."
)


def _headline(line: Line) -> str:
    """The verdict, where it differs from the seed's, and what it rests on."""
    seen = seed.VERDICTS.get(line["contrast"], line["verdict"])
    differs = f" On the seed's {seed.GPU} it was `{seen}`." if seen != line["verdict"] else ""
    because = "; ".join(line["because"])
    why = f" The prediction's reason: {line['why']}." if line.get("why") else ""
    return f"{_contrast_of(line)}: **{line['headline']}**.{why}{differs} It rests on: {because}."


def _contrast_of(line: Line) -> str:
    one, other = line["cells"]
    return (
        f"{line['contrast']} ({line['knob']})" if line["contrast"] else f"`{one}` against `{other}`"
    )


MATRIX = ("contrast", "predicted", "what came", "time B over A", "would be found", "what binds",
          "work that moved, B over A", "knob", "A", "B")  # fmt: skip


def matrix(recorded: Recorded) -> Section:
    """One row a contrast: those shipped, judged or not, and then any other two cells."""
    verdicts = newest_verdicts(recorded)
    lines = {contrast: verdicts.pop((contrast.one, contrast.other), None) for contrast in CONTRASTS}
    rows = [_matrix_row(contrast, line) for contrast, line in lines.items()]
    others = [_matrix_row(_of_record(line), line) for line in verdicts.values()]
    found = [*lines.values(), *verdicts.values()]
    judged = [line for line in found if line]
    table = table_of(
        f"{_error(found)} Would be found: the smallest effect found with 80 % power. What binds: "
        "the largest term of the critical path T, and how much of B's time T explains. "
        + ", ".join(f"{shape} {word}" for word, shape in SHAPES.items()) + "; ≠ not as predicted.",
        MATRIX, (*rows, *others), tuple(_row_class(line) for line in found),
    )  # fmt: skip
    if not judged:
        return Section("matrix", "Verdict matrix", missing=f"{NO_VERDICTS} what is predicted.")
    commands = tuple(dict.fromkeys(map(_judging, judged)))
    return Section("matrix", "Verdict matrix", tables=(table,), commands=commands)


def _judging(line: Line) -> str:
    """What makes the verdict again, with those that it was judged together with."""
    together = {c.name: "pagebench judge all" for c in CONTRASTS}
    together |= {c.name: "pagebench selftest" for c in PLANTED}
    return together.get(line["contrast"], f"pagebench judge {' '.join(line['cells'])}")


def _of_record(line: Line) -> Contrast:
    one, other = line["cells"]
    return Contrast(line["contrast"], line["knob"], one, other, line["predicted"])


def _matrix_row(contrast: Contrast, line: Line | None) -> tuple[str, ...]:
    asked = (contrast.knob, contrast.one, contrast.other)
    named = (contrast.name, contrast.predicts or "")
    if line is None:
        return (*named, f"not judged: pagebench judge {contrast.name}", "", "", "", "", *asked)
    time = line["time"]
    return (
        *named,
        f"{SHAPES.get(line['verdict'], '')} {line['verdict']}{' ≠' if _failed(line) else ''}",
        f"{time['ratio']:.4f} [{time['low']:.4f}, {time['high']:.4f}]"
        if time is not None
        else "no time",
        f"{time['detectable']:.2%}" if time is not None else "",
        _binding(line.get("path")),
        _moved(line["work"]),
        *asked,
    )


def _error(lines: Iterable[Line | None]) -> str:
    """At which error the verdicts were judged: at 5 % before records held it."""
    levels = sorted({line["time"].get("error", 0.05) for line in lines if line and line["time"]})
    text = " and ".join(f"{100 * level:g} %" for level in levels)
    return f"Judged at an error of {text} for all that were judged together."


def _row_class(line: Line | None) -> str:
    if line is None:
        return "not-judged"
    return f"{line['verdict']}{' failed' if _failed(line) else ''}"


def _moved(work: Mapping[str, Any] | None) -> str:
    if work is None:
        return "no counters"
    moved = (
        f"{name} {'from none' if value is None else f'× {value:.4g}'}"
        for name, value in work["changed"].items()
    )
    return ", ".join(moved) or "none"


def _binding(path: Mapping[str, Any] | None) -> str:
    """The binding term, and how much of the time the critical path explains."""
    return f"{path['binding']}, T {path['share']:.1%}" if path else ""


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


# --- Dose and response ----------------------------------------------------------------------------


def dose(recorded: Recorded) -> Section:
    """What the time follows when the page shrinks; the newest of each regime."""
    newest = {line["regime"]: line for line in recorded.doses}
    if not newest:
        return Section("dose", "Dose and response",
                       missing="No dose records: `make study` measures them.")  # fmt: skip
    text = tuple(
        f"{regime}, {line['cells'][0]} to {line['cells'][-1]}: the time follows "
        f"**{follows(line)}**; {'; '.join((*line['because'], *line['notes']))}."
        for regime, line in newest.items()
    )
    drawn = tuple(_dose_figure(number, line) for number, line in enumerate(newest.values()))
    commands = (f"pagebench dose {' '.join(newest)}",)
    tables = tuple(map(_dose_table, newest.values()))
    return Section("dose", "Dose and response", text, tables, drawn, commands)


def _dose_figure(number: int, line: Line) -> Figure:
    times = {
        value: Summary(middle, low, high, 0)
        for value, (low, middle, high) in zip(line["values"], line["time_us"], strict=True)
    }
    counted = zip(line["values"], line["counters"].get("ldg", ()), strict=False)
    ldg = {value: count for value, count in counted if count is not None}
    knob = _knob(line)
    alt = f"{line['regime']}: time and global loads over {knob}; numbers are in the table."
    return figures.ladder(f"dose-{number}", alt, times, ldg, knob)


def _knob(line: Line) -> str:
    return str({"page size": "tokens a page"}.get(line["knob"], line["knob"]))


def _dose_table(line: Line) -> Table:
    counters = {name: values for name, values in line["counters"].items() if any(values)}
    rows = tuple(
        (knob, f"{time[1]:.2f}", f"{time[0]:.2f} to {time[2]:.2f}",
         *("" if value is None else f"{value:,.0f}" for value in values))
        for knob, time, *values in zip(line["values"], line["time_us"], *counters.values(),
                                       strict=True)
    )  # fmt: skip
    headings = (_knob(line), "time us", "range of processes", *counters)
    return table_of(line["regime"], headings, rows)


# --- Ceilings -------------------------------------------------------------------------------------

REACHED = ("cell", "MB", "time us", "GB/s", "of nominal", "of the ceiling")


def ceilings(recorded: Recorded) -> Section:
    """Bandwidth measured and reached: contiguous distinct cells, which read every byte once."""
    line = recorded.ceilings[-1] if recorded.ceilings else None
    points = [Point(**point) for point in line["dram_read"]] if line else []
    cells = _streaming(recorded)
    if not points and not cells:
        return Section("ceilings", "Ceilings", missing=NO_CEILINGS)
    tables = (*(_curve_table(points),) * bool(points), *_scalars(line),
              *(_reached_table(cells, points),) * bool(cells))  # fmt: skip
    commands = (*(("pagebench ceilings",) if line else ()), *commands_of(cells.values()))
    return Section("ceilings", "Ceilings", tables=tables, figures=(_curve(cells, points),),
                   commands=commands, missing="" if points else NO_CEILINGS)  # fmt: skip


NO_CEILINGS = "No measured ceilings in these files: `pagebench ceilings --out FILE`."


def _streaming(recorded: Recorded) -> dict[str, Timed]:
    """The newest timing of every contiguous distinct cell, by name."""
    names = {
        record.cell for _, record in recorded.timings()
        if record.boundary == "run"
        and (record.axes["sharing"], record.axes["placement"]) == ("distinct", "contiguous")
    }  # fmt: skip
    return {name: found for name in sorted(names) for found in recorded.timed([name]).values()}


def _curve_table(points: Sequence[Point]) -> Table:
    rows = tuple(
        (f"{point.bytes_read / 1e6:,.0f}", f"{point.gbps:,.0f}", "yes" if point.saturated else "no")
        for point in points
    )
    return table_of("DRAM read bandwidth", ("MB read", "GB/s", "shown to saturate"), rows)


def _scalars(line: Line | None) -> tuple[Table, ...]:
    """Ceilings other than the curve, where the record has them (schema 2)."""
    names = ("l2_read_gbps", "issue_ginst", "fma_gflops", "matrix_gflops", "launch_us")
    rows = [_scalar(name, line[name]) for name in names if line and name in line]
    headings = ("ceiling", "value", "by warps an SM, or launches", "shown to saturate")
    return (table_of("Other ceilings", headings, rows),) if rows else ()


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


def _reached_table(cells: Mapping[str, Timed], points: Sequence[Point]) -> Table:
    rows = []
    for cell, found in cells.items():
        of_nominal = report.row(found.record).of_nominal
        ceiling = bandwidth_at(points, int(found.record.predicted["distinct_kv_bytes"]))
        rows.append((
            cell, f"{1e3 * gb_of(found):,.1f}", time_text(found), f"{found.gbps:,.0f}",
            "" if of_nominal is None else f"{of_nominal:.1%}",
            f"{found.gbps / ceiling:.1%}" if ceiling else "",
        ))  # fmt: skip
    return table_of("Bandwidth reached, every distinct KV byte counted once", REACHED, tuple(rows))


def _curve(cells: Mapping[str, Timed], points: Sequence[Point]) -> Figure:
    series: dict[str, list[tuple[float, float]]] = {}
    for found in cells.values():
        kernel = str(found.record.axes["kernel"])
        series.setdefault(kernel, []).append((1e3 * gb_of(found), found.gbps))
    nominal = [value for found in cells.values()
               if (value := found.record.environment.get("nominal_dram_gbps"))]  # fmt: skip
    return figures.bandwidth(
        "Bandwidth that cells reach over the bytes they must read, under the nominal bandwidth "
        "and, where it was measured, the ceiling; numbers are in the tables.",
        series, [(p.bytes_read / 1e6, p.gbps) for p in points], nominal[0] if nominal else None,
    )  # fmt: skip


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
    return Section("modes", "Cells in two modes", tables=(table_of("Modes by the dip test", MODES,
                   rows),), figures=drawn, commands=commands_of(found))  # fmt: skip


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
    return figures.strip(f"modes-{number}", alt, samples.time_us, found)


# --- Planted effects ------------------------------------------------------------------------------

PLANTED_HEADINGS = ("cell", "instrument", "planted", "found", "low", "high", "right")


def planted(recorded: Recorded) -> Section:
    """Effects put in on purpose, and whether the instruments found them."""
    rows = tuple(
        tuple(_planted(row.get(name)) for name in PLANTED_HEADINGS)
        for line in recorded.planted for row in line["rows"]
    )  # fmt: skip
    if not rows:
        return Section("planted", "Planted effects",
                       missing="No planted effects: `make study` measures them.")  # fmt: skip
    text = tuple(
        f"The smallest effect that would be found in this call is {line['detectable']:.2%}."
        for line in recorded.planted if line["detectable"]
    )  # fmt: skip
    table = table_of("Known work put into our own kernels", PLANTED_HEADINGS, rows)
    return Section("planted", "Planted effects", text, (table,), commands=("pagebench selftest",))


def _planted(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "", True: "yes", False: "NO"}[value]
    return str(value) if isinstance(value, str) else f"{value:,}"


# --- Attacks --------------------------------------------------------------------------------------

VARIANTS = ("A", "B", "B over A", "us", "interval", "time", "work predicted")


def attacks(recorded: Recorded) -> Section:
    """What became of an effect with another context or another kernel."""
    newest = {(line["attack"], *line["cells"]): line for line in recorded.attacks}.values()
    if not newest:
        return Section("attacks", "Attacks on the mechanism",
                       missing="No attack in these files: `pagebench attack HOW A B`.")  # fmt: skip
    text = tuple(
        f"{' against '.join(line['cells'])}, another {line['attack']}: **{line['word']}**"
        f"{_reason(line)}."
        for line in newest
    )
    tables = tuple(
        table_of(f"Another {line['attack']}", VARIANTS, tuple(map(_variant, line["variants"])))
        for line in newest
    )
    commands = tuple(map(_attacking, newest))
    return Section("attacks", "Attacks on the mechanism", text, tables, commands=commands)


def _reason(line: Line) -> str:
    """What is said beyond the variants, which the table shows."""
    said = line["because"][len(line["variants"]) :]
    return f"; {'; '.join(said)}" if said else ""


def _attacking(line: Line) -> str:
    other = line["variants"][-1]["cells"][0].partition("_")[0]
    which = f" --with {other}" if line["attack"] == "kernel" else ""
    return f"pagebench attack {line['attack']} {' '.join(line['cells'])}{which}"


def _variant(variant: Line) -> tuple[str, ...]:
    low, middle, high = variant["delta_us"]
    work = ", ".join(f"{name} {value:+,.0f}" for name, value in variant["work"].items())
    return (*variant["cells"], f"{variant['time']['ratio']:.4f}", f"{middle:+.2f}",
            f"{low:+.2f} to {high:+.2f}", variant["time"]["word"], work)  # fmt: skip


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


MAKERS = (headlines, environment, matrix, gather, nsight, plan, xqa_pages, distinct, replay, dose,
          attacks, ceilings, modes, planted)  # fmt: skip
