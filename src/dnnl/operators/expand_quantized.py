"""Operators of quantized values as operators of floats between conversions, and the scales that a
model finds while it runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import FUNCTION, ModelError, Shape
from dnnl.graph.writer import Writer
from dnnl.operators.quantization import DEQUANTIZE, DYNAMIC, QUANTIZE
from dnnl.operators.shapes_quantized import FORMS, MICROSOFT, Form, core, places_of
from dnnl.types.expression import Function
from dnnl.types.scalar import Scalar, apply, trace

_FLOAT = np.dtype(np.float32)
_BYTE = np.dtype(np.uint8)
_LEVELS = 255.0

_ONCE = 13
"""From this operator set on softmax is along one axis."""


def _operator_form(form: Form, writer: Writer) -> bool:
    node, graph = writer.node, writer.graph
    sources = [
        _dequantized(writer, [node.input(place) for place in places], axis)
        for places, axis in zip(places_of(form, node), form.axes_in(node), strict=False)
    ]
    result = core(form, node)
    attrs = dict(result.attrs)
    shape = graph.shape_of(node.output)
    if form.op == "Softmax":
        value = _softmax(writer, sources[0], shape, attrs)
    else:
        bias = _bias(form, writer)
        value = writer.add(form.op, (*sources, *bias), shape, attrs, _FLOAT)
    scale, zero = (node.input(place) for place in form.dst)
    if scale:
        inputs = (value, scale, zero) if zero else (value, scale)
        writer.add(QUANTIZE, inputs, shape, {}, graph.type_of(node.output).dtype)
    return True


def _dequantized(writer: Writer, inputs: list[str], axis: int) -> str:
    shape = writer.graph.shape_of(inputs[0])
    given = tuple(inputs if inputs[2] else inputs[:2])
    return writer.add(DEQUANTIZE, given, shape, {"axis": axis}, _FLOAT)


def _bias(form: Form, writer: Writer) -> tuple[str, ...]:
    """The bias in f32: its integers times the scales of both factors."""
    node, constants = writer.node, writer.graph.constants
    name = "" if form.bias is None else node.input(form.bias)
    if not name:
        return ()
    arrays = [constants.get(v) for v in (name, node.inputs[1], node.inputs[4])]
    known = [array.astype(np.float64) for array in arrays if array is not None]
    if len(known) != 3:
        raise Unimplemented(f"{node}: bias and scales must be constant")
    bias, *scales = known
    unit = scales[0].ravel() * scales[1].ravel() * node.attrs.get("alpha", 1.0)
    row = np.broadcast_to(bias.reshape(bias.shape[-1:]) * unit, _channels(form, writer))
    return (writer.constant(row, _FLOAT),)


def _channels(form: Form, writer: Writer) -> Shape:
    shape = writer.graph.shape_of(writer.node.output)
    return shape[1:2] if form.op == "Conv" else shape[-1:]


def _softmax(writer: Writer, source: str, shape: Shape, attrs: dict[str, int]) -> str:
    """Along one axis, or along all from it on, as the operator set in an attribute says."""
    axis, opset = attrs.get("axis", -1), attrs.get("opset", _ONCE)
    axis %= max(len(shape), 1)
    if opset >= _ONCE:
        if writer.graph.opset < _ONCE and axis != len(shape) - 1:
            raise Unimplemented(f"{writer.node}: axis {axis} of operator set {opset} in an older")
        return writer.add("Softmax", (source,), shape, {"axis": axis}, _FLOAT)
    rows = (prod(shape[:axis]), prod(shape[axis:]))
    seen = writer.reshape(source, rows, _FLOAT)
    result = writer.add("Softmax", (seen,), rows, {"axis": 1}, _FLOAT)
    return writer.reshape(result, shape, _FLOAT)


def _dynamic(writer: Writer) -> bool:
    """Bytes for all numbers from the least to the largest, 0 among them."""
    node = writer.node
    source, shape = node.inputs[0], writer.graph.shape_of(node.inputs[0])
    if 0 in shape:
        raise ModelError(f"there is no smallest of no elements: {shape}")
    ones = (1,) * len(shape)
    high = low = source
    if shape != ones:
        every = {"axes": tuple(d for d, n in enumerate(shape) if n > 1), "keepdims": 1}
        high, low = (writer.add(op, (source,), ones, every) for op in ("ReduceMax", "ReduceMin"))
    scale = _function(writer, _scale, (high, low), ones, _FLOAT)
    zero = _function(writer, _zero_point, (low, scale), ones, _BYTE)
    single = {index: name for index, name in enumerate(node.outputs) if name}
    for index, value, dtype in ((1, scale, _FLOAT), (2, zero, _BYTE)):
        if index in single:
            writer.reshape(value, (), dtype)
            writer.show(writer.nodes[-1].output, index)
    writer.add(QUANTIZE, (source, scale, zero), shape, {}, _BYTE)
    return True


def _scale(high: Scalar, low: Scalar) -> Scalar:
    extent = apply("maximum", high, 0.0) - apply("minimum", low, 0.0)
    return apply("where", extent > 0.0, extent / _LEVELS, 1.0)


def _zero_point(low: Scalar, scale: Scalar) -> Scalar:
    zero = apply("round", apply("neg", apply("minimum", low, 0.0)) / scale)
    return apply("minimum", zero, _LEVELS)


def _function(
    writer: Writer,
    function: Callable[[Scalar, Scalar], Scalar],
    sources: tuple[str, str],
    shape: Shape,
    dtype: np.dtype[np.generic],
) -> str:
    traced = Function(trace(function, 2), function.__name__)
    return writer.add(FUNCTION, sources, shape, {"function": traced}, dtype)


def _own_domain(op: str, writer: Writer) -> bool:
    """The conversions of ONNX Runtime's domain are those of ONNX."""
    node = writer.node
    writer.add(op, node.inputs, writer.graph.shape_of(node.output), node.attrs)
    return True


RULES: dict[str, Callable[[Writer], bool]] = {
    **{name: partial(_operator_form, form) for name, form in FORMS.items()},
    **{f"{MICROSOFT}.{op}": partial(_own_domain, op) for op in (QUANTIZE, DEQUANTIZE)},
    DYNAMIC: _dynamic,
}
