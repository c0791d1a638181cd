"""Scaled dot-product attention as MatMul, Softmax and MatMul, with masks and caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from dnnl.graph.graph import ModelError, Shape
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import broadcast, same_shape
from dnnl.graph.writer import Writer
from dnnl.operators.softmax import MASKED_SOFTMAX
from dnnl.types.size import surely_at_most, surely_equal

_TRUTH, _INDEX = np.dtype(np.bool_), np.dtype(np.int64)
_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
Modify = Callable[[str, Shape], str]
"""A function that appends nodes: from a value and its shape to another value of that shape."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Queries, keys or values of attention: a value of the shape [batch, heads, rows, size]."""

    value: str
    shape: Shape


def heads_of(writer: Writer, value: str, count: int) -> Rows:
    """``value`` of [batch, rows, heads * size] or [batch, heads, rows, size] as the latter."""
    shape = writer.shape_of(value)
    if len(shape) == 4:
        return Rows(value, shape)
    batch, rows, width = shape
    return seen_by_heads(writer, value, (batch, rows, count, width // count))


def seen_by_heads(writer: Writer, value: str, shape: Shape) -> Rows:
    """``value``, reshaped to ``shape`` [batch, rows, heads, size], as [batch, heads, rows,
    size]."""
    batch, rows, heads, size = shape
    dtype = writer.type_of(value).dtype
    seen = writer.reshape(value, shape, dtype)
    transposed = (batch, heads, rows, size)
    return Rows(
        writer.add("Transpose", (seen,), transposed, {"perm": (0, 2, 1, 3)}, dtype), transposed
    )


def appended(writer: Writer, past: str, rows: Rows) -> Rows:
    """``rows`` appended to those of ``past``, [batch, heads, past rows, size]."""
    before = writer.shape_of(past)[2]
    if surely_equal(before, 0):
        return rows
    shape = (*rows.shape[:2], before + rows.shape[2], rows.shape[3])
    dtype = writer.type_of(past).dtype
    return Rows(writer.add("Concat", (past, rows.value), shape, {"axis": 2}, dtype), shape)


def past_rows(scope: Scope, places: tuple[int, int], key: Shape, value: Shape) -> int:
    """The rows of past keys and values, which are the inputs ``places``; 0 without them.

    ``key`` and ``value`` are the shapes [batch, heads, rows, size] of the new ones. Raises
    ModelError where only one is given, or one does not fit.
    """
    keys, values = (scope.node.input(place) for place in places)
    if bool(keys) != bool(values):
        raise ModelError("past_key and past_value must be given together")
    if not keys:
        return 0
    before, after = (scope.shape(place) for place in places)
    past = before[2] if len(before) == 4 else 0
    if before != (*key[:2], past, key[3]) or after != (*key[:2], past, value[3]):
        raise ModelError(f"past keys {before} and values {after} do not fit {key} and {value}")
    return past


def positions(writer: Writer, first: int, count: int, *, down: bool) -> str:
    """The integers ``first`` to ``first + count - 1`` in s64, as a column (``down``) or a row."""
    numbers = writer.numbers(first, count)
    return writer.reshape(numbers, (count, 1), _INDEX) if down else numbers


@dataclass(frozen=True, slots=True)
class Window:
    """The keys that a query sees, relative to its position among the keys.

    Query i has position i + ``offset``. It sees ``left`` keys before and ``right`` keys after it;
    None means all.
    """

    left: int | None
    right: int | None
    offset: int = 0
    lengths: str = ""
    """A value with the number of keys of each batch element, which replaces ``offset``: the queries
    are the last of these."""


def window_masks(writer: Writer, window: Window, rows: int, columns: int) -> list[str]:
    """Boolean masks, true where a query sees a key, broadcast to [batch, heads, ``rows``,
    ``columns``]. The list is empty where every query sees every key."""
    left, right, offset = window.left, window.right, window.offset
    if right is not None and not window.lengths and rows == 1:  # a step has a plan of its own
        right = None if surely_at_most(columns, offset + right + 1) else right
    if left is not None and not window.lengths and surely_at_most(rows + offset, left + 1):
        left = None
    masks = []
    for bound, op, sign in ((right, "LessOrEqual", 1), (left, "GreaterOrEqual", -1)):
        if bound is None:
            continue
        keys = positions(writer, 0, columns, down=False)
        first = offset + sign * bound
        shape: Shape = (rows, 1)
        if window.lengths:
            first = sign * bound - rows
        last = positions(writer, first, rows, down=True)
        if window.lengths:
            batch = prod(writer.shape_of(window.lengths))
            seen = integers(writer, window.lengths, (batch, 1, 1, 1))
            shape = (batch, 1, rows, 1)
            last = writer.add("Add", (last, seen), shape, dtype=_INDEX)
        whole = (*shape[:-1], columns)
        masks.append(writer.add(op, (keys, last), whole, dtype=_TRUTH))
    return masks


def integers(writer: Writer, value: str, shape: Shape) -> str:
    """``value`` reshaped to ``shape``, as int64."""
    if writer.type_of(value).dtype != _INDEX:
        value = writer.add("Cast", (value,), writer.shape_of(value), {"to": _INDEX}, _INDEX)
    return writer.reshape(value, shape, _INDEX)


def length_mask(writer: Writer, lengths: str, columns: int) -> str:
    """A boolean mask [batch, 1, 1, ``columns``], true for the first ``lengths`` keys of each batch
    element."""
    batch = prod(writer.shape_of(lengths))
    seen = integers(writer, lengths, (batch, 1, 1, 1))
    keys = positions(writer, 0, columns, down=False)
    return writer.add("Less", (keys, seen), (batch, 1, 1, columns), dtype=_TRUTH)


def as_addend(
    writer: Writer,
    masks: Sequence[str],
    dtype: np.dtype,
    excluded: float = -np.inf,
) -> list[str]:
    """The masks as addends of the scores: 0 where all ``masks`` are true, ``excluded`` elsewhere.
    The list is empty without masks."""
    if not masks:
        return []
    joined, *others = masks
    for mask in others:
        shape = broadcast([writer.shape_of(joined), writer.shape_of(mask)])
        joined = writer.add("And", (joined, mask), shape, dtype=_TRUTH)
    ends = writer.constant(0, dtype), writer.constant(excluded, dtype)
    return [writer.add("Where", (joined, *ends), writer.shape_of(joined), dtype=dtype)]


def computed_in(dtype: np.dtype) -> np.dtype:
    """The type in which the scores are computed."""
    return _F64 if dtype == _F64 else _F32


@dataclass(frozen=True, slots=True)
class Scores:
    """What attention does with its scores, [batch, heads, rows, keys], in this order: a factor,
    ``softcap`` if it is positive, ``addends`` that are broadcast to the scores, a softmax.

    ``changed`` and ``weighted`` write nodes before and after the softmax. ``show(stage, value,
    shape)`` gets the scores after each stage: "products", "capped", "masked", "softmax". A row
    without keys becomes 0 with ``zero_rows``, else NaN. ``sink`` is a value with one more score for
    each head, which only the denominator of the softmax has.
    """

    factor: float
    softcap: float = 0.0
    addends: Sequence[str] = ()
    changed: Modify | None = None
    weighted: Modify | None = None
    show: Callable[[str, str, Shape], None] | None = None
    zero_rows: bool = True
    sink: str = ""


def attend(
    writer: Writer, query: Rows, key: Rows, value: Rows, scores: Scores, *, flat: bool
) -> str:
    """The result of attention: [batch, heads, rows, size], or [batch, rows, heads * size] if
    ``flat``.

    Heads of queries in a group read the same keys without a copy: as the rows of one product where
    there is one query row, else by broadcasting.
    """
    batch, heads, rows, depth = query.shape
    shared, columns, width = key.shape[1], key.shape[2], value.shape[3]
    groups = heads // shared
    dtype, wide = writer.type_of(query.value).dtype, computed_in(writer.type_of(query.value).dtype)
    grouped = groups > 1 and rows != 1
    outer = (batch, shared, groups) if grouped else (batch, shared)
    inner = rows if grouped or groups == 1 else groups
    whole = (batch, heads, rows, columns)
    shape = (*outer, inner, columns)

    def shown(stage: str, result: str) -> None:
        if scores.show is not None:
            scores.show(stage, result, shape)

    single = (batch, shared, 1) if grouped else outer
    queries = _seen(writer, query.value, query.shape, (*outer, inner, depth), dtype)
    keys = _seen(writer, key.value, key.shape, (*single, columns, depth), dtype)
    rank = len(shape)
    perm = (*range(rank - 2), rank - 1, rank - 2)
    keys = writer.add("Transpose", (keys,), (*single, depth, columns), {"perm": perm}, dtype)
    result = writer.add("MatMul", (queries, keys), shape, dtype=wide)
    if scores.factor != 1.0:
        result = writer.add("Mul", (result, writer.constant(scores.factor, wide)), shape, {}, wide)
    shown("products", result)
    if scores.softcap > 0:
        limit = writer.constant(scores.softcap, wide)
        result = writer.add("Div", (result, limit), shape, {}, wide)
        result = writer.add("Tanh", (result,), shape, {}, wide)
        result = writer.add("Mul", (result, limit), shape, {}, wide)
    shown("capped", result)
    for addend in scores.addends:
        seen = _addend(writer, addend, outer, inner, whole)
        result = writer.add("Add", (result, seen), shape, {}, wide)
    shown("masked", result)
    if scores.changed is not None:
        result = _on_heads(writer, scores.changed, result, shape, whole, wide)
    last = dtype if scores.weighted is None else wide
    op = MASKED_SOFTMAX if scores.zero_rows else "Softmax"
    if scores.sink:
        result = _with_sink(writer, result, scores.sink, shape, (*outer[1:], inner))
        longer = (*shape[:-1], columns + 1)
        result = writer.add(op, (result,), longer, {"axis": rank - 1}, last)
        part = {"starts": (0,), "ends": (columns,), "axes": (rank - 1,)}
        result = writer.add("Slice", (result,), shape, part, last)
    else:
        result = writer.add(op, (result,), shape, {"axis": rank - 1}, last)
    shown("softmax", result)
    if scores.weighted is not None:
        result = _on_heads(writer, scores.weighted, result, shape, whole, wide)
    values = _seen(writer, value.value, value.shape, (*single, columns, width), dtype)
    if last != writer.type_of(values).dtype:
        values = writer.add("Cast", (values,), (*single, columns, width), {"to": last}, last)
    result = writer.add("MatMul", (result, values), (*outer, inner, width), dtype=dtype)
    if not flat:
        return writer.reshape(result, (batch, heads, rows, width))
    if inner is rows:
        order = (0, rank - 2, *range(1, rank - 2), rank - 1)
        transposed = (batch, rows, *outer[1:], width)
        result = writer.add("Transpose", (result,), transposed, {"perm": order})
    return writer.reshape(result, (batch, rows, heads * width))


def _with_sink(writer: Writer, value: str, sink: str, shape: Shape, heads: Shape) -> str:
    """The scores with one more column, the sink of each head."""
    dtype = writer.type_of(value).dtype
    count = writer.shape_of(sink)[0]
    column = (*shape[:-1], 1)
    if writer.type_of(sink).dtype != dtype:
        sink = writer.add("Cast", (sink,), (count,), {"to": dtype}, dtype)
    by_rows = surely_equal(prod(heads), count) and len(heads) == 2
    own = (*heads, 1) if by_rows else (*heads[:-1], 1, 1)
    sink = writer.broadcast(writer.reshape(sink, own, dtype), column, dtype)
    longer = (*shape[:-1], shape[-1] + 1)
    return writer.add("Concat", (value, sink), longer, {"axis": len(shape) - 1}, dtype)


def _seen(writer: Writer, value: str, shape: Shape, seen: Shape, dtype: np.dtype) -> str:
    return value if same_shape(shape, seen) else writer.reshape(value, seen, dtype)


def _on_heads(
    writer: Writer, modify: Modify, value: str, shape: Shape, whole: Shape, dtype: np.dtype
) -> str:
    seen = modify(_seen(writer, value, shape, whole, dtype), whole)
    return _seen(writer, seen, whole, shape, dtype)


def _addend(writer: Writer, value: str, outer: Shape, inner: int, whole: Shape) -> str:
    """An addend of [batch, heads, rows, columns], reshaped as the product groups the heads."""
    own, dtype = writer.shape_of(value), writer.type_of(value).dtype
    if same_shape((*outer, inner), whole[:3]):
        return value
    batch, heads, rows, columns = (*[1] * (4 - len(own)), *own)
    by_heads = not surely_equal(heads, 1)
    shared, groups = (outer[1], whole[1] // outer[1]) if by_heads else (1, 1)
    seen: Shape = (batch, shared, groups, rows, columns)
    if len(outer) == 2:  # each head has one row
        seen = (batch, shared, groups, columns)
    return _seen(writer, value, own, seen, dtype)
