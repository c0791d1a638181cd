"""Which types a product of matrices takes, and as what it multiplies them.

The pairs are those of oneDNN. What no instruction multiplies, and registers do not widen, is copied
as a larger type that has all of its values.
"""

from __future__ import annotations

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Reason, Refusal
from dnnl.codegen.multiply import Multiply, multiply
from dnnl.kernels.pointwise import FLOATS, INTEGERS, SMALL_FLOATS, refuse_types
from dnnl.types.dtype import DataType, any_of
from dnnl.types.memory_desc import MemoryDesc

_F4 = frozenset({DataType.f4_e2m1})
_BYTES = frozenset({DataType.u8, DataType.s8})
_COMPRESSED = _BYTES | {DataType.u4, DataType.s4}

_WEIGHTS = {
    DataType.f64: frozenset({DataType.f64}),
    DataType.f32: _COMPRESSED | {DataType.f32},
    DataType.bf16: _COMPRESSED | SMALL_FLOATS | _F4 | {DataType.bf16},
    DataType.f16: _COMPRESSED | SMALL_FLOATS | _F4 | {DataType.f16},
    **dict.fromkeys(SMALL_FLOATS, SMALL_FLOATS),
    **dict.fromkeys(_F4, _F4),
    **dict.fromkeys(_BYTES, _COMPRESSED),
}
"""What is multiplied by a src."""

_HELD = {
    DataType.s4: DataType.s8,
    DataType.u4: DataType.u8,
    **dict.fromkeys(SMALL_FLOATS | _F4, DataType.bf16),
}


def refuse_tensors(
    src: MemoryDesc, weights: MemoryDesc, bias: MemoryDesc, dst: MemoryDesc
) -> Refusal | None:
    """Why a product of these types cannot be generated, or None."""
    refusal = refuse_types(src, allowed=_WEIGHTS) or refuse_types(
        weights, allowed=frozenset().union(*_WEIGHTS.values())
    )
    if refusal is not None:
        return refusal
    partners = _WEIGHTS[src.data_type]
    if weights.data_type not in partners:
        rule = f"{src.data_type} is multiplied by {any_of(partners)}"
        return Refusal(Reason.DATA_TYPE, f"{src.data_type} times {weights.data_type}; {rule}")
    wide = frozenset({src.data_type}) & {DataType.f64}
    refusal = refuse_types(dst, allowed=wide or FLOATS | INTEGERS | SMALL_FLOATS | _F4)
    if refusal is None and not bias.is_zero:
        refusal = refuse_types(bias, allowed=FLOATS | INTEGERS | wide)
    return refusal


def way_of(isa: Isa, src: DataType, weights: DataType) -> Multiply | None:
    """How two types are multiplied, those at least that `refuse_tensors` takes."""
    return multiply(isa, _HELD.get(src, src), _HELD.get(weights, weights))


def multiplies_integers(src: DataType, weights: DataType) -> bool:
    """Whether sums are those of integers, in which zero points can be taken off at the end."""
    return src.is_integer and weights.is_integer
