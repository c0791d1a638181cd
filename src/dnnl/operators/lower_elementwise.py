"""Elementwise operators, sums, slopes and softmax."""

from __future__ import annotations

from dataclasses import replace

from dnnl.errors import Unimplemented
from dnnl.framework.lowering import FORWARD, Lowering, Source, volume
from dnnl.graph.graph import EXACT, REAL, Node, PostOp, is_whole
from dnnl.graph.scope import normal_axis
from dnnl.operators.algorithms import BINARY, source_of, unary_parameters
from dnnl.operators.exact import exact_function
from dnnl.primitives.binary import BinaryDesc
from dnnl.primitives.eltwise import EltwiseDesc
from dnnl.primitives.exact import ExactDesc
from dnnl.primitives.prelu import PreluDesc
from dnnl.primitives.softmax import SoftmaxDesc
from dnnl.primitives.sum import SumDesc
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg
from dnnl.types.scalar import Scalar


def exact(lowering: Lowering, node: Node) -> None:
    """An operator that is computed in the types of its elements."""
    graph = lowering.graph
    function = node.attrs["function"] if node.op == EXACT else exact_function(node, graph)
    if function is None:
        dtype = graph.type_of(node.inputs[0]).dtype
        raise Unimplemented(f"{node}: no function of {dtype} computes it")
    sources = _aligned(lowering, node)
    dst = lowering.result(node, graph.shape_of(node.output))
    desc = ExactDesc(function, [source.desc for source in sources], dst)
    args: dict[int, Source] = {Arg.multiple_src(i): source for i, source in enumerate(sources)}
    lowering.define(node.output, lowering.emit(node, desc, args))


def cast(lowering: Lowering, node: Node) -> None:
    """Another data type; between floats who reads the result converts it."""
    kinds = {lowering.graph.type_of(value).dtype for value in (node.inputs[0], node.output)}
    if kinds <= REAL:
        lowering.convert(node.output, node.inputs[0])
    else:
        exact(lowering, node)


def unary(lowering: Lowering, node: Node) -> None:
    """An operator of one source, scalars aside: eltwise, for floats."""
    if is_whole(lowering.graph.type_of(node.inputs[0]).dtype):
        exact(lowering, node)
        return
    parameters = unary_parameters(node, lowering.graph)
    if parameters is None:
        raise Unimplemented(f"{node}: no eltwise function computes it")
    source = lowering.source(source_of(node, lowering.graph))
    dst = lowering.result(node, source.desc.dims)
    desc = EltwiseDesc.forward(FORWARD, parameters[0], source.desc, dst, *parameters[1:])
    lowering.define(node.output, lowering.emit(node, desc, {Arg.SRC: source}))


def function(lowering: Lowering, node: Node) -> None:
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


def binary(lowering: Lowering, node: Node) -> None:
    """An operator of two sources that broadcast: for floats binary, or eltwise where one is a
    scalar."""
    if is_whole(lowering.graph.type_of(node.inputs[0]).dtype):
        exact(lowering, node)
        return
    fits_eltwise = all(post_op.kind != "eltwise" for post_op in node.post_ops)
    if fits_eltwise and unary_parameters(node, lowering.graph) is not None:
        unary(lowering, node)
        return
    sources = _aligned(lowering, node)
    shape = lowering.graph.shape_of(node.output)
    dst = lowering.result(node, shape)
    desc = BinaryDesc(Alg[BINARY[node.op]], sources[0].desc, sources[1].desc, dst)
    args: dict[int, Source] = {Arg.SRC_0: sources[0], Arg.SRC_1: sources[1]}
    lowering.define(node.output, lowering.emit(node, desc, args))


def summation(lowering: Lowering, node: Node) -> None:
    """Three sources or more, all of one shape."""
    sources = [lowering.source(value) for value in node.inputs]
    descs = tuple(source.desc for source in sources)
    dst = lowering.result(node, descs[0].dims)
    desc = SumDesc((1.0,) * len(descs), descs, dst)
    args: dict[int, Source] = {Arg.multiple_src(i): source for i, source in enumerate(sources)}
    lowering.define(node.output, lowering.emit(node, desc, args))


def prelu(lowering: Lowering, node: Node) -> None:
    """Slopes of any shape that is broadcast to the source's; the primitive chooses the layout of
    constants."""
    source, slopes = _aligned(lowering, node)
    dst = lowering.result(node, source.desc.dims)
    desc = PreluDesc.forward(FORWARD, source.desc, lowering.weights(slopes), dst)
    args: dict[int, Source] = {Arg.SRC: source, Arg.WEIGHTS: slopes}
    lowering.define(node.output, lowering.emit(node, desc, args))


def softmax(lowering: Lowering, node: Node) -> None:
    """Before operator set 13 all dimensions from ``axis`` on are one. A row of -inf is NaN."""
    dtype = lowering.graph.type_of(node.inputs[0]).dtype
    if is_whole(dtype):
        raise Unimplemented(f"{node}: {node.op} of {dtype} is not computed; Cast makes f32 of it")
    shape = lowering.graph.shape_of(node.output)
    axis = normal_axis(node.attrs.get("axis", 1 if lowering.graph.opset < 13 else -1), len(shape))
    seen = shape
    if lowering.graph.opset < 13 and volume(shape[axis + 1 :]) != 1:
        seen, axis = (volume(shape[:axis]), volume(shape[axis:])), 1
    source = lowering.source(node.inputs[0], seen)
    alg = "softmax_log" if node.op == "LogSoftmax" else "softmax_accurate"
    dst = lowering.result(node, seen)
    desc = SoftmaxDesc.forward(FORWARD, alg, source.desc, dst, axis, masked_rows="nan")
    lowering.define(node.output, lowering.emit(node, desc, {Arg.SRC: source}))


def _aligned(lowering: Lowering, node: Node) -> list[Source]:
    """All sources with the number of dimensions of the result."""
    rank = len(lowering.graph.shape_of(node.output))
    shapes = [lowering.graph.shape_of(value) for value in node.inputs]
    return [
        lowering.source(value, (1,) * (rank - len(shape)) + shape)
        for value, shape in zip(node.inputs, shapes, strict=True)
    ]
