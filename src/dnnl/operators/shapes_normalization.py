"""Types of the results of normalizations, all of them that of the source."""

from __future__ import annotations

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import ModelError, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import broadcast


def layer(scope: Scope) -> list[TensorType]:
    """Scale and shift broadcast to the source, which has an ``axis``; the mean and one divided by
    the deviation of each row are f32."""
    shape = _floats(scope)
    axis = scope.axis(-1)
    for index in range(1, len(scope.node.inputs)):
        if scope.node.input(index) and broadcast([scope.shape(index), shape]) != shape:
            raise ModelError(f"input {index}, {scope.shape(index)}, is not broadcast to {shape}")
    rows = TensorType(np.dtype(np.float32), (*shape[:axis], *[1] * (len(shape) - axis)))
    return [*scope.result(shape), *[rows] * (len(scope.node.outputs) - 1)]


def instance(scope: Scope) -> list[TensorType]:
    """[N, C, ...] with one scale and one shift for each channel."""
    return _by_channels(scope, _channels(scope))


def group(scope: Scope) -> list[TensorType]:
    """[N, C, ...] with one scale and one shift for each channel; before operator set 21 for each
    group."""
    channels, groups = _channels(scope), scope.attr("num_groups")
    if groups < 1 or channels % groups:
        raise ModelError(f"num_groups = {groups} does not divide {channels} channels")
    return _by_channels(scope, groups if scope.graph.opset < PER_CHANNEL else channels)


PER_CHANNEL = 21
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
