"""What normalizations share."""

from __future__ import annotations

from dnnl.codegen import math
from dnnl.codegen.access import Operand
from dnnl.codegen.builder import Value
from dnnl.codegen.place import Place


def inverse_deviation(
    place: Place, variance: Value, epsilon: float, scale: Operand | None = None
) -> Value:
    """1 / sqrt(variance + epsilon), or ``scale`` in the place of 1."""
    e = place.e
    above = place.constant(1.0) if scale is None else place.load(scale)
    deviation = math.square_root(e, e.b.fadd(variance, place.constant(epsilon)))
    return e.b.fdiv(above, deviation)
