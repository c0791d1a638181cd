"""Grid sample: dst[n, c, o..] = src[n, c, ..] at the place grid[n, o.., :], interpolated.

The last dimension of space is the first coordinate. Coordinates are pixels, or go from -1 to 1:
between the middles of the outer pixels (corners), or between their outer edges (edges).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import generator, integers, stored
from dnnl.reference.rule import Rule, core_eps
from dnnl.reference.specification import Description, Specification, Values
from dnnl.types.arg import Arg

_A = -0.75


def grid_sample(
    src: ArrayLike,
    grid: ArrayLike,
    function: str = "linear",
    padding: str = "zeros",
    coordinates: str = "edges",
) -> Array:
    """``function`` is nearest, linear or cubic, ``padding`` zeros, border or reflection."""
    data, where = f64(src), f64(grid)
    extents, rank = data.shape[2:], data.ndim - 2
    taps = [
        _taps(where[..., rank - 1 - dim], extents[dim], function, padding, coordinates)
        for dim in range(rank)
    ]
    batch = np.arange(data.shape[0]).reshape(-1, *[1] * rank)
    total = np.zeros((*where.shape[:-1], data.shape[1]))
    for chosen in itertools.product(*taps):
        places, weights, inside = zip(*chosen, strict=True)
        value = data.transpose(0, *range(2, data.ndim), 1)[(batch, *places)]
        value = np.where(np.logical_and.reduce(inside)[..., None], value, 0.0)
        total += np.prod(weights, 0)[..., None] * value
    return np.moveaxis(total, -1, 1)


def _taps(
    x: Array, extent: int, function: str, padding: str, coordinates: str
) -> list[tuple[np.ndarray, Array, np.ndarray]]:
    """Places, weights, and where there is an element."""
    if coordinates == "corners":
        x = (x + 1) / 2 * (extent - 1)
    elif coordinates == "edges":
        x = ((x + 1) * extent - 1) / 2
    ends = (0.0, extent - 1.0) if coordinates == "corners" else (-0.5, extent - 0.5)
    if function == "nearest":
        x = np.rint(x)
    if padding == "border" and function != "cubic":
        x = np.clip(x, 0, extent - 1)
    elif padding == "reflection":
        x = _reflected(x, *ends)
    first = np.floor(x)
    t = x - first
    if function == "nearest":
        steps, weights = [0], [np.ones_like(x)]
    elif function == "linear":
        steps, weights = [0, 1], [1 - t, t]
    else:
        steps = [-1, 0, 1, 2]
        weights = [_outer(1 + t), _inner(t), _inner(1 - t), _outer(2 - t)]
    found = []
    for step, weight in zip(steps, weights, strict=True):
        place = first + step
        inside = (place >= 0) & (place < extent) if padding == "zeros" else np.ones(x.shape, bool)
        if padding == "reflection":
            place = _reflected(place, *ends)
        found.append((np.clip(place, 0, extent - 1).astype(np.int64), weight, inside))
    return found


def _reflected(x: Array, low: float, high: float) -> Array:
    span = high - low
    if not span:
        return np.full_like(x, low)
    distance = np.mod(x - low, 2 * span)
    return low + np.where(distance > span, 2 * span - distance, distance)


def _inner(t: Array) -> Array:
    return ((_A + 2) * t - (_A + 3)) * t * t + 1


def _outer(t: Array) -> Array:
    return ((_A * t - 5 * _A) * t + 8 * _A) * t - 4 * _A


class _GridSample(Specification):
    """Whole numbers at places between pixels, inside and outside, none of them close to a tie."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Places at odd eighths of pixels."""
        src, grid = desc.src_desc, desc.grid_desc
        rng = generator("grid_sample", src.dims, grid.dims)
        extents = f64(src.dims[:1:-1])
        places = np.floor(rng.uniform(-24, 8 * extents + 17, grid.dims)) / 8 + 1 / 16
        if desc.coordinates == "corners":
            places = places / np.maximum(1, extents - 1) * 2 - 1
        elif desc.coordinates == "edges":
            places = (2 * places + 1) / np.maximum(1, extents) - 1
        return {
            Arg.SRC: integers(rng, src.dims, -8, 8),
            Arg.SRC_1: stored(places, grid.data_type),
        }

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The same in float64."""
        options = desc.function, desc.padding, desc.coordinates
        return {Arg.DST: grid_sample(values[Arg.SRC], values[Arg.SRC_1], *options)}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Places are rounded to the type of the computation: the further in, the less exact."""
        kind, extent = desc.dst_desc.data_type, max((1, *desc.src_desc.dims[2:]))
        slack = 64 * 8 * extent * core_eps(kind)
        return Rule(kind.eps + slack, zeros=100.0, slack=slack)


SPECIFICATION = _GridSample()
