"""RoiAlign: regions of images, pooled to one size."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import REAL, ModelError, Shape, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.writer import Writer
from dnnl.operators.operator import Operator
from dnnl.operators.sampling import sampled
from dnnl.operators.writing import counted, reduced, transposed

_TRUTH = np.dtype(np.bool_)
_HALF_PIXEL_SINCE = 16


def _infer(scope: Scope) -> list[TensorType]:
    """[regions, channels, height, width].

    Raises Unimplemented where the number of samples follows from the size of each region.
    """
    shape, regions, indices = (scope.shape(place) for place in range(3))
    if scope.type().dtype not in REAL or scope.type(1).dtype not in REAL:
        raise Unimplemented(f"{scope.node}: {scope.type().dtype} is not computed; Cast makes f32")
    if len(shape) != 4 or len(regions) != 2 or regions[1] != 4 or indices != regions[:1]:
        raise ModelError(f"images {shape}, regions {regions} and their images {indices} disagree")
    if prod(regions) and not prod(shape[2:]):
        raise ModelError(f"there is nothing in images {shape}")
    if scope.attr("sampling_ratio", 0) < 1:
        rule = "sampling_ratio 0 takes more samples of larger regions"
        raise Unimplemented(f"{scope.node}: {rule}; a ratio of 1 or more is computed")
    if scope.attr("mode", b"avg") not in (b"avg", b"max"):
        raise ModelError(f"attribute 'mode' = {scope.attr('mode')!r} is neither avg nor max")
    out = scope.attr("output_height", 1), scope.attr("output_width", 1)
    if min(out) < 1:
        raise ModelError(f"output_height, output_width = {out} must be at least 1")
    return scope.result((regions[0], shape[1], *out))


class _Regions:
    """Writes sample positions. A region has a grid of them: the height and width of the result,
    each times the sampling ratio."""

    def __init__(self, writer: Writer) -> None:
        self.writer, self.scope = writer, Scope(writer.node, writer.graph)
        self.ratio = writer.node.attrs["sampling_ratio"]
        self.count, self.channels, *out = writer.graph.shape_of(writer.node.output)
        self.rows, self.columns = (self.ratio * size for size in out)
        mode = self.scope.attr("coordinate_transformation_mode")
        halves = self.scope.graph.opset >= _HALF_PIXEL_SINCE and mode is None
        self.half = halves or mode == b"half_pixel"

    def add(self, op: str, a: str, b: str, shape: Shape) -> str:
        """Append an elementwise node of two f32 sources."""
        return self.writer.add(op, (a, b), shape)

    def number(self, value: float) -> str:
        """A constant scalar."""
        return self.writer.constant(value)

    def along(self, dim: int) -> tuple[str, str]:
        """Sample positions along a spatial dimension, in pixels, and a mask of those that are at
        most one pixel outside the image; both [regions, samples]."""
        samples = (self.rows, self.columns)[dim]
        size, column = self.scope.shape()[2 + dim], (self.count, 1)
        first, last = self._corner(1 - dim), self._corner(3 - dim)
        extent = self.add("Sub", last, first, column)
        if not self.half:
            extent = self.add("Max", extent, self.number(1), column)
        steps = (np.arange(samples) + 0.5) / samples
        shape = (self.count, samples)
        places = self.add("Mul", extent, self.writer.constant(steps), shape)
        places = self.add("Add", places, first, shape)
        extent_of_image = self.writer.add(
            "Cast", (self.writer.sizes([size], ()),), (), {"to": self.writer.dtype}
        )
        below = self._truth("GreaterOrEqual", places, self.number(-1), shape)
        above = self._truth("LessOrEqual", places, extent_of_image, shape)
        inside = self._truth("And", below, above, shape)
        return places, inside

    def _corner(self, place: int) -> str:
        """Coordinate ``place`` of the regions, in pixels."""
        ends = {"starts": (place,), "ends": (place + 1,), "axes": (1,)}
        column = (self.count, 1)
        value = self.writer.add("Slice", (self.writer.node.inputs[1],), column, ends)
        value = self.add("Mul", value, self.number(self.scope.attr("spatial_scale", 1.0)), column)
        return self.add("Sub", value, self.number(0.5), column) if self.half else value

    def _truth(self, op: str, a: str, b: str, shape: Shape) -> str:
        return self.writer.add(op, (a, b), shape, dtype=_TRUTH)

    def value(self, y: str, x: str, mode: bytes) -> str:
        """Samples [channels, regions, rows, columns] at positions ``y`` and ``x``. The batch is the
        depth of a volume, so that the index of the image is a coordinate."""
        shape = (self.count, self.rows, self.columns)
        count = self.scope.shape()[0]
        numbers = self.writer.add(
            "Cast", (counted(self.writer, count),), (count,), {"to": self.writer.dtype}
        )
        # A run refuses an index out of range.
        chosen = (numbers, self.writer.node.inputs[2])
        image = self.writer.add("Gather", chosen, (self.count,), {"axis": 0})
        seen = (
            self.writer.reshape(x, (self.count, 1, self.columns)),
            self.writer.reshape(y, (self.count, self.rows, 1)),
            self.writer.reshape(image, (self.count, 1, 1)),
        )
        spread = [
            self.writer.reshape(self.writer.broadcast(own, shape), (*shape, 1)) for own in seen
        ]
        grid = self.writer.add("Concat", tuple(spread), (*shape, 3), {"axis": 3})
        grid = self.writer.reshape(grid, (1, *shape, 3))
        images = self.scope.shape()
        order = (1, 0, 2, 3)
        volume = transposed(self.writer, self.writer.node.inputs[0], images, order)
        volume = self.writer.reshape(volume, (1, *(images[dim] for dim in order)))
        result = (1, self.channels, *shape)
        return sampled(self.writer, (volume, grid), result, mode, b"border")


def _expand(writer: Writer) -> bool:
    """The mean or the maximum of the samples of each element of the result. Samples far outside the
    image are 0."""
    regions = _Regions(writer)
    (y, far_y), (x, far_x) = regions.along(0), regions.along(1)
    count, rows, columns = regions.count, regions.rows, regions.columns
    whole = (1, regions.channels, count, rows, columns)
    average = writer.node.attrs.get("mode", b"avg") == b"avg"
    value = regions.value(y, x, b"linear") if average else _largest(regions, y, x, whole)
    sides = (
        writer.reshape(far_y, (1, 1, count, rows, 1), _TRUTH),
        writer.reshape(far_x, (1, 1, count, 1, columns), _TRUTH),
    )
    inside = writer.add("And", sides, (1, 1, *whole[2:]), dtype=_TRUTH)
    value = writer.add("Where", (inside, value, writer.constant(0)), whole)
    ratio, (_, channels, height, width) = regions.ratio, writer.graph.shape_of(writer.node.output)
    blocks = (channels, count, height, ratio, width, ratio)
    value = writer.reshape(value, blocks)
    value = reduced(writer, "ReduceMean" if average else "ReduceMax", value, blocks, (3, 5))
    seen = (channels, count, height, width)
    value = writer.reshape(value, seen)
    value = transposed(writer, value, seen, (1, 0, 2, 3))
    writer.reshape(value, (count, channels, height, width))
    return True


def _largest(regions: _Regions, y: str, x: str, whole: Shape) -> str:
    """The maximum over the four neighbours of a sample, each times its bilinear weight, as ONNX's
    reference computes it."""
    writer = regions.writer
    sides = []
    for dim, places, count in ((0, y, regions.rows), (1, x, regions.columns)):
        shape = (regions.count, count)
        last = writer.sizes([regions.scope.shape()[2 + dim] - 1], ())
        last = writer.add("Cast", (last,), (), {"to": writer.dtype})
        inner = regions.add("Max", places, regions.number(0), shape)
        inner = regions.add("Min", inner, last, shape)
        low = writer.add("Floor", (inner,), shape)
        high = writer.add("Ceil", (inner,), shape)
        weight = regions.add("Sub", inner, low, shape)
        rest = regions.add("Sub", regions.number(1), weight, shape)
        own = (1, 1, regions.count, *((count, 1) if not dim else (1, count)))
        sides.append([(low, writer.reshape(rest, own)), (high, writer.reshape(weight, own))])
    best = ""
    for row, of_row in sides[0]:
        for column, of_column in sides[1]:
            value = regions.value(row, column, b"nearest")
            value = regions.add("Mul", value, of_row, whole)
            value = regions.add("Mul", value, of_column, whole)
            best = regions.add("Max", best, value, whole) if best else value
    return best


OPERATORS: Mapping[str, Operator] = {
    "RoiAlign": Operator(_infer, expand=_expand, inputs=(3, 3)),
}
