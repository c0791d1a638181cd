"""Operators without a primitive of their own, written as nodes that have one.

What is written here as elementwise nodes becomes post-ops again when the graph is fused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import Array, Graph, Node, Shape, blamed_on, is_whole
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import broadcast, same_shape
from dnnl.graph.writer import Writer
from dnnl.operators import expand_data as data
from dnnl.operators import expand_normalization as normalization
from dnnl.operators import expand_quantized as quantized
from dnnl.operators import expand_reduction as reduction
from dnnl.operators import expand_resize as resizing
from dnnl.operators.shapes import pooling_window
from dnnl.operators.shapes_reduction import REDUCTIONS
from dnnl.operators.table import row_name
from dnnl.primitives.overhang import padded_shares


def expand(graph: Graph) -> Graph:
    """The graph with such operators replaced."""
    nodes: list[Node] = []
    types, constants = dict(graph.types), dict(graph.constants)
    for node in graph.nodes:
        rule = _RULES.get(row_name(node))
        writer = Writer(node, graph)
        with blamed_on(node):
            written = rule is not None and rule(writer)
        if not written:
            nodes.append(node)
            continue
        writer.finish()
        nodes.extend(writer.nodes)
        types.update(writer.types)
        constants.update(writer.constants)
    return replace(graph, nodes=tuple(nodes), types=types, constants=constants).pruned()


def _local_response_normalization(writer: Writer) -> bool:
    """x * (bias + alpha * mean of squares over ``size`` channels) ** -beta.

    The mean is an average pooling along the channels of [N, 1, C, the rest].
    """
    node, attrs = writer.node, writer.node.attrs
    shape = writer.graph.shape_of(node.output)
    seen = (shape[0], 1, shape[1], prod(shape[2:]))
    size = int(attrs["size"])
    source = writer.reshape(node.inputs[0], seen)
    squares = writer.add("Mul", (source, source), seen)
    left = (size - 1) // 2
    window = {"kernel_shape": (size, 1), "pads": (left, 0, size - 1 - left, 0)}
    means = writer.add("AveragePool", (squares,), seen, {**window, "count_include_pad": 1})
    alpha, bias = attrs.get("alpha", 1e-4), attrs.get("bias", 1.0)
    scaled = writer.add("Mul", (means, writer.constant(alpha)), seen)
    shifted = writer.add("Add", (scaled, writer.constant(bias)), seen)
    factor = writer.add("Pow", (shifted, writer.constant(-attrs.get("beta", 0.75))), seen)
    result = writer.add("Mul", (factor, source), seen)
    writer.reshape(result, shape)
    return True


def _average_pool(writer: Writer) -> bool:
    """An average that counts padding, of windows that hang over it, as one that does not, times
    the shares of the taps inside."""
    node = writer.node
    scope = Scope(node, writer.graph)
    window = pooling_window(scope)
    if not scope.attr("count_include_pad", 0) or not any(window.overhang):
        return False
    padded = zip(window.padding_r, window.overhang, strict=True)
    shares = padded_shares(
        scope.shape()[2:],
        window.out,
        window.kernel,
        window.strides,
        window.dilations,
        window.padding_l,
        [behind - beyond for behind, beyond in padded],
    )
    shape, attrs = writer.graph.shape_of(node.output), {**node.attrs, "count_include_pad": 0}
    means = writer.add("AveragePool", (node.inputs[0],), shape, attrs)
    if (shares != 1).any():
        writer.add("Mul", (means, writer.constant(shares)), shape)
    return True


def _gemm(writer: Writer) -> bool:
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


def _pieces(writer: Writer) -> bool:
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


def _sign(writer: Writer) -> bool:
    """1 and -1 of floats that are above and below 0, 0 of both zeros; NaN stays."""
    value, shape = writer.node.inputs[0], writer.graph.shape_of(writer.node.output)
    if is_whole(writer.dtype):
        return False
    zero, truth = writer.constant(0), np.dtype(np.bool_)
    for op, sign in (("Less", -1), ("Greater", 1)):
        found = writer.add(op, (writer.node.inputs[0], zero), shape, dtype=truth)
        value = writer.add("Where", (found, writer.constant(sign), value), shape)
    writer.add("Add", (value, zero), shape)
    return True


def _slopes(writer: Writer) -> bool:
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


def _power(writer: Writer) -> bool:
    """An integer to the power of constant floats that are whole: the power of integers. A float to
    the power of many integers: that of floats, one of which has the shape of the result."""
    node, graph = writer.node, writer.graph
    exponent = graph.constants.get(node.inputs[1])
    if not is_whole(writer.dtype):
        return _power_of_floats(writer)
    if is_whole(graph.type_of(node.inputs[1]).dtype):
        return False
    if exponent is None or not _whole_numbers(exponent):
        rule = "an integer to the power of floats, which are no constant integers"
        raise Unimplemented(f"{node}: {rule}: Cast makes a float of it")
    name = writer.constant(exponent, np.dtype(np.int64))
    writer.add("Pow", (node.inputs[0], name), graph.shape_of(node.output))
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


def _matmul(writer: Writer) -> bool:
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


_RULES: dict[str, Callable[[Writer], bool]] = {
    "AveragePool": _average_pool,
    "Clip": _pieces,
    "Gemm": _gemm,
    "GatherND": data.gather_nd,
    "IsInf": data.is_inf,
    "IsNaN": data.is_nan,
    "GroupNormalization": normalization.group,
    "InstanceNormalization": normalization.group,
    "LRN": _local_response_normalization,
    "LayerNormalization": normalization.layer,
    "MatMul": _matmul,
    "Pad": data.pad,
    "PRelu": _slopes,
    "Pow": _power,
    "RMSNormalization": normalization.layer,
    **dict.fromkeys(REDUCTIONS, reduction.reduction),
    "Relu": _pieces,
    "Resize": resizing.resize,
    "Sign": _sign,
    "Slice": data.slices_of,
    "Tile": data.tile,
    "Trilu": data.trilu,
    "Upsample": resizing.resize,
    **quantized.RULES,
}
