"""Activations: those of ONNX Runtime's domain, some with a bias, Swish and SwiGLU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import REAL, ModelError, Shape, TensorType
from dnnl.graph.scope import Infer, Scope
from dnnl.graph.sizes import broadcast
from dnnl.graph.writer import Writer
from dnnl.operators.microsoft import MICROSOFT, check_known
from dnnl.operators.operator import Expand, Operator

_CLIP_BY_INPUTS = 11
"""The operator set since which Clip has its bounds as inputs."""
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "": (),
    "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
}
"""The activations of ONNX Runtime's fused products, with the names of their parameters."""


def parameter_count(name: str) -> int:
    """The maximum number of parameters of an activation."""
    return len(_PARAMETERS.get(name, ()))


def check_activation(scope: Scope, name: str, given: Sequence[float]) -> None:
    """Raise Unimplemented for an activation, or parameters, that no fused product has."""
    if name not in _PARAMETERS or len(given) > len(_PARAMETERS[name]):
        known = ", ".join(filter(None, _PARAMETERS))
        rule = f"with parameters {tuple(given)}; known are {known}"
        raise Unimplemented(f"{scope.node}: activation {name!r} {rule}")


def activated(writer: Writer, value: str, name: str, given: Sequence[float]) -> str:
    """Write an activation of ``value``; ``given`` are its parameters in ONNX's order."""
    if not name:
        return value
    kind = writer.type_of(value)
    attrs = dict(zip(_PARAMETERS[name], given, strict=False))
    inputs: tuple[str, ...] = (value,)
    if name == "Clip" and writer.graph.opset >= _CLIP_BY_INPUTS:
        inputs = (value, *(writer.constant(bound, kind.dtype) for bound in attrs.values()))
        attrs = {}
    return writer.add(name, inputs, kind.sizes, attrs, kind.dtype)


def _infer(*known: str) -> Infer:
    """Infer the type of the source, to which a bias is broadcast."""

    def infer(scope: Scope) -> list[TensorType]:
        check_known(scope, *known)
        _check_floats(scope)
        shape = scope.shape()
        for place in range(1, len(scope.node.inputs)):
            if scope.node.input(place) and broadcast([scope.shape(place), shape]) != shape:
                raise ModelError(f"input {place} {scope.shape(place)} is not broadcast to {shape}")
        return scope.result(shape)

    return infer


def _check_floats(scope: Scope) -> None:
    if scope.type().dtype not in REAL:
        rule = f"{scope.type().dtype} is not computed; Cast makes f32 of it"
        raise Unimplemented(f"{scope.node}: {rule}")


def _infer_halves(scope: Scope) -> list[TensorType]:
    """[..., 2n] gives [..., n]."""
    check_known(scope)
    _check_floats(scope)
    shape = scope.shape()
    if not shape or scope.shape(1) != shape[-1:] or shape[-1] % 2:
        raise ModelError(f"source {shape} and bias {scope.shape(1)} have no two halves of rows")
    return scope.result((*shape[:-1], shape[-1] // 2))


def _sum(writer: Writer) -> str:
    """The source plus the bias, if there is one."""
    value, *addends = writer.node.inputs
    for addend in filter(None, addends):
        value = writer.add("Add", (value, addend), writer.shape_of(writer.node.inputs[0]))
    return value


def _expand_sum(writer: Writer) -> bool:
    _sum(writer)
    return True


def _expand_gelu(approximate: bytes) -> Expand:
    def expand(writer: Writer) -> bool:
        attrs = {"approximate": approximate}
        writer.add("Gelu", (_sum(writer),), writer.shape_of(writer.node.output), attrs)
        return True

    return expand


def _expand_quick(writer: Writer) -> bool:
    """x * sigmoid(alpha * x)."""
    alpha = Scope(writer.node, writer.graph).attr("alpha", 1.702)
    swish(writer, writer.node.inputs[0], alpha)
    return True


def swish(writer: Writer, value: str, alpha: float = 1.0) -> str:
    """``value`` * sigmoid(``alpha`` * ``value``)."""
    kind = writer.type_of(value)
    steep = value
    if alpha != 1.0:
        factor = writer.constant(alpha, kind.dtype)
        steep = writer.add("Mul", (value, factor), kind.sizes, {}, kind.dtype)
    part = writer.add("Sigmoid", (steep,), kind.sizes, {}, kind.dtype)
    return writer.add("Mul", (value, part), kind.sizes, {}, kind.dtype)


def _expand_halves(writer: Writer) -> bool:
    """The first half of each row times the GELU of the second half."""
    value, shape = _sum(writer), writer.shape_of(writer.node.output)
    first, second = halves(writer, value, shape)
    gelu = writer.add("Gelu", (second,), shape, {"approximate": b"none"})
    writer.add("Mul", (first, gelu), shape)
    return True


def halves(writer: Writer, value: str, shape: Shape) -> tuple[str, str]:
    """The two halves of each row of ``value``, which has ``shape``."""
    size, axis = shape[-1], len(shape) - 1
    first, second = (
        writer.add("Slice", (value,), shape, {"starts": (a,), "ends": (b,), "axes": (axis,)})
        for a, b in ((0, size), (size, 2 * size))
    )
    return first, second


def _infer_gated(scope: Scope) -> list[TensorType]:
    """[..., n] for separate gates and values; [..., 2n] gives [..., n] where one source has
    both."""
    check_known(scope, "activation_alpha", "activation_beta", "limit", "round_activation")
    _check_floats(scope)
    if scope.attr("round_activation", 0):
        rule = "the activation is rounded with the result, once"
        raise Unimplemented(f"{scope.node}: round_activation: {rule}")
    shape = scope.shape()
    if scope.node.input(1):
        if scope.shape(1) != shape:
            raise ModelError(f"gates {shape} and values {scope.shape(1)} differ")
        return scope.result(shape)
    if not shape or shape[-1] % 2:
        raise ModelError(f"source {shape} has no two halves of rows")
    return scope.result((*shape[:-1], shape[-1] // 2))


def _expand_gated(writer: Writer) -> bool:
    """swish(gates) * values, both clipped to the limit if there is one."""
    node, shape = writer.node, writer.shape_of(writer.node.output)
    scope = Scope(node, writer.graph)
    gate, value = node.inputs[0], node.input(1)
    if not value:
        gate, value = halves(writer, gate, shape)
    limit = scope.attr("limit", 0.0)
    if limit > 0:
        gate = writer.add("Min", (gate, writer.constant(limit)), shape)
        value = writer.add("Min", (value, writer.constant(limit)), shape)
        value = writer.add("Max", (value, writer.constant(-limit)), shape)
    if scope.attr("activation_beta", 0.0):
        beta = writer.constant(scope.attr("activation_beta"))
        value = writer.add("Add", (value, beta), shape)
    gate = swish(writer, gate, scope.attr("activation_alpha", 1.0))
    writer.add("Mul", (gate, value), shape)
    return True


def _infer_softmax(scope: Scope) -> list[TensorType]:
    """Infer the type of the source, to which the bias is broadcast."""
    check_known(scope, "axis", "is_inner_broadcast")
    _check_floats(scope)
    shape, axis = scope.shape(), scope.axis(1)
    if np.prod([1, *(n for n in shape[axis + 1 :])]) != 1:
        rule = f"axis {axis} of {shape}: only a softmax along one axis is computed"
        raise Unimplemented(f"{scope.node}: {rule}")
    if len(scope.shape(1)) != len(shape) or broadcast([scope.shape(1), shape]) != shape:
        raise ModelError(f"bias {scope.shape(1)} is not broadcast to {shape}")
    return scope.result(shape)


def _expand_softmax(writer: Writer) -> bool:
    value, shape = _sum(writer), writer.shape_of(writer.node.output)
    writer.add("Softmax", (value,), shape, {"axis": Scope(writer.node, writer.graph).axis(1)})
    return True


OPERATORS: Mapping[str, Operator] = {
    f"{MICROSOFT}.{name}": row
    for name, row in {
        "BiasAdd": Operator(_infer(), expand=_expand_sum, inputs=(3, 3)),
        "BiasGelu": Operator(_infer(), expand=_expand_gelu(b"none"), inputs=(2, 2)),
        "BiasSoftmax": Operator(_infer_softmax, expand=_expand_softmax, inputs=(2, 2)),
        "BiasSplitGelu": Operator(_infer_halves, expand=_expand_halves, inputs=(2, 2)),
        "FastGelu": Operator(_infer(), expand=_expand_gelu(b"tanh"), inputs=(1, 2)),
        "Gelu": Operator(_infer(), expand=_expand_gelu(b"none")),
        "QuickGelu": Operator(_infer("alpha"), expand=_expand_quick),
        "SwiGLU": Operator(_infer_gated, expand=_expand_gated, inputs=(1, 2)),
    }.items()
}
