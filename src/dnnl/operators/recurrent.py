"""Recurrent networks: each operator becomes one node of what the primitive has, its weights with
gates in the order of the primitive, and views of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dnnl.graph.graph import Array, Graph, ModelError, Node, Shape, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import same_shape
from dnnl.graph.writer import Writer
from dnnl.lowering.facts import Factors, Source, amount
from dnnl.lowering.graphs import FORWARD, Lowering
from dnnl.operators.operator import Operator, Role
from dnnl.operators.quantization import dequantized
from dnnl.operators.recurrent_functions import chosen
from dnnl.operators.recurrent_weights import Compressed, compressed, mask_of, written
from dnnl.operators.writing import gathered
from dnnl.primitives.rnn import RnnDesc
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known, surely_equal

RECURRENT = "dnnl.Recurrent"
"""What passes write: the sources X [T, N, I], initial_h [D, N, H], initial_c, lengths, W and R with
[D, inputs, gates, H], B [D, biases, H] and P [D, 3, H], and where W and R are bytes scales and zero
points of each, [1, D or 1, 1, gates or 1, H or 1]; the results Y [T, N, D H], Y_h and Y_c."""

_X, _W, _R, _B, _LENGTHS, _H, _C, _P = range(8)
STORED_WEIGHTS = ((4, 8, 9), (5, 10, 11))
"""The places of W and of R in what passes write, and of their scales and zero points."""


@dataclass(frozen=True)
class _Cell:
    """An operator: the gates of the primitive by their places in a file, and how many states."""

    alg: str
    order: tuple[int, ...]
    states: int = 1


_CELLS = {
    "RNN": _Cell("vanilla_rnn", (0,)),
    "GRU": _Cell("vanilla_gru", (0, 1, 2)),
    "LSTM": _Cell("vanilla_lstm", (0, 2, 3, 1), 2),
}
_PEEPHOLES = (0, 2, 1)  # i, f, o of i, o, f
_DIRECTIONS = {
    "forward": "unidirectional_left2right",
    "reverse": "unidirectional_right2left",
    "bidirectional": "bidirectional_concat",
}


def _direction(scope: Scope) -> str:
    name = _text(scope.attr("direction", b"forward"))
    if name not in _DIRECTIONS:
        raise ModelError(f"direction = {name!r} is none of {', '.join(_DIRECTIONS)}")
    return name


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _infer(scope: Scope) -> list[TensorType]:
    """Y [T, D, N, H] and the last states [D, N, H], with the batch first if ``layout`` is 1.

    Raises ModelError where sources have other shapes than these ask for, Unimplemented for a
    function that is unknown.
    """
    cell, x = _CELLS[scope.node.op], scope.shape()
    if len(x) != 3:
        raise ModelError(f"X has shape {x}; it must have three dimensions")
    first = scope.attr("layout", 0)
    steps, rows = (x[1], x[0]) if first else (x[0], x[1])
    directions = directions_of(scope)
    gates, hidden = len(cell.order), _hidden(scope)
    wanted = {
        _W: (directions, gates * hidden, x[2]),
        _R: (directions, gates * hidden, hidden),
        _B: (directions, 2 * gates * hidden),
        _LENGTHS: (rows,),
        _H: _batched((directions, rows, hidden), first),
        _C: _batched((directions, rows, hidden), first),
        _P: (directions, 3 * hidden),
    }
    for index, shape in wanted.items():
        if scope.node.input(index) and scope.shape(index) != shape:
            raise ModelError(f"input {index} has shape {scope.shape(index)}, not {shape}")
    chosen(scope, scope.node.op, directions)
    y = (rows, steps, directions, hidden) if first else (steps, directions, rows, hidden)
    kind = scope.type().dtype
    states = [TensorType(kind, _batched((directions, rows, hidden), first))] * cell.states
    return [TensorType(kind, y), *states][: len(scope.node.outputs)]


def _batched(shape: Shape, first: int) -> Shape:
    """The shape of states, with the batch first."""
    return (shape[1], shape[0], shape[2]) if first else shape


def _hidden(scope: Scope) -> int:
    """The number of channels of a state."""
    recurrence = scope.shape(_R)
    if len(recurrence) != 3 or not is_known(recurrence[2]):
        raise ModelError(f"R has shape {recurrence}; it must have three known dimensions")
    hidden = recurrence[2]
    if scope.attr("hidden_size", hidden) != hidden:
        raise ModelError(f"hidden_size = {scope.attr('hidden_size')} and R has {hidden} channels")
    return hidden


def directions_of(scope: Scope) -> int:
    """How many directions a layer has."""
    return 1 + (_direction(scope) == "bidirectional")


def _expand(writer: Writer) -> bool:
    """Weights that a DequantizeLinear makes of bytes were left for products of bytes, and these
    cells have those of floats, by bytes or not."""
    node, graph = writer.node, writer.graph
    w, r = (compressed(graph, value) or value for value in (node.inputs[_W], node.inputs[_R]))
    return write_layer(writer, node.op, _hidden(Scope(node, graph)), (w, r))


def write_layer(
    writer: Writer, op: str, hidden: int, factors: tuple[Compressed | str, Compressed | str]
) -> bool:
    """A layer of an operator ``op`` whose other sources are those of the node: sources as the
    primitive has them, and its results as the operator has them. ``factors`` are W and R, values
    [D, gates H, inputs] or bytes of this shape."""
    node, graph = writer.node, writer.graph
    scope, cell = Scope(node, graph), _CELLS[op]
    first = scope.attr("layout", 0)
    directions, gates = directions_of(scope), len(cell.order)
    x = _swapped(writer, node.inputs[_X], scope.shape()) if first else node.inputs[_X]
    steps, rows, inputs = scope.shape()
    if first:
        steps, rows = rows, steps
    states = [_states(writer, node.input(index), first) for index in (_H, _C)]
    lbr = op == "GRU" and scope.attr("linear_before_reset", 0)
    weights, parameters = list[str](), list[str]()
    for own, size in zip(factors, (inputs, hidden), strict=True):
        if isinstance(own, str):
            seen = (directions, gates, hidden, size)
            made = _rearranged(writer, own, seen, 1, cell.order, (0, 3, 1, 2)), "", ""
        else:
            made = written(writer, own, gates, cell.order)
        weights.append(made[0])
        parameters += made[1:]
    bias = _bias(writer, cell, (directions, 2, gates, hidden), lbr=bool(lbr))
    peephole = ""
    if node.input(_P):
        shape = (directions, 3, hidden)
        peephole = _rearranged(writer, node.input(_P), shape, 1, _PEEPHOLES, (0, 1, 2))
    functions = chosen(scope, op, directions)
    attrs = {
        "alg": "lbr_gru" if lbr else cell.alg,
        "direction": _DIRECTIONS[_direction(scope)],
        "activation": functions.activation,
        "alpha": functions.alpha,
        "functions": functions.functions,
    }
    sources = (x, *states, _lengths(scope, steps), *weights, bias, peephole, *parameters)
    y = writer.add(RECURRENT, sources, (steps, rows, directions * hidden), attrs)
    _name_states(writer, cell, (directions, rows, hidden), first)
    y = writer.reshape(y, (steps, rows, directions, hidden))
    perm = (1, 0, 2, 3) if first else (0, 2, 1, 3)
    result = tuple((steps, rows, directions, hidden)[axis] for axis in perm)
    writer.add("Transpose", (y,), result, {"perm": perm})
    return True


def _name_states(writer: Writer, cell: _Cell, shape: Shape, first: int) -> None:
    """The node just written has the last states too that the operator has; those of a batch that
    comes first are transposed."""
    made, outputs = writer.nodes[-1], writer.node.outputs
    names, moved = [made.output], list[tuple[int, str]]()
    for index in range(1, 1 + cell.states):
        public = outputs[index] if index < len(outputs) else ""
        if public and first:
            own = f"{made.output}{index}"
            writer.types[own] = TensorType(writer.dtype, shape)
            moved.append((index, own))
            public = own
        names.append(public)
    writer.nodes[-1] = Node(made.op, made.name, made.inputs, tuple(names), made.attrs)
    for index, own in moved:
        writer.show(_swapped(writer, own, shape), index)


def _swapped(writer: Writer, value: str, shape: Shape) -> str:
    """The value with its first two axes swapped."""
    attrs = {"perm": (1, 0, 2)}
    return writer.add("Transpose", (value,), (shape[1], shape[0], shape[2]), attrs)


def _states(writer: Writer, value: str, first: int) -> str:
    if not value or not first:
        return value
    return _swapped(writer, value, writer.graph.shape_of(value))


def _lengths(scope: Scope, steps: int) -> str:
    """The lengths of sequences, unless all are known to have all steps."""
    value = scope.node.input(_LENGTHS)
    known = scope.graph.constants.get(value)
    if known is not None and is_known(steps) and bool((known == steps).all()):
        return ""
    return value


def _known(graph: Graph, value: str) -> Array | None:
    """A constant, or what a DequantizeLinear makes of one."""
    if value in graph.constants:
        return graph.constants[value]
    made = next((node for node in graph.nodes if value in node.outputs), None)
    return None if made is None else dequantized(made, graph)


def _rearranged(
    writer: Writer,
    value: str,
    shape: Shape,
    axis: int,
    order: Sequence[int],
    perm: tuple[int, ...],
) -> str:
    """The value seen as ``shape``, with the slices along an axis in another order, and the axes
    permuted; a constant of a constant."""
    known = _known(writer.graph, value)
    if known is not None:
        return writer.constant(known.reshape(shape).take(order, axis).transpose(perm))
    value = writer.reshape(value, shape)
    if list(order) != sorted(order):
        value = gathered(writer, value, shape, axis, np.array(order))
    if perm == tuple(range(len(perm))):
        return value
    permuted = tuple(shape[axis] for axis in perm)
    return writer.add("Transpose", (value,), permuted, {"perm": perm})


def _bias(writer: Writer, cell: _Cell, shape: Shape, *, lbr: bool) -> str:
    """The sum of the biases of inputs and states [D, biases, H]; those of the last gate are two if
    the reset gate multiplies one of them."""
    value = writer.node.input(_B)
    if not value:
        return ""
    value = _rearranged(writer, value, shape, 2, cell.order, (0, 1, 2, 3))
    known = writer.constants.get(value)
    if known is not None:
        return writer.constant(_added(known, lbr=lbr))
    directions, _, gates, hidden = shape

    def part(source: str, axis: int, first: int, end: int, size: Shape) -> str:
        attrs = {"starts": (first,), "ends": (end,), "axes": (axis,), "steps": (1,)}
        return writer.add("Slice", (source,), size, attrs)

    whole, last = (directions, 1, gates, hidden), (directions, 1, 1, hidden)
    parts = [part(value, 1, index, index + 1, whole) for index in range(2)]
    total = writer.add("Add", tuple(parts), whole)
    if not lbr:
        return writer.reshape(total, (directions, gates, hidden))
    sums = part(total, 2, 0, gates - 1, (directions, 1, gates - 1, hidden))
    apart = [part(own, 2, gates - 1, gates, last) for own in parts]
    size = (directions, 1, gates + 1, hidden)
    joined = writer.add("Concat", (sums, *apart), size, {"axis": 2})
    return writer.reshape(joined, (directions, gates + 1, hidden))


def _added(parts: Array, *, lbr: bool) -> Array:
    """`_bias` of constants [D, 2, gates, H]."""
    total = parts[:, 0] + parts[:, 1]
    if not lbr:
        return np.asarray(total)
    return np.concatenate([total[:, :-1], parts[:, 0, -1:], parts[:, 1, -1:]], 1)


def _lower(lowering: Lowering, node: Node) -> None:
    """One layer of the primitive."""
    graph = lowering.graph

    def of_layer(place: int) -> Source | None:
        value = node.inputs[place]
        return lowering.source(value, (1, *graph.shape_of(value))) if value else None

    x = lowering.source(node.inputs[0])
    lengths = lowering.source(node.inputs[3]) if node.inputs[3] else None
    h, c, w, r, bias, peephole = map(of_layer, (1, 2, 4, 5, 6, 7))
    assert w is not None
    assert r is not None
    kind, steps, rows = x.desc.data_type, *graph.shape_of(node.inputs[0])[:2]
    _, directions, _, gates, hidden = w.desc.dims
    state = MemoryDesc((1, directions, rows, hidden), kind)
    factors = _factors(lowering, node)
    names = (*node.outputs, "")
    desc = RnnDesc.made(
        prop_kind=FORWARD,
        alg_kind=node.attrs["alg"],
        activation=node.attrs["activation"],
        direction=node.attrs["direction"],
        alpha=node.attrs["alpha"],
        functions=node.attrs["functions"],
        src_layer_desc=_contiguous(x),
        src_iter_desc=_plain(h),
        src_iter_c_desc=_plain(c),
        lengths_desc=_plain(lengths),
        weights_layer_desc=lowering.weights(w),
        weights_iter_desc=lowering.weights(r),
        weights_peephole_desc=_plain(peephole),
        bias_desc=_plain(bias),
        dst_layer_desc=MemoryDesc((steps, rows, directions * hidden), kind),
        dst_iter_desc=state if names[1] else None,
        dst_iter_c_desc=state if names[2] else None,
    )
    given = {
        Arg.SRC_LAYER: x, Arg.SRC_ITER: h, Arg.SRC_ITER_C: c, Arg.SEQUENCE_LENGTHS: lengths,
        Arg.WEIGHTS_LAYER: w, Arg.WEIGHTS_ITER: r, Arg.WEIGHTS_PEEPHOLE: peephole, Arg.BIAS: bias,
    }  # fmt: skip
    sources: dict[int, Source] = {
        argument: source for argument, source in given.items() if source is not None
    }
    further = {Arg.DST_ITER: names[1], Arg.DST_ITER_C: names[2]}
    inputs = w.desc.dims[2] + hidden
    flops = 2.0 * amount((steps, rows, directions, gates, hidden, inputs))
    result = lowering.emit(
        node, desc, sources, flops, factors,
        further={a: value for a, value in further.items() if value},
    )  # fmt: skip
    lowering.define(node.output, result)


def _factors(lowering: Lowering, node: Node) -> list[Factors]:
    """The scales and zero points of weights that are bytes."""
    flags, made = (Arg.SCALES, Arg.ZERO_POINTS), list[Factors]()
    places = ((argument, flag) for argument in (Arg.WEIGHTS_LAYER, Arg.WEIGHTS_ITER)
              for flag in flags)  # fmt: skip
    for (argument, flag), value in zip(places, node.inputs[_P + 1 :], strict=True):
        if value:
            values = lowering.source(value)
            made.append(Factors(flag, argument, mask_of(values.desc.dims), values))
    return made


def _plain(source: Source | None) -> MemoryDesc | None:
    return None if source is None else MemoryDesc(source.desc.dims, source.desc.data_type)


def _contiguous(source: Source) -> MemoryDesc:
    """As it is stored, if its channels are side by side."""
    own = source.desc
    plain = MemoryDesc(own.dims, own.data_type)
    fits = not own.inner_blocks and not source.constant and surely_equal(own.strides[-1], 1)
    return own if fits and same_shape(own.padded_dims, own.dims) else plain


_OPERATOR = {
    name: Operator(_infer, expand=_expand, inputs=(3, 8 if name == "LSTM" else 6), role=Role.EXACT)
    for name in _CELLS
}
OPERATORS: Mapping[str, Operator] = _OPERATOR
MADE: Mapping[str, Operator] = {
    RECURRENT: Operator(_infer, lower=_lower, inputs=(12, 12), role=Role.EXACT)
}
