"""Matrix products."""

from __future__ import annotations

from dataclasses import replace

from dnnl.errors import Unimplemented
from dnnl.framework.graph import Node
from dnnl.framework.lowering import FORWARD, Lowering, Source, amount
from dnnl.primitives.inner_product import InnerProductDesc
from dnnl.primitives.matmul import MatmulDesc
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.shaped_layout import unblocked

_TRANSPOSED = (1, 0)


def gemm(lowering: Lowering, node: Node) -> None:
    """A' x B' + bias: inner product where B is constant, else matmul.

    Factors and other addends are nodes of their own here; the bias has one value per column.
    """
    a, b = node.inputs[:2]
    trans_a, trans_b = bool(node.attrs.get("transA", 0)), bool(node.attrs.get("transB", 0))
    source = _plain(lowering.source(a, permutation=_TRANSPOSED if trans_a else None))
    rows, depth = source.desc.dims
    bias = lowering.source(node.input(2)) if node.input(2) else None
    columns = lowering.graph.shape_of(node.output)[1]
    dst = MemoryDesc((rows, columns), lowering.kind(node.output))
    args: dict[int, Source] = {Arg.SRC: source}
    desc: InnerProductDesc | MatmulDesc
    if lowering.tensor(b).constant and not trans_a:
        weights = lowering.source(b, permutation=None if trans_b else _TRANSPOSED)
        wanted = lowering.weights(weights)
        bias_desc = bias.desc if bias else None
        desc = InnerProductDesc.forward(FORWARD, source.desc, wanted, dst, bias_desc)
    else:
        weights = lowering.source(b, permutation=_TRANSPOSED if trans_b else None)
        wanted = lowering.weights(weights) if weights.constant else weights.desc
        if bias:
            bias = lowering.source(node.input(2), (1, columns))
        desc = MatmulDesc(source.desc, wanted, dst, bias.desc if bias else None)
    args[Arg.WEIGHTS] = weights
    if bias:
        args[Arg.BIAS] = bias
    flops = 2.0 * amount((rows, columns, depth))
    lowering.define(node.output, lowering.emit(node, desc, args, flops))


def matmul(lowering: Lowering, node: Node) -> None:
    """As numpy.matmul, of sources that have at least two axes; the others broadcast."""
    shapes = [lowering.graph.shape_of(value) for value in node.inputs]
    rank = max(map(len, shapes))
    source, weights = (
        lowering.source(value, (1,) * (rank - len(shape)) + shape)
        for value, shape in zip(node.inputs, shapes, strict=True)
    )
    kind = source.desc.data_type
    if kind.is_integer and kind.bits < 32:
        rule = f"sums of {kind} saturate; MatMul is for integers of 32 and 64 bits, Cast makes them"
        raise Unimplemented(f"{node}: {rule}")
    wanted = lowering.weights(weights) if weights.constant else weights.desc
    out = lowering.graph.shape_of(node.output)
    desc = MatmulDesc(source.desc, wanted, lowering.ordered(node.output))
    args: dict[int, Source] = {Arg.SRC: source, Arg.WEIGHTS: weights}
    flops = 2.0 * amount((*out, shapes[0][-1]))
    lowering.define(node.output, lowering.emit(node, desc, args, flops))


def _plain(source: Source) -> Source:
    """``source`` described by strides alone where its blocks change nothing."""
    return replace(source, desc=unblocked(source.desc))
