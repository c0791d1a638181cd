"""Stochastic rounding: round up or down at random, so that results are unbiased.

The truncated digits of an f32 are the probability that the magnitude is rounded up::

    f32     s eeeeeeee mmmmmmm dddddddddddddddd      + random d bits, then d = 0
    bf16    s eeeeeeee mmmmmmm

Infinity and overflow become the largest number; denormal results become zero.
"""

from __future__ import annotations

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I32, Value
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.math.arithmetic import absolute, clamp
from dnnl.codegen.memory.access import Number, Operand
from dnnl.codegen.memory.address import ZERO
from dnnl.codegen.memory.place import Place
from dnnl.codegen.random.uniform import RandomNumbers
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

SEED = MemoryDesc((1,), "s32")
"""The descriptor of ``Arg.ROUNDING_SEED``."""

_LEAST = {
    DataType.bf16: 2.0**-126, DataType.f16: 2.0**-14, DataType.f8_e5m2: 2.0**-14,
    DataType.f8_e4m3: 2.0**-6,
}  # fmt: skip
ROUNDED = frozenset(_LEAST)
"""The types that stochastic rounding applies to; f32 and f64 results are exact."""


class StochasticRounding:
    """Stochastic rounding of a kernel's dst, if ``wanted`` and if dst is narrower than f32."""

    def __init__(self, wanted: bool, dst: Operand, arguments: Arguments) -> None:
        self._kind = dst.data_type
        self._random: RandomNumbers | None = None
        self.inputs: tuple[Operand, ...] = ()
        if wanted:
            seed = Operand(arguments.slot(Arg.ROUNDING_SEED), SEED, (ZERO,))
            self.inputs = (seed,)
            self._random = RandomNumbers(dst, seed)

    @property
    def numbers(self) -> tuple[Number, ...]:
        """The `Number` that the nest must provide."""
        return () if self._random is None else (self._random.number,)

    def apply(self, place: Place, value: Value) -> Value:
        """Round the values (f32) to numbers that dst represents exactly."""
        if self._random is None or self._kind not in ROUNDED:
            return value
        b = place.e.b
        dropped = (1 << DataType.f32.digits - self._kind.digits) - 1
        integers = vector.vector_type(I32, place.kind.count)
        low = vector.splat_constant(integers, dropped)
        high = vector.splat_constant(integers, ~dropped)
        bits = b.add(b.bitcast(value, integers), b.and_(self._random.of(place), low))
        rounded = b.bitcast(b.and_(bits, high), place.kind)
        rounded = self._within(place, rounded)
        return b.select(b.fcmp_ordered("ord", value, value), rounded, value)

    def _within(self, place: Place, value: Value) -> Value:
        b, most = place.e.b, float(self._kind.max)
        value = clamp(place.e, value, -most, most)
        small = b.fcmp_ordered("<", absolute(place.e, value), place.constant(_LEAST[self._kind]))
        return b.select(small, place.constant(0.0), value)
