"""Reductions of some axes to one element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf, nan, prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import ModelError, Node, Shape, TensorType, is_whole
from dnnl.graph.scope import Scope, normal_axis
from dnnl.graph.sizes import same_shape
from dnnl.graph.writer import Writer
from dnnl.lowering.facts import Source, volume
from dnnl.lowering.graphs import FORWARD, Lowering
from dnnl.operators.numbers import REDUCTIONS
from dnnl.operators.operator import ANY_POST_OPS, Operator, Role
from dnnl.primitives.exact import ExactDesc
from dnnl.primitives.pooling import PoolingDesc
from dnnl.primitives.reduction import ReductionDesc
from dnnl.runtime.storage import check_capacity
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known

_OF_FLOATS = frozenset({"ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean"})
_OF_TRUTHS = frozenset({"ReduceMax", "ReduceMin"})


def _infer_reduction(scope: Scope) -> list[TensorType]:
    """The axes are 1 or, without keepdims, gone.

    Raises Unimplemented for integers whose result would not be one, and for truth values that are
    to be added up.
    """
    op, dtype, shape = scope.node.op, scope.type().dtype, scope.shape()
    if (op in _OF_FLOATS and is_whole(dtype)) or (op not in _OF_TRUTHS and dtype.kind == "b"):
        rule = f"{op} of {dtype} is not computed; Cast makes floats of it"
        raise Unimplemented(f"{scope.node}: {rule}")
    axes = _reduced_axes(scope)
    dims = [1 if d in axes else n for d, n in enumerate(shape)]
    if scope.attr("keepdims", 1) != 1:
        dims = [n for d, n in enumerate(dims) if d not in axes]
    return scope.result(dims)


def _reduced_axes(scope: Scope) -> tuple[int, ...]:
    """The axes of a reduction, nonnegative and in order: all where none is given, unless
    the node says otherwise."""
    rank = len(scope.shape())
    given = scope.constant(1)
    if given is not None and given.ndim != 1:
        raise ModelError(f"axes of shape {given.shape} are no list")
    axes = scope.listed("axes", 1)
    if not axes:
        return () if scope.attr("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({normal_axis(a, rank) for a in axes}))


_OF_NOTHING = {
    "ReduceLogSum": -inf,
    "ReduceLogSumExp": -inf,
    "ReduceMax": -inf,
    "ReduceMean": nan,
    "ReduceMin": inf,
    "ReduceProd": 1.0,
}
"""What no elements give; 0 where nothing is said."""


def _expand_reduction(writer: Writer) -> bool:
    """One reduction with what is computed of each element before it and of its results."""
    node, graph = writer.node, writer.graph
    shape, dst = graph.shape_of(node.inputs[0]), graph.shape_of(node.output)
    if 0 in shape:
        check_capacity(prod(dst) * writer.dtype.itemsize)
        nothing = writer.constant(np.full(dst, _of_nothing(writer)))
        writer.add("Identity", (nothing,), dst)
        return True
    axes = _reduced_axes(Scope(node, graph))
    left = tuple(1 if d in axes else n for d, n in enumerate(shape))
    if same_shape(left, shape):
        result = _of_one(writer, shape)
    else:
        result = _composed(writer, shape, tuple(d for d in axes if shape[d] != 1), left)
    if left != dst:
        writer.reshape(result, dst)
    elif not writer.nodes:
        writer.add("Identity", (result,), dst)
    return True


def _of_nothing(writer: Writer) -> float:
    op, dtype = writer.node.op, writer.dtype
    value = _OF_NOTHING.get(op, 0.0)
    if not is_whole(dtype) or np.isfinite(value):
        return value
    if dtype.kind == "b":
        return value > 0
    return np.iinfo(dtype).max if value > 0 else np.iinfo(dtype).min


def _of_one(writer: Writer, shape: Shape) -> str:
    """What is left of an operator that adds up nothing."""
    source, op = writer.node.inputs[0], writer.node.op
    if op == "ReduceSumSquare":
        return writer.add("Mul", (source, source), shape)
    if op == "ReduceLogSum":
        return writer.add("Log", (source,), shape)
    if op in ("ReduceL1", "ReduceL2"):
        return _magnitudes(writer, shape)
    return source


def _magnitudes(writer: Writer, shape: Shape) -> str:
    source = writer.node.inputs[0]
    return source if writer.dtype.kind == "u" else writer.add("Abs", (source,), shape)


def _composed(writer: Writer, shape: Shape, axes: Shape, left: Shape) -> str:
    """The operator over ``axes``, all of which have more than one element."""

    def reduced(op: str, value: str) -> str:
        return writer.add(op, (value,), left, {"axes": axes})

    source, op = writer.node.inputs[0], writer.node.op
    if op == "ReduceLogSum":
        return writer.add("Log", (reduced("ReduceSum", source),), left)
    if op == "ReduceLogSumExp":
        # From the largest element, so that no exponential overflows. Were that infinite itself,
        # differences would be none.
        most = writer.constant(float(DataType.from_numpy(writer.dtype).max))
        least = writer.constant(-float(DataType.from_numpy(writer.dtype).max))
        largest = writer.add("Max", (reduced("ReduceMax", source), least), left)
        largest = writer.add("Min", (largest, most), left)
        powers = writer.add("Exp", (writer.add("Sub", (source, largest), shape),), shape)
        logarithm = writer.add("Log", (reduced("ReduceSum", powers),), left)
        return writer.add("Add", (logarithm, largest), left)
    if is_whole(writer.dtype) and op == "ReduceSumSquare":
        return reduced("ReduceSum", writer.add("Mul", (source, source), shape))
    if is_whole(writer.dtype) and op == "ReduceL1":
        return reduced("ReduceSum", _magnitudes(writer, shape))
    if op == "ReduceSum" and writer.dtype in _LONG and axes == (len(shape) - 1,):
        return _by_product(writer, shape, left)
    return reduced(op, source)


_LONG = (np.dtype(np.int64), np.dtype(np.uint64))


def _by_product(writer: Writer, shape: Shape, left: Shape) -> str:
    """Sums of rows of 32- or 64-bit integers. For open sizes they are products with a column of
    ones, as splitting rows in halves would need a plan for each size."""
    source, size = writer.node.inputs[0], shape[-1]
    if is_known(size):
        return writer.add("ReduceSum", (source,), left, {"axes": (len(shape) - 1,)})
    one = writer.constant(np.ones((1, 1), np.int64))
    rows = (volume(shape[:-1]), size)
    column = writer.broadcast(one, (size, 1))
    found = writer.add("MatMul", (writer.reshape(source, rows), column), (rows[0], 1))
    return writer.reshape(found, left)


_ALGORITHMS = {
    "ReduceL1": ("reduction_norm_lp_sum", 1.0),
    "ReduceL2": ("reduction_norm_lp_sum", 2.0),
    "ReduceMax": ("reduction_max", 0.0),
    "ReduceMean": ("reduction_mean", 0.0),
    "ReduceMin": ("reduction_min", 0.0),
    "ReduceProd": ("reduction_mul", 0.0),
    "ReduceSum": ("reduction_sum", 0.0),
    "ReduceSumSquare": ("reduction_norm_lp_power_p_sum", 2.0),
}
_MOST_DIMENSIONS = 5  # of an image: batch, channels and three of space
_EXTREMES = ("ReduceMax", "ReduceMin")
_BYTES = (DataType.s8, DataType.u8)
_OF_TWO = {"ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "mul", "ReduceSum": "add"}
_OF_TWO_TRUTHS = {"ReduceMax": "or", "ReduceMin": "and"}


def _lower_reduction(lowering: Lowering, node: Node) -> None:
    """The axes of the node have more than one element each, and stay."""
    source = lowering.source(node.inputs[0])
    whole = is_whole(lowering.graph.type_of(node.inputs[0]).dtype) and node.op != "ReduceMean"
    if whole and not _is_exact(node, source):
        lowering.define(node.output, _by_pairs(lowering, node, source))
        return
    if node.op == "ReduceMean" and _mean(lowering, node):
        return
    algorithm, power = _ALGORITHMS[node.op]
    dst = lowering.result(node, lowering.graph.shape_of(node.output))
    desc = ReductionDesc(algorithm, source.desc, dst, power)
    lowering.define(node.output, lowering.emit(node, desc, {Arg.SRC: source}))


def _mean(lowering: Lowering, node: Node) -> bool:
    """A mean over the space of an image, or over neighbouring axes that others follow, as the
    average of a window of their whole size where that moves no data: up to twice as fast as a
    reduction, which shares out the long sums of the last axes."""
    shape, axes = lowering.graph.shape_of(node.inputs[0]), node.attrs["axes"]
    first, last = axes[0], axes[-1] + 1
    if not all(is_known(shape[d]) for d in axes):
        return False  # no primitive has a window of which only a run knows the size
    if axes == tuple(range(2, len(shape))) and len(shape) <= _MOST_DIMENSIONS:
        source = lowering.source(node.inputs[0])
    else:
        seen = (volume(shape[:first]), volume(shape[first:last]), volume(shape[last:]))
        is_view = lowering.tensor(node.inputs[0]).layout.reshape(seen) is not None
        aligned = all(post_op.kind == "eltwise" for post_op in node.post_ops)
        whole = volume([shape[d] for d in axes]) == seen[1]
        if seen[2] == 1 or not (is_view and aligned and whole):
            return False
        source = lowering.source(node.inputs[0], seen, (0, 2, 1))
    window = source.desc.dims[2:]
    ones, zeros = (1,) * len(window), (0,) * len(window)
    desc = PoolingDesc.forward(
        FORWARD,
        "pooling_avg_exclude_padding",
        source.desc,
        lowering.result(node, (*source.desc.dims[:2], *ones)),
        ones,
        window,
        zeros,
        zeros,
        zeros,
    )
    lowering.define(node.output, lowering.emit(node, desc, {Arg.SRC: source}))
    return True


def _is_exact(node: Node, source: Source) -> bool:
    """Whether the primitive computes integers as they are: in s32, without saturating."""
    if source.desc.data_type is DataType.s32:
        return node.op != "ReduceProd"
    return source.desc.data_type in _BYTES and node.op in _EXTREMES


def _by_pairs(lowering: Lowering, node: Node, source: Source) -> Source:
    """Integers of any type: one half of an axis with the other one, until one element is left."""
    truths = source.desc.data_type is DataType.boolean
    function = (_OF_TWO_TRUTHS if truths else _OF_TWO)[node.op]

    def combined(left: Source, right: Source) -> Source:
        dst = lowering.result(node, left.desc.dims)
        desc = ExactDesc(function, [left.desc, right.desc], dst)
        return lowering.emit(node, desc, {Arg.multiple_src(0): left, Arg.multiple_src(1): right})

    if source.constant or source.desc.inner_blocks:  # parts are views of what is stored
        plain = MemoryDesc(source.desc.dims, source.desc.data_type)
        source = lowering.reorder(f"{node.name}:src", source, plain)
    for axis in node.attrs["axes"]:
        odd: list[Source] = []
        while (extent := source.desc.dims[axis]) > 1:
            half = extent // 2
            if extent % 2:
                odd.append(_part(source, axis, extent - 1, 1))
            source = combined(_part(source, axis, 0, half), _part(source, axis, half, half))
        for other in odd:
            source = combined(source, other)
    return source


def _part(source: Source, axis: int, first: int, count: int) -> Source:
    dims, offsets = list(source.desc.dims), [0] * source.desc.ndims
    dims[axis], offsets[axis] = count, first
    return replace(source, desc=source.desc.submemory(dims, offsets))


OPERATORS: Mapping[str, Operator] = {
    op: Operator(
        _infer_reduction,
        _lower_reduction,
        _expand_reduction,
        post_ops=ANY_POST_OPS,
        inputs=(1, 2),
        role=Role.STATISTIC,
    )
    for op in REDUCTIONS
}
