"""Figures of a study as SVG text for a page: the same records give the same bytes.

Figures are as wide as a phone's column, so that text keeps its size there. Series differ in marker
and line style as well as in colour (Okabe and Ito's palette, Color Universal Design, 2008), so that
they can be distinguished in grey.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING

from pagebench.harness.timing.stats import Modes, Summary

if TYPE_CHECKING:  # matplotlib takes most of a second to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

WIDTH_INCHES = 4.0
INK, GREY = "#222222", "#595959"
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK = "#E69F00", "#56B4E9", "#000000"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
MARKERS = "osD^vPX*<"
LINES = ("-", "--", "-.", ":")


@dataclass(frozen=True, slots=True)
class Figure:
    """`svg` is an element to insert in a page unchanged; `alt` describes it in words.

    `gpus` are the GPUs of its numbers.
    """

    name: str
    alt: str
    svg: str
    gpus: tuple[str, ...] = ()


def ladder(
    name: str,
    alt: str,
    times: Mapping[str, Summary],
    counters: Mapping[str, Mapping[str, float]],
    knob: str = "tokens per page",
) -> Figure:
    """Time in us, and below it counters as shares of their maximum, over the values of a knob."""
    with _style():
        canvas = _canvas(3.7 + 0.25 * len(counters) if counters else 2.4)
        rows = canvas.subplots(2 if counters else 1, sharex=True, squeeze=False)[:, 0]
        _time_over_knob(rows[0], times)
        if counters:
            _counters_over_knob(rows[1], list(times), counters)
            canvas.legend(loc="outside lower center", frameon=False)
        rows[-1].set_xticks(range(len(times)), list(times))
        rows[-1].set_xlabel(knob)
        return Figure(name, alt, _svg(canvas, name))


def _time_over_knob(axes: Axes, times: Mapping[str, Summary]) -> None:
    median = [found.median_us for found in times.values()]
    below = [found.median_us - found.low_us for found in times.values()]
    above = [found.high_us - found.median_us for found in times.values()]
    axes.errorbar(range(len(times)), median, (below, above), color=INK, marker=".", capsize=4)
    _label_points(axes, [found.high_us for found in times.values()], [f"{m:.1f}" for m in median])
    axes.set_ylabel("time, us")


def _counters_over_knob(
    axes: Axes, order: list[str], counters: Mapping[str, Mapping[str, float]]
) -> None:
    """Shares, because counters that explain the same time differ a thousandfold in size."""
    for index, (name, counts) in enumerate(counters.items()):
        largest = max(counts.values()) or 1
        axes.plot(
            [order.index(value) for value in counts],
            [count / largest for count in counts.values()],
            label=f"{name} (max: {largest:,.0f})",
            color=COLOURS[index % len(COLOURS)],
            marker=MARKERS[index % len(MARKERS)],
            linestyle=LINES[index % len(LINES)],
            fillstyle="none",
            markeredgewidth=1.5,
        )
    axes.margins(x=0.12)
    axes.set_ylim(-0.05, 1.1)
    axes.set_ylabel("count / max")


def _label_points(axes: Axes, values: Sequence[float], texts: Sequence[str]) -> None:
    for place, (value, text) in enumerate(zip(values, texts, strict=True)):
        axes.annotate(text, (place, value), (0, 7), textcoords="offset points", ha="center")
    axes.set_ylim(0, 1.3 * max(values))
    axes.margins(x=0.12)


SHIFTS = (0.95, 1.05)  # so that the intervals of both placements do not overlap
Ratio = tuple[float, float, float]  # the value, and the ends of its interval


def placements(
    alt: str,
    series: Mapping[str, Mapping[float, Ratio]],
    unsure: Collection[tuple[str, float]] = (),
) -> Figure:
    """Per cent over contiguous, with intervals, over GB of KV; those `unsure` are hollow."""
    with _style():
        canvas = _canvas(3.0)
        axes = canvas.subplots()
        axes.axhline(0, color=GREY, linewidth=1)
        axes.set_xscale("log")
        for index, (placement, points) in enumerate(series.items()):
            _placement(axes, index, placement, points)
            hollow = {gb: point for gb, point in points.items() if (placement, gb) in unsure}
            _hollow(axes, index, hollow)
        sizes = [f"{gb:.2f}" for gb in next(iter(series.values()))]
        axes.set_xticks(list(next(iter(series.values()))), sizes)
        axes.minorticks_off()
        axes.set_xlabel("GB of KV")
        axes.set_ylabel("time over contiguous, %")
        axes.legend(frameon=False)
        return Figure("placements", alt, _svg(canvas, "placements"))


def _placement(axes: Axes, index: int, name: str, points: Mapping[float, Ratio]) -> None:
    value, low, high = ([100 * (point[end] - 1) for point in points.values()] for end in range(3))
    errors = (
        [middle - least for middle, least in zip(value, low, strict=True)],
        [most - middle for middle, most in zip(value, high, strict=True)],
    )
    axes.errorbar(
        [gb * SHIFTS[index] for gb in points],
        value,
        errors,
        label=name,
        capsize=4,
        color=COLOURS[index],
        marker=MARKERS[index],
        linestyle=("-", "--")[index],
    )


def _hollow(axes: Axes, index: int, points: Mapping[float, Ratio]) -> None:
    axes.plot(
        [gb * SHIFTS[index] for gb in points],
        [100 * (p[0] - 1) for p in points.values()],
        MARKERS[index],
        color=COLOURS[index],
        markerfacecolor="white",
        zorder=3,
    )


def bandwidth(
    alt: str,
    cells: Mapping[str, Sequence[tuple[float, float]]],
    curve: Sequence[tuple[float, float]],
    nominal_gbps: float | None,
    throttled: Sequence[tuple[float, float]] = (),
) -> Figure:
    """GB/s over MB: series of cells, the measured ceiling and the nominal one.

    + marks points measured while the GPU throttled.
    """
    with _style():
        canvas = _canvas(4.6)
        axes = canvas.subplots()
        axes.set_xscale("log")
        if curve:
            axes.plot(*zip(*curve, strict=True), color=INK, label="measured ceiling")
        if nominal_gbps:
            axes.axhline(nominal_gbps, color=GREY, linestyle=":", label="nominal")
        for index, (kernel, points) in enumerate(cells.items()):
            colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
            axes.plot(
                *zip(*points, strict=True),
                marker,
                color=colour,
                label=kernel,
                fillstyle="none",
                markeredgewidth=1.5,
            )
        if throttled:
            axes.plot(
                *zip(*throttled, strict=True), "+", color=BLACK, markersize=13, label="throttled"
            )
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("MB that must be read")
        axes.set_ylabel("GB/s")
        canvas.legend(loc="outside lower center", ncols=2, frameon=False)
        return Figure("bandwidth", alt, _svg(canvas, "bandwidth"))


def strip(name: str, alt: str, time_us: Sequence[float], modes: Modes) -> Figure:
    """Every sample in time order; the slower mode has its own marker."""
    with _style():
        canvas = _canvas(2.4)
        axes = canvas.subplots()
        middle = (modes.fast_us + modes.slow_us) / 2
        for is_slow, colour, marker in ((False, BLUE, "o"), (True, VERMILLION, "^")):
            chosen = [(n, t) for n, t in enumerate(time_us) if (t > middle) == is_slow]
            axes.plot(*zip(*chosen, strict=True), marker, color=colour, markersize=3.5)
        for level, style in ((modes.fast_us, "--"), (modes.slow_us, ":")):
            axes.axhline(level, color=INK, linestyle=style, linewidth=1)
            axes.annotate(
                f" {level:.1f}", (1, level), xycoords=("axes fraction", "data"), va="center"
            )
        axes.set_xlabel("sample, in time order")
        axes.set_ylabel("time, us")
        return Figure(name, alt, _svg(canvas, name))


def _style() -> AbstractContextManager[None]:
    """A fixed style: figures look the same on every machine."""
    from matplotlib import rc_context

    return rc_context(
        {
            "font.size": 10.5,
            "axes.titlesize": 10.5,
            "legend.fontsize": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": GREY,
            "text.color": INK,
            "svg.fonttype": "none",  # text stays text: small and searchable
            "svg.hashsalt": "pagebench",
            "figure.constrained_layout.use": True,
        }
    )


def _canvas(height_inches: float) -> Canvas:
    from matplotlib.figure import Figure as Canvas

    return Canvas(figsize=(WIDTH_INCHES, height_inches))


def _without_formulas(canvas: Canvas) -> None:
    """Dollar signs of records are dollar signs; powers of ten at a logarithmic axis come later."""
    from matplotlib.text import Text
    from matplotlib.ticker import FixedFormatter

    for axes in canvas.axes:
        for axis in (axes.xaxis, axes.yaxis):
            formatter = axis.get_major_formatter()
            if isinstance(formatter, FixedFormatter):
                formatter.seq = [str(each).replace("$", r"\$") for each in formatter.seq]
    for found in canvas.findobj(Text):
        assert isinstance(found, Text)
        if "$" in found.get_text():
            found.set_parse_math(False)


def _svg(canvas: Canvas, name: str) -> str:
    """The svg element alone, undated; ids start with the figure's name, to be unique in a page."""
    _without_formulas(canvas)
    file = StringIO()
    canvas.savefig(file, format="svg")
    text = file.getvalue()
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.S)
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
