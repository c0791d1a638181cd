"""Which types a product of matrices takes, and as what it multiplies them.

The pairs are those of oneDNN, and any two floats but f64. What no instruction multiplies, and
registers do not widen, is copied as a larger type that has all of its values.
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
"""What is multiplied by a src."""

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
    """How two types are multiplied, those at least that `refuse_tensors` takes; f32 may be held as
    ``narrow``. If ``tiled``, a matrix unit does what it can; if not ``grouped``, floats are
    multiplied one k at a time."""
    held = {**_HELD, DataType.f32: narrow}
    if src is DataType.u8:  # instructions take unsigned by signed bytes
        held[DataType.u4] = DataType.s8
    dot = multiply(
        isa, held.get(src, src), held.get(weights, weights), grouped=grouped, tiled=tiled
    )
    if dot is not None and weights.bits == 4:  # no sum of two products saturates
        return Pairs.of(isa, dot) or dot
    return dot


def narrowed(attr: PrimitiveAttr, isa: Isa, src: DataType, weights: DataType) -> DataType:
    """What f32 is held as: a smaller type, if the attributes allow it, and both factors can then be
    multiplied by an instruction that does more at a time."""
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
    """Whether sums are those of integers, in which zero points can be taken off at the end."""
    return src.is_integer and weights.is_integer
