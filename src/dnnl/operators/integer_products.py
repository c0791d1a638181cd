"""Integer operators of ONNX Runtime's domain with float scales: DynamicQuantizeMatMul,
MatMulIntegerToFloat and QLinearWhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import ModelError, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.writer import Writer
from dnnl.operators.inference import elementwise
from dnnl.operators.microsoft import MICROSOFT, check_known
from dnnl.operators.operator import Operator
from dnnl.operators.products import infer_matmul
from dnnl.operators.quantization import BYTES, DEQUANTIZE, DYNAMIC, QUANTIZE

_F32, _SUM = np.dtype(np.float32), np.dtype(np.int32)
_BYTE, _TRUTH = np.dtype(np.uint8), np.dtype(np.bool_)


def _infer(scope: Scope, scales: tuple[int, ...], zeros: tuple[int, ...], bias: int) -> TensorType:
    """f32 [..., N] from a product with int8 or uint8 weights; ``scales``, ``zeros`` and ``bias``
    are indices of inputs."""
    check_known(scope)
    columns = scope.shape(1)[-1]
    if scope.type(1).dtype not in BYTES:
        rule = f"weights of {scope.type(1).dtype}; quantized values are int8 or uint8"
        raise Unimplemented(f"{scope.node}: {rule}")
    for place in (*scales, *zeros):
        if scope.node.input(place) and prod(scope.shape(place)) not in (1, columns):
            given = scope.shape(place)
            raise ModelError(f"input {place} has shape {given}, not one number or {columns}")
    if scope.node.input(bias) and scope.shape(bias) != (columns,):
        raise ModelError(f"bias {scope.shape(bias)} has not one value for each of {columns}")
    node = replace(scope.node, inputs=scope.node.inputs[:2])
    return TensorType(_F32, infer_matmul(Scope(node, scope.graph))[0].sizes)


def _infer_dynamic(scope: Scope) -> list[TensorType]:
    """The source has f32, which a run quantizes."""
    if scope.type().dtype != _F32:
        raise Unimplemented(f"{scope.node}: {scope.type().dtype} is not quantized; Cast makes f32")
    return [_infer(scope, (2,), (3,), 4)]


def _infer_to_float(scope: Scope) -> list[TensorType]:
    """The source has int8 or uint8, with one scale and one zero point."""
    if scope.type().dtype not in BYTES:
        rule = f"a source of {scope.type().dtype}; quantized values are int8 or uint8"
        raise Unimplemented(f"{scope.node}: {rule}")
    for place in (2, 4):
        if scope.node.input(place) and prod(scope.shape(place)) != 1:
            rule = "a source has one scale and one zero point"
            raise Unimplemented(f"{scope.node}: input {place} {scope.shape(place)}: {rule}")
    return [_infer(scope, (3,), (5,), 6)]


def _expand_dynamic(writer: Writer) -> bool:
    """DynamicQuantizeLinear, then a product of integers."""
    node = writer.node
    single = TensorType(_F32, ()), TensorType(_BYTE, ())
    kinds = (TensorType(_BYTE, writer.shape_of(node.inputs[0])), *single)
    source, scale, zero = writer.add_several(DYNAMIC, node.inputs[:1], kinds)
    _product(writer, (source, zero, scale), node.input(3), node.inputs[2], node.input(4))
    return True


def _expand_to_float(writer: Writer) -> bool:
    node = writer.node
    source = (node.inputs[0], node.input(4), node.inputs[2])
    _product(writer, source, node.input(5), node.inputs[3], node.input(6))
    return True


def _product(
    writer: Writer, source: tuple[str, str, str], zero: str, scale: str, bias: str
) -> None:
    """MatMulInteger, times both scales, plus a bias: the nodes of exporters, which passes fuse.

    ``source`` has the names of the integers, of their zero point and of their scale.
    """
    integers, source_zero, source_scale = source
    shape = writer.shape_of(writer.node.output)
    inputs: tuple[str, ...] = (integers, writer.node.inputs[1])
    if source_zero or zero:
        single = source_zero and writer.reshape(source_zero, (), writer.type_of(integers).dtype)
        inputs = (*inputs, single, zero)
    sums = writer.add("MatMulInteger", inputs, shape, dtype=_SUM)
    value = writer.add("Cast", (sums,), shape, {"to": _F32}, _F32)
    own = writer.reshape(source_scale, (1,), _F32)
    factors = writer.shape_of(scale) or (1,)
    both = writer.add("Mul", (own, writer.reshape(scale, factors, _F32)), factors, dtype=_F32)
    value = writer.add("Mul", (value, both), shape, dtype=_F32)
    if bias:
        writer.add("Add", (value, bias), shape, dtype=_F32)


def _infer_where(scope: Scope) -> list[TensorType]:
    """The type of the result's zero point; both sources have scales and zero points of their
    own."""
    check_known(scope)
    for place in (1, 4):
        if scope.type(place).dtype not in BYTES:
            rule = f"{scope.type(place).dtype}; quantized values are int8 or uint8"
            raise Unimplemented(f"{scope.node}: input {place} of {rule}")
    for place in (2, 3, 5, 6, 7, 8):
        if prod(scope.shape(place)) != 1:
            raise ModelError(f"input {place} has shape {scope.shape(place)}, not one number")
    node = replace(scope.node, inputs=tuple(scope.node.inputs[place] for place in (0, 1, 4)))
    return [TensorType(scope.type(8).dtype, elementwise(Scope(node, scope.graph))[0].sizes)]


def _expand_where(writer: Writer) -> bool:
    """Where on dequantized sources, quantized again."""
    node, shape = writer.node, writer.shape_of(writer.node.output)
    sources = []
    for first in (1, 4):
        own = writer.shape_of(node.inputs[first])
        given = (node.inputs[first], *_single(writer, first + 1))
        sources.append(writer.add(DEQUANTIZE, given, own, {}, _F32))
    value = writer.add("Where", (node.inputs[0], *sources), shape, dtype=_F32)
    dtype = writer.type_of(node.inputs[8]).dtype
    writer.add(QUANTIZE, (value, *_single(writer, 7)), shape, {}, dtype)
    return True


def _single(writer: Writer, place: int) -> tuple[str, str]:
    """The scale at input ``place`` and the zero point after it, as scalars."""
    scale, zero = writer.node.inputs[place : place + 2]
    return (
        writer.reshape(scale, (), _F32),
        writer.reshape(zero, (), writer.type_of(zero).dtype),
    )


OPERATORS: Mapping[str, Operator] = {
    f"{MICROSOFT}.DynamicQuantizeMatMul": Operator(
        _infer_dynamic, expand=_expand_dynamic, inputs=(3, 5)
    ),
    f"{MICROSOFT}.MatMulIntegerToFloat": Operator(
        _infer_to_float, expand=_expand_to_float, inputs=(4, 7)
    ),
    f"{MICROSOFT}.QLinearWhere": Operator(_infer_where, expand=_expand_where, inputs=(9, 9)),
}
