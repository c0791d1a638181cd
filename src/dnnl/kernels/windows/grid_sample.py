"""Sample images at places that a grid says: the nearest element, or interpolated ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I32, I64, Emitter, Module, Value
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.math import arithmetic
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.types import WIDE_FLOATS, core_of, refuse_types
from dnnl.kernels.windows.interpolation import cubic_weights, linear_weights
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import typical

_CUBIC = -0.75
_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


@dataclass(frozen=True)
class GridSampleConf:
    """dst[n, c, o..] = src[n, c, ..] at grid[n, o.., :], the last dimension of space first.

    ``function`` is nearest, linear or cubic. ``coordinates`` are pixels; from -1 to 1 between the
    middles of the outer pixels (corners), or between their outer edges (edges). Beyond the image
    there are zeros, its border, or its reflection: ``padding``.
    """

    function: str
    padding: str
    coordinates: str
    src: MemoryDesc
    grid: MemoryDesc
    dst: MemoryDesc


def configure(
    function: str,
    padding: str,
    coordinates: str,
    src: MemoryDesc,
    grid: MemoryDesc,
    dst: MemoryDesc,
) -> GridSampleConf | Refusal:
    """Accept any layouts of floats."""
    refusal = refuse_types(src, grid, dst, allowed=WIDE_FLOATS)
    return refusal or GridSampleConf(function, padding, coordinates, src, grid, dst)


def build(conf: GridSampleConf, isa: Isa) -> Kernel:
    """One nest. Places and weights are computed once for all channels of a pixel."""
    module, arguments = Module("grid_sample", isa), Arguments()
    axes = letters(conf.dst.dims)
    batch, channel, *pixels = (Affine.of(axis) for axis in axes)
    found = tuple(Axis(extent, f"found{dim}") for dim, extent in enumerate(conf.src.dims[2:]))
    place = (batch, channel, *map(Affine.of, found))
    src = Operand(arguments.slot(Arg.SRC), conf.src, place)
    slot = arguments.slot(Arg.SRC_1)
    grid = [
        Operand(slot, conf.grid, (batch, *pixels, Affine({}, number)))
        for number in reversed(range(len(found)))
    ]
    dst = Operand(arguments.slot(Arg.DST), conf.dst, (batch, channel, *pixels))
    sampler = _Sampler(conf, found, grid, src)

    def body(point: Point) -> None:
        taps = sampler.taps(point)
        point.each(lambda p: p.store(dst, sampler.value(p, taps)))

    pixel_axes = (axes[0], *axes[2:])
    nest = Nest(
        pixel_axes,
        (axes[1],),
        (src, *grid),
        (dst,),
        body,
        core=core_of(conf.src, conf.dst),
        indirect=found,
        steps=_TAPS[conf.function] ** len(found) * max(1, typical(conf.src.dims[1])),
    )
    entry = symbol("grid_sample", [conf.src, conf.grid, conf.dst], isa)
    return Kernel(module, (emit_nest(module, entry, nest),), arguments.ids)


@dataclass(frozen=True, eq=False)
class _Tap:
    """One element of a dimension: where it is, its weight (None: 1), and the lanes in which there
    is one (None: all)."""

    index: Value
    weight: Value | None
    inside: Value | None


@dataclass(frozen=True, eq=False)
class _Sampler:
    """Places and values of a pixel. ``grid`` has the coordinate of each dimension."""

    conf: GridSampleConf
    found: Sequence[Axis]
    grid: Sequence[Operand]
    src: Operand

    def taps(self, point: Point) -> list[list[_Tap]]:
        """The elements of each dimension from which a value is made."""
        return [
            self._of_dimension(_Dimension(point, self.conf, axis.extent), operand)
            for axis, operand in zip(self.found, self.grid, strict=True)
        ]

    def _of_dimension(self, dimension: _Dimension, coordinate: Operand) -> list[_Tap]:
        point, e = dimension.point, dimension.point.e
        alone = point.is_uniform(coordinate) or point.kind.count == 1
        x = dimension.pixel(point.load(coordinate))
        if self.conf.function == "nearest":
            x = arithmetic.round_to_even(e, x)
            weights: list[Value | None] = [None]
            first, begin = dimension.bounded(x), 0
        else:
            x = dimension.bounded(x)
            first = arithmetic.round_down(e, x)
            part = e.b.fsub(x, first)
            linear = self.conf.function == "linear"
            weights = list(linear_weights(e, part) if linear else cubic_weights(e, part, _CUBIC))
            begin = -(len(weights) // 2 - 1)
        taps = []
        for number, weight in enumerate(weights, begin):
            place = first if not number else e.b.fadd(first, point.constant(float(number)))
            if number and self.conf.function == "linear":
                place = e.b.fneg(arithmetic.round_down(e, e.b.fneg(x)))  # no other where x is whole
            index, inside = dimension.element(place)
            taps.append(_Tap(_whole(e, index, alone=alone), weight, inside))
        return taps

    def value(
        self, point: Point, taps: Sequence[Sequence[_Tap]], chosen: tuple[_Tap, ...] = ()
    ) -> Value:
        """The weighted sum over the taps of all dimensions, from the first dimension in."""
        e, depth = point.e, len(chosen)
        if depth == len(self.found):
            at = point.at({axis: tap.index for axis, tap in zip(self.found, chosen, strict=True)})
            value = at.load(self.src)
            masks = [tap.inside for tap in chosen if tap.inside is not None]
            if masks:
                value = e.b.select(reduce(e.b.and_, masks), value, point.constant(0.0))
            return value
        total: Value = None
        for tap in taps[depth]:
            value = self.value(point, taps, (*chosen, tap))
            if tap.weight is None:
                return value
            if total is None:
                total = e.b.fmul(tap.weight, value)
            else:
                total = vector.multiply_add(e, tap.weight, value, total)
        return total


@dataclass(frozen=True, eq=False)
class _Dimension:
    """One dimension of the image, of ``extent`` elements."""

    point: Point
    conf: GridSampleConf
    extent: int

    def pixel(self, x: Value) -> Value:
        """The place that a coordinate means, in pixels."""
        b, p = self.point.e.b, self.point
        if self.conf.coordinates == "pixels":
            return x
        half, shifted = p.constant(0.5), b.fadd(x, p.constant(1.0))
        if self.conf.coordinates == "corners":
            return b.fmul(b.fmul(shifted, half), self._last)
        return b.fmul(b.fsub(b.fmul(shifted, p.real(self.extent)), p.constant(1.0)), half)

    def bounded(self, x: Value) -> Value:
        """A place from which all taps are known: inside of the image, or so far outside that all of
        them are zeros, or at the border. NaN is a place before the image."""
        p = self.point
        if self.conf.padding == "border" and self.conf.function != "cubic":
            return self._clamped(x, p.constant(0.0), self._last)
        if self.conf.padding == "reflection":
            return self._reflected(x)
        behind = p.e.b.fadd(self._last, p.constant(3.0))
        return self._clamped(x, p.constant(-3.0), behind)

    def element(self, x: Value) -> tuple[Value, Value | None]:
        """The element at a whole place, and where there is one."""
        p, b = self.point, self.point.e.b
        zero, inside = p.constant(0.0), None
        if self.conf.padding == "reflection":
            x = self._reflected(x)
        elif self.conf.padding == "zeros":
            above, below = b.fcmp_ordered(">=", x, zero), b.fcmp_ordered("<=", x, self._last)
            inside = b.and_(above, below)
        return self._clamped(x, zero, self._last), inside

    @property
    def _last(self) -> Value:
        return self.point.real(self.extent - 1)

    def _clamped(self, x: Value, low: Value, high: Value) -> Value:
        """At least ``low``, as NaN becomes, and at most ``high``."""
        b = self.point.e.b
        x = b.select(b.fcmp_ordered(">", x, low), x, low)
        return b.select(b.fcmp_ordered("<", x, high), x, high)

    def _reflected(self, x: Value) -> Value:
        """The place inside that a mirror on each side of the image shows there."""
        p, b = self.point, self.point.e.b
        corners = self.conf.coordinates == "corners"
        low = p.constant(0.0 if corners else -0.5)
        span = p.real(self.extent - 1 if corners else self.extent)
        high = b.fadd(low, span)
        distance = arithmetic.absolute(p.e, b.fsub(x, low))
        times = arithmetic.round_down(p.e, b.fdiv(distance, span))
        rest = b.fsub(distance, b.fmul(times, span))
        half = b.fmul(times, p.constant(0.5))
        even = b.fcmp_ordered("==", arithmetic.round_down(p.e, half), half)
        mirrored = b.select(even, b.fadd(low, rest), b.fsub(high, rest))
        above, below = b.fcmp_ordered(">=", x, low), b.fcmp_ordered("<=", x, high)
        return self._clamped(b.select(b.and_(above, below), x, mirrored), low, high)


def _whole(e: Emitter, x: Value, *, alone: bool) -> Value:
    """A place as an index: one for all lanes where they are alike."""
    count = x.type.count
    if alone:
        return e.b.sext(e.b.fptosi(vector.lane(e, x, 0), I32), I64)
    return e.b.sext(e.b.fptosi(x, vector.vector_type(I32, count)), vector.vector_type(I64, count))
