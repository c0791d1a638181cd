"""Elements in their own types, and how each type becomes another one.

Values are vectors of what is stored, but truth values are masks: bytes in memory, of which any but
0 is true, and 1 is written. What is converted to bf16 or f16 is rounded to f32 first, as ONNX
Runtime does. Floats that no integer can hold become the nearest that there is, NaN becomes 0.
"""

from __future__ import annotations

from llvmlite import ir

from dnnl.codegen.conversion import convert, saturate
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, F64, I8, Emitter
from dnnl.codegen.math.integers import nonzero
from dnnl.types.dtype import DataType


def loaded(e: Emitter, data_type: DataType | None, stored: ir.Value) -> ir.Value:
    """The value of what is in memory; without a type it is a number already."""
    return nonzero(e, stored) if data_type is DataType.boolean else stored


def stored(e: Emitter, data_type: DataType | None, value: ir.Value, lanes: int) -> ir.Value:
    """What is written of a value."""
    if data_type is not DataType.boolean:
        return value
    return e.b.zext(value, vector.vector_type(I8, lanes))


def _core(data_type: DataType) -> ir.Type:
    """What floats are computed in."""
    return F64 if data_type is DataType.f64 else F32


def real(e: Emitter, data_type: DataType, value: ir.Value) -> ir.Value:
    """The numbers of a float, as f32 or f64."""
    core = _core(data_type)
    if data_type.bits == vector.bits(core):
        return e.b.bitcast(value, _like(value, core))
    return convert.storage(data_type, core).to_core(e, value)


def rounded(e: Emitter, data_type: DataType, number: ir.Value) -> ir.Value:
    """The value of numbers in f32, of f64 in f64."""
    value = convert.storage(data_type, _core(data_type)).from_core(e, number)
    return e.b.bitcast(value, _like(value, ir.IntType(data_type.bits)))


def cast(e: Emitter, dst: DataType, src: DataType, value: ir.Value, lanes: int) -> ir.Value:
    """Integers lose their upper bits, floats what stands behind the point."""
    if dst is src:
        return value
    if src.is_float:
        return _from_real(e, dst, src, real(e, src, value))
    if dst is DataType.boolean:
        return nonzero(e, value)
    value = stored(e, src, value, lanes)
    signed = src.min < 0
    if dst.is_float:
        to_float = e.b.sitofp if signed else e.b.uitofp
        return rounded(e, dst, to_float(value, _like(value, _core(dst))))
    kind, width = _like(value, ir.IntType(dst.bits)), vector.bits(value.type)
    if dst.bits <= width:
        return value if dst.bits == width else e.b.trunc(value, kind)
    return e.b.sext(value, kind) if signed else e.b.zext(value, kind)


def _from_real(e: Emitter, dst: DataType, src: DataType, number: ir.Value) -> ir.Value:
    if dst is DataType.boolean:
        return e.b.fcmp_unordered("!=", number, vector.splat_constant(number.type, 0))
    if dst.is_float:
        if dst is DataType.f64:
            number = e.b.fpext(number, _like(number, F64))
        elif src is DataType.f64:
            number = e.b.fptrunc(number, _like(number, F32))
        return rounded(e, dst, number)
    return saturate.towards_zero(e, number, dst)


def _like(value: ir.Value, element: ir.Type) -> ir.Type:
    return vector.vector_type(element, value.type.count)
