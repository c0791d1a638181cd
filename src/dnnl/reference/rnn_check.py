"""Recurrent networks as the check of their primitive needs them: contents, and what is accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, log2, sqrt
from typing import Any

import numpy as np

from dnnl.reference.arrays import Array
from dnnl.reference.fill import generator, integers
from dnnl.reference.rnn import Cell, Network, Run, Weights, activation, reversed_of, unrounded
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Attributes, Description, Specification, Values, inputs
from dnnl.types.arg import Arg
from dnnl.types.cell_functions import GATE_LETTERS
from dnnl.types.dtype import DataType
from dnnl.types.kinds import PropKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.rnn_qparams import RnnQparams, WeightsScales

_MULTIPLIED = (Arg.WEIGHTS_LAYER, Arg.WEIGHTS_ITER, Arg.WEIGHTS_PROJECTION)
_STATES = (Arg.SRC_LAYER, Arg.SRC_ITER, Arg.DST_LAYER, Arg.DST_ITER)
_BYTES = (DataType.u8, DataType.s8)
_ROUNDINGS = 4
"""By how many units of a quantized state others may differ, where one was rounded to its
neighbour: products of it are smaller."""
_PAIR_STEPS = 127.0 * 256.0
"""The largest number of a row of inputs or states that may be integers of 16 bits."""
_OF_PAIRS = 8
"""By how many times as much as such roundings move the reference results may differ: they are not
the same ones."""

_SMALL = 8
"""Of weights that scales below 1 multiply: functions of their sums are not saturated."""


@dataclass(frozen=True)
class _Recurrent(Specification):
    """States of numbers below 1, and weights whose products have the size of one number, so that
    functions are not saturated. Integers stand for such numbers by ``qparams``."""

    qparams: RnnQparams = field(default_factory=RnnQparams)

    def under(self, attr: Attributes) -> Specification:
        """With its quantization."""
        return _Recurrent(attr.rnn_qparams)

    def fill(self, desc: Description) -> dict[int, Array]:
        """Multiples of 1/64, which all types hold; weights shrink by the root of the inputs. Of a
        gradient also what memory holds that it is added to. Integers are any of their type."""
        made = {argument: _filled(desc, argument, own) for argument, own in inputs(desc)}
        if desc.propagation.is_forward:
            return made
        run = _network(desc).forward(*_forward(desc, made))
        results = _results(desc, run)
        made |= {argument: own for argument, own in results.items() if argument in made}
        if not desc.flags:
            added = {tensor.argument: tensor.desc for tensor in desc.outputs}
            made |= {arg: _filled(desc, arg, added[arg]) for arg in _OF_WEIGHTS if arg in added}
        return made

    def compute(
        self, desc: Description, values: Values, rounded: Callable[[Array], Array] = unrounded
    ) -> dict[int, Array]:
        """The results, the last states, which are ``rounded`` from step to step, or quantized where
        inputs are integers, and in training the workspace; or all gradients."""
        kind = desc.src_layer_desc.data_type
        network = _network(desc, self._quantized(kind) if kind in _BYTES else rounded)
        values = {argument: self._meant(desc, argument, own) for argument, own in values.items()}
        given = _forward(desc, values)
        run = network.forward(*given)
        if desc.propagation.is_forward:
            made = _results(desc, run)
            return {argument: self._stored(desc, argument, own) for argument, own in made.items()}
        diff_h, diff_c = (
            values.get(argument, np.zeros_like(like))
            for argument, like in ((Arg.DIFF_DST_ITER, run.h), (Arg.DIFF_DST_ITER_C, run.c))
        )
        found = network.backward(run, given[1], values[Arg.DIFF_DST_LAYER], diff_h, diff_c)
        made = {
            Arg.DIFF_SRC_LAYER: found.src, Arg.DIFF_SRC_ITER: found.h, Arg.DIFF_SRC_ITER_C: found.c,
            Arg.DIFF_AUGRU_ATTENTION: found.attention,
        }  # fmt: skip
        for argument, name in _OF_WEIGHTS.items():
            parts = [[getattr(own, name) for own in layer] for layer in found.weights]
            if parts[0][0] is not None:
                total = _in_order(desc, argument, np.asarray(parts), back=True)
                made[argument] = total + values.get(argument, 0)
        return {int(argument): own for argument, own in made.items()}

    def _quantized(self, kind: DataType) -> Callable[[Array], Array]:
        """What numbers are behind being stored as integers."""
        scale, shift = self.qparams.scale, self.qparams.shift

        def rounded(x: Array) -> Array:
            return (np.clip(np.rint(x * scale + shift), kind.min, kind.max) - shift) / scale

        return rounded

    def _meant(self, desc: Description, argument: int, values: Array) -> Array:
        """What the elements of an input stand for."""
        if desc.desc_of(argument).data_type not in _BYTES:
            return values
        if argument in _STATES:
            return (values - self.qparams.shift) / self.qparams.scale
        projected = argument == Arg.WEIGHTS_PROJECTION
        return values / _per_column(
            self.qparams.projection if projected else self.qparams.weights, values.shape
        )

    def _stored(self, desc: Description, argument: int, values: Array) -> Array:
        """Results as they are stored, before they are rounded."""
        if argument not in _STATES or desc.desc_of(argument).data_type not in _BYTES:
            return values
        return values * self.qparams.scale + self.qparams.shift

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """A few epsilons for each doubling of the terms, relative to 1, the size of a state.

        Where states are stored as integers, or may be as bf16, roundings of them move results; so
        do those of gradients that are multiplied as bf16. Beside weights of bytes, inputs and
        states may have 16 bits: how far that moves results depends on the weights.
        """
        _, _, inputs, _, channels = desc.weights_layer_desc.dims
        terms = (inputs + channels) * desc.src_layer_desc.dims[0] * desc.weights_layer_desc.dims[0]
        kind, data = desc.desc_of(argument).data_type, desc.src_layer_desc.data_type
        narrow = data is DataType.bf16 is desc.weights_iter_desc.data_type
        eps = kind.eps
        if narrow and not desc.propagation.is_forward:
            eps = max(eps, data.eps)
        bound = 4 * eps * ceil(log2(terms + 2))
        if not desc.propagation.is_forward:
            return Rule(2 * bound, 100, absolute=2 * bound)
        if narrow:
            bound += data.eps
        if argument == Arg.WORKSPACE:
            return Rule(bound, 100, absolute=bound)
        others = desc.activation is not None or desc.functions is not None
        zeros = 100 if others or not desc.lengths_desc.is_zero else 30
        if kind in _BYTES:
            return Rule(0.0, 100, slack=_ROUNDINGS + 0.5)
        if data in _BYTES:
            bound += _ROUNDINGS / self.qparams.scale
        elif desc.weights_iter_desc.data_type in _BYTES:
            bound += _OF_PAIRS * self._moved(desc, argument, values)
        return Rule(bound, zeros, absolute=bound)

    def _moved(self, desc: Description, argument: int, values: Values) -> float:
        """How far roundings of inputs and states to 16 bits move a result."""
        exact = self.compute(desc, values)[argument]
        near = {**values, Arg.SRC_LAYER: _in_pairs(values[Arg.SRC_LAYER], 0.0)}
        moved = self.compute(desc, near, lambda h: _in_pairs(h, 1.0))[argument]
        return float(np.abs(moved - exact).max(initial=2.0**-17))


def _in_pairs(rows: Array, least: float) -> Array:
    """Numbers rounded to 16 bits, by the largest of their row, or by ``least``."""
    largest = np.maximum(np.abs(rows).max(-1, initial=0, keepdims=True), max(least, 1e-30))
    return np.asarray(np.rint(rows * _PAIR_STEPS / largest) * largest / _PAIR_STEPS)


_OF_WEIGHTS = {
    Arg.DIFF_WEIGHTS_LAYER: "layer", Arg.DIFF_WEIGHTS_ITER: "iter",
    Arg.DIFF_WEIGHTS_PEEPHOLE: "peephole", Arg.DIFF_WEIGHTS_PROJECTION: "projection",
    Arg.DIFF_BIAS: "bias",
}  # fmt: skip
"""The gradients that are added to what memory holds, and where the reference has them."""


_GATED = {
    int(Arg.WEIGHTS_LAYER): 3, int(Arg.WEIGHTS_ITER): 3, int(Arg.BIAS): 2,
    int(Arg.DIFF_WEIGHTS_LAYER): 3, int(Arg.DIFF_WEIGHTS_ITER): 3, int(Arg.DIFF_BIAS): 2,
}  # fmt: skip
"""The dimension of gates, of what has gates in the order of the description."""


def _filled(desc: Description, argument: int, tensor: MemoryDesc) -> Array:
    rng, kind = generator("rnn", argument, tensor.dims), tensor.data_type
    if argument == Arg.SEQUENCE_LENGTHS:
        return integers(rng, tensor.dims, 0, desc.src_layer_desc.dims[0])
    if kind in _BYTES and argument in _MULTIPLIED and desc.src_layer_desc.data_type.is_float:
        return integers(rng, tensor.dims, max(-_SMALL, int(kind.min)), _SMALL)
    if kind in _BYTES:
        return integers(rng, tensor.dims, max(-127, int(kind.min)), int(kind.max))
    if argument in _MULTIPLIED:
        size = 2.0 ** -ceil(log2(sqrt(max(1, tensor.dims[2]))))
        return integers(rng, tensor.dims, -64, 64) / 64 * size
    low = 0 if argument == Arg.AUGRU_ATTENTION else -64
    return integers(rng, tensor.dims, low, 64) / 64


def _network(desc: Description, rounded: Callable[[Array], Array] = unrounded) -> Network:
    alpha = desc.alpha if desc.activation is not None else 0.0
    act = activation("eltwise_tanh" if desc.activation is None else desc.activation.name, alpha)
    return Network(Cell(desc.alg_kind.name, act, rounded), desc.direction, desc.functions)


def _forward(desc: Description, values: Values) -> tuple[Any, ...]:
    """The arguments of `Network.forward`."""
    values = {argument: _in_order(desc, argument, own) for argument, own in values.items()}
    layers, directions, _, _, channels = desc.weights_layer_desc.dims
    rows, before = desc.src_layer_desc.dims[1], desc.weights_iter_desc.dims[2]
    weights = [
        [_weights(values, layer, direction) for direction in range(directions)]
        for layer in range(layers)
    ]
    h = values.get(Arg.SRC_ITER, np.zeros((layers, directions, rows, before)))
    c = values.get(Arg.SRC_ITER_C, np.zeros((layers, directions, rows, channels)))
    attention, lengths = values.get(Arg.AUGRU_ATTENTION), values.get(Arg.SEQUENCE_LENGTHS)
    return values[Arg.SRC_LAYER], weights, h, c, attention, lengths


def _in_order(desc: Description, argument: int, values: Array, *, back: bool = False) -> Array:
    """Weights and biases with their gates as the cell has them, or ``back`` as the description."""
    letters = GATE_LETTERS[desc.alg_kind]
    if argument not in _GATED or not desc.gate_order:
        return values
    first, then = (letters, desc.gate_order) if back else (desc.gate_order, letters)
    axis = _GATED[argument]
    order = [first.index(gate) for gate in then]
    return values.take([*order, *range(len(order), values.shape[axis])], axis)


def _results(desc: Description, run: Run) -> dict[int, Array]:
    """The results of the forward pass, and what it leaves for its gradient."""
    made = {Arg.DST_LAYER: run.out, Arg.DST_ITER: run.h, Arg.DST_ITER_C: run.c}
    if desc.propagation is not PropKind.forward_inference:
        made[Arg.WORKSPACE] = _workspace(desc, run)
    return {int(argument): own for argument, own in made.items()}


def _workspace(desc: Description, run: Run) -> Array:
    """The gates of all steps by layers and directions, and of an lbr cell its inner product, zeros
    behind the end of a sequence; then the states before each step and the last ones, with zeros
    behind the fewer channels where these differ; of an LSTM its cells likewise."""
    kind, widest = desc.alg_kind.name, max(desc.weights_iter_desc.dims[2], desc.outputs_of_cells)

    def widened(states: Array) -> Array:
        return np.pad(states, ((0, 0), (0, widest - states.shape[-1])))

    gates, states, cells = list[Array](), list[Array](), list[Array]()
    for layer in range(len(run.h)):
        for d, tapes in enumerate(run.tapes):
            tape = tapes[layer]
            own = [step.gates for step in tape]
            if kind.startswith("lbr"):
                own = [np.concatenate([step.gates, step.extra[:, None]], 1) for step in tape]
            alive = run.alive[::-1] if reversed_of(desc.direction)[d] else run.alive
            own = [gates * on[..., None] for gates, on in zip(own, alive, strict=True)]
            gates += own if kind != "vanilla_rnn" else []
            states += map(widened, [*(step.h for step in tape), run.h[layer, d]])
            cells += [*(step.c for step in tape), run.c[layer, d]] if kind == "vanilla_lstm" else []
    every = [array.ravel() for array in (*gates, *states, *cells)]
    return np.concatenate(every)


def _per_column(scales: WeightsScales, shape: tuple[int, ...]) -> Array:
    """Scales for weights of a shape: of each gate and unit, or of each output."""
    if not scales.mask:
        return np.asarray(scales.values[0])
    return np.reshape(scales.values, shape[3:])


def _weights(values: Values, layer: int, direction: int) -> Weights:
    def part(argument: int) -> Array | None:
        found = values.get(argument)
        return None if found is None else np.asarray(found[layer, direction])

    return Weights(
        np.asarray(part(Arg.WEIGHTS_LAYER)),
        np.asarray(part(Arg.WEIGHTS_ITER)),
        part(Arg.BIAS),
        part(Arg.WEIGHTS_PEEPHOLE),
        part(Arg.WEIGHTS_PROJECTION),
    )


SPECIFICATION = _Recurrent()
