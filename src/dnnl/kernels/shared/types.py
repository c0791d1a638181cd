"""The data types that kernels accept, and the types in which they compute."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.ir.builder import F32, F64, Type
from dnnl.codegen.ir.kernel import Reason, Refusal
from dnnl.types.dtype import DataType, any_of
from dnnl.types.memory_desc import MemoryDesc

FLOATS = frozenset({DataType.f32, DataType.bf16, DataType.f16})
WIDE_FLOATS = FLOATS | {DataType.f64}
SMALL_FLOATS = frozenset({DataType.f8_e5m2, DataType.f8_e4m3})
BYTES = frozenset({DataType.s8, DataType.u8})
INTEGERS = BYTES | {DataType.s32}
WHOLE_BYTES = frozenset(kind for kind in DataType if kind.bits >= 8)
TYPES = WIDE_FLOATS | SMALL_FLOATS | INTEGERS
"""The types of tensors of forward operations, each independent of the others."""
_F32 = frozenset({DataType.f32})


def refuse_types(*descs: MemoryDesc, allowed: Collection[DataType] = _F32) -> Refusal | None:
    """A refusal if one of the data types is not one of ``allowed``."""
    for desc in descs:
        if desc.data_type not in allowed:
            return Refusal(Reason.DATA_TYPE, f"{desc.data_type}; it takes {any_of(allowed)}")
    return None


def refuse_forward(
    sources: Mapping[int, MemoryDesc], dst: MemoryDesc, attributes: Attributes
) -> Refusal | None:
    """Why a memory-bound forward operation refuses these tensors and attributes, or None."""
    refusal = refuse_types(*sources.values(), dst, allowed=TYPES)
    return refusal or attributes.refuse(sources, dst)


def computed_in(*descs: MemoryDesc) -> DataType:
    """The type of the computation, and of results between phases: f64 if a tensor is f64."""
    return DataType.f64 if any(desc.data_type is DataType.f64 for desc in descs) else DataType.f32


def core_of(*descs: MemoryDesc) -> Type:
    """The LLVM type of the computation: f64 if a tensor is f64."""
    return F64 if computed_in(*descs) is DataType.f64 else F32
