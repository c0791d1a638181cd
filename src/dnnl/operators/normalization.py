"""Normalizations: by statistics that the model has, or by those of rows or groups of channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import ModelError, Node, Shape, TensorType
from dnnl.graph.scope import Scope, normal_axis
from dnnl.graph.sizes import broadcast, same_shape
from dnnl.graph.writer import Writer
from dnnl.lowering.facts import Source
from dnnl.lowering.graphs import FORWARD, Lowering
from dnnl.operators.operator import ANY_POST_OPS, ELTWISE_POST_OPS, Operator
from dnnl.operators.writing import powers, reduced, root
from dnnl.primitives.batch_normalization import BatchNormalizationDesc
from dnnl.primitives.group_normalization import GroupNormalizationDesc
from dnnl.primitives.layer_normalization import LayerNormalizationDesc
from dnnl.types.arg import Arg
from dnnl.types.kinds import NormFlags


def _infer_batch(scope: Scope) -> list[TensorType]:
    """The type of the source. Scale, shift, mean and variance have one value per channel, and so
    have the running statistics that training mode returns."""
    node, shape = scope.node, scope.shape()
    training = scope.attr("training_mode", 0)
    # Before operator set 14 it is the results after the first that ask for training.
    if (any(node.outputs[1:]) and not training) or not scope.attr("spatial", 1):
        rule = "spatial = 0, and training before operator set 14, are not computed"
        raise Unimplemented(f"{node}: {rule}")
    for index in range(1, 5):
        if scope.shape(index) != shape[1:2]:
            raise ModelError(f"input {index} has shape {scope.shape(index)}, not {shape[1:2]}")
    statistics = [TensorType(scope.type(place).dtype, shape[1:2]) for place in (3, 4)]
    return [*scope.result(shape), *statistics][: len(node.outputs)]


def _infer_layer(scope: Scope) -> list[TensorType]:
    """Scale and shift broadcast to the source, which has an ``axis``; the mean and one divided by
    the deviation of each row are f32."""
    shape = _floats(scope)
    axis = scope.axis(-1)
    for index in range(1, len(scope.node.inputs)):
        if scope.node.input(index) and broadcast([scope.shape(index), shape]) != shape:
            raise ModelError(f"input {index}, {scope.shape(index)}, is not broadcast to {shape}")
    rows = TensorType(np.dtype(np.float32), (*shape[:axis], *[1] * (len(shape) - axis)))
    return [*scope.result(shape), *[rows] * (len(scope.node.outputs) - 1)]


def _infer_instance(scope: Scope) -> list[TensorType]:
    """[N, C, ...] with one scale and one shift for each channel."""
    return _by_channels(scope, _channels(scope))


def _infer_group(scope: Scope) -> list[TensorType]:
    """[N, C, ...] with one scale and one shift for each channel; before operator set 21 for each
    group."""
    channels, groups = _channels(scope), scope.attr("num_groups")
    if groups < 1 or channels % groups:
        raise ModelError(f"num_groups = {groups} does not divide {channels} channels")
    return _by_channels(scope, groups if scope.graph.opset < _PER_CHANNEL else channels)


_PER_CHANNEL = 21
"""The operator set since which a group normalization scales each channel."""


def _channels(scope: Scope) -> int:
    shape = _floats(scope)
    if len(shape) < 2:
        raise ModelError(f"source {shape} has no channels")
    return shape[1]


def _by_channels(scope: Scope, count: int) -> list[TensorType]:
    for index in (1, 2):
        if scope.shape(index) != (count,):
            raise ModelError(f"input {index} has shape {scope.shape(index)}, not {(count,)}")
    return scope.result(scope.shape())


def _floats(scope: Scope) -> tuple[int, ...]:
    """The shape of a source of floats."""
    dtype = scope.type().dtype
    if dtype.kind in "biu":
        rule = f"{dtype} is not normalized; Cast makes floats of it"
        raise Unimplemented(f"{scope.node}: {rule}")
    return scope.shape()


_MOST_DIMENSIONS = 5
_F32 = np.dtype(np.float32)


def _expand_batch(writer: Writer) -> bool:
    """Training mode: normalize with the statistics of the batch, and return the moving averages of
    the given ones."""
    node, graph = writer.node, writer.graph
    if not node.attrs.get("training_mode", 0):
        return False
    shape = graph.shape_of(node.output)
    axes = [dim for dim in range(len(shape)) if dim != 1]
    mean, variance = _moments(writer, node.inputs[0], shape, axes)
    own = [writer.reshape(value, shape[1:2]) for value in (mean, variance)]
    share = node.attrs.get("momentum", 0.9)
    for place, value in enumerate(own, 1):
        if place >= len(node.outputs) or not node.outputs[place]:
            continue
        before = (node.inputs[2 + place], writer.constant(share))
        old = writer.add("Mul", before, shape[1:2])
        new = writer.add("Mul", (value, writer.constant(1 - share)), shape[1:2])
        writer.show(writer.add("Add", (old, new), shape[1:2]), place)
    attrs = {"epsilon": node.attrs.get("epsilon", 1e-5)}
    writer.add("BatchNormalization", (*node.inputs[:3], *own), shape, attrs)
    return True


def _moments(writer: Writer, value: str, shape: Shape, axes: Sequence[int]) -> tuple[str, str]:
    """The mean and the variance along ``axes``, which keep size 1."""
    mean = reduced(writer, "ReduceMean", value, shape, axes)
    distance = writer.add("Sub", (value, mean), shape)
    squares = writer.add("Mul", (distance, distance), shape)
    variance = reduced(writer, "ReduceMean", squares, shape, axes)
    return mean, variance


def _infer_whole(scope: Scope) -> list[TensorType]:
    """Floats of the shape of the source."""
    return scope.result(_floats(scope))


def _expand_mean_variance(writer: Writer) -> bool:
    """(x - mean) / (standard deviation + epsilon), as ONNX defines it."""
    node, shape = writer.node, writer.graph.shape_of(writer.node.output)
    axes = [normal_axis(axis, len(shape)) for axis in node.attrs.get("axes", (0, 2, 3))]
    left = tuple(1 if dim in axes else size for dim, size in enumerate(shape))
    mean, variance = _moments(writer, node.inputs[0], shape, axes)
    distance = writer.add("Sub", (node.inputs[0], mean), shape)
    deviation = writer.add("Sqrt", (variance,), left)
    deviation = writer.add("Add", (deviation, writer.constant(_LITTLE)), left)
    writer.add("Div", (distance, deviation), shape)
    return True


_LITTLE = 1e-9


def _expand_norm(writer: Writer) -> bool:
    """x divided by its p-norm along the axis, 0 where the norm is 0."""
    node, shape = writer.node, writer.graph.shape_of(writer.node.output)
    axis, power = Scope(node, writer.graph).axis(-1), node.attrs.get("p", 2)
    if power not in (1, 2):
        raise ModelError(f"attribute 'p' = {power} is neither 1 nor 2")
    left = (*shape[:axis], 1, *shape[axis + 1 :])
    value = powers(writer, node.inputs[0], shape, power)
    norm = root(writer, reduced(writer, "ReduceSum", value, shape, (axis,)), left, power)
    nothing = writer.add("Equal", (norm, writer.constant(0)), left, dtype=np.dtype(np.bool_))
    norm = writer.add("Where", (nothing, writer.constant(1), norm), left)
    writer.add("Div", (node.inputs[0], norm), shape)
    return True


def _expand_layer(writer: Writer) -> bool:
    """Rows along the last dimension, which the dimensions from ``axis`` on become.

    Scale and shift that have one number for each place in a row stay, others become nodes, and so
    do statistics that are results.
    """
    node, shape = writer.node, writer.graph.shape_of(writer.node.output)
    axis = Scope(node, writer.graph).axis(-1)
    row = shape[axis:]
    parameters = [_per_place(writer, node.input(index), row) for index in (1, 2)]
    if node.input(1) and not parameters[0]:
        parameters[1] = ""  # the shift comes after the scale
    seen = shape
    if axis != len(shape) - 1 or not 2 <= len(shape) <= _MOST_DIMENSIONS:
        seen = (prod(shape[:axis]), prod(row))
    source = _seen(writer, node.inputs[0], shape, seen)
    attrs = {"epsilon": node.attrs.get("epsilon", 1e-5)}
    if any(node.outputs[1:]):
        rows = (prod(shape[:axis]), prod(row))
        _statistics(writer, _seen(writer, source, seen, rows), rows, attrs["epsilon"])
    result = writer.add(node.op, (source, *parameters), seen, attrs)
    result = _seen(writer, result, seen, shape)
    for index, op in ((1, "Mul"), (2, "Add")):
        if node.input(index) and not parameters[index - 1]:
            result = writer.add(op, (result, node.input(index)), shape)
    return True


def _statistics(writer: Writer, source: str, shape: Shape, epsilon: float) -> None:
    """The mean of each row of a matrix, and one divided by its deviation, in f32."""
    rows = (shape[0], 1)

    def add(op: str, inputs: tuple[str, ...], shape: Shape, **attrs: object) -> str:
        return writer.add(op, inputs, shape, attrs, _F32)

    def mean(value: str) -> str:
        return value if same_shape(shape, rows) else add("ReduceMean", (value,), rows, axes=(1,))

    if writer.dtype != _F32:
        source = add("Cast", (source,), shape, to=_F32)
    means = mean(source)
    distance = add("Sub", (source, means), shape)
    variance = mean(add("Mul", (distance, distance), shape))
    shifted = add("Add", (variance, writer.constant(epsilon, _F32)), rows)
    inverse = add("Pow", (shifted, writer.constant(-0.5, _F32)), rows)
    for index, value in ((1, means), (2, inverse)):
        if index < len(writer.node.outputs) and writer.node.outputs[index]:
            result = writer.graph.shape_of(writer.node.outputs[index])
            writer.show(writer.reshape(value, result, _F32), index)


def _per_place(writer: Writer, value: str, row: Shape) -> str:
    """``value`` as a vector with one number for each place in a row; "" where it is none."""
    if not value:
        return ""
    shape = writer.graph.shape_of(value)
    leading = len(shape) - len(row)
    if any(extent != 1 for extent in shape[: max(0, leading)]):
        return ""
    array = writer.graph.constants.get(value)
    if array is not None:
        fitting = array.reshape(shape[max(0, leading) :])
        return writer.constant(np.broadcast_to(fitting, row).ravel())
    if prod(shape) != prod(row):
        return ""
    return _seen(writer, value, shape, (prod(row),))


def _seen(writer: Writer, value: str, shape: Shape, seen: Shape) -> str:
    return value if same_shape(shape, seen) else writer.reshape(value, seen)


def _expand_group(writer: Writer) -> bool:
    """Groups of channels, of one channel each for an instance normalization, with a scale and a
    shift for each channel."""
    node, graph = writer.node, writer.graph
    shape = graph.shape_of(node.output)
    groups = shape[1] if node.op == "InstanceNormalization" else node.attrs["num_groups"]
    parameters = [_per_channel(writer, value, shape[1]) for value in node.inputs[1:3]]
    seen = shape
    if not 3 <= len(shape) <= _MOST_DIMENSIONS:
        seen = (*shape[:2], prod(shape[2:]))
    source = _seen(writer, node.inputs[0], shape, seen)
    attrs = {"epsilon": node.attrs.get("epsilon", 1e-5), "num_groups": max(1, groups)}
    result = writer.add("GroupNormalization", (source, *parameters), seen, attrs)
    _seen(writer, result, seen, shape)
    return True


def _per_channel(writer: Writer, value: str, channels: int) -> str:
    """``value`` with one number for each channel; numbers of groups are repeated."""
    whole = writer.graph.opset >= _PER_CHANNEL or writer.node.attrs.get("per_channel", 0)
    if writer.node.op != "GroupNormalization" or whole:
        return value
    groups = writer.node.attrs["num_groups"]
    array = writer.graph.constants.get(value)
    if array is not None:
        return writer.constant(np.repeat(array, channels // groups))
    column = writer.reshape(value, (groups, 1))
    ones = writer.constant(np.ones((1, channels // groups)))
    table = writer.add("Mul", (column, ones), (groups, channels // groups))
    return writer.reshape(table, (channels,))


def _lower_batch(lowering: Lowering, node: Node) -> None:
    """What no convolution before it could take in."""
    source = lowering.source(node.inputs[0])
    dst = lowering.result(node, source.desc.dims)
    flags = NormFlags.use_global_stats | NormFlags.use_scale | NormFlags.use_shift
    epsilon = node.attrs.get("epsilon", 1e-5)
    desc = BatchNormalizationDesc.forward(FORWARD, source.desc, dst, epsilon, flags)
    arguments = (Arg.SCALE, Arg.SHIFT, Arg.MEAN, Arg.VARIANCE)
    args: dict[int, Source] = {Arg.SRC: source}
    for argument, value in zip(arguments, node.inputs[1:5], strict=True):
        args[argument] = lowering.source(value)
    lowering.define(node.output, lowering.emit(node, desc, args))


_PARAMETERS = ((Arg.SCALE, NormFlags.use_scale), (Arg.SHIFT, NormFlags.use_shift))


def _lower_layer(lowering: Lowering, node: Node) -> None:
    """Rows along the last dimension; scale and shift, as far as they are there, are vectors."""
    args, flags = _sources(lowering, node)
    if node.op == "RMSNormalization":
        flags |= NormFlags.rms_norm
    source = args[Arg.SRC]
    dst = lowering.result(node, source.desc.dims)
    epsilon = node.attrs["epsilon"]
    desc = LayerNormalizationDesc.forward(FORWARD, source.desc, dst, epsilon, flags)
    lowering.define(node.output, lowering.emit(node, desc, args))


def _lower_group(lowering: Lowering, node: Node) -> None:
    """[N, C, ...] with one scale and one shift for each channel."""
    args, flags = _sources(lowering, node)
    source = args[Arg.SRC]
    dst = lowering.result(node, source.desc.dims)
    groups, epsilon = node.attrs["num_groups"], node.attrs["epsilon"]
    desc = GroupNormalizationDesc.forward(FORWARD, source.desc, dst, groups, epsilon, flags)
    lowering.define(node.output, lowering.emit(node, desc, args))


def _sources(lowering: Lowering, node: Node) -> tuple[dict[int, Source], NormFlags]:
    """The source with its scale and shift, and the flags that announce them."""
    args: dict[int, Source] = {Arg.SRC: lowering.source(node.inputs[0])}
    flags = NormFlags.none
    for (argument, flag), value in zip(_PARAMETERS, (node.input(1), node.input(2)), strict=True):
        if value:
            args[argument] = lowering.source(value)
            flags |= flag
    return args, flags


OPERATORS: Mapping[str, Operator] = {
    "BatchNormalization": Operator(
        _infer_batch,
        _lower_batch,
        _expand_batch,
        post_ops=ELTWISE_POST_OPS,
        inputs=(5, 5),
        stores_bytes=False,
    ),
    "GroupNormalization": Operator(
        _infer_group,
        _lower_group,
        _expand_group,
        post_ops=ANY_POST_OPS,
        inputs=(3, 3),
        required=("num_groups",),
    ),
    "InstanceNormalization": Operator(_infer_instance, expand=_expand_group, inputs=(3, 3)),
    "LayerNormalization": Operator(
        _infer_layer, _lower_layer, _expand_layer, post_ops=ANY_POST_OPS, inputs=(2, 3)
    ),
    "LpNormalization": Operator(_infer_whole, expand=_expand_norm),
    "MeanVarianceNormalization": Operator(_infer_whole, expand=_expand_mean_variance),
    "RMSNormalization": Operator(
        _infer_layer, _lower_layer, _expand_layer, post_ops=ANY_POST_OPS, inputs=(2, 2)
    ),
}
