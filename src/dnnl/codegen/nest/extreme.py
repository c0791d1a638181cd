"""Maxima and minima over the reduced axes of a nest; NaN if any term is NaN.

Compare-and-select drops NaN. Where arithmetic takes masks, the maximum includes a select of NaN
terms. Elsewhere that would add two operations to the dependency chain, so a second accumulator
collects NaN: an unordered comparison sets all bits, which is a NaN.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Values
from dnnl.codegen.nest.point import Point

Choose = Callable[[Emitter, ir.Value, ir.Value], ir.Value]


class Extreme:
    """The accumulators of an extreme. ``choose`` is `vector.maximum` or `vector.minimum`; ``init``
    are the initial values, ``start`` first."""

    def __init__(self, e: Emitter, choose: Choose, start: float) -> None:
        self._choose, self._masks = choose, bool(e.isa.merging)
        self.init = (start,) if self._masks else (start, 0.0)

    def with_term(self, e: Emitter, term: ir.Value, state: Values) -> Values:
        """The accumulators after one more term."""
        if self._masks:
            return (vector.or_nan(e, term, state[0], self._choose),)
        return self._choose(e, term, state[0]), _unordered(e, term, state[1])

    def merged(self, e: Emitter, a: Values, b: Values) -> Values:
        """Merge two sets of accumulators."""
        if self._masks:
            return (vector.or_nan(e, a[0], b[0], self._choose),)
        return self._choose(e, a[0], b[0]), _unordered(e, a[1], b[1])

    def result(self, e: Emitter, state: Values) -> ir.Value:
        """The extreme of all terms, or ``start`` if there were none."""
        if self._masks:
            return state[0]
        codes = _codes(state[0])
        best, odd = (e.b.bitcast(value, codes) for value in state)
        return e.b.bitcast(e.b.or_(best, odd), state[0].type)


def fold(
    point: Point,
    term: Callable[[Point], ir.Value],
    choose: Choose,
    start: float,
    absent: float | None = None,
) -> ir.Value:
    """The extreme of ``term(point)`` over all iterations, ``start`` if there are none. Terms
    outside windows load ``absent``."""
    own = Extreme(point.e, choose, start)

    def step(p: Point, *state: ir.Value) -> Values:
        return own.with_term(p.e, term(p), state)

    return own.result(point.e, point.fold(own.init, step, own.merged, absent))


def _unordered(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """All bits set where either is NaN, else 0."""
    return e.b.bitcast(e.b.sext(e.b.fcmp_unordered("uno", a, b), _codes(a)), a.type)


def _codes(value: ir.Value) -> ir.Type:
    return vector.vector_type(ir.IntType(vector.bits(value.type)), value.type.count)
