"""Elementwise operators of floats, and their forms for integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import (
    EXACT,
    FUNCTION,
    REAL,
    Array,
    ModelError,
    Node,
    PostOp,
    TensorType,
    is_whole,
)
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import broadcast, same_shape
from dnnl.graph.writer import Writer
from dnnl.lowering.facts import Source
from dnnl.lowering.graphs import FORWARD, Lowering
from dnnl.operators.algorithms import BINARY, ELTWISE, source_of, unary_parameters
from dnnl.operators.exact import aligned, lower_exact
from dnnl.operators.inference import elementwise, same
from dnnl.operators.operator import ANY_POST_OPS, BINARY_POST_OPS, Expand, Operator
from dnnl.operators.traced import ALONE, ONLY_F32
from dnnl.primitives.binary import BinaryDesc
from dnnl.primitives.eltwise import EltwiseDesc
from dnnl.primitives.prelu import PreluDesc
from dnnl.primitives.sum import SumDesc
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.scalar import Scalar, apply, traced

_F64 = np.dtype(np.float64)


def _infer_floats(scope: Scope) -> list[TensorType]:
    """The type of the source, which has floats.

    Raises Unimplemented for other types, and for f64 where the function has no f64 form.
    """
    in_f64 = scope.node.op not in ONLY_F32 and scope.type().dtype == _F64
    if scope.type().dtype not in REAL and not in_f64:
        rule = f"{scope.type().dtype} is not computed; Cast makes f32 of it"
        raise Unimplemented(f"{scope.node}: {rule}")
    return scope.result(scope.shape())


def _expand_f64(writer: Writer) -> bool:
    """f64 as a function in f64: the pass that fuses functions computes in f32 alone."""
    node, scope = writer.node, Scope(writer.node, writer.graph)
    if writer.dtype != _F64:
        return False

    def computed(x: Scalar) -> Scalar:
        return ALONE[node.op](scope, x)

    function = traced(computed, 1, [DataType.f64])
    writer.add(EXACT, node.inputs, scope.shape(), {"function": function})
    return True


def _infer_gated(scope: Scope) -> list[TensorType]:
    """Two sources of one shape and type give that type."""
    if scope.type() != scope.type(1):
        raise ModelError(f"sources {scope.type()} and {scope.type(1)} differ")
    return _infer_floats(scope)


def _expand_gated(writer: Writer) -> bool:
    """swish(first source) * second source."""
    node, shape = writer.node, writer.graph.shape_of(writer.node.output)
    attrs = {"alpha": node.attrs.get("alpha", 1.0)}
    gate = writer.add("Swish", (node.inputs[0],), shape, attrs)
    writer.add("Mul", (gate, node.inputs[1]), shape)
    return True


def _infer_prelu(scope: Scope) -> list[TensorType]:
    """The source's own type; slopes are broadcast to it."""
    shape, slopes = scope.shape(), scope.shape(1)
    if broadcast([shape, slopes]) != shape:
        raise ModelError(f"slopes {slopes} are not broadcast to source {shape}")
    return scope.result(shape)


def _expand_pieces(writer: Writer) -> bool:
    """Relu and Clip of integers by the larger and the smaller of two."""
    node, graph = writer.node, writer.graph
    if not is_whole(writer.dtype):
        return False
    shape, value = graph.shape_of(node.output), node.inputs[0]
    low, high = node.input(1), node.input(2)
    if node.op == "Relu":
        low = writer.constant(0)
    if low:
        value = writer.add("Max", (value, low), shape)
    if high or not low:
        value = writer.add("Min", (value, high or value), shape)
    return True


def _expand_slopes(writer: Writer) -> bool:
    """PRelu of integers: what is above 0, and the slopes times what is below."""
    node, shape = writer.node, writer.graph.shape_of(writer.node.output)
    if not is_whole(writer.dtype):
        return False
    source, slopes = node.inputs
    zero = writer.constant(0)
    above = writer.add("Max", (source, zero), shape)
    below = writer.add("Mul", (writer.add("Min", (source, zero), shape), slopes), shape)
    writer.add("Add", (above, below), shape)
    return True


def _infer_mean(scope: Scope) -> list[TensorType]:
    """The sources, which have floats, broadcast."""
    if is_whole(scope.type().dtype):
        rule = f"Mean of {scope.type().dtype} is not computed; Cast makes floats of it"
        raise Unimplemented(f"{scope.node}: {rule}")
    return elementwise(scope)


def _expand_mean(writer: Writer) -> bool:
    """The sum of all sources divided by their number."""
    node, graph = writer.node, writer.graph
    total, shape = node.inputs[0], graph.shape_of(node.inputs[0])
    for value in node.inputs[1:]:
        shape = broadcast([shape, graph.shape_of(value)])
        total = writer.add("Add", (total, value), shape)
    writer.add("Div", (total, writer.constant(len(node.inputs))), shape)
    return True


def _expand_power(writer: Writer) -> bool:
    """Pow of mixed types. An integer base with a constant exponent of whole floats is computed in
    integers, with other float exponents in f64. A float base with integer exponents converts
    these."""
    node, graph = writer.node, writer.graph
    exponent = graph.constants.get(node.inputs[1])
    if not is_whole(writer.dtype):
        return _power_of_floats(writer)
    if is_whole(graph.type_of(node.inputs[1]).dtype):
        return False
    if exponent is None or not _whole_numbers(exponent):
        return _power_in_floats(writer)
    name = writer.constant(exponent, np.dtype(np.int64))
    writer.add("Pow", (node.inputs[0], name), graph.shape_of(node.output))
    return True


def _power_in_floats(writer: Writer) -> bool:
    """An integer base and a float exponent: the power in f64, truncated to an integer, or rounded
    if it is within its error of one."""
    node, graph = writer.node, writer.graph
    shape, kinds = graph.shape_of(node.output), [graph.type_of(v) for v in node.inputs]
    sources = list(node.inputs)
    swapped = not same_shape(kinds[0].sizes, shape) and same_shape(kinds[1].sizes, shape)
    if not swapped and not same_shape(kinds[0].sizes, shape):
        sources[0] = writer.broadcast(sources[0], shape)
    base = DataType.from_numpy(kinds[0].dtype)

    def power(first: Scalar, second: Scalar) -> Scalar:
        x, exponent = (second, first) if swapped else (first, second)
        found = x.astype(DataType.f64) ** exponent.astype(DataType.f64)
        near = round(found)
        is_near = abs(found - near) <= abs(near) * 2.0**-50  # the error of a power
        return apply("where", is_near, near, found).astype(base)

    order = slice(None, None, -1 if swapped else 1)
    types = [DataType.from_numpy(kind.dtype) for kind in kinds[order]]
    function = traced(power, 2, types)
    writer.add(EXACT, tuple(sources[order]), shape, {"function": function})
    return True


def _power_of_floats(writer: Writer) -> bool:
    """Exponents become floats, and a base that neither source has the size of is copied."""
    node, graph = writer.node, writer.graph
    base, exponent = node.inputs
    shape, own = graph.shape_of(node.output), [graph.shape_of(value) for value in node.inputs]
    known = graph.constants.get(exponent)
    if known is not None and known.size == 1 and same_shape(own[0], shape):
        return False
    if is_whole(graph.type_of(exponent).dtype):
        if known is not None:
            exponent = writer.constant(known)
        else:
            kind = {"to": writer.dtype}
            exponent = writer.add("Cast", (exponent,), own[1], kind)
    if shape not in own:
        sizes = writer.constant(shape, np.dtype(np.int64))
        base = writer.add("Expand", (base, sizes), shape)
    if (base, exponent) == node.inputs:
        return False
    writer.add("Pow", (base, exponent), shape)
    return True


def _whole_numbers(array: Array) -> bool:
    wide = array.astype(np.float64)
    return bool(np.all((np.abs(wide) < 2.0**63) & (wide == np.rint(wide))))


def _lower_unary(lowering: Lowering, node: Node) -> None:
    """An operator of one source, scalars aside: eltwise, for floats."""
    if is_whole(lowering.graph.type_of(node.inputs[0]).dtype):
        lower_exact(lowering, node)
        return
    parameters = unary_parameters(node, lowering.graph)
    if parameters is None:
        raise Unimplemented(f"{node}: no eltwise function computes it")
    source = lowering.source(source_of(node, lowering.graph))
    dst = lowering.result(node, source.desc.dims)
    desc = EltwiseDesc.forward(FORWARD, parameters[0], source.desc, dst, *parameters[1:])
    lowering.define(node.output, lowering.emit(node, desc, {Arg.SRC: source}))


def _lower_function(lowering: Lowering, node: Node) -> None:
    """A traced function: of one value, or of several as a post-op of the first of them."""
    source = lowering.source(node.inputs[0])
    dst = lowering.result(node, source.desc.dims)
    fn = node.attrs["function"]
    if len(node.inputs) > 1:
        post_op = PostOp("function", function=fn, operands=node.inputs[1:])
        node, fn = replace(node, post_ops=(post_op, *node.post_ops)), _unchanged
    desc = EltwiseDesc.forward(FORWARD, "eltwise_function", source.desc, dst, fn=fn)
    lowering.define(node.output, lowering.emit(node, desc, {Arg.SRC: source}))


def _unchanged(x: Scalar) -> Scalar:
    return x


def _lower_binary(lowering: Lowering, node: Node) -> None:
    """An operator of two sources that broadcast: for floats binary, or eltwise where one is a
    scalar."""
    if is_whole(lowering.graph.type_of(node.inputs[0]).dtype):
        lower_exact(lowering, node)
        return
    fits_eltwise = all(post_op.kind != "eltwise" for post_op in node.post_ops)
    if fits_eltwise and unary_parameters(node, lowering.graph) is not None:
        _lower_unary(lowering, node)
        return
    sources = aligned(lowering, node)
    shape = lowering.graph.shape_of(node.output)
    dst = lowering.result(node, shape)
    desc = BinaryDesc(Alg[BINARY[node.op]], sources[0].desc, sources[1].desc, dst)
    args: dict[int, Source] = {Arg.SRC_0: sources[0], Arg.SRC_1: sources[1]}
    lowering.define(node.output, lowering.emit(node, desc, args))


def _lower_sum(lowering: Lowering, node: Node) -> None:
    """Three sources or more, all of one shape."""
    sources = [lowering.source(value) for value in node.inputs]
    descs = tuple(source.desc for source in sources)
    dst = lowering.result(node, descs[0].dims)
    desc = SumDesc((1.0,) * len(descs), descs, dst)
    args: dict[int, Source] = {Arg.multiple_src(i): source for i, source in enumerate(sources)}
    lowering.define(node.output, lowering.emit(node, desc, args))


def _lower_prelu(lowering: Lowering, node: Node) -> None:
    """Slopes of any shape that is broadcast to the source's; the primitive chooses the layout of
    constants."""
    source, slopes = aligned(lowering, node)
    dst = lowering.result(node, source.desc.dims)
    desc = PreluDesc.forward(FORWARD, source.desc, lowering.weights(slopes), dst)
    args: dict[int, Source] = {Arg.SRC: source, Arg.WEIGHTS: slopes}
    lowering.define(node.output, lowering.emit(node, desc, args))


def _binary(post_ops: frozenset[str] = ANY_POST_OPS, expand: Expand | None = None) -> Operator:
    return Operator(elementwise, _lower_binary, expand, post_ops=post_ops, inputs=(2, 2))


def _variadic() -> Operator:
    return Operator(elementwise, _lower_binary, post_ops=ANY_POST_OPS, inputs=(1, None))


def _unary(inputs: tuple[int, int] = (1, 1), expand: Expand | None = None) -> Operator:
    return Operator(same, _lower_unary, expand, post_ops=BINARY_POST_OPS, inputs=inputs)


OPERATORS: Mapping[str, Operator] = {
    **{op: _binary() for op in ("Add", "Div", "Mul", "Sub")},
    **{op: _variadic() for op in ("Max", "Min")},
    "Mean": Operator(_infer_mean, expand=_expand_mean, inputs=(1, None)),
    "PRelu": Operator(_infer_prelu, _lower_prelu, _expand_slopes, inputs=(2, 2)),
    "Pow": _binary(BINARY_POST_OPS, _expand_power),
    "SwiGLU": Operator(_infer_gated, expand=_expand_gated, inputs=(2, 2)),
    "Sum": Operator(elementwise, _lower_sum, inputs=(1, None)),
    **{op: _unary() for op in ELTWISE},
    "Clip": _unary((1, 3), _expand_pieces),
    "Relu": _unary(expand=_expand_pieces),
    **{op: Operator(_infer_floats, expand=_expand_f64) for op in ALONE},
}
MADE: Mapping[str, Operator] = {
    FUNCTION: Operator(same, _lower_function, post_ops=BINARY_POST_OPS),
}
