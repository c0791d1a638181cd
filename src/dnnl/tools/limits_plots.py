"""Plots of measurements with the limits of the machine: roofline and bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dnnl.tools.plots import Point, Roof, inline, limits_plot
from dnnl.tools.roofs import Roofs

_MEMORY, _CACHE = "copy in memory, {} GB/s", "copy in caches, {} GB/s"


@dataclass(frozen=True)
class Plot:
    """An SVG drawing with its title and its note."""

    title: str
    drawing: str
    note: str


def limits_text(roofs: Roofs) -> str:
    """The measured limits as a sentence."""
    products = [f"{_giga(rate)} GFLOP/s of {name} products" for name, rate in roofs.peaks.items()]
    return (
        f"Measured in this run: {', '.join(products)}, copies of {_giga(roofs.memory)} GB/s in "
        f"memory and {_giga(roofs.cache)} GB/s in the caches of its cores (bytes read and written)."
    )


def _giga(rate: float) -> str:
    """A rate in units of 10**9, to three digits."""
    return f"{float(f'{rate / 1e9:.3g}'):g}"


def roofline(points: Sequence[Point], roofs: Roofs | None, what: str) -> Plot:
    """GFLOP/s over FLOP per byte; ``what`` names what a point is."""
    bounds: list[Roof] = []
    if roofs is not None:
        bounds = [
            Roof(
                f"{name} products, {_giga(rate)} GFLOP/s",
                rate / 1e9,
                dashes="-" if name == "f32" else "-.",
            )
            for name, rate in roofs.peaks.items()
        ]
        peak = max(roofs.peaks.values()) / 1e9
        bounds.append(Roof(_MEMORY.format(_giga(roofs.memory)), peak, roofs.memory / 1e9, "--"))
        bounds.append(Roof(_CACHE.format(_giga(roofs.cache)), peak, roofs.cache / 1e9, ":"))
    drawn = limits_plot(points, bounds, "FLOP for each byte moved", "GFLOP/s")
    note = f"Each point is a {what}."
    if bounds:
        note += " Right of the corner arithmetic is the limit, left of it memory."
    return Plot("Roofline", inline(drawn, points), note)


def bandwidth(points: Sequence[Point], roofs: Roofs | None, first: int = 0) -> Plot:
    """GB/s over bytes moved, for operations without products; ``first`` is the colour number of the
    first series."""
    bounds: list[Roof] = []
    if roofs is not None:
        bounds = [
            Roof(_MEMORY.format(_giga(roofs.memory)), roofs.memory / 1e9, dashes="--"),
            Roof(_CACHE.format(_giga(roofs.cache)), roofs.cache / 1e9, dashes=":"),
        ]
    drawn = limits_plot(points, bounds, "bytes moved", "GB/s", first)
    note = "Operations that memory limits. Small tensors stay in the caches."
    return Plot("Bandwidth", inline(drawn, points), note)
