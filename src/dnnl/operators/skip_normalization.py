"""Normalizations of ONNX Runtime's domain that include residual additions, embeddings or
activations."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import REAL, ModelError, Shape, TensorType
from dnnl.graph.scope import Infer, Scope
from dnnl.graph.sizes import broadcast
from dnnl.graph.writer import Writer
from dnnl.operators.activations import swish
from dnnl.operators.attention import is_shown
from dnnl.operators.microsoft import MICROSOFT, check_known
from dnnl.operators.operator import Expand, Operator

_F32, _INT32, _TRUTH = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.bool_)
_SUM = 3
"""The index of the result that is the sum before the normalization."""


def _check_floats(scope: Scope, place: int = 0) -> None:
    if scope.type(place).dtype not in REAL:
        rule = f"{scope.type(place).dtype} is not normalized; Cast makes f32 of it"
        raise Unimplemented(f"{scope.node}: {rule}")


def _check_rows(scope: Scope, *places: int, width: int) -> None:
    """Raise ModelError for parameters, by input index, that are not of shape [width]."""
    for place in places:
        if scope.node.input(place) and scope.shape(place) != (width,):
            raise ModelError(f"input {place} has shape {scope.shape(place)}, not {(width,)}")


def _refuse_statistics(scope: Scope, *places: int) -> None:
    for place in places:
        if place < len(scope.node.outputs) and scope.node.outputs[place]:
            rule = "statistics are for training, which is not computed"
            raise Unimplemented(f"{scope.node}: result {scope.node.outputs[place]!r}: {rule}")


def _infer_skip(parameters: int) -> Infer:
    """The type of the source, also for the sum. The residual (skip) is broadcast to it."""

    def infer(scope: Scope) -> list[TensorType]:
        check_known(scope, "epsilon")
        _check_floats(scope)
        _refuse_statistics(scope, 1, 2)
        shape = scope.shape()
        if len(shape) < 2 or broadcast([scope.shape(1), shape]) != shape:
            raise ModelError(f"input 1 {scope.shape(1)} is not broadcast to {shape}")
        _check_rows(scope, *range(2, 3 + parameters), width=shape[-1])
        kind = scope.result(shape)[0]
        return [kind, TensorType(_F32, ()), TensorType(_F32, ()), kind][: len(scope.node.outputs)]

    return infer


def _expand_skip(op: str, parameters: int) -> Expand:
    """Add the residual and the bias, if there is one, then normalize rows. The bias is the input
    after the ``parameters``."""

    def expand(writer: Writer) -> bool:
        node, shape = writer.node, writer.shape_of(writer.node.output)
        value = writer.add("Add", node.inputs[:2], shape)
        bias = node.input(2 + parameters)
        if bias:
            value = writer.add("Add", (value, bias), shape)
        if is_shown(writer, _SUM):
            value = writer.show(value, _SUM)
        given = node.inputs[2 : 2 + parameters]
        sources = (value, *(given if all(given) else given[:1]))
        writer.add(op, sources, shape, {"epsilon": node.attrs.get("epsilon", 1e-12), "axis": -1})
        return True

    return expand


def _infer_simplified(scope: Scope) -> list[TensorType]:
    """The shape of the source, in the type of the scale."""
    _check_floats(scope)
    _refuse_statistics(scope, 1)
    shape = scope.shape()
    if broadcast([scope.shape(1), shape]) != shape:
        raise ModelError(f"scale {scope.shape(1)} is not broadcast to {shape}")
    return [TensorType(scope.type(1).dtype, shape)]


def _expand_simplified(writer: Writer) -> bool:
    """The same as RMSNormalization of ONNX."""
    node, kind = writer.node, writer.type_of(writer.node.output)
    scope = Scope(node, writer.graph)
    attrs = {"epsilon": scope.attr("epsilon", 1e-5), "axis": scope.attr("axis", -1)}
    writer.add("RMSNormalization", node.inputs, kind.sizes, attrs, kind.dtype)
    return True


_IDS, _SEGMENTS, _WORDS, _POSITIONS, _SEGMENT_ROWS, _SCALE, _SHIFT, _MASK, _PLACES = range(9)


def _infer_embedding(scope: Scope) -> list[TensorType]:
    """[batch, tokens, width]; the number of unmasked tokens [batch]; the sum before the
    normalization."""
    check_known(scope, "epsilon", "mask_index_type")
    node, ids = scope.node, scope.shape(_IDS)
    if len(ids) != 2:
        raise ModelError(f"ids {ids} must have two dimensions")
    _check_floats(scope, _WORDS)
    width = scope.shape(_WORDS)[-1]
    _check_rows(scope, _SCALE, _SHIFT, width=width)
    for place in (_SEGMENTS, _MASK):
        if node.input(place) and scope.shape(place) != ids:
            raise ModelError(f"input {place} has shape {scope.shape(place)}, not {ids}")
    if node.input(_PLACES) and scope.shape(_PLACES) not in (ids, (1, ids[1])):
        raise ModelError(f"position ids {scope.shape(_PLACES)} are not {ids}")
    if bool(node.input(_SEGMENTS)) != bool(node.input(_SEGMENT_ROWS)):
        raise ModelError("segment ids and their rows must be given together")
    rows = TensorType(scope.type(_WORDS).dtype, (*ids, width))
    return [rows, TensorType(_INT32, ids[:1]), rows][: len(node.outputs)]


def _expand_embedding(writer: Writer) -> bool:
    """Gather rows of two or three tables, add them, normalize."""
    node = writer.node
    kind = writer.type_of(node.output)
    shape, dtype = kind.sizes, kind.dtype
    batch, rows, width = shape

    def gathered(table: str, ids: str) -> str:
        whole = (*writer.shape_of(ids), width)
        return writer.add("Gather", (table, ids), whole, {"axis": 0}, dtype)

    value = gathered(node.inputs[_WORDS], node.inputs[_IDS])
    if node.input(_PLACES):
        places = gathered(node.inputs[_POSITIONS], node.inputs[_PLACES])
    else:
        part = {"starts": (0,), "ends": (rows,), "axes": (0,)}
        table = node.inputs[_POSITIONS]
        if writer.shape_of(table)[0] < rows:
            raise ModelError(f"{rows} tokens have more positions than {writer.shape_of(table)}")
        places = writer.add("Slice", (table,), (rows, width), part, dtype)
    value = writer.add("Add", (value, places), shape, {}, dtype)
    if node.input(_SEGMENTS):
        segments = gathered(node.inputs[_SEGMENT_ROWS], node.inputs[_SEGMENTS])
        value = writer.add("Add", (value, segments), shape, {}, dtype)
    if is_shown(writer, 2):
        value = writer.show(value, 2)
    if is_shown(writer, 1):
        _count(writer, batch, rows)
    sources = (value, node.inputs[_SCALE], node.inputs[_SHIFT])
    attrs = {"epsilon": node.attrs.get("epsilon", 1e-12), "axis": -1}
    writer.add("LayerNormalization", sources, shape, attrs, dtype)
    return True


def _count(writer: Writer, batch: int, rows: int) -> None:
    """Write the number of unmasked tokens of each sequence, 0 without a mask."""
    mask = writer.node.input(_MASK)
    if not mask:
        writer.dtype = _INT32
        zeros = writer.filled(0, (batch,))
        writer.show(writer.add("Identity", (zeros,), (batch,), dtype=_INT32), 1)
        return
    one = writer.constant(1, writer.type_of(mask).dtype)
    found = writer.add("Equal", (mask, one), (batch, rows), dtype=_TRUTH)
    numbers = writer.add("Cast", (found,), (batch, rows), {"to": _INT32}, _INT32)
    attrs = {"axes": (1,), "keepdims": 0}
    writer.show(writer.add("ReduceSum", (numbers,), (batch,), attrs, _INT32), 1)


_GROUPS = "activation", "channels_last", "epsilon", "groups"
_SKIP, _BIAS = 3, 4


def _infer_groups(scope: Scope) -> list[TensorType]:
    """The type of the source, also for the sum."""
    check_known(scope, *_GROUPS)
    _check_floats(scope)
    shape, groups = scope.shape(), scope.attr("groups")
    if len(shape) != 4:
        raise ModelError(f"source {shape} must have four dimensions")
    channels = shape[3 if scope.attr("channels_last", 1) else 1]
    if groups < 1 or channels % groups:
        raise ModelError(f"groups = {groups} does not divide {channels} channels")
    if scope.attr("activation") not in (0, 1):
        raise Unimplemented(f"{scope.node}: activation = {scope.attr('activation')}: 0 or 1")
    _check_rows(scope, 1, 2, _BIAS, width=channels)
    if scope.node.input(_SKIP):
        skip = scope.shape(_SKIP)
        if skip not in (shape, (shape[0], channels), _skip_shape(scope, channels)):
            raise ModelError(f"input {_SKIP} {skip} is not broadcast to {shape}")
    return scope.result(shape) * len(scope.node.outputs)


def _skip_shape(scope: Scope, channels: int) -> Shape:
    batch = scope.shape()[0]
    return (batch, 1, 1, channels) if scope.attr("channels_last", 1) else (batch, channels, 1, 1)


def _expand_groups(writer: Writer) -> bool:
    """Add the residual, normalize groups of channels, apply the activation."""
    node, shape = writer.node, writer.shape_of(writer.node.output)
    scope = Scope(node, writer.graph)
    last = bool(scope.attr("channels_last", 1))
    channels = shape[3 if last else 1]
    value = node.inputs[0]
    if node.input(_SKIP):
        skip, given = node.inputs[_SKIP], writer.shape_of(node.inputs[_SKIP])
        if len(given) == 2:
            skip = writer.reshape(skip, _skip_shape(scope, channels))
        value = writer.add("Add", (value, skip), shape)
    if node.input(_BIAS):
        column = (channels,) if last else (channels, 1, 1)
        bias = writer.reshape(node.inputs[_BIAS], column)
        value = writer.add("Add", (value, bias), shape)
    if is_shown(writer, 1):
        value = writer.show(value, 1)
    seen = (shape[0], channels, *shape[1:3]) if last else shape
    if last:
        value = writer.add("Transpose", (value,), seen, {"perm": (0, 3, 1, 2)})
    attrs = {"epsilon": scope.attr("epsilon", 1e-5), "num_groups": scope.attr("groups")}
    sources = (value, *node.inputs[1:3])
    value = writer.add("GroupNormalization", sources, seen, {**attrs, "per_channel": 1})
    if scope.attr("activation"):
        value = swish(writer, value)
    if last:
        writer.add("Transpose", (value,), shape, {"perm": (0, 2, 3, 1)})
    return True


def _infer_gated(scope: Scope) -> list[TensorType]:
    """The type of the source, whose rows are normalized in parts of the scale's width."""
    check_known(scope, "activation", "epsilon")
    _check_floats(scope)
    shape, parts = scope.shape(), scope.shape(1)
    if scope.attr("activation", b"silu") not in (b"silu", b"swish", b"sigmoid"):
        raise Unimplemented(f"{scope.node}: activation {scope.attr('activation').decode()!r}")
    if len(parts) != 1 or not parts[0] or shape[-1] % parts[0] or scope.shape(2) != shape:
        raise ModelError(f"source {shape}, scale {parts} and gates {scope.shape(2)} do not fit")
    return scope.result(shape)


def _expand_gated(writer: Writer) -> bool:
    """RMS normalization of parts of rows, times the activation of the gates."""
    node, shape = writer.node, writer.shape_of(writer.node.output)
    scope = Scope(node, writer.graph)
    size = writer.shape_of(node.inputs[1])[0]
    rows = (prod(shape[:-1]) * (shape[-1] // size), size)
    value = writer.reshape(node.inputs[0], rows)
    attrs = {"epsilon": scope.attr("epsilon", 1e-5), "axis": -1}
    scale = node.inputs[1]
    if writer.type_of(scale).dtype != writer.dtype:
        scale = writer.add("Cast", (scale,), (size,), {"to": writer.dtype})
    value = writer.add("RMSNormalization", (value, scale), rows, attrs)
    value = writer.reshape(value, shape)
    gate = node.inputs[2]
    if scope.attr("activation", b"silu") == b"sigmoid":
        gate = writer.add("Sigmoid", (gate,), shape)
    else:
        gate = swish(writer, gate)
    writer.add("Mul", (value, gate), shape)
    return True


OPERATORS: Mapping[str, Operator] = {
    "SimplifiedLayerNormalization": Operator(
        _infer_simplified, expand=_expand_simplified, inputs=(2, 2)
    ),
    **{
        f"{MICROSOFT}.{name}": row
        for name, row in {
            "EmbedLayerNormalization": Operator(
                _infer_embedding, expand=_expand_embedding, inputs=(1, 9)
            ),
            "GatedRMSNorm": Operator(_infer_gated, expand=_expand_gated, inputs=(3, 3)),
            "GroupNorm": Operator(
                _infer_groups,
                expand=_expand_groups,
                inputs=(3, 3),
                required=("activation", "groups"),
            ),
            "SkipGroupNorm": Operator(
                _infer_groups,
                expand=_expand_groups,
                inputs=(4, 5),
                required=("activation", "groups"),
            ),
            "SkipLayerNormalization": Operator(
                _infer_skip(2), expand=_expand_skip("LayerNormalization", 2), inputs=(3, 5)
            ),
            "SkipSimplifiedLayerNormalization": Operator(
                _infer_skip(1), expand=_expand_skip("RMSNormalization", 1), inputs=(3, 4)
            ),
        }.items()
    },
}
