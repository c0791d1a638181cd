"""Operators that change only how data is seen, or nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import ModelError, Node, TensorType
from dnnl.graph.scope import Scope, normal_axis, transposition
from dnnl.graph.writer import Writer
from dnnl.lowering.graphs import Lowering
from dnnl.operators.inference import same
from dnnl.operators.numbers import UNCHANGED
from dnnl.operators.operator import Operator, moved


def _infer_reshape(scope: Scope) -> list[TensorType]:
    """0 copies a size of the source (unless allowzero), -1 is what remains."""
    shape = scope.shape()
    target = scope.listed("shape", 1)
    if target is None:
        raise ModelError("the new shape is missing")
    sizes = list(target)
    if not scope.attr("allowzero", 0):
        if any(n == 0 and d >= len(shape) for d, n in enumerate(sizes)):
            raise ModelError(f"new shape {target} copies a size that {shape} does not have")
        sizes = [shape[d] if n == 0 else n for d, n in enumerate(sizes)]
    if sizes.count(-1) == 1:
        rest = -math.prod(sizes)
        if not rest:
            raise ModelError(f"new shape {target} of {shape}: -1 may be any size next to a 0")
        sizes[sizes.index(-1)] = math.prod(shape) // rest
    if math.prod(sizes) != math.prod(shape) or any(size < 0 for size in sizes):
        raise ModelError(f"new shape {target} does not hold the elements of {shape}")
    return scope.result(sizes)


def _infer_flatten(scope: Scope) -> list[TensorType]:
    """A matrix: the dimensions before ``axis`` and the others."""
    shape = scope.shape()
    axis = scope.attr("axis", 1)
    axis = axis if axis == len(shape) else normal_axis(axis, len(shape))
    return scope.result((math.prod(shape[:axis]), math.prod(shape[axis:])))


def _infer_squeeze(scope: Scope) -> list[TensorType]:
    """Dimensions of size 1 leave: the listed ones, or all."""
    shape = scope.shape()
    listed = scope.listed("axes", 1)
    if listed is None:
        return scope.result([n for n in shape if n != 1])
    axes = {normal_axis(a, len(shape)) for a in listed}
    if any(shape[a] != 1 for a in axes):
        raise ModelError(f"axes {listed} of {shape} are not all of size 1")
    return scope.result([n for d, n in enumerate(shape) if d not in axes])


def _infer_unsqueeze(scope: Scope) -> list[TensorType]:
    """Dimensions of size 1 appear at the listed axes of the result."""
    shape, listed = scope.shape(), scope.listed("axes", 1)
    if listed is None:
        raise ModelError("the axes are missing")
    rank = len(shape) + len(listed)
    axes = {normal_axis(a, rank) for a in listed}
    if len(axes) != len(listed):
        raise ModelError(f"axes {listed} name one twice")
    sizes = iter(shape)
    return scope.result([1 if d in axes else next(sizes) for d in range(rank)])


def _infer_transpose(scope: Scope) -> list[TensorType]:
    """Dimension ``d`` of the result is dimension ``perm[d]`` of the source."""
    shape = scope.shape()
    perm = transposition(scope)
    if sorted(perm) != list(range(len(shape))):
        raise ModelError(f"perm {perm} is no permutation of {len(shape)} axes")
    return scope.result([shape[p] for p in perm])


def _infer_dropout(scope: Scope) -> list[TensorType]:
    """The type of the source, and a boolean mask that is true everywhere.

    Raises Unimplemented in training mode.
    """
    training = scope.constant(2)
    if training is not None and training.any():
        raise Unimplemented(f"{scope.node}: only inference is computed")
    return [scope.type(), TensorType(np.dtype(np.bool_), scope.shape())][: len(scope.node.outputs)]


def _expand_dropout(writer: Writer) -> bool:
    """Inference drops nothing: the source, and a mask of true if it is used."""
    node, shape = writer.node, writer.graph.shape_of(writer.node.output)
    if len(node.outputs) < 2 or not node.outputs[1]:
        return False
    truth = np.dtype(np.bool_)
    one = writer.constant(np.ones(()), truth)
    everything = writer.add("Expand", (one, writer.sizes(shape)), shape, dtype=truth)
    writer.show(everything, 1)
    writer.reshape(node.inputs[0], shape)
    return True


def _lower_reshape(lowering: Lowering, node: Node) -> None:
    """Reshape and its special forms; the result's shape is known by now."""
    source = lowering.source(node.inputs[0], lowering.graph.shape_of(node.output))
    lowering.define(node.output, source)


def _lower_transpose(lowering: Lowering, node: Node) -> None:
    """Other axes for the same data: the permutation changes, nothing moves."""
    axes = transposition(Scope(node, lowering.graph))
    lowering.transpose(node.output, node.inputs[0], axes)


OPERATORS: Mapping[str, Operator] = {
    "Dropout": Operator(_infer_dropout, expand=_expand_dropout, inputs=(1, 3)),
    "Flatten": moved(_infer_flatten, _lower_reshape),
    **{op: Operator(same) for op in UNCHANGED},
    "Reshape": moved(_infer_reshape, _lower_reshape, (1, 2)),
    "Squeeze": moved(_infer_squeeze, _lower_reshape, (1, 2)),
    "Transpose": moved(_infer_transpose, _lower_transpose),
    "Unsqueeze": moved(_infer_unsqueeze, _lower_reshape, (1, 2)),
}
