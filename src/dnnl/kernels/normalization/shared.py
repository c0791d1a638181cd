"""What normalizations share."""

from __future__ import annotations

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Value
from dnnl.codegen.math import f32
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.place import Place
from dnnl.types.kinds import NormFlags

KEPT = 256
"""How many decisions are remembered for descriptions that come again."""


class Flagged:
    """What a configuration says by its flags."""

    flags: NormFlags

    @property
    def given(self) -> bool:
        """Whether the statistics are."""
        return NormFlags.use_global_stats in self.flags

    @property
    def scaled(self) -> bool:
        """Whether there are scales."""
        return NormFlags.use_scale in self.flags

    @property
    def shifted(self) -> bool:
        """Whether there are shifts."""
        return NormFlags.use_shift in self.flags


def inverse_deviation(
    place: Place, variance: Value, epsilon: float, scale: Operand | None = None
) -> Value:
    """1 / sqrt(variance + epsilon), or ``scale`` in the place of 1."""
    e = place.e
    above = place.constant(1.0) if scale is None else place.load(scale)
    deviation = f32.square_root(e, e.b.fadd(variance, place.constant(epsilon)))
    return e.b.fdiv(above, deviation)


def affine(place: Place, value: Value, factor: Value, shift: Value | None) -> Value:
    """value * factor + shift."""
    if shift is None:
        return place.e.b.fmul(value, factor)
    return vector.multiply_add(place.e, value, factor, shift)
