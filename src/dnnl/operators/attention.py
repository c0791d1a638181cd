"""Attention of ONNX's own domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import REAL, ModelError, Shape, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import broadcast, same_shape
from dnnl.graph.writer import Writer
from dnnl.operators.operator import Operator
from dnnl.operators.scaled_dot_product import (
    Rows,
    Scores,
    Window,
    appended,
    as_addend,
    attend,
    computed_in,
    heads_of,
    length_mask,
    past_rows,
    window_masks,
)

_TRUTH = np.dtype(np.bool_)
FLOATS = REAL | {np.dtype(np.float64)}
_MASK, _PAST_KEY, _PAST_VALUE, _LENGTHS = 3, 4, 5, 6
_STAGES = ("products", "capped", "masked", "softmax")
"""The stage of the scores that is the fourth result, by attribute ``qk_matmul_output_mode``."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of an attention: ``columns`` counts all keys, ``past`` those of the cache."""

    batch: int
    heads: int
    shared: int
    rows: int
    columns: int
    past: int
    depth: int
    width: int


def _sizes(scope: Scope) -> Sizes:
    """The sizes of a node; raises ModelError for sources that do not fit each other."""
    query, key, value = (scope.shape(place) for place in range(3))
    ranks = {len(query), len(key), len(value)}
    if len(ranks) != 1 or not ranks <= {3, 4}:
        raise ModelError(f"sources {query}, {key} and {value} must have 3 or 4 dimensions each")
    if len(query) == 3:
        query, key, value = _by_heads(scope, query, key, value)
    if query[0] != key[0] or key[:3] != value[:3] or query[3] != key[3]:
        raise ModelError(f"queries {query}, keys {key} and values {value} do not fit each other")
    if not key[1] or query[1] % key[1]:
        raise ModelError(f"{query[1]} heads of queries are no multiple of {key[1]} heads of keys")
    past = past_rows(scope, (_PAST_KEY, _PAST_VALUE), key, value)
    columns = key[2] + past
    return Sizes(query[0], query[1], key[1], query[2], columns, past, query[3], value[3])


def _by_heads(scope: Scope, *shapes: Shape) -> list[Shape]:
    """Shapes as [batch, heads, rows, size], those of three dimensions by the attributes of
    heads."""
    found: list[Shape] = []
    names = ("q_num_heads", "kv_num_heads", "kv_num_heads")
    for name, shape in zip(names, shapes, strict=True):
        count = scope.attr(name, 0)
        if count < 1 or shape[2] % count:
            raise ModelError(f"attribute {name!r} = {count} does not divide {shape[2]} numbers")
        found.append((shape[0], count, shape[1], shape[2] // count))
    return found


def _infer(scope: Scope) -> list[TensorType]:
    """The result has the rank of the queries. Present keys and values, and the scores, have the
    shape [batch, heads, rows, size or keys]."""
    node, own = scope.node, _sizes(scope)
    for place in range(3):
        if scope.type(place).dtype not in FLOATS:
            raise ModelError(f"input {place} has elements of {scope.type(place).dtype}, no floats")
    if scope.type().dtype != scope.type(1).dtype:
        raise ModelError(f"queries of {scope.type().dtype}, keys of {scope.type(1).dtype}")
    if not 0 <= scope.attr("qk_matmul_output_mode", 0) < len(_STAGES):
        mode = scope.attr("qk_matmul_output_mode")
        raise ModelError(f"attribute 'qk_matmul_output_mode' = {mode} must be 0 to 3")
    for name in ("left_window_size", "right_window_size"):
        if scope.attr(name, -1) < -1:
            raise ModelError(f"attribute {name!r} = {scope.attr(name)} must be at least -1")
    _check_mask(scope, own)
    if node.input(_LENGTHS):
        if own.past or node.input(_PAST_KEY):
            raise ModelError("nonpad_kv_seqlen and past keys exclude each other")
        if scope.shape(_LENGTHS) != (own.batch,):
            lengths = scope.shape(_LENGTHS)
            raise ModelError(f"nonpad_kv_seqlen has shape {lengths}, not {(own.batch,)}")
    dtype, values = scope.type().dtype, scope.type(2).dtype
    keys: Shape = (own.batch, own.shared, own.columns)
    shape: Shape = (own.batch, own.heads, own.rows, own.width)
    if len(scope.shape()) == 3:
        shape = (own.batch, own.rows, own.heads * own.width)
    kinds = [
        TensorType(dtype, shape),
        TensorType(dtype, (*keys, own.depth)),
        TensorType(values, (*keys, own.width)),
        TensorType(dtype, (own.batch, own.heads, own.rows, own.columns)),
    ]
    return kinds[: len(node.outputs)]


def _check_mask(scope: Scope, own: Sizes) -> None:
    """Raise for a mask that cannot be broadcast to the scores; it may have fewer keys."""
    if not scope.node.input(_MASK):
        return
    kind, shape = scope.type(_MASK), scope.shape(_MASK)
    if kind.dtype != _TRUTH and kind.dtype not in FLOATS:
        rule = f"attn_mask of {kind.dtype}: masks are truth values or floats; Cast makes them"
        raise Unimplemented(f"{scope.node}: {rule}")
    whole = (own.batch, own.heads, own.rows, own.columns)
    fits = 1 <= len(shape) <= 4 and shape[-1] <= own.columns
    if not fits or broadcast([(*shape[:-1], 1), whole]) != whole:
        raise ModelError(f"attn_mask {shape} is not broadcast to {whole}")


def _expand(writer: Writer) -> bool:
    """Three steps: a product with the masks as addends, a softmax, a product."""
    node, graph = writer.node, writer.graph
    scope = Scope(node, graph)
    own = _sizes(scope)
    counts = own.heads, own.shared, own.shared
    query, key, value = (
        heads_of(writer, name, count) for name, count in zip(node.inputs, counts, strict=False)
    )
    if node.input(_PAST_KEY):
        key = appended(writer, node.inputs[_PAST_KEY], key)
        value = appended(writer, node.inputs[_PAST_VALUE], value)
    key, value = present(writer, key, 1), present(writer, value, 2)

    def show(stage: str, products: str, shape: Shape) -> None:
        if stage == _STAGES[scope.attr("qk_matmul_output_mode", 0)]:
            show_products(writer, products, shape, 3)

    factor = scope.attr("scale", own.depth**-0.5)
    capped = scope.attr("softcap", 0.0)
    scores = Scores(factor, capped, _addends(writer, scope, own), show=show)
    attend(writer, query, key, value, scores, flat=len(scope.shape()) == 3)
    return True


def present(writer: Writer, rows: Rows, index: int) -> Rows:
    """The rows, which are also result ``index`` of the node if it has that."""
    if not is_shown(writer, index):
        return rows
    dtype = writer.type_of(rows.value).dtype
    copy = writer.reshape(rows.value, rows.shape, dtype)
    return Rows(writer.show(copy, index), rows.shape)


def is_shown(writer: Writer, index: int) -> bool:
    """Whether the node has result ``index``."""
    return index < len(writer.node.outputs) and bool(writer.node.outputs[index])


def show_products(writer: Writer, products: str, shape: Shape, index: int) -> None:
    """Make the scores, of ``shape``, result ``index`` of the node."""
    if not is_shown(writer, index):
        return
    kind = writer.graph.type_of(writer.node.outputs[index])
    dtype = writer.type_of(products).dtype
    if dtype != kind.dtype:
        products = writer.add("Cast", (products,), shape, {"to": kind.dtype}, kind.dtype)
    writer.show(writer.reshape(products, kind.sizes, kind.dtype), index)


def _addends(writer: Writer, scope: Scope, own: Sizes) -> Sequence[str]:
    """The addends of the scores: a mask of floats; 0 and -inf for all other masks together."""
    node = scope.node
    wide = computed_in(scope.type().dtype)
    lengths = node.input(_LENGTHS)
    bounds = [scope.attr(name, -1) for name in ("left_window_size", "right_window_size")]
    left, right = (None if bound < 0 else bound for bound in bounds)
    if scope.attr("is_causal", 0):
        right = 0
    masks = window_masks(writer, Window(left, right, own.past, lengths), own.rows, own.columns)
    if lengths:
        masks.append(length_mask(writer, lengths, own.columns))
    added: list[str] = []
    if node.input(_MASK):
        mask = _padded(writer, node.inputs[_MASK], own.columns)
        (masks if scope.type(_MASK).dtype == _TRUTH else added).append(mask)
    return [*added, *as_addend(writer, masks, wide)]


def _padded(writer: Writer, mask: str, columns: int) -> str:
    """A mask extended to all keys, which excludes those that it did not have."""
    kind = writer.type_of(mask)
    shape = (*kind.sizes[:-1], columns)
    if same_shape(kind.sizes, shape) or kind.sizes[-1] == columns:
        return mask
    pads = (*[0] * (2 * len(shape) - 1), columns - kind.sizes[-1])
    filler = 0.0 if kind.dtype == _TRUTH else -np.inf
    return writer.add("Pad", (mask,), shape, {"pads": pads, "value": filler}, kind.dtype)


OPERATORS: Mapping[str, Operator] = {
    "Attention": Operator(_infer, expand=_expand, inputs=(3, 7)),
}
