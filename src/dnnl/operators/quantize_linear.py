"""QuantizeLinear and DequantizeLinear of all types and granularities.

Plain forms (int8 or uint8 for f32, with scales per tensor or per axis) stay as they are for the
passes that make int8 products. All others become elementwise functions: block-wise scales, scales
in f16, bf16 or e8m0, values of 16 bits or less than 8, and small floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import EXACT, REAL, Graph, ModelError, Node, Shape, TensorType
from dnnl.graph.scope import Scope, normal_axis
from dnnl.graph.writer import Writer
from dnnl.operators.microsoft import MICROSOFT
from dnnl.operators.operator import Operator
from dnnl.operators.quantization import BYTES, DEQUANTIZE, QUANTIZE, aligned_shape
from dnnl.operators.quantized import check_fits, check_scale, check_zero_point
from dnnl.operators.small_types import SMALL, SmallInteger, element_of, number_of, stored_type
from dnnl.operators.writing import with_size
from dnnl.types.dtype import DataType
from dnnl.types.scalar import Scalar, apply, traced
from dnnl.types.size import is_known
from dnnl.types.typed import FLOATS

_FLOAT, _SUM, _INDEX = (np.dtype(kind) for kind in (np.float32, np.int32, np.int64))
_EXPONENT = np.dtype("float8_e8m0fnu")
_SHORTS = (np.dtype(np.int16), np.dtype(np.uint16))
_STORED = frozenset((*BYTES, *_SHORTS, *SMALL)) - {_EXPONENT}
"""The types of quantized values."""
_EIGHTS = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
_WITHOUT_ZERO_POINT = frozenset(map(np.dtype, ("float4_e2m1fn", *_EIGHTS)))
"""Floats whose zero point must be 0; only its type is read."""
WITH_ALL_TYPES = 25
"""An operator set in which both operators have all types and attributes."""
_FAR = 2.0**20
"""A bound beyond all integers of 16 bits plus a zero point, exact in f32."""


def _infer_quantize(scope: Scope) -> list[TensorType]:
    """The type of the zero point or of ``output_dtype``, by default u8."""
    node = scope.node
    if scope.type().dtype not in (*REAL, _SUM):
        raise Unimplemented(f"{node}: {scope.type().dtype} is not quantized; Cast makes f32 of it")
    wanted = scope.data_type("output_dtype") if node.attrs.get("output_dtype", 0) != 0 else None
    dtype = wanted or np.dtype(np.uint8)
    if node.input(2):
        dtype = scope.type(2).dtype
        if wanted not in (None, dtype):
            raise ModelError(f"output_dtype is {wanted}, the zero point {dtype}")
    _check_stored(node, dtype)
    _precision(scope)
    check_conversion(scope)
    return [TensorType(dtype, scope.shape())]


def _infer_dequantize(scope: Scope) -> list[TensorType]:
    """Floats of ``output_dtype``, by default of the type of the scales."""
    node, stored = scope.node, scope.type().dtype
    if stored != _SUM:
        _check_stored(node, stored)
    check_zero_point(scope, 2, stored)
    check_conversion(scope)
    dtype = scope.type(1).dtype
    if node.attrs.get("output_dtype", 0) != 0:
        dtype = scope.data_type("output_dtype")
    if dtype not in REAL:
        rule = "expected float32, float16 or bfloat16; output_dtype says which"
        raise ModelError(f"the result would be of {dtype}: {rule}")
    return [TensorType(dtype, scope.shape())]


def _check_stored(node: Node, dtype: np.dtype) -> None:
    if dtype not in _STORED:
        known = ", ".join(sorted(map(str, _STORED)))
        raise Unimplemented(f"{node}: {dtype} represents no numbers; these do: {known}")


def check_conversion(scope: Scope) -> None:
    """Raise ModelError for scales and zero points that are neither per tensor, per axis nor
    block-wise."""
    node, shape = scope.node, scope.shape()
    if scope.type(1).dtype != _EXPONENT:
        check_scale(scope, 1, divides=node.op == QUANTIZE)
    block, axis = node.attrs.get("block_size", 0), node.attrs.get("axis", 1)
    if block < 0:
        raise ModelError(f"block_size = {block} is negative")
    for place in (1, 2):
        own = scope.shape(place) if node.input(place) else ()
        if not block or own in ((), (1,)):
            check_fits(scope, place, shape, axis)
            continue
        at = normal_axis(axis, len(shape))
        blocks = with_size(shape, at, -(-shape[at] // block))
        if own != blocks:
            rule = f"blocks of {block} along axis {at} of {shape} need {blocks}"
            raise ModelError(f"input {place} has shape {own}; {rule}")


def _precision(scope: Scope) -> DataType:
    """The type of floats in which QuantizeLinear divides: that of the scales by default."""
    dtype = scope.type(1).dtype
    if scope.attr("precision", 0) != 0:
        dtype = scope.data_type("precision")
    kind = DataType.f32 if dtype == _EXPONENT else DataType.foreign(dtype)
    if kind not in FLOATS:
        raise ModelError(f"precision = {dtype} is no type of floats to divide in")
    return kind


def is_plain(node: Node, graph: Graph, result: np.dtype) -> bool:
    """Whether a conversion with results of type ``result`` is between f32 and int8 or uint8, with
    scales per tensor or per axis."""
    source, scale = (graph.type_of(value) for value in node.inputs[:2])
    if node.attrs.get("block_size", 0) and scale.sizes not in ((), (1,)):
        return False
    if node.op == DEQUANTIZE:
        return source.dtype in (*BYTES, _SUM) and scale.dtype == result == _FLOAT
    in_f32 = _precision(Scope(node, graph)) is DataType.f32
    return source.dtype == scale.dtype == _FLOAT and in_f32 and result in BYTES


def _expand(op: str, writer: Writer) -> bool:
    """An elementwise function of values, scales and zero points, unless the form is plain or of
    constants. Conversions of ONNX Runtime's domain become those of ONNX."""
    node, graph = writer.node, writer.graph
    kind = graph.type_of(node.output)
    if is_plain(node, graph, kind.dtype) or all(value in graph.constants for value in node.reads):
        if node.domain:
            writer.add(op, node.inputs, kind.sizes, node.attrs, kind.dtype)
        return bool(node.domain)
    sources = [node.inputs[0], _aligned(writer, 1)]
    if node.input(2):
        sources.append(_aligned(writer, 2))
    types = [graph.type_of(value).dtype for value in node.reads]
    if op == DEQUANTIZE:
        function = partial(_dequantized, types, kind.dtype)
    else:
        precision = _precision(Scope(node, graph))
        saturates = bool(node.attrs.get("saturate", 1))
        function = partial(_quantized, types, kind.dtype, precision, saturates)
    made = traced(function, len(sources), [stored_type(own) for own in types])
    writer.add(EXACT, tuple(sources), kind.sizes, {"function": made}, kind.dtype)
    return True


def _aligned(writer: Writer, place: int) -> str:
    """Scales or zero points reshaped to broadcast to the values; block-wise ones are repeated."""
    node, graph = writer.node, writer.graph
    value, shape = node.inputs[place], graph.shape_of(node.inputs[0])
    own, rank = graph.type_of(value), len(shape)
    block = node.attrs.get("block_size", 0)
    if not block or own.sizes in ((), (1,)):
        seen = aligned_shape(own.sizes, rank, node.attrs.get("axis", 1))
        return writer.reshape(value, (1,) * (rank - len(seen)) + seen, own.dtype)
    axis = normal_axis(node.attrs.get("axis", 1), rank)
    places = _blocks(writer, shape, axis, block)
    return writer.add("Gather", (value, places), shape, {"axis": axis}, own.dtype)


def _blocks(writer: Writer, shape: Shape, axis: int, block: int) -> str:
    """The index of the block of each element along an axis."""
    size = shape[axis]
    if is_known(size):
        return writer.constant(np.arange(size) // block, _INDEX)
    sources = (writer.numbers(0, size), writer.constant(block, _INDEX))
    return writer.add("Div", sources, (size,), dtype=_INDEX)


def _quantized(
    types: list[np.dtype],
    dtype: np.dtype,
    precision: DataType,
    saturates: bool,
    *sources: Scalar,
) -> Scalar:
    """saturate(round(x / scale) + zero), ties to even. ``sources`` are x, scale and, if there is
    one, zero, of ``types``."""
    number, unit, *zeros = map(number_of, types, sources)
    quotient = number.astype(precision) / unit.astype(precision)
    limits = _limits(dtype)
    if limits is None:
        number = quotient.astype(DataType.f32)
        if zeros and dtype not in _WITHOUT_ZERO_POINT:
            number = number + zeros[0]
        return element_of(dtype, number, saturates)
    low, high = limits
    near = round(quotient).astype(DataType.f32)
    near = apply("minimum", apply("maximum", near, -_FAR), _FAR)
    whole = near.astype(DataType.s32)
    if zeros:
        whole = whole + zeros[0].astype(DataType.s32)
    return element_of(dtype, apply("minimum", apply("maximum", whole, low), high))


def _dequantized(types: list[np.dtype], dtype: np.dtype, *sources: Scalar) -> Scalar:
    """(x - zero) * scale, in f32; ``sources`` are x, scale and, if there is one, zero."""
    numbers = map(number_of, types, sources)
    number, unit, *zeros = (number.astype(DataType.f32) for number in numbers)
    if zeros and types[0] not in _WITHOUT_ZERO_POINT:
        number = number - zeros[0]
    return element_of(dtype, number * unit)


def _limits(dtype: np.dtype) -> tuple[int, int] | None:
    """The smallest and the largest integer of a type; None for floats."""
    small = SMALL.get(dtype)
    if isinstance(small, SmallInteger):
        return small.limits
    return None if small else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


_INFER = {QUANTIZE: _infer_quantize, DEQUANTIZE: _infer_dequantize}
OPERATORS: Mapping[str, Operator] = {
    f"{domain}{op}": Operator(infer, expand=partial(_expand, op), inputs=(2, 3))
    for domain in ("", f"{MICROSOFT}.")
    for op, infer in _INFER.items()
}
