"""What normalizations share."""

from __future__ import annotations

from collections.abc import Mapping

from dnnl.codegen import math, vector
from dnnl.codegen.access import Operand
from dnnl.codegen.address import ZERO
from dnnl.codegen.builder import Value
from dnnl.codegen.epilogue import Arguments, Epilogue
from dnnl.codegen.kernel import Reason, Refusal
from dnnl.codegen.place import Place
from dnnl.codegen.quantization import Quantization
from dnnl.types.arg import Arg, name_of
from dnnl.types.kinds import NormFlags
from dnnl.types.memory_desc import MemoryDesc

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
    deviation = math.square_root(e, e.b.fadd(variance, place.constant(epsilon)))
    return e.b.fdiv(above, deviation)


def affine(place: Place, value: Value, factor: Value, shift: Value | None) -> Value:
    """value * factor + shift."""
    if shift is None:
        return place.e.b.fmul(value, factor)
    return vector.multiply_add(place.e, value, factor, shift)


class TensorScales:
    """The attribute scales of whole tensors: that of SRC multiplies what is normalized, that of DST
    divides what the post-ops make of it."""

    def __init__(self, quantization: Quantization, arguments: Arguments) -> None:
        self._scales = {
            arg: Operand(
                arguments.slot(Arg.SCALES | arg), MemoryDesc((1,), spec.data_type), (ZERO,)
            )
            for arg, spec in quantization.scales
        }

    @staticmethod
    def refuse(quantization: Quantization, src: MemoryDesc, dst: MemoryDesc) -> Refusal | None:
        """Why these scales cannot be generated, or None."""
        refusal = quantization.refuse({int(Arg.SRC): src, int(Arg.DST): dst})
        for argument, spec in quantization.scales:
            if spec.mask:
                detail = f"scales of {name_of(argument)} with mask {spec.mask}"
                return refusal or Refusal(Reason.ATTRIBUTE, detail)
        return refusal

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What is read."""
        return tuple(self._scales.values())

    def load(self, place: Place) -> dict[int, Value]:
        """What :meth:`apply` multiplies by."""
        factors = {arg: place.load(operand) for arg, operand in self._scales.items()}
        if Arg.DST in factors:
            factors[Arg.DST] = math.reciprocal(place.e, factors[Arg.DST])
        return factors

    @staticmethod
    def apply(
        place: Place, value: Value, factors: Mapping[int, Value], epilogue: Epilogue
    ) -> Value:
        """What is stored of a normalized value."""
        if Arg.SRC in factors:
            value = place.e.b.fmul(value, factors[Arg.SRC])
        value = epilogue.apply(place, value)
        return place.e.b.fmul(value, factors[Arg.DST]) if Arg.DST in factors else value
