"""Tables of taps for sizes that only an execution knows: a phase computes them into the scratchpad.

Positions are quotients of integers below 2^53, so that f64 rounds them down exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, F64, Module, Value
from dnnl.codegen.math import arithmetic
from dnnl.codegen.memory.access import Number, Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.kernels.windows.interpolation import cubic_weights, linear_weights
from dnnl.kernels.windows.resampling_rows import MOST_PARTS, Row
from dnnl.kernels.windows.resampling_taps import Side, found_axis, tap_axes
from dnnl.runtime.image import Phase
from dnnl.types.dtype import DataType
from dnnl.types.interpolation import Interpolation
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import larger, surely_equal, typical

_POWERS = 5
"""The powers of two among the factors whose positions are known to be exact."""

Tap = tuple[Value, Value]
"""The place and the weight of a tap."""

_INSIDE = {
    "half_pixel": ("half_up",),
    "asymmetric": ("floor", "floor_f32"),
    "half_pixel_for_nearest": ("floor", "floor_f32"),
    "align_corners": ("half_up", "half_down", "floor", "ceil"),
}
"""The roundings, by coordinates, with which the nearest element is always one of the axis."""
_BETWEEN = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
"""The coordinates that are less than an element beyond the ends of the axis."""


def inverts(rule: Interpolation, old: int, new: int) -> bool:
    """Whether there are tables of open sizes for the gradient of a rule: no end of the axis is part
    of more elements than others are, as no position is beyond it, and positions differ."""
    if rule.function == "nearest":
        fits = rule.rounding in _INSIDE.get(rule.coordinates, ())
    else:
        fits = rule.function == "linear" and rule.coordinates in _BETWEEN
    start, step, unit = rule.line(old, new)
    if not (fits and step >= 1):
        return False
    return rule.scale is None or start + (new - 1) * step < old * unit


@dataclass(frozen=True, eq=False)
class OpenTable:
    """The taps of each of ``elements`` along an axis, out of ``sources``: ``count`` for each, whose
    ``places`` and ``weights`` are [count, elements] in the scratchpad. Those of nearest elements
    have no weights. In a ``gradient`` the rule makes the sources of the elements. ``firsts`` has
    the first source of each vector of a row."""

    rule: Interpolation
    sources: int
    elements: int
    gradient: bool
    count: int
    places: MemoryDesc
    weights: MemoryDesc
    firsts: MemoryDesc

    @staticmethod
    def of(
        rule: Interpolation,
        sizes: tuple[int, int],
        kind: DataType,
        scratchpad: Scratchpad,
        *,
        gradient: bool,
        row: bool,
    ) -> OpenTable:
        """The tables between the ``sizes`` of source and result, with weights of ``kind``; for a
        ``row`` those of its vectors as well."""
        sources, elements = sizes
        count = _reached(rule, sources, elements) if gradient else rule.count
        dims, none = (count, elements), MemoryDesc.zero()
        weighted = gradient or rule.function != "nearest"
        return OpenTable(
            rule,
            sources,
            elements,
            gradient,
            count,
            scratchpad.take(MemoryDesc(dims, DataType.s32))[1],
            scratchpad.take(MemoryDesc(dims, kind))[1] if weighted else none,
            scratchpad.take(MemoryDesc(dims[1:], DataType.s32))[1] if row else none,
        )

    @property
    def taps(self) -> int:
        """The number of taps of an element."""
        return self.count

    @property
    def weighted(self) -> bool:
        """Whether any weight is not 1."""
        return not self.weights.is_zero

    @property
    def gaps(self) -> bool:
        """Whether weights may be 0."""
        return self.gradient or self.rule.function == "cubic"

    @property
    def slope(self) -> tuple[int, int]:
        """How far apart the sources of neighbouring elements are: a quotient."""
        if self.gradient:
            _, step, unit = self.rule.line(self.elements, self.sources)
            return unit, step
        _, step, unit = self.rule.line(self.sources, self.elements)
        return step, unit

    def side(self, axis: Axis, slot: int) -> Side:
        """The dimension along ``axis``, from the tables of the scratchpad in ``slot``."""
        taps = tap_axes(axis, self.count)
        index = (*map(Affine.of, taps), Affine.of(axis))
        if not taps:
            index = (Affine({}, 0), *index)
        places = Operand(slot, self.places, index, settled=True)
        weights = Operand(slot, self.weights, index, settled=True) if self.weighted else None
        return Side(found_axis(axis, self.sources), taps, self.gaps, places, weights)

    def row(self, axis: Axis, slot: int, lanes: int) -> Row | None:
        """The row along ``axis``, if few registers of ``lanes`` elements hold the sources of a
        vector."""
        above, below = self.slope
        for parts in range(1, MOST_PARTS + 1):
            if (lanes - 1) * above < (parts * lanes - self.count) * below:
                break
        else:
            return None
        present = (lanes,) * parts
        if self.sources < parts * lanes:
            present = tuple(self.sources - part * lanes for part in range(parts))
        first = Operand(slot, self.firsts, (Affine.of(axis),))
        each = [(Affine({}, number), Affine.of(axis)) for number in range(self.count)]
        picks = tuple(Operand(slot, self.places, index) for index in each)
        weights = tuple(Operand(slot, self.weights, index) for index in each)
        return Row(
            found_axis(axis, self.sources),
            lanes,
            present,
            first,
            picks,
            weights if self.weighted else (),
            self.gaps,
        )

    def emit(self, module: Module, name: str, slot: int, row: Row | None) -> Phase:
        """The phase that computes the tables. Those of a ``row`` have places that count from the
        first source of the vector."""
        axis = Axis(self.elements, "i")
        place = Number(Affine.of(axis))
        each = [(Affine({}, number), Affine.of(axis)) for number in range(self.count)]
        places = [Operand(slot, self.places, index) for index in each]
        weights = [Operand(slot, self.weights, index) for index in each if self.weighted]
        first = Operand(slot, self.firsts, (Affine.of(axis),))

        def body(point: Point) -> None:
            filler = _Filler(point, self)
            here, begin = point.number(place), point.constant(0.0)
            if row is not None:
                begin = filler.begin(here, row)
                point.store(first, begin)
            for number, (found, weight) in enumerate(filler.taps(here)):
                point.store(places[number], point.e.b.fsub(found, begin))
                if weights:
                    point.store(weights[number], weight)

        outputs = (*places, *weights, *(() if row is None else (first,)))
        nest = Nest((axis,), (), (), outputs, body, numbers=(place,), core=F64)
        return emit_nest(module, name, nest)


def _reached(rule: Interpolation, new: int, old: int) -> int:
    """How many of ``new`` elements one of ``old`` is a part of, at most. A kernel serves what has
    the same number."""
    _, step, unit = rule.line(old, new)
    reach = 1 if rule.function == "nearest" else 2
    most = -(-reach * typical(unit) // typical(step))
    exact = (most - 1) * step < reach * unit <= most * step
    assert exact, "of the typical sizes, whose guards these are"
    return most + (rule.in_f32 is not None and not _is_exact(old, new))


def _is_exact(old: int, new: int) -> bool:
    """Whether f32 holds all positions: the elements are so many times as many for all sizes."""
    return any(surely_equal(new, old * 2**power) for power in range(_POWERS))


@dataclass(frozen=True, eq=False)
class _Filler:
    """Places and weights at a point of f64."""

    point: Point
    table: OpenTable

    def taps(self, here: Value) -> Iterator[Tap]:
        """Those of the element ``here``."""
        if not self.table.gradient:
            yield from self._taps(here, self.table.sources, self.table.elements)
            return
        first, b, p = self._first_reached(here), self.point.e.b, self.point
        last, zero = p.real(self.table.sources - 1), p.constant(0.0)
        for number in range(self.table.count):
            place = b.fadd(first, p.constant(float(number)))
            weight = zero
            for found, own in self._taps(place, self.table.elements, self.table.sources):
                same = b.fcmp_ordered("==", found, here)
                weight = b.fadd(weight, b.select(same, own, zero))
            weight = b.select(b.fcmp_ordered("<=", place, last), weight, zero)
            yield self._clamped(place, self.table.sources), weight

    def begin(self, here: Value, row: Row) -> Value:
        """The first source of the vector of the element ``here``, from which its registers are
        loaded: none reads beyond the end."""
        lanes, p = float(row.lanes), self.point
        vector = arithmetic.round_down(p.e, p.e.b.fmul(here, p.constant(1 / lanes)))
        start = p.e.b.fmul(vector, p.constant(lanes))
        first, _ = next(self.taps(start))
        last = p.real(larger(0, self.table.sources - row.lanes * row.parts))
        return self._smaller(first, last)

    def _taps(self, here: Value, old: int, new: int) -> Iterator[Tap]:
        """The taps of one of ``new`` elements among ``old``."""
        rule, p = self.table.rule, self.point
        b, one = p.e.b, p.constant(1.0)
        start, step, unit = rule.line(old, new)
        x = b.fadd(b.fmul(here, p.real(step)), p.real(start))
        if rule.function == "nearest" and rule.in_f32 is not None:
            yield self._clamped(self._in_f32(here, rule.in_f32, old, new), old), one
            return
        if rule.function == "nearest":
            times, shift = rule.whole(unit)
            above = b.fadd(b.fmul(x, p.constant(float(times))), p.real(shift))
            yield self._clamped(self._quotient(above, times * unit), old), one
            return
        before = self._quotient(x, unit)
        rest = b.fsub(x, b.fmul(before, p.real(unit)))
        part = b.fdiv(rest, p.real(unit))
        if rule.function == "linear":
            behind = b.fadd(before, b.select(self._is_zero(part), p.constant(0.0), one))
            first, last = (self._clamped(place, old) for place in (before, behind))
            part = b.select(b.fcmp_ordered("==", first, last), p.constant(0.5), part)
            yield from zip((first, last), linear_weights(p.e, part), strict=True)
            return
        for number, weight in enumerate(cubic_weights(p.e, part, rule.cubic), -1):
            place = b.fadd(before, p.constant(float(number)))
            exact = p.constant(float(number == 0))
            yield self._clamped(place, old), b.select(self._is_zero(part), exact, weight)

    def _in_f32(self, here: Value, shift: float, old: int, new: int) -> Value:
        """The place of one of ``new`` elements among ``old``: an f64 holds the product of two f32,
        which is rounded once."""
        p, scale = self.point, self.table.rule.scale
        above, below = (new, old) if scale is None else scale.as_integer_ratio()
        step = self._as_f32(p.e.b.fdiv(p.real(below), p.real(above)))
        middle = p.e.b.fadd(here, p.constant(shift))
        return arithmetic.round_down(p.e, self._as_f32(p.e.b.fmul(middle, step)))

    def _as_f32(self, x: Value) -> Value:
        b, narrow = self.point.e.b, vector.vector_type(F32, x.type.count)
        return b.fpext(b.fptrunc(x, narrow), x.type)

    def _first_reached(self, here: Value) -> Value:
        """The first of the elements that the element ``here`` is a part of."""
        rule, p = self.table.rule, self.point
        b = p.e.b
        old, new = self.table.elements, self.table.sources
        start, step, unit = rule.line(old, new)
        if rule.function == "nearest":
            # The least i with times * (start + i * step) + shift >= times * unit * here.
            times, shift = rule.whole(unit)
            above = b.fsub(b.fmul(here, p.real(times * unit)), p.real(shift + times * start))
            first = b.fneg(self._quotient(b.fneg(above), times * step))
            if rule.in_f32 is not None and not _is_exact(old, new):
                first = self._moved(first, here, rule.in_f32)
        else:
            above = b.fsub(b.fmul(b.fsub(here, p.constant(1.0)), p.real(unit)), p.real(start))
            first = b.fadd(self._quotient(above, step), p.constant(1.0))
        return self._larger(first, p.constant(0.0))

    def _moved(self, first: Value, here: Value, shift: float) -> Value:
        """The first element whose place in f32 is not before ``here``: that of exact places, or one
        beside it."""
        b, one = self.point.e.b, self.point.constant(1.0)
        found = b.fadd(first, one)
        for number in (first, b.fsub(first, one)):
            place = self._in_f32(number, shift, self.table.elements, self.table.sources)
            found = b.select(b.fcmp_ordered(">=", place, here), number, found)
        return found

    def _quotient(self, above: Value, below: int) -> Value:
        """A quotient, rounded down."""
        p = self.point
        return arithmetic.round_down(p.e, p.e.b.fdiv(above, p.real(below)))

    def _is_zero(self, x: Value) -> Value:
        return self.point.e.b.fcmp_ordered("==", x, self.point.constant(0.0))

    def _clamped(self, place: Value, extent: int) -> Value:
        """A place inside of ``extent`` elements."""
        p = self.point
        return self._smaller(self._larger(place, p.constant(0.0)), p.real(extent - 1))

    def _smaller(self, x: Value, y: Value) -> Value:
        return self.point.e.b.select(self.point.e.b.fcmp_ordered("<", x, y), x, y)

    def _larger(self, x: Value, y: Value) -> Value:
        return self.point.e.b.select(self.point.e.b.fcmp_ordered(">", x, y), x, y)
