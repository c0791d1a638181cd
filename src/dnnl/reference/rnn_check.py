"""Recurrent networks as the check of their primitive needs them: contents, and what is accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, log2, sqrt

import numpy as np

from dnnl.reference.arrays import Array
from dnnl.reference.fill import generator, integers
from dnnl.reference.rnn import Cell, Network, Weights, activation, exact
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Specification, Values, inputs
from dnnl.types.arg import Arg


class _Recurrent(Specification):
    """States of numbers below 1, and weights whose products have the size of one number, so that
    functions are not saturated."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Multiples of 1/64, which all types hold; weights shrink by the root of the inputs."""
        made: dict[int, Array] = {}
        for argument, tensor in inputs(desc):
            rng = generator("rnn", argument, tensor.dims)
            if argument == Arg.SEQUENCE_LENGTHS:
                made[argument] = integers(rng, tensor.dims, 0, desc.src_layer_desc.dims[0])
            elif argument in (Arg.WEIGHTS_LAYER, Arg.WEIGHTS_ITER, Arg.WEIGHTS_PROJECTION):
                size = 2.0 ** -ceil(log2(sqrt(max(1, tensor.dims[2]))))
                made[argument] = integers(rng, tensor.dims, -64, 64) / 64 * size
            elif argument == Arg.AUGRU_ATTENTION:
                made[argument] = integers(rng, tensor.dims, 0, 64) / 64
            else:
                made[argument] = integers(rng, tensor.dims, -64, 64) / 64
        return made

    def compute(
        self, desc: Description, values: Values, rounded: Callable[[Array], Array] = exact
    ) -> dict[int, Array]:
        """The results, and the last states, which are ``rounded`` from step to step."""
        alpha = desc.alpha if desc.activation is not None else 0.0
        act = activation("eltwise_tanh" if desc.activation is None else desc.activation.name, alpha)
        network = Network(Cell(desc.alg_kind.name, act, rounded), desc.direction)
        layers, directions, _, _, channels = desc.weights_layer_desc.dims
        rows, outputs = desc.src_layer_desc.dims[1], desc.outputs_of_cells
        weights = [
            [_weights(values, layer, direction) for direction in range(directions)]
            for layer in range(layers)
        ]
        h = values.get(Arg.SRC_ITER, np.zeros((layers, directions, rows, outputs)))
        c = values.get(Arg.SRC_ITER_C, np.zeros((layers, directions, rows, channels)))
        run = network.forward(
            values[Arg.SRC_LAYER], weights, h, c,
            values.get(Arg.AUGRU_ATTENTION), values.get(Arg.SEQUENCE_LENGTHS),
        )  # fmt: skip
        return {Arg.DST_LAYER: run.out, Arg.DST_ITER: run.h, Arg.DST_ITER_C: run.c}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """A few epsilons for each doubling of the terms, relative to 1, the size of a state."""
        _, _, inputs, _, channels = desc.weights_layer_desc.dims
        terms = (inputs + channels) * desc.src_layer_desc.dims[0] * desc.weights_layer_desc.dims[0]
        kind = desc.desc_of(argument).data_type
        bound = 4 * kind.eps * ceil(log2(terms + 2))
        zeros = 100 if desc.activation is not None or not desc.lengths_desc.is_zero else 30
        return Rule(bound, zeros, absolute=bound)


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
