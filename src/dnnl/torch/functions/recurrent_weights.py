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
    """A kind of cells: our gates by their places in PyTorch's, how many states and biases there
    are, and how many values of each channel of a step the gradient reads besides the states."""

    alg: str
    order: tuple[int, ...]
    states: int = 1
    biases: int = 1
    saved: int = 0
    activation: str | None = None

    @property
    def as_given(self) -> bool:
        """Whether gates have PyTorch's order."""
        return self.order == tuple(range(len(self.order)))

    @property
    def back(self) -> list[int]:
        """PyTorch's gates by their places in ours."""
        return sorted(range(len(self.order)), key=lambda place: self.order[place])


CELLS = {
    "lstm": Cell("vanilla_lstm", (0, 1, 2, 3), 2, 4, 4),
    "gru": Cell("lbr_gru", (1, 0, 2), 1, 4, 4),
    "tanh": Cell("vanilla_rnn", (0,), activation="eltwise_tanh"),
    "relu": Cell("vanilla_rnn", (0,), activation="eltwise_relu"),
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
        [gates H] if there are biases, w_hr [P, H] if there is a projection. What has one direction
        and gates in our order is the same memory."""
        each = len(given) // directions
        parts = [given[each * d : each * (d + 1)] for d in range(directions)]
        inputs, states = (_gates(kind, [own[n] for own in parts]) for n in (0, 1))
        bias = _bias(kind, parts) if each > 3 else None
        return cls(inputs, states, bias, _matrix([p[-1] for p in parts]) if each % 2 else None)


class Gradients:
    """Memory for the gradients of weights: as the library has them, and as PyTorch has."""

    def __init__(self, kind: Cell, given: Sequence[torch.Tensor], directions: int) -> None:
        each = len(given) // directions
        gates, channels = len(kind.order), given[0].shape[0] // len(kind.order)
        self._kind, self._each, self._as_given = kind, each, kind.as_given and directions == 1
        joined = () if self._as_given else (directions,)
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
        for d in range(own.inputs.shape[1]):
            if self._as_given:
                made += self._made
            else:
                made += [self._ordered(each[d]) for each in self._made]
            if own.bias is not None:
                made += _biases(self._kind, own.bias[0, d].to(dtype))
            if own.projection is not None:
                made.append(own.projection[0, d].T.clone())
        return made

    def _ordered(self, own: torch.Tensor) -> torch.Tensor:
        if self._kind.as_given:
            return own.clone()
        seen = own.view(len(self._kind.order), -1, own.shape[1])
        return seen[self._kind.back].flatten(0, 1)


def _gates(kind: Cell, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Weights of all directions, with the gates in our order."""
    gates, first = len(kind.order), parts[0]
    if kind.as_given:
        joined = first.contiguous() if len(parts) == 1 else torch.stack(list(parts))
    else:
        order = list(kind.order)
        joined = torch.stack([own.reshape(gates, -1, own.shape[1])[order] for own in parts])
    channels = first.shape[0] // gates
    return joined.view(1, len(parts), gates, channels, first.shape[1]).movedim(-1, 2)


def _matrix(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(parts))[None].movedim(-1, 2)


def _bias(kind: Cell, parts: Sequence[Sequence[torch.Tensor]]) -> torch.Tensor:
    """One bias of each gate; of the last one of an lbr cell both are apart."""
    gates, made = len(kind.order), list[torch.Tensor]()
    for part in parts:
        own, other = (part[n].float() for n in (2, 3))
        if kind.biases == gates:
            made.append(own + other)
            continue
        order = list(kind.order)
        own, other = (each.reshape(gates, -1)[order] for each in (own, other))
        made.append(torch.cat([own[:-1] + other[:-1], own[-1:], other[-1:]]))
    joined = made[0] if len(made) == 1 else torch.stack(made)
    return joined.view(1, len(parts), kind.biases, -1)


def _biases(kind: Cell, own: torch.Tensor) -> list[torch.Tensor]:
    """The gradients of both biases."""
    gates = len(kind.order)
    if kind.biases == gates:
        return [own.flatten().clone() for _ in range(2)]
    numbers = [*range(gates - 1)]
    return [own[[*numbers, last]][kind.back].flatten() for last in (gates - 1, gates)]
