"""Matrix products, of floats and of bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import ModelError, Node, Shape, TensorType, is_whole
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import broadcast
from dnnl.graph.writer import Writer
from dnnl.lowering.facts import Source, amount
from dnnl.lowering.graphs import FORWARD, Lowering
from dnnl.operators.factors import quantization_of
from dnnl.operators.operator import ANY_POST_OPS, Operator, product
from dnnl.operators.quantization import MATMUL
from dnnl.primitives.inner_product import InnerProductDesc
from dnnl.primitives.matmul import MatmulDesc
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.shaped_layout import unblocked


def infer_gemm(scope: Scope) -> list[TensorType]:
    """A' [M, K] x B' [K, N] + C gives [M, N]."""
    a, b = scope.shape(), scope.shape(1)
    if len(a) != 2 or len(b) != 2:
        raise ModelError(f"sources {a} and {b} must be matrices")
    m, k = a[::-1] if scope.attr("transA", 0) else a
    k_b, n = b[::-1] if scope.attr("transB", 0) else b
    if k != k_b:
        raise ModelError(f"inner sizes {k} and {k_b} differ")
    if scope.node.input(2) and broadcast([scope.shape(2), (m, n)]) != (m, n):
        raise ModelError(f"addend {scope.shape(2)} does not broadcast to {(m, n)}")
    return scope.result((m, n))


def infer_matmul(scope: Scope) -> list[TensorType]:
    """As numpy.matmul, vectors included."""
    a, b = scope.shape(), scope.shape(1)
    if not a or not b or a[-1] != (b[-2] if len(b) > 1 else b[0]):
        raise ModelError(f"sources {a} and {b} cannot be multiplied")
    rows = a[-2:-1] if len(a) > 1 else ()
    columns = b[-1:] if len(b) > 1 else ()
    return scope.result((*broadcast([a[:-2], b[:-2]]), *rows, *columns))


def _expand_gemm(writer: Writer) -> bool:
    """Factors and addends that are no bias become nodes; those of constants are multiplied in."""
    node, graph = writer.node, writer.graph
    attrs = dict(node.attrs)
    alpha, beta = attrs.pop("alpha", 1.0), attrs.pop("beta", 1.0)
    a, b, c = node.inputs[0], node.inputs[1], node.input(2) if beta else ""
    shape = graph.shape_of(node.output)
    whole = is_whole(writer.dtype)
    if whole and not (alpha.is_integer() and beta.is_integer()):
        rule = f"alpha = {alpha} and beta = {beta}: factors of integers must be integers"
        raise Unimplemented(f"{node}: {rule}")
    if alpha != 1.0 and b in graph.constants and not whole:
        b, alpha = writer.constant(np.float64(alpha) * graph.constants[b]), 1.0
    addend = None if whole else graph.constants.get(c)
    inputs: tuple[str, ...] = (a, b)
    if addend is not None and alpha == 1.0 and addend.size == prod(addend.shape[-1:]):
        row = np.broadcast_to(np.float64(beta) * addend.ravel(), shape[1:])
        inputs, c = (a, b, writer.constant(row)), ""
    if whole:
        result = _integer_product(writer, a, b, shape)
    else:
        result = writer.add("Gemm", inputs, shape, attrs)
    if alpha != 1.0:
        result = writer.add("Mul", (result, writer.constant(alpha)), shape)
    if c and beta != 1.0:
        c = writer.add("Mul", (c, writer.constant(beta)), graph.shape_of(c))
    if c:
        writer.add("Add", (result, c), shape)
    return True


def _integer_product(writer: Writer, a: str, b: str, shape: Shape) -> str:
    """A' x B' of integers."""

    def factor(value: str, transposed: str) -> str:
        if not writer.node.attrs.get(transposed, 0):
            return value
        flipped = writer.graph.shape_of(value)[::-1]
        return writer.add("Transpose", (value,), flipped, {"perm": (1, 0)})

    return writer.add("MatMul", (factor(a, "transA"), factor(b, "transB")), shape)


def _expand_matmul(writer: Writer) -> bool:
    """Vectors are matrices of one row or column. Batches of rows that all meet one matrix are more
    rows."""
    node, graph = writer.node, writer.graph
    a, b = node.inputs
    shapes = graph.shape_of(a), graph.shape_of(b)
    if len(shapes[1]) == 2 < len(shapes[0]) and not is_whole(writer.dtype):
        every = prod(shapes[0][:-1])
        a = writer.reshape(a, (every, shapes[0][-1]))
        result = writer.add("MatMul", (a, b), (every, shapes[1][-1]))
        writer.reshape(result, graph.shape_of(node.output))
        return True
    if min(map(len, shapes)) > 1:
        return False
    rows, columns = shapes[0], shapes[1]
    if len(rows) == 1:
        rows = (1, *rows)
        a = writer.reshape(a, rows)
    if len(columns) == 1:
        columns = (*columns, 1)
        b = writer.reshape(b, columns)
    batch = broadcast([rows[:-2], columns[:-2]])
    result = writer.add("MatMul", (a, b), (*batch, rows[-2], columns[-1]))
    writer.reshape(result, graph.shape_of(node.output))
    return True


_TRANSPOSED = (1, 0)


def _lower_gemm(lowering: Lowering, node: Node) -> None:
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


def _lower_matmul(lowering: Lowering, node: Node) -> None:
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


def _lower_quantized_matmul(lowering: Lowering, node: Node) -> None:
    """A' x B' + bias of matrices, or of batches of them that are not transposed, in bytes."""
    graph = lowering.graph
    transposes = [bool(node.attrs.get(name, 0)) for name in ("transA", "transB")]
    rank = len(graph.shape_of(node.output))
    sources = []
    for value, transposed in zip(node.inputs[:2], transposes, strict=True):
        shape = graph.shape_of(value)
        order = (*range(rank - 2), rank - 1, rank - 2) if transposed else None
        sources.append(lowering.source(value, (1,) * (rank - len(shape)) + shape, order))
    src, weights = sources
    args: dict[int, Source] = {Arg.SRC: src, Arg.WEIGHTS: weights}
    bias = None
    if node.input(2):
        args[Arg.BIAS] = lowering.source(node.input(2), (*(1,) * (rank - 1), weights.desc.dims[-1]))
        bias = args[Arg.BIAS].desc
    wanted = lowering.weights(weights) if weights.constant else weights.desc
    desc = MatmulDesc(src.desc, wanted, lowering.ordered(node.output), bias)
    masks = 1 << (rank - 2), 1 << (rank - 1)
    factors = quantization_of(lowering, node, sources, masks)
    flops = 2.0 * amount((*graph.shape_of(node.output), src.desc.dims[-1]))
    lowering.define(node.output, lowering.emit(node, desc, args, flops, factors))


OPERATORS: Mapping[str, Operator] = {
    "Gemm": product(infer_gemm, _lower_gemm, (2, 3), _expand_gemm),
    "MatMul": product(infer_matmul, _lower_matmul, (2, 2), _expand_matmul),
}
MADE: Mapping[str, Operator] = {
    MATMUL: Operator(infer_matmul, _lower_quantized_matmul, post_ops=ANY_POST_OPS, inputs=(2, 6)),
}
