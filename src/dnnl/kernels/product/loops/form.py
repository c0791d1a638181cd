"""The input of the loop writer (`loops`): a product whose operands have affine index forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from dnnl.codegen.epilogue.product_epilogue import ProductEpilogue
from dnnl.codegen.ir.builder import Emitter, i64
from dnnl.codegen.memory.access import Bound, Env, Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.product.brgemm import Level
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.blocking import Blocking
from dnnl.kernels.product.base.border_bands import Bands
from dnnl.kernels.product.base.pixel_tiles import Spatial
from dnnl.kernels.product.base.store import Columns
from dnnl.kernels.product.base.sums import Segments
from dnnl.kernels.product.loops.joined_rows import JoinedRows
from dnnl.kernels.product.loops.run_time import RunTimeRange
from dnnl.kernels.product.pack.block_copies import BlockCopy
from dnnl.kernels.product.pack.on_the_fly import BoundPacking
from dnnl.kernels.product.pack.pairs import Narrow

ONE = Spatial(1, 1, 1, 1, 0, 1)


@dataclass(frozen=True, eq=False)
class Product:
    """A product whose operands are affine in all axes.

    ``order`` are the outer axes, outermost first. They contain the panels if each panel is to meet
    more than the places of one line. ``places`` are the dimensions of dst that ``space`` describes,
    at least two: tiles go along the last one, and may span several rows of it along the one before.
    ``taps`` has the axis of the kernel for each of them. Sums go over ``around``, then the taps,
    then ``inside``; the first axis of ``inside`` goes over ``segments``, if there are any.

    A work item loops over the places ``through``. With ``cut`` it adds one part of K at a time: one
    iteration of these axes. ``taps`` are then those of a part, and ``begins`` is the offset of the
    part in src, for each dimension. Items along the axis ``shared`` of ``order`` take the K blocks
    of a result in turn, and have sums of their own.

    ``ranges`` of rows (the last of ``places``), or of the only axis of a sum, are known at
    execution only.

    Columns outside of ``domain`` are padding, those outside of ``exists`` do not exist.
    ``k_stride`` is the stride between the k of a K group of weights, in elements; 0 if they are
    contiguous. ``narrow`` is the faster path for panels of small weights. With ``bands`` threads
    copy src with its padding; with ``packing`` they pack weights on the fly. With ``copies`` they
    copy what a K block of both operands reads; a work item then has a whole line of places.
    ``rows`` are those of which a line of places consists.
    """

    order: tuple[Axis, ...]
    space: tuple[Spatial, ...]
    places: tuple[Axis, ...]
    taps: tuple[Axis, ...]
    around: tuple[Axis, ...]
    inside: tuple[Axis, ...]
    columns: Columns
    src: Operand
    weights: Operand
    multiply: Multiply
    finish: ProductEpilogue
    blocking: Blocking
    domain: tuple[Bound, ...] = ()
    exists: tuple[Bound, ...] = ()
    k_stride: int = 0
    segments: Segments | None = None
    narrow: Narrow | None = None
    bands: Bands | None = None
    packing: BoundPacking | None = None
    through: tuple[Axis, ...] = ()
    cut: tuple[Axis, ...] = ()
    shared: Axis | None = None
    begins: tuple[Affine, ...] = ()
    ranges: tuple[RunTimeRange, ...] = ()
    copies: tuple[BlockCopy, ...] = ()
    rows: JoinedRows | None = None

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All operands that the product accesses."""
        ends = () if self.segments is None else self.segments.end.operands
        narrow = () if self.narrow is None else (self.narrow.src, self.narrow.flags)
        src = self.src if self.bands is None else self.bands.src
        weights = (self.weights,) if self.packing is None else self.packing.operands
        bounds = [operand for own in self.ranges for operand in own.operands]
        factors = (src, *weights)
        if self.copies:
            factors = tuple(copy.source for copy in self.copies)
        return (*factors, *narrow, *self.finish.operands, *ends, *bounds)

    def range_of(self, axis: Axis) -> RunTimeRange | None:
        """The range of an axis, if that is known at execution only."""
        return next((own for own in self.ranges if own.axis is axis), None)

    @property
    def multiply_adds(self) -> int:
        """The number of multiply-adds of all sums, those with padding of src included."""
        axes = {*self.order, *self.places, *self.cut, *self.taps, *self.around, *self.inside}
        terms = prod(axis.extent for axis in axes - {self.columns.panel}) * self.multiply.group
        return terms * self.columns.count

    @property
    def is_matrix(self) -> bool:
        """Whether places are independent rows: no taps and no padding."""
        taps = prod(axis.extent for axis in self.taps)
        return not self.around and taps == 1 and not any(space.padded for space in self.space)

    @property
    def unit(self) -> int:
        """How many weights one address unit holds: 2 for 4-bit types."""
        return 2 if self.weights.desc.data_type.bits < 8 else 1


@dataclass(frozen=True, eq=False)
class Walk:
    """The offsets of src (operand A) and weights (operand B); those of weights in address units."""

    e: Emitter
    a: Affine
    b: Affine
    ranges: Mapping[Axis, RunTimeRange] = field(default_factory=dict)

    @staticmethod
    def of(e: Emitter, problem: Product) -> Walk:
        """The offsets of a product's operands."""
        a = problem.src.offset(problem.src.index)
        b = problem.weights.offset(problem.weights.index)
        assert a is not None, "configure admits only affine layouts"
        assert b is not None, "panels are affine"
        ranges = {own.axis: own for own in problem.ranges}
        return Walk(e, a, b.in_units(problem.unit), ranges)

    def steps(self, axis: Axis) -> tuple[int, int]:
        """The strides of an axis in A and in B."""
        return self.a.stride(axis), self.b.stride(axis)

    def level(self, axis: Axis, env: Env | None = None) -> Level:
        """The loop over all of an axis; over its range in ``env`` if it has one."""
        if env is not None and axis in self.ranges:
            return Level(*self.ranges[axis].span(env), *self.steps(axis))
        return Level(i64(0), self.e.number(axis.extent), *self.steps(axis))


Axes = tuple[Axis, Axis, Axis]


def along_line(row: Axis) -> tuple[tuple[Spatial, Spatial, Spatial], Axes, Axes]:
    """Space, places and taps of independent rows."""
    line = Spatial(row.extent, row.extent, 1, 1, 0, 1)
    places = Axis(1, "depth"), Axis(1, "height"), row
    return (ONE, ONE, line), places, (Axis(1, "kd"), Axis(1, "kh"), Axis(1, "kw"))
