"""Types of the results of operators on 8-bit integers that represent real numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, repeat

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import REAL, ModelError, Node, Shape, TensorType
from dnnl.graph.scope import Infer, Scope
from dnnl.operators import shapes
from dnnl.operators.quantization import BYTES, DEQUANTIZE, QUANTIZE, aligned_shape

MICROSOFT = "com.microsoft"
_FLOAT = np.dtype(np.float32)
_SUM = np.dtype(np.int32)
_TINY = np.finfo(np.float32).tiny

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
    "QLinearConv": Form("Conv", shapes.convolution, _TWO, (6, 7), 8),
    "QLinearMatMul": Form("MatMul", shapes.matmul, _TWO, (6, 7), axes=(-2, -1)),
    f"{MICROSOFT}.QGemm": Form("Gemm", shapes.gemm, _TWO, (7, 8), 6, axes=(0, 1)),
    f"{MICROSOFT}.QLinearAdd": Form("Add", shapes.elementwise, _TWO, (6, 7)),
    f"{MICROSOFT}.QLinearMul": Form("Mul", shapes.elementwise, _TWO, (6, 7)),
    f"{MICROSOFT}.QLinearAveragePool": Form("AveragePool", shapes.pooling, _ONE, (3, 4)),
    f"{MICROSOFT}.QLinearConcat": Form("Concat", shapes.concat, (), (0, 1)),
    f"{MICROSOFT}.QLinearGlobalAveragePool": Form(
        "GlobalAveragePool", shapes.pooling, _ONE, (3, 4)
    ),
    f"{MICROSOFT}.QLinearLeakyRelu": Form("LeakyRelu", shapes.same, _ONE, (3, 4)),
    f"{MICROSOFT}.QLinearSigmoid": Form("Sigmoid", shapes.same, _ONE, (3, 4)),
    f"{MICROSOFT}.QLinearSoftmax": Form("Softmax", shapes.same, _ONE, (3, 4)),
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


def operator_form(name: str) -> Infer:
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
            _check_scale(scope, scale)
            _check_zero_point(scope, zero, stored.dtype)
            for place in (scale, zero):
                _check_fits(scope, place, stored.sizes, axis)
        (kind,) = form.infer(Scope(core(form, node), graph))
        zero_point = node.input(form.dst[1])
        dtype = graph.type_of(zero_point).dtype if zero_point else kind.dtype
        if node.input(form.dst[0]):
            _check_bytes(node, dtype)
            _check_scale(scope, form.dst[0], divides=True)
            for place in form.dst:
                _check_fits(scope, place, (), 0)
        elif form.op == "Gemm":
            dtype = _FLOAT
        return [replace(kind, dtype=dtype)]

    return infer


def integer_sums(of: Infer, axes: tuple[int, int]) -> Infer:
    """Products of bytes, in s32; ``axes`` are those along which zero points may vary."""

    def infer(scope: Scope) -> list[TensorType]:
        node = scope.node
        for place in (0, 1):
            stored = scope.type(place)
            _check_bytes(node, stored.dtype)
            _check_zero_point(scope, place + 2, stored.dtype)
            _check_fits(scope, place + 2, stored.sizes, axes[place])
        (kind,) = of(Scope(replace(node, inputs=node.inputs[:2]), scope.graph))
        return [replace(kind, dtype=_SUM)]

    return infer


def quantize(scope: Scope) -> list[TensorType]:
    """Bytes of the zero point's type, u8 where there is none and nothing else is said."""
    node = scope.node
    if scope.type().dtype != _FLOAT:
        raise Unimplemented(f"{node}: {scope.type().dtype} is not quantized; Cast makes f32 of it")
    dtype = np.dtype(np.uint8)
    if node.input(2):
        dtype = scope.type(2).dtype
    elif node.attrs.get("output_dtype", 0) != 0:
        dtype = scope.data_type("output_dtype")
    _check_bytes(node, dtype)
    check_parameters(scope)
    return [TensorType(dtype, scope.shape())]


def dequantize(scope: Scope) -> list[TensorType]:
    """f32 out of bytes or s32."""
    if scope.type().dtype != _SUM:
        _check_bytes(scope.node, scope.type().dtype)
    check_parameters(scope)
    return [TensorType(_FLOAT, scope.shape())]


def dynamic(scope: Scope) -> list[TensorType]:
    """Bytes, their scale and their zero point."""
    if scope.type().dtype != _FLOAT:
        raise ModelError(f"{scope.type().dtype} is no float32")
    byte = np.dtype(np.uint8)
    return [TensorType(byte, scope.shape()), TensorType(_FLOAT, ()), TensorType(byte, ())]


def _check_bytes(node: Node, dtype: np.dtype) -> None:
    if dtype not in BYTES:
        rule = f"integers of type {dtype}; quantized values are int8 or uint8"
        raise Unimplemented(f"{node}: {rule}")


def check_parameters(scope: Scope) -> None:
    """Raise for scales and zero points of a conversion that are not those of the whole tensor or
    of the elements along an axis."""
    node, shape = scope.node, scope.shape()
    if node.attrs.get("block_size", 0):
        rule = f"block_size = {node.attrs['block_size']}: scales are of the tensor or along an axis"
        raise Unimplemented(f"{node}: {rule}")
    if scope.type(1).dtype != _FLOAT:
        raise Unimplemented(f"{node}: scales of {scope.type(1).dtype}; they are float32 here")
    _check_scale(scope, 1, divides=node.op == QUANTIZE)
    if node.op == DEQUANTIZE:
        _check_zero_point(scope, 2, scope.type().dtype)
    for place in (1, 2):
        _check_fits(scope, place, shape, node.attrs.get("axis", 1))


def _check_scale(scope: Scope, place: int, *, divides: bool = False) -> None:
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


def _check_zero_point(scope: Scope, place: int, stored: np.dtype) -> None:
    """A zero point has the type of the integers that it belongs to."""
    if scope.node.input(place) and scope.type(place).dtype != stored:
        given = scope.type(place).dtype
        raise ModelError(f"input {place} is a zero point of {given}; the integers are {stored}")


def _check_fits(scope: Scope, place: int, shape: Shape, axis: int) -> None:
    """Parameters of a tensor of a ``shape`` are one, or one for each element along an axis."""
    if not scope.node.input(place):
        return
    own = scope.shape(place)
    aligned = aligned_shape(own, len(shape), axis)
    pairs = zip(aligned[::-1], shape[::-1], strict=False)
    if len(aligned) > len(shape) or any(n not in (1, size) for n, size in pairs):
        raise ModelError(f"input {place} has shape {own}, which does not fit {shape}")
