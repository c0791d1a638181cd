"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss, in inference."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import ModelError, Shape, TensorType, is_whole
from dnnl.graph.scope import Scope
from dnnl.graph.writer import Writer
from dnnl.operators.operator import Operator
from dnnl.operators.writing import summed, transposed

_INDEX = np.dtype(np.int64)
_TRUTH = np.dtype(np.bool_)
_REDUCTIONS = (b"none", b"mean", b"sum")


def _infer(scope: Scope) -> list[TensorType]:
    """A scalar, or one loss for each target; the second result are all log-probabilities."""
    shape, targets = scope.shape(), scope.shape(1)
    if is_whole(scope.type().dtype):
        rule = f"{scope.type().dtype} has no losses; Cast makes floats of it"
        raise Unimplemented(f"{scope.node}: {rule}")
    if len(shape) < 2 or targets != (shape[0], *shape[2:]):
        raise ModelError(f"targets {targets} are not one for each place of {shape} off axis 1")
    if scope.node.input(2) and scope.shape(2) != shape[1:2]:
        raise ModelError(f"weights {scope.shape(2)} are not one for each of {shape[1]} classes")
    reduction = scope.attr("reduction", b"mean")
    if reduction not in _REDUCTIONS:
        raise ModelError(f"attribute 'reduction' = {reduction!r} is not none, mean or sum")
    loss = targets if reduction == b"none" else ()
    return [*scope.result(loss), *scope.result(shape)][: len(scope.node.outputs)]


def _expand_cross_entropy(writer: Writer) -> bool:
    """The loss of a log-softmax along the classes, which become the last axis."""
    node, graph = writer.node, writer.graph
    shape = graph.shape_of(node.inputs[0])
    whole = (shape[0], shape[1], prod(shape[2:]))
    value = writer.reshape(node.inputs[0], whole)
    value = transposed(writer, value, whole, (0, 2, 1))
    rows = (whole[0], whole[2], whole[1])
    value = writer.add("LogSoftmax", (value,), rows, {"axis": 2})
    value = writer.reshape(transposed(writer, value, rows, (0, 2, 1)), shape)
    if len(node.outputs) > 1 and node.outputs[1]:
        writer.show(writer.reshape(value, shape), 1)
    _loss(writer, value)
    return True


def _expand_likelihood(writer: Writer) -> bool:
    """The loss of log-probabilities that are given."""
    _loss(writer, writer.node.inputs[0])
    return True


def _loss(writer: Writer, logarithms: str) -> None:
    """The weighted loss. Ignored targets add 0, even if their log-probability is NaN or
    infinite."""
    node, graph = writer.node, writer.graph
    shape, targets = (graph.shape_of(value) for value in node.inputs[:2])
    reduction = node.attrs.get("reduction", b"mean")
    places, valid = _targets(writer)
    column = (shape[0], 1, *shape[2:])
    indices = writer.reshape(places, column, _INDEX)
    chosen = writer.add("GatherElements", (logarithms, indices), column, {"axis": 1})
    loss = writer.add("Neg", (writer.reshape(chosen, targets),), targets)
    weights = _weights(writer, places, valid)
    if weights:
        loss = writer.add("Mul", (loss, weights), targets)
    if valid:
        loss = writer.add("Where", (valid, loss, writer.constant(0)), targets)
    if reduction == b"none":
        writer.reshape(loss, targets)
        return
    every = tuple(range(len(targets)))
    total = summed(writer, loss, targets, every)
    if reduction == b"mean":
        number = summed(writer, weights, targets, every) if weights else _count(writer, targets)
        writer.add("Div", (total, number), ())


def _targets(writer: Writer) -> tuple[str, str]:
    """The target classes as s64, 0 for ignored ones, and a mask of those that count; "" for the
    mask if nothing is ignored."""
    node, graph = writer.node, writer.graph
    value, shape = node.inputs[1], graph.shape_of(node.inputs[1])
    if graph.type_of(value).dtype != _INDEX:
        value = writer.add("Cast", (value,), shape, {"to": _INDEX}, _INDEX)
    ignored = node.attrs.get("ignore_index")
    if ignored is None:
        return value, ""
    equal = writer.add("Equal", (value, writer.constant(ignored, _INDEX)), shape, dtype=_TRUTH)
    valid = writer.add("Not", (equal,), shape, dtype=_TRUTH)
    zero = writer.constant(0, _INDEX)
    return writer.add("Where", (valid, value, zero), shape, dtype=_INDEX), valid


def _weights(writer: Writer, places: str, valid: str) -> str:
    """The weight of each target, 0 for ignored ones; "" if all are 1."""
    node, shape = writer.node, writer.graph.shape_of(writer.node.inputs[1])
    if not node.input(2):
        return writer.add("Cast", (valid,), shape, {"to": writer.dtype}) if valid else ""
    weights = writer.add("Gather", (node.inputs[2], places), shape, {"axis": 0})
    if valid:
        weights = writer.add("Where", (valid, weights, writer.constant(0)), shape)
    return weights


def _count(writer: Writer, shape: Shape) -> str:
    """The number of targets, as a float."""
    number = writer.sizes([prod(shape)], ())
    return writer.add("Cast", (number,), (), {"to": writer.dtype})


OPERATORS: Mapping[str, Operator] = {
    "NegativeLogLikelihoodLoss": Operator(_infer, expand=_expand_likelihood, inputs=(2, 3)),
    "SoftmaxCrossEntropyLoss": Operator(_infer, expand=_expand_cross_entropy, inputs=(2, 3)),
}
