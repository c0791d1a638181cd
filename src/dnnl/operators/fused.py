"""Products, convolutions and pooling that ONNX Runtime's optimizer writes: with fused activations,
or with channels last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dnnl.errors import Unimplemented
from dnnl.graph.graph import REAL, ModelError, Shape, TensorType
from dnnl.graph.scope import Infer, Scope
from dnnl.graph.writer import Writer
from dnnl.operators.activations import activated, check_activation, parameter_count
from dnnl.operators.convolution import infer_convolution
from dnnl.operators.microsoft import MICROSOFT, check_known
from dnnl.operators.operator import Expand, Operator
from dnnl.operators.pooling import infer_pooling
from dnnl.operators.products import infer_gemm, infer_matmul

_WINDOW = "auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"
_ACTIVATION = "activation", "activation_params"
_FACTORS = "activation_alpha", "activation_beta", "activation_gamma"
_TRANSPOSED = "alpha", "transA", "transB", "transBatchA", "transBatchB"


def _activation(scope: Scope) -> tuple[str, tuple[float, ...]]:
    """The activation of a node, and its parameters."""
    name = scope.attr("activation", b"").decode()
    listed = [scope.attr(key) for key in _FACTORS if key in scope.node.attrs]
    # Gemm and MatMul have all three, 0 where an activation has fewer parameters.
    return name, tuple(scope.attr("activation_params", listed[: parameter_count(name)]))


def _check(scope: Scope, *known: str) -> None:
    check_known(scope, *known)
    if scope.type().dtype not in REAL:
        rule = f"{scope.type().dtype} is not computed; Cast makes f32 of it"
        raise Unimplemented(f"{scope.node}: {rule}")
    check_activation(scope, *_activation(scope))


def _infer_conv(*, channels_last: bool) -> Infer:
    """As Conv, with an optional source that is added before the activation."""

    def infer(scope: Scope) -> list[TensorType]:
        _check(scope, *_WINDOW, *_ACTIVATION)
        shape = scope.shape()
        if len(shape) < 3:
            raise ModelError(f"source {shape} has no axes behind batch and channels")
        seen = scope
        if channels_last:
            name = f"{scope.node.name} first"
            kind = TensorType(scope.type().dtype, _channels_first(shape))
            types = {**scope.graph.types, name: kind}
            node = replace(scope.node, inputs=(name, *scope.node.inputs[1:3]))
            seen = Scope(node, replace(scope.graph, types=types))
        (kind,) = infer_convolution(seen)
        result = _channels_last(kind.sizes) if channels_last else kind.sizes
        if scope.node.input(3) and scope.shape(3) != result:
            raise ModelError(f"addend {scope.shape(3)} is not of the result's shape {result}")
        return scope.result(result)

    return infer


def _channels_first(shape: Shape) -> Shape:
    return (shape[0], shape[-1], *shape[1:-1])


def _channels_last(shape: Shape) -> Shape:
    return (shape[0], *shape[2:], shape[1])


def _expand_conv(*, channels_last: bool) -> Expand:
    """Conv, Add and an activation, between transpositions if channels come last."""

    def expand(writer: Writer) -> bool:
        node = writer.node
        scope = Scope(node, writer.graph)
        shape = writer.shape_of(node.output)
        rank = len(shape)
        first, last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
        out = _channels_first(shape) if channels_last else shape

        def seen(value: str) -> str:
            if not channels_last:
                return value
            own = _channels_first(writer.shape_of(value))
            return writer.add("Transpose", (value,), own, {"perm": first})

        attrs = {name: value for name, value in node.attrs.items() if name in _WINDOW}
        inputs = (seen(node.inputs[0]), *filter(None, node.inputs[1:3]))
        value = writer.add("Conv", inputs, out, attrs)
        if node.input(3):
            value = writer.add("Add", (value, seen(node.inputs[3])), out)
        value = activated(writer, value, *_activation(scope))
        if channels_last:
            writer.add("Transpose", (value,), shape, {"perm": last})
        return True

    return expand


def _infer_pool(scope: Scope) -> list[TensorType]:
    """As MaxPool, with channels last."""
    check_known(scope, *_WINDOW, "ceil_mode")
    name, shape = f"{scope.node.name} first", scope.shape()
    if len(shape) < 3:
        raise ModelError(f"source {shape} has no axes behind batch and channels")
    kind = TensorType(scope.type().dtype, _channels_first(shape))
    node = replace(scope.node, op="MaxPool", domain="", inputs=(name,))
    graph = replace(scope.graph, types={**scope.graph.types, name: kind})
    return scope.result(_channels_last(infer_pooling(Scope(node, graph))[0].sizes))


def _expand_pool(writer: Writer) -> bool:
    node, shape = writer.node, writer.shape_of(writer.node.output)
    rank = len(shape)
    first, last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    own = _channels_first(writer.shape_of(node.inputs[0]))
    source = writer.add("Transpose", node.inputs[:1], own, {"perm": first})
    value = writer.add("MaxPool", (source,), _channels_first(shape), node.attrs)
    writer.add("Transpose", (value,), shape, {"perm": last})
    return True


def _order(scope: Scope, place: int) -> tuple[int, ...]:
    """The permutation of the axes of source ``place`` of FusedMatMul."""
    which, rank = "AB"[place], len(scope.shape(place))
    order = list(range(rank))
    if rank < 2:
        return tuple(order)
    if scope.attr(f"transBatch{which}", 0):
        order = [*order[1:-1], 0, order[-1]]
    if scope.attr(f"trans{which}", 0):
        order[-2:] = order[:-3:-1]
    return tuple(order)


def _permuted(scope: Scope, place: int) -> Shape:
    shape = scope.shape(place)
    return tuple(shape[axis] for axis in _order(scope, place))


def _infer_matmul(*known: str) -> Infer:
    """As MatMul, of transposed sources; ``known`` are the attributes of the operator."""

    def infer(scope: Scope) -> list[TensorType]:
        _check(scope, *_TRANSPOSED, *known)
        names = [f"{scope.node.name} {place}" for place in (0, 1)]
        kinds = {
            name: TensorType(scope.type(place).dtype, _permuted(scope, place))
            for place, name in enumerate(names)
        }
        node = replace(scope.node, inputs=tuple(names))
        graph = replace(scope.graph, types={**scope.graph.types, **kinds})
        return infer_matmul(Scope(node, graph))

    return infer


def _expand_matmul(writer: Writer) -> bool:
    """MatMul with transpositions, a factor and an activation."""
    node, shape = writer.node, writer.shape_of(writer.node.output)
    scope = Scope(node, writer.graph)
    sources = []
    for place, value in enumerate(node.inputs):
        order, own = _order(scope, place), _permuted(scope, place)
        moved = order != tuple(range(len(order)))
        attrs = {"perm": order}
        sources.append(writer.add("Transpose", (value,), own, attrs) if moved else value)
    value = writer.add("MatMul", tuple(sources), shape)
    alpha = scope.attr("alpha", 1.0)
    if alpha != 1.0:
        value = writer.add("Mul", (value, writer.constant(alpha)), shape)
    activated(writer, value, *_activation(scope))
    return True


def _infer_gemm(scope: Scope) -> list[TensorType]:
    """As Gemm."""
    _check(scope, "alpha", "beta", "transA", "transB", "activation", *_FACTORS)
    return infer_gemm(scope)


def _expand_gemm(writer: Writer) -> bool:
    """Gemm and an activation."""
    node, shape = writer.node, writer.shape_of(writer.node.output)
    attrs = {n: v for n, v in node.attrs.items() if not n.startswith("activation")}
    value = writer.add("Gemm", node.inputs, shape, attrs)
    activated(writer, value, *_activation(Scope(node, writer.graph)))
    return True


_FUSED = Operator(_infer_matmul(), expand=_expand_matmul, inputs=(2, 2))
OPERATORS: Mapping[str, Operator] = {
    f"{MICROSOFT}.{name}": row
    for name, row in {
        "FusedConv": Operator(
            _infer_conv(channels_last=False),
            expand=_expand_conv(channels_last=False),
            inputs=(2, 4),
        ),
        "FusedGemm": Operator(_infer_gemm, expand=_expand_gemm, inputs=(2, 3)),
        "FusedMatMul": _FUSED,
        "FusedMatMulActivation": Operator(
            _infer_matmul("activation", "activation_axis", *_FACTORS),
            expand=_expand_matmul,
            inputs=(2, 2),
        ),
        "NhwcConv": Operator(
            _infer_conv(channels_last=True), expand=_expand_conv(channels_last=True), inputs=(2, 3)
        ),
        "NhwcFusedConv": Operator(
            _infer_conv(channels_last=True), expand=_expand_conv(channels_last=True), inputs=(2, 4)
        ),
        "NhwcMaxPool": Operator(_infer_pool, expand=_expand_pool, required=("kernel_shape",)),
        "TransposeMatMul": _FUSED,
    }.items()
}
