"""GroupQueryAttention of ONNX Runtime's domain: decoder attention with a cache of keys and
values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import REAL, ModelError, Shape, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import broadcast, known_int
from dnnl.graph.writer import Writer
from dnnl.operators.attention import present
from dnnl.operators.microsoft import MICROSOFT, check_known
from dnnl.operators.operator import Operator
from dnnl.operators.rotary import Angles, angles_at, rotated
from dnnl.operators.scaled_dot_product import (
    Rows,
    Scores,
    Window,
    as_addend,
    attend,
    computed_in,
    integers,
    length_mask,
    past_rows,
    seen_by_heads,
    window_masks,
)
from dnnl.types.size import larger, surely_equal

_TRUTH, _INDEX = np.dtype(np.bool_), np.dtype(np.int64)
_QUERY, _KEY, _VALUE, _PAST_KEY, _PAST_VALUE, _LENGTHS, _TOTAL = range(7)
_COSINES, _SINES, _PLACES, _ADDED, _SINK = range(7, 12)
_QUERY_SCALE, _KEY_SCALE = 14, 15
_REFUSED = {12: "k_scale", 13: "v_scale", 16: "query_seqlens"}
_KNOWN = (
    *("causal", "do_rotary", "k_norm_epsilon", "k_quant_type", "kv_num_heads"),
    *("local_window_size", "num_heads", "q_norm_epsilon", "qk_norm_epsilon", "qk_output"),
    *("rotary_interleaved", "scale", "sliding_window_cache", "smooth_softmax", "softcap"),
    *("kv_cache_bit_width", "v_quant_type"),
)
_UNUSED = ("qk_output", "sliding_window_cache", "kv_cache_bit_width")
_NEW = "total_sequence_length must be the number of all keys, old and new"


@dataclass(frozen=True, slots=True)
class _Sizes:
    """``rows`` counts new tokens and ``total`` all tokens of the longest sequence. ``past`` is the
    length of the cache that is given, ``cache`` of the one that is returned."""

    batch: int
    rows: int
    heads: int
    shared: int
    depth: int
    past: int
    total: int

    @property
    def cache(self) -> int:
        return larger(self.past, self.total)

    @property
    def is_prompt(self) -> bool:
        """Whether no tokens precede the new ones."""
        return self.rows == self.total

    @property
    def keys(self) -> Shape:
        return (self.batch, self.shared, self.cache, self.depth)


def _sizes(scope: Scope) -> _Sizes:
    shape, heads, shared = scope.shape(), scope.attr("num_heads"), scope.attr("kv_num_heads")
    if heads < 1 or shared < 1 or heads % shared:
        raise ModelError(f"{heads} heads of queries are no multiple of {shared} of keys")
    packed = not scope.node.input(_KEY)
    count = heads + 2 * shared if packed else heads
    if len(shape) != 3 or shape[2] % count:
        raise ModelError(f"source {shape} has not the rows of {count} heads")
    batch, rows, depth = shape[0], shape[1], shape[2] // count
    for place in () if packed else (_KEY, _VALUE):
        if scope.shape(place) != (batch, rows, shared * depth):
            given = scope.shape(place)
            raise ModelError(f"input {place} {given} is not {(batch, rows, shared * depth)}")
    new = (batch, shared, rows, depth)
    past = past_rows(scope, (_PAST_KEY, _PAST_VALUE), new, new)
    total = scope.constant(_TOTAL)
    if total is None or total.size != 1:
        raise ModelError("total_sequence_length must be one number")
    return _Sizes(batch, rows, heads, shared, depth, past, known_int(total.ravel()[0]))


def _infer(scope: Scope) -> list[TensorType]:
    """[batch, rows, heads * size], and the caches [batch, key heads, cache, size]."""
    _check_form(scope)
    own = _sizes(scope)
    if prod(scope.shape(_LENGTHS)) != own.batch:
        raise ModelError(f"seqlens_k {scope.shape(_LENGTHS)} has not a number for each batch")
    if own.total < own.rows or (not own.is_prompt and own.total - own.rows > own.past):
        rule = f"{own.rows} rows behind a past of {own.past} make no {own.total}"
        raise ModelError(f"{rule}: {_NEW}")
    _check_rotary(scope, own)
    _check_parameters(scope, own)
    dtype = scope.type().dtype
    rows = TensorType(dtype, (own.batch, own.rows, own.heads * own.depth))
    return [rows, *[TensorType(dtype, own.keys)] * 2][: len(scope.node.outputs)]


def _check_form(scope: Scope) -> None:
    """Raise Unimplemented for attributes and sources that are not supported."""
    check_known(scope, *_KNOWN)
    node = scope.node
    for place, name in _REFUSED.items():
        if node.input(place):
            raise Unimplemented(f"{node}: input {place}, {name}: not computed")
    for name in _UNUSED:
        if scope.attr(name, 0):
            raise Unimplemented(f"{node}: {name} = {scope.attr(name)}: not computed")
    for name in ("k_quant_type", "v_quant_type"):
        if scope.attr(name, b"NONE") != b"NONE":
            raise Unimplemented(f"{node}: {name}: caches of floats are computed")
    if scope.type().dtype not in REAL:
        rule = f"{scope.type().dtype} is not computed; Cast makes f32 of it"
        raise Unimplemented(f"{node}: {rule}")


def _check_parameters(scope: Scope, own: _Sizes) -> None:
    """Raise ModelError for a bias, sinks or scales of wrong sizes."""
    if scope.node.input(_ADDED):
        sizes, added = (own.batch, own.heads, own.rows, own.total), scope.shape(_ADDED)
        if len(added) != 4 or broadcast([added, sizes]) != sizes:
            raise ModelError(f"attention_bias {added} is not broadcast to {sizes}")
    wanted = {_SINK: own.heads, _QUERY_SCALE: own.depth, _KEY_SCALE: own.depth}
    for place, count in wanted.items():
        if scope.node.input(place) and scope.shape(place) != (count,):
            raise ModelError(f"input {place} {scope.shape(place)} is not {(count,)}")


def _check_rotary(scope: Scope, own: _Sizes) -> None:
    if not scope.attr("do_rotary", 0):
        return
    if not (scope.node.input(_COSINES) and scope.node.input(_SINES)):
        raise ModelError("do_rotary needs cos_cache and sin_cache")
    tables = scope.shape(_COSINES), scope.shape(_SINES)
    if tables[0] != tables[1] or len(tables[0]) != 2 or 2 * tables[0][1] > own.depth:
        raise ModelError(f"tables {tables[0]} and {tables[1]} do not rotate heads of {own.depth}")
    if scope.node.input(_PLACES) and scope.shape(_PLACES) != (own.batch, own.rows):
        raise ModelError(f"position_ids {scope.shape(_PLACES)} are not {(own.batch, own.rows)}")


def _expand(writer: Writer) -> bool:
    """Rotate queries and keys, append the new keys and values to the caches, attend to the
    caches."""
    node = writer.node
    scope = Scope(node, writer.graph)
    own = _sizes(scope)
    query, key, value = _heads(writer, scope, own)
    keys, values = _cached(writer, own, (key, value))
    keys, values = present(writer, keys, 1), present(writer, values, 2)
    if own.is_prompt:  # the cache may be longer
        keys, values = key, value
    keys, values = (_first(writer, rows, own.total) for rows in (keys, values))
    sink = node.input(_SINK)
    if scope.attr("smooth_softmax", 0) == 1 and not sink:
        sink = writer.constant(np.zeros(own.heads))
    scores = Scores(
        scope.attr("scale", 0.0) or own.depth**-0.5,
        scope.attr("softcap", 0.0),
        _addends(writer, scope, own),
        sink=sink,
    )
    attend(writer, query, keys, values, scores, flat=True)
    return True


def _heads(writer: Writer, scope: Scope, own: _Sizes) -> tuple[Rows, Rows, Rows]:
    """The new queries, keys and values, normalized and rotated if the node says so."""
    node, found = writer.node, []
    angles = _angles(writer, scope, own) if scope.attr("do_rotary", 0) else None
    first = 0
    for place, count in ((_QUERY, own.heads), (_KEY, own.shared), (_VALUE, own.shared)):
        value, width = node.input(place), count * own.depth
        if not node.input(_KEY):
            part = {"starts": (first,), "ends": (first + width,), "axes": (2,)}
            value = writer.add("Slice", node.inputs[:1], (own.batch, own.rows, width), part)
            first += width
        shape = (own.batch, own.rows, count, own.depth)
        value = writer.reshape(value, shape)
        if place != _VALUE:
            value = _normalized(writer, scope, value, shape, place)
            value = value if angles is None else rotated(writer, value, angles)
        found.append(seen_by_heads(writer, value, shape))
    query, key, value_rows = found
    return query, key, value_rows


def _normalized(writer: Writer, scope: Scope, value: str, shape: Shape, place: int) -> str:
    """RMS normalization of each head, if the node has a scale for it."""
    scale = scope.node.input(_QUERY_SCALE if place == _QUERY else _KEY_SCALE)
    if not scale:
        return value
    both = scope.attr("qk_norm_epsilon", 1e-6)
    epsilon = scope.attr("q_norm_epsilon" if place == _QUERY else "k_norm_epsilon", both)
    return writer.add("RMSNormalization", (value, scale), shape, {"epsilon": epsilon, "axis": -1})


def _angles(writer: Writer, scope: Scope, own: _Sizes) -> Angles:
    """The rotation of each new row, by its position in the sequence."""
    node = writer.node
    batch, places = own.batch, node.input(_PLACES)
    if own.is_prompt:
        batch = 1
        every = writer.reshape(writer.numbers(0, own.rows), (1, own.rows), _INDEX)
        if places:  # the first one says where the prompt begins
            flat = writer.reshape(places, (own.batch * own.rows,), _INDEX)
            part = {"starts": (0,), "ends": (1,), "axes": (0,)}
            start = writer.add("Slice", (flat,), (1,), part, _INDEX)
            every = writer.add("Add", (every, start), (1, own.rows), dtype=_INDEX)
        places = every
    elif not places and own.batch == 1:
        before = writer.numbers(own.total - own.rows, own.rows)
        places = writer.reshape(before, (1, own.rows), _INDEX)
    elif not places:
        ends = integers(writer, node.inputs[_LENGTHS], (batch, 1))
        every = writer.numbers(1 - own.rows, own.rows)
        places = writer.add("Add", (ends, every), (batch, own.rows), dtype=_INDEX)
    caches = node.inputs[_COSINES], node.inputs[_SINES]
    interleaved = bool(scope.attr("rotary_interleaved", 0))
    return angles_at(writer, caches, places, (batch, own.rows, 1), interleaved=interleaved)


def _cached(writer: Writer, own: _Sizes, new: tuple[Rows, Rows]) -> list[Rows]:
    """The caches of keys and values with the new rows. Elements after the last row of a sequence
    are never read."""
    caches = [writer.node.input(place) for place in (_PAST_KEY, _PAST_VALUE)]
    pairs = list(zip(new, caches, strict=True))
    if own.is_prompt or not caches[0] or surely_equal(own.past, 0):
        if own.cache == own.rows:
            return [rows for rows, _ in pairs]
        return [_joined(writer, own, [rows.value, _rest(writer, own, old)]) for rows, old in pairs]
    if own.batch == 1:
        before = own.total - own.rows
        found = []
        for rows, old in pairs:
            parts = [_slice(writer, own, old, 0, before), rows.value]
            found.append(parts + [_rest(writer, own, old)] * (own.past > own.total))
        return [_joined(writer, own, parts) for parts in found]
    if own.rows == 1 and own.past >= own.total:
        return _replaced(writer, own, pairs)
    places = _places(writer, own)
    return [_placed(writer, own, rows, old, places) for rows, old in pairs]


def _replaced(writer: Writer, own: _Sizes, pairs: list[tuple[Rows, str]]) -> list[Rows]:
    """Caches that already have space: a Where writes the one new row of each sequence."""
    lengths = integers(writer, writer.node.inputs[_LENGTHS], (own.batch, 1, 1, 1))
    every = writer.reshape(writer.numbers(0, own.cache), (own.cache, 1), _INDEX)
    shape = (own.batch, 1, own.cache, 1)
    new = writer.add("Equal", (every, lengths), shape, dtype=_TRUTH)
    return [
        Rows(writer.add("Where", (new, rows.value, old), own.keys), own.keys) for rows, old in pairs
    ]


def _rest(writer: Writer, own: _Sizes, cache: str) -> str:
    """The rest of a cache, after all rows."""
    return _slice(writer, own, cache, own.total, own.past)


def _slice(writer: Writer, own: _Sizes, value: str, first: int, end: int) -> str:
    part = {"starts": (first,), "ends": (end,), "axes": (2,)}
    return writer.add("Slice", (value,), (*own.keys[:2], end - first, own.depth), part)


def _joined(writer: Writer, own: _Sizes, parts: list[str]) -> Rows:
    if len(parts) == 1:
        return Rows(parts[0], own.keys)
    return Rows(writer.add("Concat", tuple(parts), own.keys, {"axis": 2}), own.keys)


def _places(writer: Writer, own: _Sizes) -> str:
    """Row indices for each key head into its cache followed by the new rows, such that the new rows
    come after the last row of each sequence."""
    both = own.past + own.rows
    shape = (own.batch, own.cache)

    def add(op: str, *inputs: str, whole: Shape = shape, dtype: np.dtype = _INDEX) -> str:
        return writer.add(op, inputs, whole, dtype=dtype)

    row = (own.batch, 1)
    ends = add("Add", integers(writer, writer.node.inputs[_LENGTHS], row), _one(writer), whole=row)
    begins = add("Sub", ends, writer.numbers(own.rows, 1), whole=row)
    every = writer.numbers(0, own.cache)
    behind = add("GreaterOrEqual", every, begins, dtype=_TRUTH)
    new = add("And", behind, add("Less", every, ends, dtype=_TRUTH), dtype=_TRUTH)
    moved = add("Add", add("Sub", every, begins), writer.numbers(own.past, 1))
    old = add("Min", every, writer.numbers(both - 1, 1), whole=(own.cache,))
    places = add("Where", new, moved, old)
    count = own.batch * own.shared
    starts = writer.reshape(writer.numbers(0, count), (own.batch, own.shared, 1), _INDEX)
    starts = add("Mul", starts, writer.numbers(both, 1), whole=(own.batch, own.shared, 1))
    places = writer.reshape(places, (own.batch, 1, own.cache), _INDEX)
    return add("Add", starts, places, whole=own.keys[:3])


def _placed(writer: Writer, own: _Sizes, rows: Rows, cache: str, places: str) -> Rows:
    """A cache and the new rows, gathered by the indices of `_places`."""
    both = own.past + own.rows
    whole = (*own.keys[:2], both, own.depth)
    joined = writer.add("Concat", (cache, rows.value), whole, {"axis": 2})
    table = writer.reshape(joined, (own.batch * own.shared * both, own.depth))
    return Rows(writer.add("Gather", (table, places), own.keys, {"axis": 0}), own.keys)


def _one(writer: Writer) -> str:
    return writer.constant(1, _INDEX)


def _first(writer: Writer, rows: Rows, count: int) -> Rows:
    """The first ``count`` rows of a cache."""
    if surely_equal(rows.shape[2], count) or rows.shape[2] == count:
        return rows
    part = {"starts": (0,), "ends": (count,), "axes": (2,)}
    shape = (*rows.shape[:2], count, rows.shape[3])
    return Rows(writer.add("Slice", (rows.value,), shape, part), shape)


def _addends(writer: Writer, scope: Scope, own: _Sizes) -> list[str]:
    """The addends of the scores: -inf for masked keys, and the bias."""
    node, window = scope.node, scope.attr("local_window_size", -1)
    left = None if window <= 0 else window - 1
    causal = scope.attr("causal", 1)
    alone = own.is_prompt or own.batch == 1
    lengths = "" if alone else _counts(writer, own)
    limits = Window(left, 0 if causal else None, own.total - own.rows, lengths)
    masks = window_masks(writer, limits, own.rows, own.total)
    if not causal:
        masks.append(length_mask(writer, lengths or _counts(writer, own), own.total))
    added = [node.inputs[_ADDED]] if node.input(_ADDED) else []
    return [*added, *as_addend(writer, masks, computed_in(writer.dtype))]


def _counts(writer: Writer, own: _Sizes) -> str:
    """The number of keys of each sequence."""
    ends = integers(writer, writer.node.inputs[_LENGTHS], (own.batch,))
    return writer.add("Add", (ends, _one(writer)), (own.batch,), dtype=_INDEX)


OPERATORS: Mapping[str, Operator] = {
    f"{MICROSOFT}.GroupQueryAttention": Operator(
        _infer, expand=_expand, inputs=(1, 17), required=("num_heads", "kv_num_heads")
    ),
}
