"""Reductions of some axes to one element."""

from __future__ import annotations

from dataclasses import replace

from dnnl.framework.lowering import FORWARD, Lowering, Source, volume
from dnnl.graph.graph import Node, is_whole
from dnnl.primitives.exact import ExactDesc
from dnnl.primitives.pooling import PoolingDesc
from dnnl.primitives.reduction import ReductionDesc
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

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


def reduction(lowering: Lowering, node: Node) -> None:
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

    if source.desc.inner_blocks:
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
