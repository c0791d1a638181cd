"""The weights of a layer of a recurrent network, between PyTorch's order and the library's.

PyTorch has four or fewer tensors for each direction, with gates and units as one axis; the library
has one for all directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Cell:
    """A kind of cells: its gates in PyTorch's order, how many states and biases there are, and how
    many values of each channel of a step the gradient reads besides the states."""

    alg: str
    gates: str
    states: int = 1
    biases: int = 1
    saved: int = 0
    activation: str | None = None


CELLS = {
    "lstm": Cell("vanilla_lstm", "ifco", 2, 4, 4),
    "gru": Cell("lbr_gru", "ruo", 1, 4, 4),
    "tanh": Cell("vanilla_rnn", "h", activation="eltwise_tanh"),
    "relu": Cell("vanilla_rnn", "h", activation="eltwise_relu"),
}


@dataclass(frozen=True)
class Weights:
    """The weights of all directions as the library has them: of inputs [1, D, I, gates, H] and of
    states [1, D, P, gates, H], bias [1, D, biases, H] in f32, projection [1, D, H, P]. In memory
    inputs are contiguous, as PyTorch has them."""

    inputs: torch.Tensor
    states: torch.Tensor
    bias: torch.Tensor | None
    projection: torch.Tensor | None

    @classmethod
    def of(cls, kind: Cell, given: Sequence[torch.Tensor], directions: int) -> Weights:
        """Those of PyTorch: of each direction w_ih [gates H, I], w_hh [gates H, P], b_ih and b_hh
        [gates H] if there are biases, w_hr [P, H] if there is a projection. Those of one direction
        are the same memory."""
        each = len(given) // directions
        parts = [given[each * d : each * (d + 1)] for d in range(directions)]
        inputs, states = (_joined(kind, [own[n] for own in parts]) for n in (0, 1))
        bias = _bias(kind, parts) if each > 3 else None
        return cls(inputs, states, bias, _matrix([p[-1] for p in parts]) if each % 2 else None)


class Gradients:
    """Memory for the gradients of weights: as the library has them, and as PyTorch has."""

    def __init__(self, kind: Cell, given: Sequence[torch.Tensor], directions: int) -> None:
        each = len(given) // directions
        gates, channels = len(kind.gates), given[0].shape[0] // len(kind.gates)
        self._kind, self._directions = kind, directions
        joined = () if directions == 1 else (directions,)
        self._made = [own.new_empty((*joined, *own.shape)) for own in given[:2]]
        inputs, states = (
            own.view(1, directions, gates, channels, -1).movedim(-1, 2) for own in self._made
        )
        bias = projection = None
        if each > 3:
            shape = 1, directions, kind.biases, channels
            bias = given[0].new_empty(shape, dtype=torch.float32)
        if each % 2:
            projection = given[0].new_empty((1, directions, *given[-1].shape)).movedim(-1, 2)
        self.weights = Weights(inputs, states, bias, projection)

    def parted(self, dtype: torch.dtype) -> list[torch.Tensor]:
        """Those of PyTorch's weights. No two of them share memory: PyTorch adds to each."""
        made, own = list[torch.Tensor](), self.weights
        for d in range(self._directions):
            made += (
                self._made if self._directions == 1 else [each[d].clone() for each in self._made]
            )
            if own.bias is not None:
                made += _biases(self._kind, own.bias[0, d].to(dtype))
            if own.projection is not None:
                made.append(own.projection[0, d].T.clone())
        return made


def _joined(kind: Cell, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Weights of all directions."""
    gates, first = len(kind.gates), parts[0]
    joined = first.contiguous() if len(parts) == 1 else torch.stack(list(parts))
    channels = first.shape[0] // gates
    return joined.view(1, len(parts), gates, channels, first.shape[1]).movedim(-1, 2)


def _matrix(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(parts))[None].movedim(-1, 2)


def _bias(kind: Cell, parts: Sequence[Sequence[torch.Tensor]]) -> torch.Tensor:
    """One bias of each gate; of the last one of an lbr cell both are apart."""
    gates, made = len(kind.gates), list[torch.Tensor]()
    for part in parts:
        own, other = (part[n].float() for n in (2, 3))
        if kind.biases == gates:
            made.append(own + other)
            continue
        own, other = (each.reshape(gates, -1) for each in (own, other))
        made.append(torch.cat([own[:-1] + other[:-1], own[-1:], other[-1:]]))
    joined = made[0] if len(made) == 1 else torch.stack(made)
    return joined.view(1, len(parts), kind.biases, -1)


def _biases(kind: Cell, own: torch.Tensor) -> list[torch.Tensor]:
    """The gradients of both biases."""
    gates = len(kind.gates)
    if kind.biases == gates:
        return [own.flatten().clone() for _ in range(2)]
    numbers = [*range(gates - 1)]
    return [own[[*numbers, last]].flatten() for last in (gates - 1, gates)]
