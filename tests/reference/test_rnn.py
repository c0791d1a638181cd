"""Recurrent networks against PyTorch, and against differences of the function where it has none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from dnnl.reference.arrays import Array
from dnnl.reference.rnn import CELLS, Cell, Network, Weights, activation, reversed_of
from dnnl.types.kinds import Direction
from tests.pairs import every_pair

STEPS, ROWS, INPUTS, CHANNELS, LAYERS = 4, 3, 5, 5, 2
DIRECTIONS = tuple(Direction)
LENGTHS = np.array([4, 1, 3])


def weights(
    rng: np.random.Generator, cell: Cell, directions: int, *, peephole: bool, projection: int
) -> list[list[Weights]]:
    def normal(*shape: int) -> Array:
        return 0.5 * rng.standard_normal(shape)

    outputs = projection or CHANNELS
    gates = cell.gates
    return [
        [
            Weights(
                normal(INPUTS if layer == 0 else outputs, gates, CHANNELS),
                normal(outputs, gates, CHANNELS),
                normal(cell.biases, CHANNELS),
                normal(3, CHANNELS) if peephole else None,
                normal(CHANNELS, projection) if projection else None,
            )
            for _ in range(directions)
        ]
        for layer in range(LAYERS)
    ]


def states(rng: np.random.Generator, directions: int, outputs: int) -> tuple[Array, Array]:
    shape = (LAYERS, directions, ROWS)
    return rng.standard_normal((*shape, outputs)), rng.standard_normal((*shape, CHANNELS))


def numbers_of(own: Weights | Any) -> Iterator[Array]:
    for name in ("layer", "iter", "bias", "peephole", "projection"):
        array = getattr(own, name)
        if array is not None:
            yield array


@every_pair(
    pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "lengths"]),
    pytest.mark.parametrize("directions", DIRECTIONS),
    pytest.mark.parametrize(
        ("kind", "peephole", "projection"),
        [
            *((kind, False, 0) for kind in CELLS),
            ("vanilla_lstm", True, 0),
            ("vanilla_lstm", False, 4),
            ("vanilla_lstm", True, 4),
        ],
    ),
)
def test_gradients_are_those_of_the_function(
    kind: str, peephole: bool, projection: int, directions: Direction, lengths: Array | None
) -> None:
    """Along a random direction of all inputs and weights, central differences agree."""
    rng = np.random.default_rng(38)
    network = Network(Cell(kind, activation("eltwise_logistic")), directions)
    count = len(reversed_of(network.direction))
    own = weights(rng, network.cell, count, peephole=peephole, projection=projection)
    src = rng.standard_normal((STEPS, ROWS, INPUTS))
    h, c = states(rng, count, projection or CHANNELS)
    attention = rng.uniform(0, 1, (STEPS, ROWS, 1)) if "augru" in kind else None
    run = network.forward(src, own, h, c, attention, lengths)
    cotangents = [rng.standard_normal(a.shape) for a in (run.out, run.h, run.c)]
    found = network.backward(run, own, *cotangents)
    inputs = [src, h, c, *(a for layer in own for w in layer for a in numbers_of(w))]
    slopes = [found.src, found.h, found.c]
    for layer, sums in zip(own, found.weights, strict=True):
        for w, s in zip(layer, sums, strict=True):
            pairs = zip(_all(s), _all(w), strict=True)
            slopes += [a for a, b in pairs if a is not None and b is not None]
    if attention is not None:
        inputs.append(attention)
        slopes.append(found.attention)
    tangents = [rng.standard_normal(a.shape) for a in inputs]

    def value(distance: float) -> float:
        for array, tangent in zip(inputs, tangents, strict=True):
            np.add(array, distance * tangent, out=array)
        moved = network.forward(src, own, h, c, attention, lengths)
        for array, tangent in zip(inputs, tangents, strict=True):
            np.subtract(array, distance * tangent, out=array)
        return sum(
            float((a * b).sum())
            for a, b in zip((moved.out, moved.h, moved.c), cotangents, strict=True)
        )

    step = 1e-5
    want = (value(step) - value(-step)) / (2 * step)
    got = sum(float((a * b).sum()) for a, b in zip(slopes, tangents, strict=True))
    assert got == pytest.approx(want, rel=1e-6)


def _all(own: Any) -> list[Array | None]:
    return [getattr(own, name) for name in ("layer", "iter", "bias", "peephole", "projection")]


@every_pair(
    pytest.mark.parametrize("packed", [False, True]),
    pytest.mark.parametrize(
        "directions", [Direction.unidirectional_left2right, Direction.bidirectional_concat]
    ),
    pytest.mark.parametrize(
        ("kind", "projection"),
        [("vanilla_rnn", 0), ("vanilla_lstm", 0), ("vanilla_lstm", 3), ("lbr_gru", 0)],
    ),
)
def test_one_layer_is_that_of_pytorch(
    kind: str, projection: int, directions: Direction, packed: bool
) -> None:
    torch.manual_seed(5)
    both = directions is Direction.bidirectional_concat
    kinds = {"vanilla_rnn": torch.nn.RNN, "vanilla_lstm": torch.nn.LSTM, "lbr_gru": torch.nn.GRU}
    options: dict[str, Any] = {"proj_size": projection} if projection else {}
    net = kinds[kind](INPUTS, CHANNELS, bidirectional=both, **options).double()
    cell = Cell(kind, activation("eltwise_tanh"))
    network = Network(cell, directions)
    own = [[_of_torch(net, cell, suffix) for suffix in ("", "_reverse")[: 1 + both]]]
    rng = np.random.default_rng(6)
    src = rng.standard_normal((STEPS, ROWS, INPUTS))
    outputs = projection or CHANNELS
    h = rng.standard_normal((1, 1 + both, ROWS, outputs))
    c = rng.standard_normal((1, 1 + both, ROWS, CHANNELS))
    run = network.forward(src, own, h, c, None, LENGTHS if packed else None)

    x = torch.from_numpy(src).requires_grad_()
    first: Any = torch.from_numpy(h[0])
    if kind == "vanilla_lstm":
        first = (first, torch.from_numpy(c[0]))
    given: Any = x
    if packed:
        given = torch.nn.utils.rnn.pack_padded_sequence(
            x, torch.from_numpy(LENGTHS), enforce_sorted=False
        )
    out, last = net(given, first)
    if packed:
        out, _ = torch.nn.utils.rnn.pad_packed_sequence(out, total_length=STEPS)
    np.testing.assert_allclose(run.out, out.detach().numpy(), rtol=1e-12, atol=1e-12)
    last_h = last[0] if kind == "vanilla_lstm" else last
    np.testing.assert_allclose(run.h[0], last_h.detach().numpy(), rtol=1e-12, atol=1e-12)

    cotangent = rng.standard_normal(run.out.shape)
    (out * torch.from_numpy(cotangent)).sum().backward()
    found = network.backward(run, own, cotangent, np.zeros_like(h), np.zeros_like(c))
    assert x.grad is not None
    np.testing.assert_allclose(found.src, x.grad.numpy(), rtol=1e-10, atol=1e-10)
    layer = found.weights[0][0].layer
    want = net.weight_ih_l0.grad.numpy().T.reshape(INPUTS, cell.gates, CHANNELS)
    order = [1, 0, 2] if kind == "lbr_gru" else range(cell.gates)
    np.testing.assert_allclose(layer, want[:, list(order)], rtol=1e-10, atol=1e-10)


def _of_torch(net: Any, cell: Cell, suffix: str) -> Weights:
    """PyTorch has gates r, z, n of a GRU, and two biases; those of o stay apart."""
    order = [1, 0, 2] if cell.kind == "lbr_gru" else list(range(cell.gates))

    def gates(name: str) -> Array:
        array: Array = getattr(net, f"{name}_l0{suffix}").detach().numpy()
        return array.reshape(cell.gates, CHANNELS, -1)[order].transpose(2, 0, 1).copy()

    first, second = gates("bias_ih")[0], gates("bias_hh")[0]
    if cell.kind == "lbr_gru":
        bias = np.concatenate([first[:2] + second[:2], first[2:], second[2:]])
    else:
        bias = first + second
    projection = getattr(net, f"weight_hr_l0{suffix}", None)
    return Weights(
        gates("weight_ih"),
        gates("weight_hh"),
        bias,
        projection=None if projection is None else projection.detach().numpy().T.copy(),
    )
