"""Operators on 8-bit integers that represent real numbers: what files have of them.

They become operators of floats between conversions, of which passes make operators on bytes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from math import prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import FUNCTION, REAL, ModelError, Node, Shape, TensorType
from dnnl.graph.scope import Infer, Scope
from dnnl.graph.writer import Writer
from dnnl.operators.convolution import infer_convolution
from dnnl.operators.inference import elementwise, same
from dnnl.operators.microsoft import MICROSOFT
from dnnl.operators.operator import Operator
from dnnl.operators.parts import infer_concat
from dnnl.operators.pooling import infer_pooling
from dnnl.operators.products import infer_gemm, infer_matmul
from dnnl.operators.quantization import BYTES, DEQUANTIZE, DYNAMIC, QUANTIZE, aligned_shape
from dnnl.types.expression import Function
from dnnl.types.scalar import Scalar, apply, trace

_FLOAT = np.dtype(np.float32)
_SUM = np.dtype(np.int32)
_TINY = np.finfo(np.float32).tiny
_BYTE = np.dtype(np.uint8)
_LEVELS = 255.0
_ONCE = 13
"""From this operator set on softmax is along one axis."""
Places = tuple[int, int, int]


@dataclass(frozen=True)
class Form:
    """An operator of integers as one of floats, ``op``, between conversions.

    ``sources`` are the places of integers, scales and zero points, ``dst`` those of the scale and
    the zero point of the result, ``bias`` that of integers in units of the products of both scales.
    ``axes`` are those of the sources along which their parameters may vary.
    """

    op: str
    infer: Infer
    sources: tuple[Places, ...]
    dst: tuple[int, int]
    bias: int | None = None
    axes: tuple[int, ...] = (0, 0)

    def axes_in(self, node: Node) -> Iterator[int]:
        """For each source the axis along which its parameters may vary."""
        transposed = self.op == "Gemm" and node.attrs.get("transB", 0)
        return chain((self.axes[0], 0) if transposed else self.axes, repeat(0))

    @property
    def inputs(self) -> tuple[int, int | None]:
        """The numbers of inputs that it needs and that it takes at most."""
        if not self.sources:
            return 5, None
        own = 3 * len(self.sources)
        if self.op == "Gemm":
            return own, own + 3
        least = own + 1 if len(self.sources) == 1 or self.op in ("Add", "Mul") else own + 2
        return least, own + 2 + (self.bias is not None)


_ONE: tuple[Places, ...] = ((0, 1, 2),)
_TWO: tuple[Places, ...] = ((0, 1, 2), (3, 4, 5))
FORMS: Mapping[str, Form] = {
    "QLinearConv": Form("Conv", infer_convolution, _TWO, (6, 7), 8),
    "QLinearMatMul": Form("MatMul", infer_matmul, _TWO, (6, 7), axes=(-2, -1)),
    f"{MICROSOFT}.QGemm": Form("Gemm", infer_gemm, _TWO, (7, 8), 6, axes=(0, 1)),
    f"{MICROSOFT}.QLinearAdd": Form("Add", elementwise, _TWO, (6, 7)),
    f"{MICROSOFT}.QLinearMul": Form("Mul", elementwise, _TWO, (6, 7)),
    f"{MICROSOFT}.QLinearAveragePool": Form("AveragePool", infer_pooling, _ONE, (3, 4)),
    f"{MICROSOFT}.QLinearConcat": Form("Concat", infer_concat, (), (0, 1)),
    f"{MICROSOFT}.QLinearGlobalAveragePool": Form("GlobalAveragePool", infer_pooling, _ONE, (3, 4)),
    f"{MICROSOFT}.QLinearLeakyRelu": Form("LeakyRelu", same, _ONE, (3, 4)),
    f"{MICROSOFT}.QLinearSigmoid": Form("Sigmoid", same, _ONE, (3, 4)),
    f"{MICROSOFT}.QLinearSoftmax": Form("Softmax", same, _ONE, (3, 4)),
}
"""The operators that ONNX Runtime's quantizer writes, by their domains and names."""


def places_of(form: Form, node: Node) -> tuple[Places, ...]:
    """The places of the sources: a concatenation has any number of them behind its result's."""
    if form.sources:
        return form.sources
    return tuple((i, i + 1, i + 2) for i in range(2, len(node.inputs), 3))


def core(form: Form, node: Node) -> Node:
    """The operator of floats, on the integers as if they were the numbers."""
    sources = [node.input(place) for place, _, _ in places_of(form, node)]
    if form.bias is not None and form.op == "Conv":
        sources.append(node.input(form.bias))
    attrs = {name: value for name, value in node.attrs.items() if name != "channels_last"}
    return replace(node, op=form.op, domain="", inputs=tuple(sources), attrs=attrs)


def _infer_form(name: str) -> Infer:
    """The inference of an operator of `FORMS`."""
    form = FORMS[name]

    def infer(scope: Scope) -> list[TensorType]:
        node, graph = scope.node, scope.graph
        if node.attrs.get("channels_last", 0):
            rule = "channels_last = 1: channels are axis 1 here; Transpose brings them there"
            raise Unimplemented(f"{node}: {rule}")
        if form.op == "Concat" and len(node.inputs) % 3 != 2:
            raise ModelError("each source needs a scale and a zero point")
        for places, axis in zip(places_of(form, node), form.axes_in(node), strict=False):
            value, scale, zero = places
            stored = scope.type(value)
            _check_bytes(node, stored.dtype)
            check_scale(scope, scale)
            check_zero_point(scope, zero, stored.dtype)
            for place in (scale, zero):
                check_fits(scope, place, stored.sizes, axis)
        (kind,) = form.infer(Scope(core(form, node), graph))
        zero_point = node.input(form.dst[1])
        dtype = graph.type_of(zero_point).dtype if zero_point else kind.dtype
        if node.input(form.dst[0]):
            _check_bytes(node, dtype)
            check_scale(scope, form.dst[0], divides=True)
            for place in form.dst:
                check_fits(scope, place, (), 0)
        elif form.op == "Gemm":
            dtype = _FLOAT
        return [replace(kind, dtype=dtype)]

    return infer


def _infer_sums(of: Infer, axes: tuple[int, int]) -> Infer:
    """Products of bytes, in s32; ``axes`` are those along which zero points may vary."""

    def infer(scope: Scope) -> list[TensorType]:
        node = scope.node
        for place in (0, 1):
            stored = scope.type(place)
            _check_bytes(node, stored.dtype)
            check_zero_point(scope, place + 2, stored.dtype)
            check_fits(scope, place + 2, stored.sizes, axes[place])
        (kind,) = of(Scope(replace(node, inputs=node.inputs[:2]), scope.graph))
        return [replace(kind, dtype=_SUM)]

    return infer


def _infer_dynamic(scope: Scope) -> list[TensorType]:
    """Bytes, their scale and their zero point."""
    if scope.type().dtype != _FLOAT:
        raise ModelError(f"{scope.type().dtype} is no float32")
    byte = np.dtype(np.uint8)
    return [TensorType(byte, scope.shape()), TensorType(_FLOAT, ()), TensorType(byte, ())]


def _check_bytes(node: Node, dtype: np.dtype) -> None:
    if dtype not in BYTES:
        rule = f"integers of type {dtype}; quantized values are int8 or uint8"
        raise Unimplemented(f"{node}: {rule}")


def check_scale(scope: Scope, place: int, *, divides: bool = False) -> None:
    """Scales are floats. Those that the model holds are finite and not negative; what is divided
    by one needs a normal number."""
    node = scope.node
    if scope.type(place).dtype not in REAL:
        raise ModelError(f"input {place} has scales of {scope.type(place).dtype}")
    known = scope.graph.constants.get(node.inputs[place])
    if known is None:
        return
    fits = np.isfinite(known) & (known >= (_TINY if divides else 0))
    if not fits.all():
        rule = "a positive normal number" if divides else "finite and not negative"
        raise ModelError(f"input {place} has a scale of {known[~fits][0]}; it must be {rule}")


def check_zero_point(scope: Scope, place: int, stored: np.dtype) -> None:
    """A zero point has the type of the integers that it belongs to."""
    if scope.node.input(place) and scope.type(place).dtype != stored:
        given = scope.type(place).dtype
        raise ModelError(f"input {place} is a zero point of {given}; the integers are {stored}")


def check_fits(scope: Scope, place: int, shape: Shape, axis: int) -> None:
    """Parameters of a tensor of a ``shape`` are one, or one for each element along an axis."""
    if not scope.node.input(place):
        return
    own = scope.shape(place)
    aligned = aligned_shape(own, len(shape), axis)
    pairs = zip(aligned[::-1], shape[::-1], strict=False)
    if len(aligned) > len(shape) or any(n not in (1, size) for n, size in pairs):
        raise ModelError(f"input {place} has shape {own}, which does not fit {shape}")


def _expand_form(form: Form, writer: Writer) -> bool:
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


def _expand_dynamic(writer: Writer) -> bool:
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


OPERATORS: Mapping[str, Operator] = {
    **{
        name: Operator(_infer_form(name), expand=partial(_expand_form, form), inputs=form.inputs)
        for name, form in FORMS.items()
    },
    DYNAMIC: Operator(_infer_dynamic, expand=_expand_dynamic),
    "ConvInteger": Operator(_infer_sums(infer_convolution, (0, 0)), inputs=(2, 4)),
    "MatMulInteger": Operator(_infer_sums(infer_matmul, (-2, -1)), inputs=(2, 4)),
}
