"""The plots of a report: matplotlib draws them, as SVG that takes its colours from the page.

The drawing's colours are replaced by variables of the page's style sheet, so that a plot
is right on a light and on a dark page. Each point has a title, which browsers show as a tooltip.
"""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log10
from typing import Any
from xml.etree import ElementTree as ET

_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_SIZE = (7.2, 4.6)
_EVEN_DECADES = 0.8  # below, there would be three round numbers of a kind at most
_FEW_DECADES = 2.5
_MOST_TICKS = 8
_INK, _MUTED, _GRID = "#010101", "#020202", "#030303"
SERIES = 8
"""How many series have colours of their own."""
_SERIES = tuple(f"#0{number}0a0b" for number in range(SERIES))
_VARIABLES = {
    _INK: "var(--ink)", _MUTED: "var(--muted)", _GRID: "var(--line)",
    **{colour: f"var(--series{number})" for number, colour in enumerate(_SERIES)},
}  # fmt: skip
_LIGHT = {
    "--ink": "#1d2126", "--muted": "#626a73", "--line": "#dfe2e5", "--series0": "#2868c8",
    "--series1": "#d27a1f", "--series2": "#2a8a5a", "--series3": "#b23c62", "--series4": "#7550bf",
    "--series5": "#12888c", "--series6": "#8c7020", "--series7": "#59646f",
}  # fmt: skip
"""The variables of the page where it is light."""
_MARKERS = "osD^vP<X"
_POINTS = "points-"
_STYLE = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10,
    "text.color": _INK, "axes.edgecolor": _MUTED, "axes.labelcolor": _INK,
    "axes.spines.top": False, "axes.spines.right": False, "axes.facecolor": "none",
    "axes.axisbelow": True, "axes.titlelocation": "left", "axes.titlesize": 11,
    "figure.facecolor": "none", "savefig.facecolor": "none",
    "xtick.color": _MUTED, "ytick.color": _MUTED, "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK, "grid.color": _GRID, "grid.linewidth": 0.7, "axes.grid": True,
    "legend.frameon": False, "legend.fontsize": 9, "legend.labelcolor": _INK,
}  # fmt: skip


@dataclass(frozen=True)
class Point:
    """A measured case: its place, the series that it belongs to, what its tooltip says, and the
    ``key`` by which the page finds it."""

    x: float
    y: float
    series: str
    title: str
    key: str = ""


@dataclass(frozen=True)
class Roof:
    """A bound ``y <= min(level, slope * x)``; no slope bounds nothing."""

    label: str
    level: float
    slope: float = inf
    dashes: str = "-"

    def at(self, x: float) -> float:
        """The bound at a place."""
        return min(self.level, self.slope * x)


def limits_plot(
    points: Sequence[Point], roofs: Sequence[Roof], x_label: str, y_label: str, first: int = 0
) -> str:
    """Points below the roofs of the machine, both axes logarithmic; ``first`` is the number of the
    colour of the first series."""

    def draw(axes: Any) -> None:
        # Where a slope meets its level is in the picture, on whichever side the points are.
        ridges = [roof.level / roof.slope for roof in roofs if roof.slope < inf]
        places = [*(point.x for point in points), *ridges]
        left, right = min(places) / 2, max(places) * 2
        heights = [point.y for point in points]
        heights += [height for roof in roofs for height in (roof.level, roof.at(left))]
        low, high = min(heights) / 1.5, max(heights) * 1.5
        axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
        _readable(axes.xaxis, left, right)
        _readable(axes.yaxis, low, high)
        for roof in roofs:
            xs = [left, max(roof.level / roof.slope, left), right]
            ys = list(map(roof.at, xs))
            axes.plot(
                xs,
                ys,
                color=_MUTED,
                linewidth=1.4,
                linestyle=roof.dashes,
                zorder=1.5,
                label=roof.label,
            )
        _scatter(axes, points, first)
        axes.set(xlabel=x_label, ylabel=y_label)

    return _drawn(draw, x_label + y_label)


def ratio_plot(points: Sequence[Point]) -> str:
    """Ratios of each series in rising order, with a line where both are alike."""

    def draw(axes: Any) -> None:
        low = min(0.8, *(point.y / 1.2 for point in points))
        high = max(1.25, *(point.y * 1.2 for point in points))
        axes.set(yscale="log", ylim=(low, high))
        _readable(axes.yaxis, low, high)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.margins(x=0.03)
        axes.axhline(1, color=_INK, linewidth=1.2, zorder=1.5)
        _scatter(axes, points)
        axes.set(xlabel="cases, those where the peer is better first", ylabel="peer's time / ours")

    return _drawn(draw, "ratio")


def _readable(axis: Any, low: float, high: float) -> None:
    """Ticks at round numbers of a logarithmic axis, fewer where it is long."""
    axis.set_ticks([tick for tick in _ticks(low, high) if low <= tick <= high])
    axis.set_ticks([], minor=True)
    axis.set_major_formatter(lambda value, _: _short(value))


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers of a range and a little beyond."""
    decades = log10(high / low)
    if decades < _EVEN_DECADES:
        least = (high - low) / _MOST_TICKS
        power = 10.0 ** floor(log10(least))
        step = next(base * power for base in (1, 2, 5, 10) if base * power >= least)
        return [number * step for number in range(floor(low / step), ceil(high / step) + 1)]
    bases = (1, 2, 5) if decades < _FEW_DECADES else (1,)
    powers = range(floor(log10(low)), ceil(log10(high)) + 1, max(1, round(decades / _MOST_TICKS)))
    return [base * 10.0**power for power in powers for base in bases]


def _short(value: float) -> str:
    """A tick's number, with k, M or G where it is large."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g} {letter}"
    return f"{value:g}"


def _scatter(axes: Any, points: Sequence[Point], first: int = 0) -> None:
    """One set of markers for each series, in the order in which the points are given."""
    names = list(dict.fromkeys(point.series for point in points))
    for number, name in enumerate(names, first):
        own = [point for point in points if point.series == name]
        (line,) = axes.plot(
            [point.x for point in own],
            [point.y for point in own],
            label=name,
            linestyle="none",
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=6,
            color=_SERIES[number % len(_SERIES)],
            markeredgewidth=0,
            alpha=0.85,
            clip_on=False,
        )
        line.set_gid(f"{_POINTS}{name}")


def _drawn(draw: Callable[[Any], None], salt: str) -> str:
    matplotlib = importlib.import_module("matplotlib")
    figures = importlib.import_module("matplotlib.figure")
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": salt}):
        figure = figures.Figure(figsize=_SIZE, layout="constrained")
        axes = figure.subplots()
        draw(axes)
        figure.legend(loc="outside upper left", ncols=2, handletextpad=0.5)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def alone(drawn: str, points: Sequence[Point]) -> str:
    """The drawing as a file of its own, in the colours of a light page."""
    text = inline(drawn, points)
    return re.sub(r"var\((--\w+)\)", lambda found: _LIGHT[found[1]], text)


def inline(drawn: str, points: Sequence[Point]) -> str:
    """The drawing as an element of the page, with a title for each point."""
    ET.register_namespace("", _SVG)
    ET.register_namespace("xlink", _XLINK)
    root = ET.fromstring(drawn)
    for group in list(root.iter(f"{{{_SVG}}}g")):
        name = group.get("id", "")
        if name.startswith(_POINTS):
            own = [point for point in points if point.series == name.removeprefix(_POINTS)]
            _entitle(group, own)
    for metadata in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(metadata)
    del root.attrib["width"], root.attrib["height"]
    text = ET.tostring(root, encoding="unicode")
    return re.sub("|".join(_VARIABLES), lambda found: _VARIABLES[found[0]], text)


def _entitle(group: ET.Element, points: Sequence[Point]) -> None:
    """Give the markers of a group their titles; in the order of the points."""
    for mark, point in zip(group.iter(f"{{{_SVG}}}use"), points, strict=True):
        ET.SubElement(mark, f"{{{_SVG}}}title").text = point.title
        if point.key:
            mark.set("data-key", point.key)
