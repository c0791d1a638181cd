"""Operators with a recurrent state: CausalConvWithState and LinearAttention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import REAL, ModelError, Shape, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.writer import Writer
from dnnl.operators.activations import swish
from dnnl.operators.attention import is_shown
from dnnl.operators.microsoft import MICROSOFT, check_known
from dnnl.operators.operator import Operator
from dnnl.operators.scaled_dot_product import heads_of, positions
from dnnl.types.size import surely_equal

_F32, _TRUTH = np.dtype(np.float32), np.dtype(np.bool_)
_UNUSED = {
    "channels_last": 0,
    "input_channel_offset": 0,
    "input_channels": 0,
    "ndim": 1,
    "state_channels_last": -1,
    "state_length": 0,
    "state_update_capacity": 0,
    "state_window": 0,
}
"""Attributes of ONNX Runtime's forms, each with its only supported value."""


def _check_floats(scope: Scope) -> None:
    if scope.type().dtype not in REAL:
        rule = f"{scope.type().dtype} is not computed; Cast makes f32 of it"
        raise Unimplemented(f"{scope.node}: {rule}")


def _check_attributes(scope: Scope, *known: str) -> None:
    check_known(scope, *known, *_UNUSED)
    for name, value in _UNUSED.items():
        if scope.attr(name, value) != value:
            raise Unimplemented(f"{scope.node}: {name} = {scope.attr(name)}: only {value}")


def _infer_convolution(scope: Scope) -> list[TensorType]:
    """[batch, channels, length], and the state [batch, channels, (taps - 1) * dilation]."""
    _check_attributes(scope, "activation", "dilation")
    _check_floats(scope)
    shape, weights = scope.shape(), scope.shape(1)
    if len(shape) != 3 or len(weights) != 3 or weights[:2] != (shape[1], 1):
        raise ModelError(f"source {shape} and weights {weights} are no depthwise convolution")
    if scope.node.input(2) and scope.shape(2) != (shape[1],):
        raise ModelError(f"bias {scope.shape(2)} has not one value for each of {shape[1]}")
    name = scope.attr("activation", b"none")
    if name not in (b"none", b"silu", b"swish"):
        raise Unimplemented(f"{scope.node}: activation {name.decode()!r}: none, silu or swish")
    before = (weights[2] - 1) * scope.attr("dilation", 1)
    state = (*shape[:2], before)
    if scope.node.input(3) and scope.shape(3) != state:
        raise ModelError(f"past_state {scope.shape(3)} is not {state}")
    kinds = [*scope.result(shape), *scope.result(state)]
    return kinds[: len(scope.node.outputs)]


def _expand_convolution(writer: Writer) -> bool:
    """A depthwise convolution of the source, preceded by the state or by zeros."""
    node, shape = writer.node, writer.shape_of(writer.node.output)
    scope = Scope(node, writer.graph)
    taps, dilation = writer.shape_of(node.inputs[1])[2], scope.attr("dilation", 1)
    before = (taps - 1) * dilation
    source, longer, padded = node.inputs[0], (*shape[:2], before + shape[2]), before
    if node.input(3) and before:
        source = writer.add("Concat", (node.inputs[3], source), longer, {"axis": 2})
        padded = 0
    if is_shown(writer, 1):
        _show_state(writer, source, before)
    attrs = {"group": shape[1], "kernel_shape": (taps,), "dilations": (dilation,)}
    inputs = (source, *filter(None, node.inputs[1:3]))
    value = writer.add("Conv", inputs, shape, {**attrs, "pads": (padded, 0), "strides": (1,)})
    if scope.attr("activation", b"none") != b"none":
        swish(writer, value)
    return True


def _show_state(writer: Writer, source: str, before: int) -> None:
    """Make the last ``before`` elements of each channel result 1, padded with zeros in front."""
    shape = writer.shape_of(source)
    length, state = shape[2], (*shape[:2], before)
    if not before:
        writer.show(writer.add("Identity", (writer.constant(np.zeros(state)),), state), 1)
    elif length < before:
        zeros = writer.filled(0, (*shape[:2], before - length))
        writer.show(writer.add("Concat", (zeros, source), state, {"axis": 2}), 1)
    else:
        part = {"starts": (length - before,), "ends": (length,), "axes": (2,)}
        last = writer.add("Slice", (source,), state, part)
        writer.show(writer.reshape(last, state), 1)


_STATE, _DECAY, _BETA = 3, 4, 5
_RULES: Mapping[bytes, tuple[bool, bool]] = {
    b"linear": (False, False),
    b"gated": (True, False),
    b"delta": (False, True),
    b"gated_delta": (True, True),
}
"""By update rule: whether it has decays, and whether it has a delta correction."""
_MOST_STEPS = 64
"""The maximum number of tokens for rules that are unrolled."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    batch: int
    rows: int
    heads: int
    shared: int
    depth: int
    width: int

    @property
    def state(self) -> Shape:
        return (self.batch, self.shared, self.depth, self.width)

    @property
    def groups(self) -> int:
        return self.heads // self.shared


def _sizes(scope: Scope) -> _Sizes:
    heads, shared = scope.attr("q_num_heads"), scope.attr("kv_num_heads")
    query, key, value = (scope.shape(place) for place in range(3))
    if heads < 1 or shared < 1 or heads % shared:
        raise Unimplemented(f"{scope.node}: {heads} heads of queries, {shared} of keys: a multiple")
    fits = len(query) == len(key) == len(value) == 3 and query[:2] == key[:2] == value[:2]
    if not fits or query[2] % heads or value[2] % shared:
        raise ModelError(f"queries {query}, keys {key} and values {value} do not fit")
    depth, width = query[2] // heads, value[2] // shared
    if key[2] != shared * depth:
        raise ModelError(f"keys {key} have not {shared} heads of {depth}")
    return _Sizes(query[0], query[1], heads, shared, depth, width)


def _infer_attention(scope: Scope) -> list[TensorType]:
    """[batch, rows, heads * value size] and the state [batch, key heads, key size, value size]."""
    _check_attributes(scope, "chunk_size", "kv_num_heads", "q_num_heads", "scale", "update_rule")
    _check_floats(scope)
    node, own = scope.node, _sizes(scope)
    rule = scope.attr("update_rule", b"gated_delta")
    if rule not in _RULES:
        raise ModelError(f"attribute 'update_rule' = {rule.decode()!r} is no rule")
    for place, name, needed in zip((_DECAY, _BETA), ("decay", "beta"), _RULES[rule], strict=True):
        if bool(node.input(place)) != needed:
            verb = "needs" if needed else "takes no"
            raise ModelError(f"update_rule {rule.decode()!r} {verb} {name}")
    rows = (own.batch, own.rows)
    if node.input(_DECAY) and scope.shape(_DECAY) not in (
        (*rows, own.shared),
        (*rows, own.shared * own.depth),
    ):
        raise ModelError(f"decay {scope.shape(_DECAY)} has no number for each of {own.shared}")
    if node.input(_BETA) and scope.shape(_BETA) not in ((*rows, own.shared), (*rows, 1)):
        raise ModelError(f"beta {scope.shape(_BETA)} has no number for each of {own.shared}")
    state = scope.type().dtype
    if node.input(_STATE):
        state = scope.type(_STATE).dtype
        if scope.shape(_STATE) != own.state:
            raise ModelError(f"past_state {scope.shape(_STATE)} is not {own.state}")
    if not _is_product(scope, own) and own.rows > _MOST_STEPS:
        reason = f"at most {_MOST_STEPS} rows at once; run it on parts of the sequence, by states"
        raise Unimplemented(f"{node}: {own.rows} rows by update_rule {rule.decode()!r}: {reason}")
    result = (*rows, own.heads * own.width)
    kinds = [TensorType(scope.type().dtype, result), TensorType(state, own.state)]
    return kinds[: len(node.outputs)]


def _is_product(scope: Scope, own: _Sizes) -> bool:
    """Whether all rows are computed in parallel, as products with a lower triangular matrix."""
    decays, subtracts = _RULES[scope.attr("update_rule", b"gated_delta")]
    single = not decays or scope.shape(_DECAY)[2] == own.shared
    return single and not subtracts and own.rows != 1


def _expand_attention(writer: Writer) -> bool:
    """Products or unrolled steps, accumulated in f32."""
    node = writer.node
    scope = Scope(node, writer.graph)
    own = _sizes(scope)
    counts = own.heads, own.shared, own.shared
    query, key, value = (
        _wide(writer, heads_of(writer, name, count).value)
        for name, count in zip(node.inputs, counts, strict=False)
    )
    query = _factor(writer, query, scope.attr("scale", 0.0) or own.depth**-0.5)
    decay = _per_head(writer, node.input(_DECAY), own)
    beta = _per_head(writer, node.input(_BETA), own)
    state = _wide(writer, node.inputs[_STATE]) if node.input(_STATE) else ""
    if _is_product(scope, own):
        result, state = _at_once(writer, own, (query, key, value), decay, state)
    else:
        result, state = _row_by_row(writer, own, (query, key, value), (decay, beta), state)
    if is_shown(writer, 1):
        _show(writer, state, 1)
    whole = writer.type_of(node.output)
    transposed = (own.batch, own.rows, own.heads, own.width)
    result = writer.add("Transpose", (result,), transposed, {"perm": (0, 2, 1, 3)}, _F32)
    result = writer.reshape(result, whole.sizes, _F32)
    if whole.dtype != _F32:
        writer.add("Cast", (result,), whole.sizes, {"to": whole.dtype}, whole.dtype)
    return True


def _wide(writer: Writer, value: str) -> str:
    kind = writer.type_of(value)
    if kind.dtype == _F32:
        return value
    return writer.add("Cast", (value,), kind.sizes, {"to": _F32}, _F32)


def _factor(writer: Writer, value: str, factor: float) -> str:
    shape = writer.shape_of(value)
    return writer.add("Mul", (value, writer.constant(factor, _F32)), shape, dtype=_F32)


def _per_head(writer: Writer, value: str, own: _Sizes) -> str:
    """[batch, rows, heads * n] as [batch, heads, rows, n] in f32; "" for an absent input."""
    if not value:
        return ""
    width = writer.shape_of(value)[2]
    count = own.shared if surely_equal(width % own.shared, 0) else 1
    return _wide(writer, heads_of(writer, value, count).value)


def _show(writer: Writer, value: str, index: int) -> None:
    kind = writer.type_of(writer.node.outputs[index])
    if kind.dtype != _F32:
        value = writer.add("Cast", (value,), kind.sizes, {"to": kind.dtype}, kind.dtype)
    writer.show(writer.reshape(value, kind.sizes, kind.dtype), index)


def _add(writer: Writer, op: str, shape: Shape, *inputs: str, **attrs: object) -> str:
    return writer.add(op, inputs, shape, attrs, _F32)


def _transposed(writer: Writer, value: str) -> str:
    """``value`` with its last two axes exchanged."""
    *outer, rows, columns = writer.shape_of(value)
    rank = len(outer)
    shape = (*outer, columns, rows)
    return _add(writer, "Transpose", shape, value, perm=(*range(rank), rank + 1, rank))


def _at_once(
    writer: Writer, own: _Sizes, heads: tuple[str, str, str], decay: str, state: str
) -> tuple[str, str]:
    """The parallel form: (Q K^T * decays) V, plus the contribution of the state; and the new
    state."""
    query, key, value = heads
    outer = (own.batch, own.shared)
    grouped, single = (*outer, own.groups), (*outer, 1)
    rows = own.rows

    def seen(value: str, shape: Shape) -> str:
        return writer.reshape(value, shape, _F32)

    query = seen(query, (*grouped, rows, own.depth))
    keys = seen(key, (*single, rows, own.depth))
    values = seen(value, (*single, rows, own.width))
    columns = positions(writer, 0, rows, down=False)
    below = writer.add(
        "LessOrEqual", (columns, positions(writer, 0, rows, down=True)), (rows, rows), dtype=_TRUTH
    )
    ends = writer.constant(0, _F32), writer.constant(1, _F32)
    square = (*grouped, rows, rows)
    products = _add(writer, "MatMul", square, query, _transposed(writer, keys))
    triangle = writer.add("Where", (below, ends[1], ends[0]), (rows, rows), dtype=_F32)
    sums = ""
    if decay:
        column = (*outer, rows, 1)
        sums = _add(writer, "MatMul", column, triangle, decay)
        whole = (*outer, rows, rows)
        between = _add(writer, "Sub", whole, sums, _transposed(writer, sums))
        excluded = writer.constant(-np.inf, _F32)
        between = writer.add("Where", (below, between, excluded), whole, dtype=_F32)
        factors = seen(_add(writer, "Exp", whole, between), (*single, rows, rows))
        products = _add(writer, "Mul", square, products, factors)
    else:
        products = _add(writer, "Mul", square, products, triangle)
    result = _add(writer, "MatMul", (*grouped, rows, own.width), products, values)
    if state:
        result = _add(
            writer,
            "Add",
            (*grouped, rows, own.width),
            result,
            _of_state(writer, own, query, sums, state),
        )
    result = seen(result, (own.batch, own.heads, rows, own.width))
    return result, _last_state(writer, own, (key, value), sums, state)


def _of_state(writer: Writer, own: _Sizes, query: str, sums: str, state: str) -> str:
    """The contribution of the initial state to each row."""
    outer = (own.batch, own.shared)
    shape = (*outer, own.groups, own.rows, own.width)
    seen = writer.reshape(state, (*outer, 1, own.depth, own.width), _F32)
    found = _add(writer, "MatMul", shape, query, seen)
    if not sums:
        return found
    factors = _add(writer, "Exp", (*outer, own.rows, 1), sums)
    factors = writer.reshape(factors, (*outer, 1, own.rows, 1), _F32)
    return _add(writer, "Mul", shape, found, factors)


def _last_state(writer: Writer, own: _Sizes, pair: tuple[str, str], sums: str, state: str) -> str:
    key, value = pair
    outer = (own.batch, own.shared)
    if sums:
        part = {"starts": (own.rows - 1,), "ends": (own.rows,), "axes": (2,)}
        last = writer.add("Slice", (sums,), (*outer, 1, 1), part, _F32)
        rest = _add(writer, "Sub", (*outer, own.rows, 1), last, sums)
        factors = _add(writer, "Exp", (*outer, own.rows, 1), rest)
        key = _add(writer, "Mul", (*outer, own.rows, own.depth), key, factors)
        if state:
            state = _add(writer, "Mul", own.state, state, _add(writer, "Exp", (*outer, 1, 1), last))
    found = _add(writer, "MatMul", own.state, _transposed(writer, key), value)
    return _add(writer, "Add", own.state, found, state) if state else found


def _row_by_row(
    writer: Writer,
    own: _Sizes,
    heads: tuple[str, str, str],
    gates: tuple[str, str],
    state: str,
) -> tuple[str, str]:
    """The recurrent form, unrolled for a known number of rows."""
    outer, results = (own.batch, own.shared), []
    query, key, value = heads
    seen = writer.reshape(query, (*outer, own.groups, own.rows, own.depth), _F32)
    for row in range(int(own.rows)):

        def taken(source: str, axis: int = 2, row: int = row) -> str:
            shape = writer.shape_of(source)
            if surely_equal(shape[axis], 1):
                return source
            part = {"starts": (row,), "ends": (row + 1,), "axes": (axis,)}
            one = (*shape[:axis], 1, *shape[axis + 1 :])
            return writer.add("Slice", (source,), one, part, _F32)

        keys = taken(key)
        state = _next(writer, own, keys, taken(value), [g and taken(g) for g in gates], state)
        queries = writer.reshape(taken(seen, 3), (*outer, own.groups, own.depth), _F32)
        found = _add(writer, "MatMul", (*outer, own.groups, own.width), queries, state)
        results.append(writer.reshape(found, (own.batch, own.heads, 1, own.width), _F32))
    if len(results) == 1:
        return results[0], state
    shape = (own.batch, own.heads, own.rows, own.width)
    return _add(writer, "Concat", shape, *results, axis=2), state


def _next(writer: Writer, own: _Sizes, key: str, value: str, gates: list[str], state: str) -> str:
    """The state after one more row, of keys and values [batch, heads, 1, size]."""
    decay, beta = gates
    row = (own.batch, own.shared, 1, own.width)
    if state and decay:
        factors = _add(writer, "Exp", writer.shape_of(decay), decay)
        factors = _transposed(writer, factors)
        state = _add(writer, "Mul", own.state, state, factors)
    if beta:
        if state:
            found = _add(writer, "MatMul", row, key, state)
            value = _add(writer, "Sub", row, value, found)
        value = _add(writer, "Mul", row, value, beta)
    found = _add(writer, "MatMul", own.state, _transposed(writer, key), value)
    return _add(writer, "Add", own.state, found, state) if state else found


_CONVOLUTION = Operator(_infer_convolution, expand=_expand_convolution, inputs=(2, 4))
_ATTENTION = Operator(
    _infer_attention,
    expand=_expand_attention,
    inputs=(3, 6),
    required=("q_num_heads", "kv_num_heads"),
)
OPERATORS: Mapping[str, Operator] = {
    "CausalConvWithState": _CONVOLUTION,
    "LinearAttention": _ATTENTION,
    f"{MICROSOFT}.CausalConvWithState": _CONVOLUTION,
    f"{MICROSOFT}.LinearAttention": _ATTENTION,
}
