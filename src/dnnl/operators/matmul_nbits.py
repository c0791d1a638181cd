"""MatMulNBits: products with weights of 2, 4 or 8 bits, which are decompressed in registers."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import numpy.typing as npt

from dnnl.errors import Unimplemented
from dnnl.graph.graph import REAL, Array, ModelError, Node, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.writer import Writer
from dnnl.lowering.facts import Factors, Source, amount
from dnnl.lowering.graphs import Lowering
from dnnl.operators.microsoft import MICROSOFT, check_known
from dnnl.operators.operator import ANY_POST_OPS, Operator, Role
from dnnl.primitives.matmul import MatmulDesc
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc

COMPRESSED = "dnnl.CompressedMatMul"
"""A product with compressed weights; an operator of expansions, which no file can hold. Its sources
are a matrix [rows, K], packed signed codes [N, bytes], scales [groups, N], zero points of the same
shape, and a bias [N]."""

_KNOWN = "K", "N", "accuracy_level", "bits", "block_size", "weight_prepacked"
_BITS = (2, 4, 8)
_CODES, _SCALES, _ZERO_POINTS, _GROUPS, _BIAS = 1, 2, 3, 4, 5
_LEAST_BF16 = (3, 4)
"""Values of ``accuracy_level`` that allow rounding the source to bf16 or to int8."""
_MANY_ROWS = 16
"""Rows from which unpacking to bf16 panels is faster than decompressing in registers: 8 rows by
4096x4096 take 1.9 ms in registers and 3.3 ms with panels."""
_BYTE = np.dtype(np.uint8)
Bytes = npt.NDArray[np.uint8]


def _infer(scope: Scope) -> list[TensorType]:
    """[..., K] gives [..., N] in the type of the source."""
    check_known(scope, *_KNOWN)
    node, shape = scope.node, scope.shape()
    depth, columns, bits, block = (scope.attr(n, 4) for n in ("K", "N", "bits", "block_size"))
    if bits not in _BITS:
        raise Unimplemented(f"{node}: bits = {bits}: codes of 2, 4 and 8 bits are computed")
    if scope.attr("weight_prepacked", 0):
        rule = "weights packed for another processor; export them with weight_prepacked = 0"
        raise Unimplemented(f"{node}: weight_prepacked = {scope.attr('weight_prepacked')}: {rule}")
    if block < 16 or block & (block - 1):
        raise ModelError(f"attribute 'block_size' = {block} must be a power of two from 16 on")
    if not shape or shape[-1] != depth:
        raise ModelError(f"source {shape} has not K = {depth} numbers in a row")
    if scope.type().dtype not in REAL:
        raise Unimplemented(f"{node}: a source of {scope.type().dtype}; Cast makes f32 of it")
    groups, packed = -(-depth // block), block * bits // 8
    codes = scope.constant(_CODES)
    if codes is None or codes.dtype != _BYTE or codes.size != columns * groups * packed:
        found = scope.type(_CODES)
        rule = f"expected uint8 of {(columns, groups, packed)}; omitted weights are not computed"
        raise Unimplemented(f"{node}: weights {found}: {rule}")
    scales = scope.constant(_SCALES)
    if scales is None or scales.size != columns * groups or scales.dtype not in REAL:
        raise ModelError(f"scales {scope.type(_SCALES)} are not floats of {(columns, groups)}")
    points = _zero_points(scope, (columns, groups), bits)
    if points is not None and points.dtype.kind == "f" and (points != np.rint(points)).any():
        raise Unimplemented(f"{node}: zero points that are no integers")
    order = scope.constant(_GROUPS)
    if order is not None and (order.ravel()[:depth] != np.arange(depth) // block).any():
        raise Unimplemented(f"{node}: g_idx: only groups of neighbours, in order, are computed")
    if node.input(_BIAS) and scope.shape(_BIAS) != (columns,):
        raise ModelError(f"bias {scope.shape(_BIAS)} has not one value for each of {columns}")
    return scope.result((*shape[:-1], columns))


def _zero_points(scope: Scope, shape: tuple[int, int], bits: int) -> Array | None:
    """The zero points of all groups, ``shape``; None where each is the middle of the range."""
    given = scope.constant(_ZERO_POINTS)
    if given is None:
        return None
    columns, groups = shape
    found = given
    if given.dtype == _BYTE:
        packed = -(-groups * bits // 8)
        if given.size != columns * packed:
            raise ModelError(f"zero points {given.shape} are not uint8 of {(columns, packed)}")
        found = _unpacked(given.reshape(columns, packed), bits)[:, :groups]
    elif given.size != columns * groups or given.dtype not in REAL:
        raise ModelError(f"zero points {scope.type(_ZERO_POINTS)} are not floats of {shape}")
    return found.reshape(shape).astype(np.float64 if found.dtype != _BYTE else _BYTE)


def _unpacked(codes: Bytes, bits: int) -> Bytes:
    """The codes of each row, one a byte; the lowest bits of a packed byte come first."""
    shifts = np.arange(0, 8, bits, dtype=_BYTE)
    split = codes[..., None] >> shifts & _BYTE.type((1 << bits) - 1)
    return split.reshape(*codes.shape[:-1], -1)


def _expand(writer: Writer) -> bool:
    """A product with signed codes. The middle of their range is 0, so that the usual zero points
    vanish. K is padded with zeros of the source to whole groups."""
    node, graph = writer.node, writer.graph
    scope = Scope(node, graph)
    depth, columns, bits, block = (scope.attr(n, 4) for n in ("K", "N", "bits", "block_size"))
    groups = -(-depth // block)
    wide = groups * block
    shape = graph.shape_of(node.output)
    rows = prod(shape[:-1])
    source = writer.reshape(node.inputs[0], (rows, depth))
    if wide != depth:
        rest = writer.filled(0, (rows, wide - depth))
        source = writer.add("Concat", (source, rest), (rows, wide), {"axis": 1})
    codes = graph.constants[node.inputs[_CODES]].reshape(columns, -1)
    points = _zero_points(scope, (columns, groups), bits)
    middle = 1 << (bits - 1)
    if bits == 2:
        split = _unpacked(codes, 2) + _BYTE.type(8 - middle)
        codes, bits = split[:, ::2] | split[:, 1::2] << 4, 4
    flip = 0x88 if bits == 4 else 0x80
    scales = graph.constants[node.inputs[_SCALES]].reshape(columns, groups)
    inputs = [source, writer.constant(codes ^ flip, _BYTE), writer.constant(scales.T, scales.dtype)]
    signed = None if points is None else points.astype(np.int32).T - middle
    if signed is None or not signed.any():
        inputs.append("")
    else:
        small = np.dtype(np.int8 if abs(signed).max() < 128 else np.int32)
        inputs.append(writer.constant(signed, small))
    inputs.append(node.input(_BIAS))
    rounds = scope.attr("accuracy_level", 0) in _LEAST_BF16 and rows >= _MANY_ROWS
    mode = "bf16" if rounds else "strict"
    attrs = {"bits": bits, "group": block, "fpmath_mode": mode}
    result = writer.add(COMPRESSED, tuple(inputs), (rows, columns), attrs)
    writer.reshape(result, shape)
    return True


def _infer_compressed(scope: Scope) -> list[TensorType]:
    """[rows, K] and codes [N, bytes] give [rows, N]."""
    return scope.result((scope.shape()[0], scope.shape(1)[0]))


def _lower(lowering: Lowering, node: Node) -> None:
    """The codes are the transposed weights of a matmul, which packs them."""
    source, graph = lowering.source(node.inputs[0]), lowering.graph
    rows, depth = source.desc.dims
    columns = graph.shape_of(node.output)[1]
    name, group = node.inputs[1], node.attrs["group"]
    kind = "s4" if node.attrs["bits"] == 4 else "s8"
    weights = Source(MemoryDesc((depth, columns), kind, "ba"), constant=name)
    args: dict[int, Source] = {Arg.SRC: source, Arg.WEIGHTS: weights}
    bias = None
    if node.input(4):
        args[Arg.BIAS] = lowering.source(node.input(4), (1, columns))
        bias = args[Arg.BIAS].desc
    factors = [
        Factors(flag, Arg.WEIGHTS, 0b11, lowering.source(value), (group, 1))
        for flag, value in ((Arg.SCALES, node.input(2)), (Arg.ZERO_POINTS, node.input(3)))
        if value
    ]
    desc = MatmulDesc(source.desc, lowering.weights(weights), lowering.ordered(node.output), bias)
    flops = 2.0 * amount((rows, columns, depth))
    mode = node.attrs["fpmath_mode"]
    lowering.define(node.output, lowering.emit(node, desc, args, flops, factors, mode))


OPERATORS: Mapping[str, Operator] = {
    f"{MICROSOFT}.MatMulNBits": Operator(
        _infer, expand=_expand, inputs=(3, 6), required=("K", "N", "block_size")
    ),
}
MADE: Mapping[str, Operator] = {
    COMPRESSED: Operator(
        _infer_compressed, _lower, post_ops=ANY_POST_OPS, inputs=(3, 5), role=Role.PRODUCT
    ),
}
