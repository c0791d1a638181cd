"""Multi-head attention of ONNX Runtime's domain: MultiHeadAttention, and with the projections
inside the node Attention and QAttention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import REAL, ModelError, Shape, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import broadcast
from dnnl.graph.writer import Writer
from dnnl.operators.attention import is_shown, present
from dnnl.operators.microsoft import MICROSOFT, check_known
from dnnl.operators.operator import Operator
from dnnl.operators.quantization import BYTES, DEQUANTIZE
from dnnl.operators.scaled_dot_product import (
    Rows,
    Scores,
    Window,
    appended,
    as_addend,
    attend,
    computed_in,
    integers,
    length_mask,
    past_rows,
    positions,
    seen_by_heads,
    window_masks,
)

_TRUTH, _INDEX = np.dtype(np.bool_), np.dtype(np.int64)
_F32 = np.dtype(np.float32)
_EXCLUDED = -10000.0
"""The default addend of masked scores, attribute ``mask_filter_value``."""
_COMMON = "mask_filter_value", "num_heads", "scale", "unidirectional"


@dataclass(frozen=True, slots=True)
class Inputs:
    """The indices of the inputs that all forms have: a mask of keys, and a bias of the scores."""

    mask: int
    added: int


def _refuse(scope: Scope, names: Mapping[int, str]) -> None:
    """Raise Unimplemented for a given input that is not supported; ``names`` has them by index."""
    for place, name in names.items():
        if scope.node.input(place):
            raise Unimplemented(f"{scope.node}: input {place}, {name}: not computed")


def _heads(scope: Scope) -> int:
    count: int = scope.attr("num_heads")
    if count < 1:
        raise ModelError(f"attribute 'num_heads' = {count} must be at least 1")
    return count


def _check_masks(scope: Scope, own: Inputs, sizes: Shape) -> None:
    """Raise for masks that do not fit the scores, ``sizes`` = [batch, heads, rows, keys]."""
    batch, _, rows, columns = sizes
    if scope.node.input(own.mask):
        mask = scope.shape(own.mask)
        known: tuple[Shape, ...] = (
            (batch,),
            (2 * batch,),
            (batch, columns),
            (batch, rows, columns),
        )
        if mask not in known:
            rule = "known are lengths, ends and starts, and masks of keys or of rows and keys"
            raise Unimplemented(f"{scope.node}: input {own.mask}, a mask {mask} of {sizes}: {rule}")
        if scope.type(own.mask).dtype.kind not in "iu":
            raise ModelError(f"input {own.mask} is a mask of {scope.type(own.mask).dtype}")
    if own.added and scope.node.input(own.added):
        added = scope.shape(own.added)
        if len(added) != 4 or broadcast([added, sizes]) != sizes:
            raise ModelError(f"input {own.added} {added} is not broadcast to {sizes}")


def _addends(writer: Writer, own: Inputs, sizes: Shape, past: int) -> list[str]:
    """The addends of the scores: for masked keys, for keys after the query if causal, the bias."""
    node, dtype = writer.node, computed_in(writer.dtype)
    batch, _, rows, columns = sizes
    excluded = node.attrs.get("mask_filter_value", _EXCLUDED)
    added = []
    if node.input(own.mask):
        masks = _key_masks(writer, node.inputs[own.mask], batch, rows, columns)
        added += as_addend(writer, masks, dtype, excluded)
    if node.attrs.get("unidirectional", 0):
        masks = window_masks(writer, Window(None, 0, past), rows, columns)
        added += as_addend(writer, masks, dtype, excluded)
    if own.added and node.input(own.added):
        added.append(node.inputs[own.added])
    return added


def _key_masks(writer: Writer, mask: str, batch: int, rows: int, columns: int) -> list[str]:
    """Boolean masks that are broadcast to [batch, heads, rows, keys]."""
    kind = writer.type_of(mask)
    if len(kind.sizes) > 1:
        every = kind.sizes[1] if len(kind.sizes) == 3 else 1
        seen = writer.reshape(mask, (batch, 1, every, columns), kind.dtype)
        zero = writer.constant(0, kind.dtype)
        return [writer.add("Greater", (seen, zero), (batch, 1, every, columns), dtype=_TRUTH)]
    if kind.sizes[0] == batch:
        return [length_mask(writer, mask, columns)]
    whole = (batch, 1, 1, columns)
    found = []
    for place, op in ((0, "Less"), (1, "GreaterOrEqual")):
        part = {"starts": (place * batch,), "ends": ((place + 1) * batch,), "axes": (0,)}
        ends = writer.add("Slice", (mask,), (batch,), part, kind.dtype)
        ends = integers(writer, ends, (batch, 1, 1, 1))
        keys = positions(writer, 0, columns, down=False)
        found.append(writer.add(op, (keys, ends), whole, dtype=_TRUTH))
    return found


def _attended(writer: Writer, query: Rows, key: Rows, value: Rows, own: Inputs, past: int) -> None:
    """Write the attention, which is result 0 of the node."""
    depth = query.shape[3]
    sizes = (*query.shape[:3], key.shape[2])
    factor = writer.node.attrs.get("scale", 0.0) or depth**-0.5
    scores = Scores(factor, addends=_addends(writer, own, sizes, past), zero_rows=False)
    attend(writer, query, key, value, scores, flat=True)


_INPUT, _WEIGHTS, _BIAS = 0, 1, 2
_ATTENTION = Inputs(mask=3, added=5)
_PAST = 4
_QUANTIZED = Inputs(mask=5, added=0)
_QUANTIZED_PAST = 8


def _widths(scope: Scope) -> tuple[int, int, int]:
    """The widths of queries, keys and values: heads * size."""
    total, heads = scope.shape(_WEIGHTS)[-1], _heads(scope)
    widths = tuple(scope.attr("qkv_hidden_sizes", (total // 3,) * 3))
    fits = len(widths) == 3 and sum(widths) == total and widths[0] == widths[1]
    if not fits or any(width % heads for width in widths):
        raise ModelError(f"rows of {widths} numbers for {heads} heads are not those of {total}")
    return widths[0], widths[1], widths[2]


def _infer_with_weights(scope: Scope, own: Inputs, past: int, dtype: np.dtype) -> list[TensorType]:
    """[batch, rows, width of values], and present keys and values [2, batch, heads, keys, size]."""
    node, shape, weights = scope.node, scope.shape(), scope.shape(_WEIGHTS)
    if scope.attr("do_rotary", 0) or scope.attr("past_present_share_buffer", 0):
        rule = "do_rotary and past_present_share_buffer are of GroupQueryAttention here"
        raise Unimplemented(f"{node}: {rule}")
    if len(shape) != 3 or len(weights) != 2 or shape[2] != weights[0]:
        raise ModelError(f"source {shape} and weights {weights} cannot be multiplied")
    if node.input(_BIAS) and scope.shape(_BIAS) != weights[1:]:
        raise ModelError(f"bias {scope.shape(_BIAS)} is not {weights[1:]}")
    batch, rows, _ = shape
    width, _, values = _widths(scope)
    heads = _heads(scope)
    before = 0
    if node.input(past):
        given = scope.shape(past)
        before = given[3] if len(given) == 5 else 0
        if given != (2, batch, heads, before, width // heads) or values != width:
            raise ModelError(f"past keys and values {given} do not fit {shape}")
    _check_masks(scope, own, (batch, heads, rows, rows + before))
    kinds = [
        TensorType(dtype, (batch, rows, values)),
        TensorType(dtype, (2, batch, heads, rows + before, width // heads)),
    ]
    return kinds[: len(node.outputs)]


def _infer_attention(scope: Scope) -> list[TensorType]:
    check_known(scope, *_COMMON, "do_rotary", "past_present_share_buffer", "qkv_hidden_sizes")
    _check_floats(scope)
    _refuse(scope, {6: "the length of a past that shares its buffer"})
    return _infer_with_weights(scope, _ATTENTION, _PAST, scope.type().dtype)


def _check_floats(scope: Scope) -> None:
    if scope.type().dtype not in REAL:
        rule = f"{scope.type().dtype} is not computed; Cast makes f32 of it"
        raise Unimplemented(f"{scope.node}: {rule}")


def _expand_attention(writer: Writer) -> bool:
    """One product for queries, keys and values, which are views of its columns."""
    node = writer.node
    shape, weights = (writer.shape_of(value) for value in node.inputs[:2])
    whole = (*shape[:2], weights[1])
    product = writer.add("MatMul", node.inputs[:2], whole)
    _with_weights(writer, product, _ATTENTION, _PAST)
    return True


def _with_weights(writer: Writer, product: str, own: Inputs, past: int) -> None:
    node, whole = writer.node, writer.shape_of(product)
    dtype = writer.type_of(product).dtype
    if node.input(_BIAS):
        product = writer.add("Add", (product, node.inputs[_BIAS]), whole, {}, dtype)
    scope = Scope(node, writer.graph)
    heads, first, rows = _heads(scope), 0, []
    for width in _widths(scope):
        part = {"starts": (first,), "ends": (first + width,), "axes": (2,)}
        columns = writer.add("Slice", (product,), (*whole[:2], width), part, dtype)
        rows.append(seen_by_heads(writer, columns, (*whole[:2], heads, width // heads)))
        first += width
    query, key, value = rows
    before = 0
    if node.input(past):
        before = writer.shape_of(node.inputs[past])[3]
        key, value = (
            appended(writer, _half(writer, node.inputs[past], place, dtype), each)
            for place, each in enumerate((key, value))
        )
    if is_shown(writer, 1):
        _show_present(writer, key, value, dtype)
    _attended(writer, query, key, value, own, before)


def _half(writer: Writer, past: str, place: int, dtype: np.dtype) -> str:
    """The keys (``place`` 0) or values (1) of a past [2, batch, heads, rows, size]."""
    shape = writer.shape_of(past)
    part = {"starts": (place,), "ends": (place + 1,), "axes": (0,)}
    half = writer.add("Slice", (past,), (1, *shape[1:]), part, dtype)
    return writer.reshape(half, shape[1:], dtype)


def _show_present(writer: Writer, key: Rows, value: Rows, dtype: np.dtype) -> None:
    parts = tuple(writer.reshape(own.value, (1, *own.shape), dtype) for own in (key, value))
    both = writer.add("Concat", parts, (2, *key.shape), {"axis": 0}, dtype)
    writer.show(both, 1)


def _infer_quantized(scope: Scope) -> list[TensorType]:
    """f32 from an int8 or uint8 source with one scale, and weights with one or one for each
    column."""
    check_known(scope, *_COMMON, "do_rotary", "past_present_share_buffer")
    for place in (0, 1):
        if scope.type(place).dtype not in BYTES:
            rule = f"input {place} of {scope.type(place).dtype}; quantized values are int8 or uint8"
            raise Unimplemented(f"{scope.node}: {rule}")
    columns = scope.shape(_WEIGHTS)[-1]
    for place, most in ((3, 1), (4, columns), (6, 1), (7, columns)):
        if scope.node.input(place) and prod(scope.shape(place)) not in (1, most):
            raise ModelError(f"input {place} has shape {scope.shape(place)}; expected {most}")
    return _infer_with_weights(scope, _QUANTIZED, _QUANTIZED_PAST, _F32)


def _expand_quantized(writer: Writer) -> bool:
    """As Attention, of DequantizeLinear nodes, which passes fuse to an int8 product."""
    node = writer.node
    sources = []
    for place, scale, zero in ((0, 3, 6), (1, 4, 7)):
        shape = writer.shape_of(node.inputs[place])
        own: Shape = shape[-1:] if prod(writer.shape_of(node.inputs[scale])) > 1 else ()
        given = [node.inputs[place], writer.reshape(node.inputs[scale], own, _F32)]
        if node.input(zero):
            stored = writer.type_of(node.inputs[zero]).dtype
            given.append(writer.reshape(node.inputs[zero], own, stored))
        sources.append(writer.add(DEQUANTIZE, tuple(given), shape, {"axis": len(shape) - 1}, _F32))
    batch, rows, _ = writer.shape_of(node.inputs[0])
    whole = (batch, rows, writer.shape_of(node.inputs[_WEIGHTS])[1])
    writer.dtype = _F32
    _with_weights(writer, writer.add("MatMul", tuple(sources), whole), _QUANTIZED, _QUANTIZED_PAST)
    return True


_KEY, _VALUE, _ROW_BIAS, _PAST_KEY, _PAST_VALUE = 1, 2, 3, 6, 7
_PASTS = (_PAST_KEY, _PAST_VALUE)
_MULTI = Inputs(mask=4, added=5)


@dataclass(frozen=True, slots=True)
class _Multi:
    """The shapes of a MultiHeadAttention as [batch, heads, rows, size]."""

    query: Shape
    key: Shape
    value: Shape
    past: int


def _shapes(scope: Scope) -> _Multi:
    """The shapes of the sources, whether they are separate, packed or by heads."""
    heads, query = _heads(scope), scope.shape()
    if len(query) == 5:
        if query[2] != heads or query[3] != 3 or scope.node.input(_KEY):
            raise ModelError(f"packed queries, keys and values {query} of {heads} heads")
        own = (query[0], heads, query[1], query[4])
        return _Multi(own, own, own, past_rows(scope, _PASTS, own, own))
    if len(query) != 3 or query[2] % heads or not scope.node.input(_KEY):
        raise ModelError(f"queries {query} of {heads} heads, with keys")
    key, depth = scope.shape(_KEY), query[2] // heads
    own = (query[0], heads, query[1], depth)
    if len(key) == 5:
        if key[0] != query[0] or key[2:] != (heads, 2, depth) or scope.node.input(_VALUE):
            raise ModelError(f"packed keys and values {key} for queries {query}")
        both = (key[0], heads, key[1], depth)
        return _Multi(own, both, both, past_rows(scope, _PASTS, both, both))
    value = scope.shape(_VALUE)
    if len(key) == len(value) == 3 and not value[2] % heads:
        key = (key[0], heads, key[1], key[2] // heads)
        value = (value[0], heads, value[1], value[2] // heads)
    fits = len(key) == len(value) == 4 and key[:3] == value[:3]
    if not fits or key != (query[0], heads, key[2], depth):
        raise ModelError(f"keys {key} and values {value} do not fit queries {query}")
    past = past_rows(scope, _PASTS, key, value)
    return _Multi(own, key, value, past)


def _infer_multi(scope: Scope) -> list[TensorType]:
    """[batch, rows, width of values], and present keys and values [batch, heads, keys, size]."""
    check_known(scope, *_COMMON)
    _check_floats(scope)
    _refuse(scope, {8: "the length of a past that shares its buffer", 9: "cache_indirection"})
    if len(scope.node.outputs) > 3 and scope.node.outputs[3]:
        raise Unimplemented(f"{scope.node}: result {scope.node.outputs[3]!r}: products as a result")
    own = _shapes(scope)
    columns = own.key[2] + own.past
    _check_masks(scope, _MULTI, (*own.query[:3], columns))
    if scope.node.input(_ROW_BIAS) and 5 in map(len, (scope.shape(), scope.shape(_KEY))):
        raise Unimplemented(f"{scope.node}: input {_ROW_BIAS}, a bias of packed heads")
    width = own.query[1] * (2 * own.query[3] + own.value[3])
    if scope.node.input(_ROW_BIAS) and scope.shape(_ROW_BIAS) != (width,):
        raise ModelError(f"bias {scope.shape(_ROW_BIAS)} has not {width} numbers")
    batch, heads, rows, _ = own.query
    dtype = scope.type().dtype
    kinds = [
        TensorType(dtype, (batch, rows, heads * own.value[3])),
        TensorType(dtype, (*own.key[:2], columns, own.key[3])),
        TensorType(dtype, (*own.value[:2], columns, own.value[3])),
    ]
    return kinds[: len(scope.node.outputs)]


def _expand_multi(writer: Writer) -> bool:
    """Attention on keys and values that are appended to those of a past."""
    node = writer.node
    own = _shapes(Scope(node, writer.graph))
    if len(writer.shape_of(node.inputs[0])) == 5:
        query, key, value = (_packed(writer, node.inputs[0], own.query, n) for n in range(3))
    else:
        query = _biased(writer, node.inputs[0], own.query, 0)
        width = own.query[1] * own.query[3]
        if len(writer.shape_of(node.inputs[_KEY])) == 5:
            key, value = (_packed(writer, node.inputs[_KEY], own.key, n) for n in range(2))
        else:
            key = _biased(writer, node.inputs[_KEY], own.key, width)
            value = _biased(writer, node.inputs[_VALUE], own.value, 2 * width)
    if node.input(_PAST_KEY):
        key = appended(writer, node.inputs[_PAST_KEY], key)
        value = appended(writer, node.inputs[_PAST_VALUE], value)
    key, value = present(writer, key, 1), present(writer, value, 2)
    _attended(writer, query, key, value, _MULTI, own.past)
    return True


def _packed(writer: Writer, value: str, shape: Shape, place: int) -> Rows:
    """Source ``place`` (queries, keys, values) of a tensor in which each head has them
    interleaved."""
    batch, heads, rows, size = shape
    part = {"starts": (place,), "ends": (place + 1,), "axes": (3,)}
    value = writer.add("Slice", (value,), (batch, rows, heads, 1, size), part)
    return seen_by_heads(writer, value, (batch, rows, heads, size))


def _biased(writer: Writer, value: str, shape: Shape, first: int) -> Rows:
    """A source as heads, plus its slice of the bias from ``first`` on. Keys and values that come as
    [batch, heads, rows, size] include the bias already."""
    given = writer.shape_of(value)
    if len(given) == 4:
        return Rows(value, given)
    bias = writer.node.input(_ROW_BIAS)
    if bias:
        part = {"starts": (first,), "ends": (first + given[2],), "axes": (0,)}
        own = writer.add("Slice", (bias,), (given[2],), part)
        value = writer.add("Add", (value, own), given)
    batch, heads, rows, size = shape
    return seen_by_heads(writer, value, (batch, rows, heads, size))


_Row = tuple[Callable[[Scope], list[TensorType]], Callable[[Writer], bool], tuple[int, int]]
_ROWS: Mapping[str, _Row] = {
    "Attention": (_infer_attention, _expand_attention, (2, 7)),
    "MultiHeadAttention": (_infer_multi, _expand_multi, (1, 10)),
    "QAttention": (_infer_quantized, _expand_quantized, (5, 9)),
}
OPERATORS: Mapping[str, Operator] = {
    f"{MICROSOFT}.{name}": Operator(infer, expand=expand, inputs=inputs, required=("num_heads",))
    for name, (infer, expand, inputs) in _ROWS.items()
}
