"""How vectors of channels, or of pixels, are loaded and multiplied, element by element.

As f32, or in bf16 by an instruction that sums the products of pairs: the second element of each
pair is zero, which a load that extends elements to 32 bits gives for free, whereas a conversion to
f32 would shift them as well.
"""

from __future__ import annotations

from collections.abc import Collection

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I32, Emitter, Value
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.multiply import Multiply, as_f32
from dnnl.types.dtype import DataType

IN_F32 = as_f32()
_PAIR = 2


def multiply_of(isa: Isa, types: Collection[DataType]) -> Multiply:
    """The dot-product kind for factors of these types."""
    if set(types) == {DataType.bf16}:
        for dot in isa.dots:
            if (dot.a, dot.b, dot.group, dot.accumulator) == ("bf16", "bf16", _PAIR, "f32"):
                return Multiply(DataType.bf16, DataType.bf16, _PAIR, dot)
    return IN_F32


def load(
    e: Emitter, multiply: Multiply, data_type: DataType, place: Value, mask: vector.Mask
) -> Value:
    """A vector of consecutive elements as a factor."""
    kind = vector.vector_type(storage(data_type).element, e.isa.lanes)
    return factor(e, multiply, data_type, vector.load(e, place, kind, mask))


def factor(e: Emitter, multiply: Multiply, data_type: DataType, stored: Value) -> Value:
    """A vector of stored elements as a factor."""
    if multiply.group == 1:
        return storage(data_type).to_core(e, stored)
    (made,) = multiply.from_packed(e, e.b.zext(stored, vector.vector_type(I32, e.isa.lanes)))
    return made


def add(e: Emitter, multiply: Multiply, a: Value, b: Value, total: Value) -> Value:
    """total + a * b."""
    return multiply.add(e, (a,), (b,), total)
