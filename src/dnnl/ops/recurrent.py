"""Recurrent networks with PyTorch's arguments: a primitive for each layer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.ops.arrays import Array, Result, data_type_of
from dnnl.ops.device import taken
from dnnl.ops.place import HOST
from dnnl.primitives.open_desc import numbers_of
from dnnl.primitives.parameters import Name, Whole
from dnnl.primitives.primitive import Primitive
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.primitives.reorder import ReorderDesc
from dnnl.primitives.rnn import RnnDesc
from dnnl.runtime.engine import first_cpu
from dnnl.runtime.launch import Launch
from dnnl.runtime.storage import allocate, allocating
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import RUNTIME_DIM
from dnnl.types.layout_input import read_bool, read_sequence
from dnnl.types.memory_desc import MemoryDesc

Pair: TypeAlias = tuple[ArrayLike, ArrayLike] | Sequence[ArrayLike]
_LBR_GRU = "lbr_gru"
_FLOATS = (DataType.f32, DataType.bf16, DataType.f16)
_WEIGHTS = {Arg.WEIGHTS_LAYER: 0, Arg.WEIGHTS_ITER: 1, Arg.WEIGHTS_PROJECTION: -1}
"""Where the weights of a direction have each of the primitive's."""


@dataclass(frozen=True)
class _Cell:
    """A kind of cells: its gates in PyTorch's order, and how many states there are."""

    alg: str
    gates: str
    states: int = 1
    activation: str | None = None


_LSTM = _Cell("vanilla_lstm", "ifco", 2)
_GRU = _Cell(_LBR_GRU, "ruo")
_RNN = {
    "tanh": _Cell("vanilla_rnn", "h", activation="eltwise_tanh"),
    "relu": _Cell("vanilla_rnn", "h", activation="eltwise_relu"),
}


@dataclass(frozen=True)
class _Layer:
    """What a layer computes: its channels and those of its source and states, and what there is
    besides."""

    cell: _Cell
    inputs: int
    hidden: int
    outputs: int
    directions: int
    kind: DataType
    batch_first: bool
    biases: bool
    states: bool
    projects: bool


_Packs: TypeAlias = dict[int, tuple[Primitive, int]]
"""The reorder of each weights by their argument, and their bytes."""


@allocating
def lstm(
    x: ArrayLike,
    hx: Pair | None,
    params: Sequence[ArrayLike],
    has_biases: bool = True,
    num_layers: int = 1,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> tuple[Result, tuple[Result, Result]]:
    """What ``torch.nn.LSTM`` gives in evaluation: output, (h_n, c_n).

    ``x`` is [T, N, I], [N, T, I] with ``batch_first``, or [T, I]; ``hx`` is the pair of first
    states (h_0, c_0), each [layers * directions, N, H], or None for zeros. ``params`` are the
    weights as PyTorch has them, for each layer and each of its directions: w_ih [4 H, inputs],
    w_hh [4 H, H], and with ``has_biases`` b_ih [4 H] and b_hh [4 H]. The gates are i, f, g, o. With
    a projection to P channels, which PyTorch calls proj_size, w_hr [P, H] is behind those of each;
    then h, the output and the last axis of w_hh have P channels for H.

    Each call brings the weights into blocks; a primitive (`dnnl.LstmDesc`) takes them so.

    >>> x = np.ones((2, 1, 1), np.float32)
    >>> output, (h, c) = lstm(x, None, [np.zeros((4, 1))] * 2, has_biases=False)
    >>> output.shape, h.shape
    ((2, 1, 1), (1, 1, 1))
    """
    states = [] if hx is None else read_sequence("hx", hx, "expected a pair of states, or None")
    if len(states) not in (0, 2):
        raise InvalidArguments("hx", f"{len(states)} states", "expected a pair, (h_0, c_0)")
    given = x, states, params, has_biases, num_layers, bidirectional, batch_first
    output, h, c = _run(_LSTM, *given)
    return output, (h, c)


@allocating
def gru(
    x: ArrayLike,
    hx: ArrayLike | None,
    params: Sequence[ArrayLike],
    has_biases: bool = True,
    num_layers: int = 1,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> tuple[Result, Result]:
    """What ``torch.nn.GRU`` gives in evaluation: output, h_n.

    Arguments are those of `lstm`, but for ``hx``, which is h_0 alone; weights have three gates,
    r, z, n.

    >>> gru(np.ones((2, 1, 1), np.float32), None, [np.zeros((3, 1))] * 2, has_biases=False)[1]
    array([[[0.]]], dtype=float32)
    """
    states = [] if hx is None else [hx]
    given = x, states, params, has_biases, num_layers, bidirectional, batch_first
    output, h = _run(_GRU, *given)
    return output, h


@allocating
def rnn(
    x: ArrayLike,
    hx: ArrayLike | None,
    params: Sequence[ArrayLike],
    has_biases: bool = True,
    num_layers: int = 1,
    bidirectional: bool = False,
    batch_first: bool = False,
    nonlinearity: str = "tanh",
) -> tuple[Result, Result]:
    """What ``torch.nn.RNN`` gives in evaluation: output, h_n.

    Arguments are those of `gru`; weights have one gate, whose function ``nonlinearity`` is "tanh"
    or "relu".

    >>> x = np.ones((1, 1, 1), np.float32)
    >>> rnn(x, None, [np.ones((1, 1))] * 2, has_biases=False, nonlinearity="relu")[0]
    array([[[1.]]], dtype=float32)
    """
    cell = _RNN[Name(tuple(_RNN)).read("nonlinearity", nonlinearity, 0)]
    states = [] if hx is None else [hx]
    given = x, states, params, has_biases, num_layers, bidirectional, batch_first
    output, h = _run(cell, *given)
    return output, h


def _run(
    cell: _Cell,
    x: ArrayLike,
    states: Sequence[ArrayLike],
    params: Sequence[ArrayLike],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> list[Result]:
    """The output and the last states, of the kind of x."""
    layers = Whole(1).read("num_layers", num_layers, 0)
    biases, first = read_bool("has_biases", has_biases), read_bool("batch_first", batch_first)
    directions = 1 + read_bool("bidirectional", bidirectional)
    given = read_sequence("params", params, "expected the weights as a sequence of arrays")
    names = ["x", *(f"hx[{n}]" for n in range(len(states)))]
    names += [f"params[{n}]" for n in range(len(given))]
    place, (source, *others) = taken([x, *states, *given], names)
    if place is not HOST:
        raise Unimplemented("recurrent networks are computed on the processor: devices repeat no "
                            "phases")  # fmt: skip
    source, flat = _batched(source, first=first)
    for name, array in zip(names[1:], others, strict=True):
        data_type_of(array.dtype, name)  # complex numbers would lose a part
    others = [np.ascontiguousarray(np.asarray(array, source.dtype)) for array in others]
    held, weights = others[: len(states)], others[len(states) :]
    if flat:
        held = [array[:, None] for array in held]
    parts = _divided(cell, weights, layers * directions, source.shape[2], biases, directions)
    rows = source.shape[0 if first else 1]
    shapes = [(layers * directions, rows, channels) for channels in _channels(parts[0])]
    for number, (array, wanted) in enumerate(zip(held, shapes, strict=False)):
        if array.shape != wanted:
            raise InvalidArguments(f"hx[{number}]", array.shape, f"expected the shape {wanted}")
    lasts = [np.empty(shape, source.dtype) for shape in shapes[: cell.states]]
    for layer in range(layers):
        own = slice(layer * directions, (layer + 1) * directions)
        firsts = [array[own] for array in held]
        ends = [array[own] for array in lasts]
        source = _layer(cell, source, firsts, parts[own], ends, first=first, biases=biases)
    if flat:
        source, lasts = source[:, 0], [array[:, 0] for array in lasts]
    return [HOST.returned(array, [x], None) for array in (source, *lasts)]


def _batched(source: Array, *, first: bool) -> tuple[Array, bool]:
    """The source with a batch, and whether it had none."""
    if source.ndim not in (2, 3):
        raise InvalidArguments("x", source.shape, "expected 3 dimensions, or 2 without a batch")
    if data_type_of(source.dtype, "x") not in _FLOATS:
        rule = f"cells compute {', '.join(map(str, _FLOATS))}"
        raise InvalidArguments("x", str(source.dtype), rule, "convert it to f32")
    source = np.ascontiguousarray(source)
    if source.ndim == 3:
        return source, False
    return (source[None] if first else source[:, None]), True


def _divided(
    cell: _Cell,
    weights: Sequence[Array],
    count: int,
    inputs: int,
    biases: bool,
    directions: int,
) -> list[Sequence[Array]]:
    """The weights of each layer and direction, whose shapes agree."""
    each = 4 if biases else 2
    projects = cell.states > 1 and len(weights) == (each + 1) * count
    if not projects and len(weights) != each * count:
        further = f", or {each + 1} with a projection" if cell.states > 1 else ""
        rule = f"expected {each} for each of {count} layers and directions{further}"
        raise InvalidArguments("params", f"{len(weights)} arrays", rule)
    each += projects
    parts = [weights[each * n : each * (n + 1)] for n in range(count)]
    place = each - 1 if projects else 1  # of what has H channels along its last axis
    if parts[0][place].ndim != 2:
        rule = "expected two dimensions"
        raise InvalidArguments(f"params[{place}]", parts[0][place].shape, rule)
    outputs, hidden = _channels(parts[0])
    rows = len(cell.gates) * hidden
    shapes = [(rows, inputs), (rows, outputs), *[(rows,)] * (2 * biases), (outputs, hidden)]
    for number, array in enumerate(weights):
        wanted = shapes[number % each]
        if number % each == 0 and number // each >= directions:
            wanted = rows, directions * outputs
        if array.shape != wanted:
            raise InvalidArguments(f"params[{number}]", array.shape, f"expected the shape {wanted}")
    return parts


def _channels(own: Sequence[Array]) -> tuple[int, int]:
    """The channels of the output and of the cells, by the weights of a direction."""
    return own[-1].shape if _projects(own) else (own[1].shape[1],) * 2


def _projects(own: Sequence[Array]) -> bool:
    """Whether the weights of a direction have those of a projection behind them."""
    return len(own) % 2 == 1


def _layer(
    cell: _Cell,
    source: Array,
    firsts: Sequence[Array],
    parts: Sequence[Sequence[Array]],
    ends: Sequence[Array],
    *,
    first: bool,
    biases: bool,
) -> Array:
    """The results of a layer; ``ends`` become its last states."""
    (outputs, hidden), directions = _channels(parts[0]), len(parts)
    rows, steps = source.shape[:2] if first else (source.shape[1], source.shape[0])
    kind = data_type_of(source.dtype, "x")
    layer = _Layer(
        cell, source.shape[2], hidden, outputs, directions, kind, first, biases, bool(firsts),
        _projects(parts[0]),
    )  # fmt: skip
    packs, launch = _prepared(layer, steps, rows)
    output = np.empty((*source.shape[:2], directions * outputs), source.dtype)
    held: dict[int, Array] = {Arg.SRC_LAYER: source, Arg.DST_LAYER: output}
    held |= dict(zip((Arg.SRC_ITER, Arg.SRC_ITER_C), firsts, strict=False))
    held |= dict(zip((Arg.DST_ITER, Arg.DST_ITER_C), ends, strict=False))
    for argument, place in _WEIGHTS.items():
        if argument not in packs:
            continue
        pack, nbytes = packs[argument]
        held[argument] = allocate(nbytes)
        given = _joined([own[place] for own in parts])
        pair: dict[int, Array] = {Arg.FROM: given, Arg.TO: held[argument]}
        addresses = [HOST.argument(pair[own]) for own in pack.arguments]
        HOST.submitted(pack.execute_at(HOST.stream(), addresses))
    if biases:
        held[Arg.BIAS] = _biases(cell, parts)
    _execute(launch, held)
    return output


class _Idle(threading.local):
    """Temporary memory of the calling thread that no call is using."""

    data: Array | None = None


_idle = _Idle()


def _execute(launch: Launch, held: dict[int, Array]) -> None:
    data, _idle.data = _idle.data, None  # so that who calls in between takes another
    if data is None or data.size < launch.scratchpad_size:
        data = allocate(launch.scratchpad_size)
    held[Arg.SCRATCHPAD] = data
    addresses = [HOST.argument(held[argument]) for argument in launch.order]
    if launch.sizes is not None:
        addresses.append(launch.sizes.argument)
    stream = HOST.stream()
    HOST.submitted(launch.on(stream)(addresses, stream.num_threads))
    _idle.data = data


def _joined(own: Sequence[Array]) -> Array:
    """The weights of all directions, one behind the other; without a copy where there is one."""
    return own[0] if len(own) == 1 else np.stack(own)


def _biases(cell: _Cell, parts: Sequence[Sequence[Array]]) -> Array:
    """Sums of both biases [directions, biases, H]; of a GRU those of the last gate are apart."""
    made = []
    for own in parts:
        pair = (np.asarray(b, np.float32).reshape(len(cell.gates), -1) for b in own[2:4])
        first, second = pair
        total = first + second
        if cell.alg == _LBR_GRU:
            total = np.concatenate([total[:2], first[2:], second[2:]])
        made.append(total)
    return np.stack(made)


@lru_cache(1024)
def _prepared(layer: _Layer, steps: int, rows: int) -> tuple[_Packs, Launch]:
    """The reorders of weights, and the execution of a layer on so many steps and rows."""
    (primitive, packs), known = _primitives(layer), _described(layer, steps, rows)
    descs = {
        argument: known.desc_of(argument) if pattern.has_runtime_values else pattern
        for argument, pattern in primitive.pd.patterns.items()
    }
    return packs, primitive.launch(numbers_of(tuple(descs.values())), lambda: descs)


@lru_cache(256)
def _primitives(layer: _Layer) -> tuple[Primitive, _Packs]:
    """The primitive of a layer for any steps and rows, and the reorder of each of its weights."""
    attr = PrimitiveAttr(scratchpad_mode="user")
    pd = PrimitiveDesc(_described(layer, RUNTIME_DIM, RUNTIME_DIM), first_cpu(), attr)
    packs: _Packs = {}
    for argument in _WEIGHTS:
        wanted = pd.arg_desc(argument)
        if not wanted.is_zero:
            given = MemoryDesc(wanted.dims, layer.kind, "abdec" if wanted.ndims == 5 else "abdc")
            reorder = ReorderDesc(given, wanted)
            packs[argument] = Primitive(PrimitiveDesc(reorder, first_cpu())), wanted.size
    return Primitive(pd), packs


def _described(layer: _Layer, steps: int, rows: int) -> RnnDesc:
    cell, kind, d, hidden = layer.cell, layer.kind, layer.directions, layer.hidden
    outputs, gates = layer.outputs, len(cell.gates)
    state = MemoryDesc((1, d, rows, outputs), kind, "abcd")
    cells = MemoryDesc((1, d, rows, hidden), kind, "abcd") if cell.states > 1 else None

    def of_steps(channels: int) -> MemoryDesc:
        return MemoryDesc((steps, rows, channels), kind, "bac" if layer.batch_first else "abc")

    def weights(inputs: int) -> MemoryDesc:
        return MemoryDesc((1, d, inputs, gates, hidden), kind, "any")

    biases = gates + (cell.alg == _LBR_GRU)
    return RnnDesc.made(
        prop_kind="forward_inference",
        alg_kind=cell.alg,
        activation=cell.activation,
        gate_order=cell.gates,
        direction="bidirectional_concat" if d > 1 else "unidirectional_left2right",
        src_layer_desc=of_steps(layer.inputs),
        src_iter_desc=state if layer.states else None,
        src_iter_c_desc=cells if layer.states else None,
        weights_layer_desc=weights(layer.inputs),
        weights_iter_desc=weights(outputs),
        weights_projection_desc=(
            MemoryDesc((1, d, hidden, outputs), kind) if layer.projects else None
        ),
        bias_desc=MemoryDesc((1, d, biases, hidden), "f32") if layer.biases else None,
        dst_layer_desc=of_steps(d * outputs),
        dst_iter_desc=state,
        dst_iter_c_desc=cells,
    )
