"""Normalizations in training, which give their statistics, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dnnl.graph.graph import ModelError, Node, Shape, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import same_shape
from dnnl.graph.training import DOMAIN, gradient, training
from dnnl.lowering.facts import Source
from dnnl.lowering.graphs import Lowering
from dnnl.operators.operator import Operator, Role
from dnnl.primitives.batch_normalization import BatchNormalizationDesc
from dnnl.primitives.group_normalization import GroupNormalizationDesc
from dnnl.primitives.layer_normalization import LayerNormalizationDesc
from dnnl.types.arg import Arg
from dnnl.types.kinds import NormFlags

_F32 = np.dtype(np.float32)


@dataclass(frozen=True)
class _Kind:
    """Which elements share statistics: the shape of these, of a node and the shape of its source,
    the axis of scale and shift, and what a description has before epsilon."""

    desc: Any
    statistics: Callable[[Node, Shape], Shape]
    axis: int
    parameters: Callable[[Node], tuple[int, ...]] = lambda _: ()


def _groups(node: Node) -> tuple[int, ...]:
    return (node.attrs["num_groups"],)


_KINDS = {
    "Batch": _Kind(BatchNormalizationDesc, lambda _, shape: shape[1:2], 1),
    "Layer": _Kind(LayerNormalizationDesc, lambda _, shape: shape[:-1], -1),
    "Group": _Kind(
        GroupNormalizationDesc, lambda node, shape: (shape[0], *_groups(node)), 1, _groups
    ),
}


def _infer_training(kind: _Kind, scope: Scope) -> list[TensorType]:
    """The type of the source, and statistics of f32."""
    shape = scope.shape()
    _check_channels(scope, (1, 2), (shape[kind.axis],))
    statistics = TensorType(_F32, kind.statistics(scope.node, shape))
    return [*scope.result(shape), statistics, statistics]


def _infer_gradient(kind: _Kind, scope: Scope) -> list[TensorType]:
    """The type of the source, and f32 for each channel."""
    shape = scope.shape(1)
    if not same_shape(scope.shape(), shape):
        raise ModelError(f"gradient {scope.shape()} of a result {shape}")
    _check_channels(scope, (2, 3), kind.statistics(scope.node, shape))
    channels = TensorType(_F32, (shape[kind.axis],))
    _check_channels(scope, (4,), channels.sizes)
    return [scope.type(1), channels, channels]


def _check_channels(scope: Scope, places: tuple[int, ...], expected: Shape) -> None:
    for place in places:
        if scope.node.input(place) and not same_shape(scope.shape(place), expected):
            raise ModelError(f"input {place} has shape {scope.shape(place)}, not {expected}")


def _lower_training(kind: _Kind, lowering: Lowering, node: Node) -> None:
    source = lowering.source(node.inputs[0])
    args: dict[int, Source] = {Arg.SRC: source}
    flags = NormFlags.none
    parameters = (Arg.SCALE, NormFlags.use_scale), (Arg.SHIFT, NormFlags.use_shift)
    for place, (argument, flag) in enumerate(parameters, 1):
        if node.input(place):
            args[argument] = lowering.source(node.input(place))
            flags |= flag
    desc = kind.desc.forward(
        "forward_training",
        source.desc,
        lowering.result(node, source.desc.dims),
        *kind.parameters(node),
        node.attrs["epsilon"],
        flags,
    )
    further = dict(zip((int(Arg.MEAN), int(Arg.VARIANCE)), node.outputs[1:], strict=True))
    lowering.define(node.output, lowering.emit(node, desc, args, further=further))


def _lower_gradient(kind: _Kind, lowering: Lowering, node: Node) -> None:
    """In the layout of the gradient: what follows it is often a convolution's, which chose it."""
    given = [lowering.source(value) if value else None for value in node.inputs]
    arguments = (Arg.DIFF_DST, Arg.SRC, Arg.MEAN, Arg.VARIANCE, Arg.SCALE)
    pairs = zip(arguments, given, strict=False)
    args: dict[int, Source] = {int(arg): own for arg, own in pairs if own is not None}
    flags = NormFlags.use_shift
    if Arg.SCALE in args:
        flags |= NormFlags.use_scale
    if node.attrs.get("given", 0):
        flags |= NormFlags.use_global_stats
    own, source = args[Arg.DIFF_DST].desc, args[Arg.SRC].desc
    desc = kind.desc.backward(
        "backward",
        own.with_data_type(lowering.kind(node.output)),
        own,
        own.with_data_type(source.data_type),
        *kind.parameters(node),
        node.attrs["epsilon"],
        flags,
    )
    further = {int(Arg.DIFF_SHIFT): node.outputs[2]}
    if Arg.SCALE in args:
        further[int(Arg.DIFF_SCALE)] = node.outputs[1]
    lowering.define(node.output, lowering.emit(node, desc, args, further=further))


OPERATORS: Mapping[str, Operator] = {
    f"{DOMAIN}.{name}": Operator(
        partial(infer, kind),
        partial(lower, kind),
        inputs=inputs,
        required=("epsilon", "num_groups")[: 1 + (word == "Group")],
        role=Role.STATISTIC,
    )
    for word, kind in _KINDS.items()
    for name, infer, lower, inputs in (
        (training(word), _infer_training, _lower_training, (1, 3)),
        (gradient(word), _infer_gradient, _lower_gradient, (4, 5)),
    )
}
