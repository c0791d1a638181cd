"""The weights of the neighbours of a position."""

from __future__ import annotations

from dnnl.codegen.ir.builder import Emitter, Value
from dnnl.codegen.math import arithmetic


def linear_weights(e: Emitter, part: Value) -> tuple[Value, ...]:
    """Those of the elements before and behind a position ``part`` behind the former, 0 to 1."""
    return e.b.fsub(arithmetic.constant(part, 1.0), part), part


def cubic_weights(e: Emitter, part: Value, a: float) -> tuple[Value, ...]:
    """Those of the four elements around a position ``part`` behind the second, by Keys' convolution
    with coefficient ``a``."""
    rest = e.b.fsub(arithmetic.constant(part, 1.0), part)
    pairs = (part, rest), (rest, part)
    (outer, inner), (last, third) = ((_outer(e, *pair, a), _inner(e, *pair, a)) for pair in pairs)
    return outer, inner, third, last


def _inner(e: Emitter, x: Value, rest: Value, a: float) -> Value:
    """((a + 2) x - (a + 3)) x^2 + 1 with its root 1 as a factor, near which it is exact, too."""
    return e.b.fmul(rest, arithmetic.polynomial(e, x, (1.0, 1.0, -(a + 2))))


def _outer(e: Emitter, x: Value, rest: Value, a: float) -> Value:
    """a (y^3 - 5 y^2 + 8 y - 4) at y = x + 1, by its roots."""
    return e.b.fmul(e.b.fmul(arithmetic.constant(x, a), x), e.b.fmul(rest, rest))
