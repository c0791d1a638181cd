"""The data types of products, and the types in which they are multiplied.

The pairs are those of oneDNN, and any two floats but f64. Types that no instruction multiplies, and
that are not converted in registers, are copied as a larger type that represents all of their
values.
"""

from __future__ import annotations

from functools import lru_cache

from dnnl.codegen.ir.kernel import Reason, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.multiply import Multiply, multiply
from dnnl.codegen.product.pairs import Pairs
from dnnl.kernels.shared.types import BYTES, FLOATS, INTEGERS, SMALL_FLOATS, refuse_types
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType, any_of
from dnnl.types.kinds import FpmathMode
from dnnl.types.memory_desc import MemoryDesc

_NARROW_FLOATS = SMALL_FLOATS | {DataType.f4_e2m1}
_ANY_FLOATS = FLOATS | _NARROW_FLOATS
_COMPRESSED = BYTES | {DataType.u4, DataType.s4}

_WEIGHTS = {
    DataType.f64: frozenset({DataType.f64}),
    **dict.fromkeys(FLOATS, _ANY_FLOATS | _COMPRESSED),
    **dict.fromkeys(_NARROW_FLOATS, _ANY_FLOATS),
    **dict.fromkeys(BYTES, _COMPRESSED),
}
"""The types of weights for each type of src."""

_HELD = {
    DataType.s4: DataType.s8,
    DataType.u4: DataType.u8,
    **dict.fromkeys(_NARROW_FLOATS, DataType.bf16),
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
    refusal = refuse_types(dst, allowed=wide or _ANY_FLOATS | INTEGERS)
    if refusal is None and not bias.is_zero:
        refusal = refuse_types(bias, allowed=FLOATS | INTEGERS | wide)
    return refusal


@lru_cache(maxsize=1024)
def dot_of(
    isa: Isa,
    src: DataType,
    weights: DataType,
    narrow: DataType = DataType.f32,
    *,
    tiled: bool = False,
    grouped: bool = True,
) -> Multiply | None:
    """The dot-product kind for two types that `refuse_tensors` accepts; None if there is none.

    f32 may be multiplied as ``narrow``. With ``tiled`` a matrix unit is used where it takes the
    types. Without ``grouped`` floats are multiplied one k at a time.
    """
    held = {**_HELD, DataType.f32: narrow}
    if src is DataType.u8:  # instructions multiply unsigned by signed bytes
        held[DataType.u4] = DataType.s8
    dot = multiply(
        isa, held.get(src, src), held.get(weights, weights), grouped=grouped, tiled=tiled
    )
    if dot is not None and weights.bits == 4:  # sums of two products cannot saturate
        return Pairs.of(isa, dot) or dot
    return dot


def narrowed(attr: PrimitiveAttr, isa: Isa, src: DataType, weights: DataType) -> DataType:
    """The type in which f32 is multiplied: bf16 if the attributes allow it and an instruction then
    does several products at a time, else f32."""
    floats = {DataType.f32, DataType.bf16}
    taken = floats | _NARROW_FLOATS
    if attr.fpmath_apply_to_int:
        taken |= _COMPRESSED
    allowed = attr.fpmath_mode in (FpmathMode.bf16, FpmathMode.any)
    if not (allowed and src in floats and weights in taken):
        return DataType.f32
    faster = multiply(isa, DataType.bf16, DataType.bf16)
    return DataType.bf16 if faster is not None and faster.group > 1 else DataType.f32


def multiplies_integers(src: DataType, weights: DataType) -> bool:
    """Whether the sums are integers, from which zero points can be subtracted at the end."""
    return src.is_integer and weights.is_integer
