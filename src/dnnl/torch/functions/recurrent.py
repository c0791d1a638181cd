"""Recurrent networks with PyTorch's arguments, one operator for each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch.nn.functional import dropout as dropped
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from dnnl.errors import InvalidArguments
from dnnl.torch.functions.checks import check_like, check_source
from dnnl.torch.functions.recurrent_layer import recurrent_layer
from dnnl.torch.functions.recurrent_weights import CELLS, Cell

_TYPES = torch.float32, torch.bfloat16, torch.float16
_Weights: TypeAlias = Sequence[torch.Tensor]
_Source: TypeAlias = torch.Tensor | PackedSequence


def lstm(
    x: torch.Tensor | PackedSequence,
    hx: tuple[torch.Tensor, torch.Tensor] | None,
    params: Sequence[torch.Tensor],
    has_biases: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    training: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> tuple[_Source, tuple[torch.Tensor, torch.Tensor]]:
    """What `torch.nn.LSTM` computes: output, (h_n, c_n).

    ``x`` is [T, N, I], [N, T, I] with ``batch_first``, [T, I], or a PackedSequence, in f32, bf16 or
    f16. ``hx`` is (h_0, c_0), each [layers * directions, N, H], or None for zeros. ``params`` are
    the weights of each layer and direction as PyTorch has them: w_ih [4 H, inputs], w_hh [4 H, H],
    with ``has_biases`` b_ih and b_hh [4 H], and with a projection to P channels w_hr [P, H]; then h
    and the output have P channels. ``dropout`` is the share of results between layers that become
    zero in ``training``. Raises InvalidArguments where sizes or types do not agree.
    """
    pair: Any = hx
    if hx is not None and not (isinstance(pair, list | tuple) and len(pair) == 2):
        found = f"{len(pair)} states" if isinstance(pair, list | tuple) else type(pair).__name__
        raise InvalidArguments("hx", found, "expected a pair, (h_0, c_0)")
    given = params, has_biases, num_layers, dropout, training, bidirectional, batch_first
    output, (h, c) = _run("lstm", x, [] if hx is None else hx, *given)
    return output, (h, c)


def gru(
    x: torch.Tensor | PackedSequence,
    hx: torch.Tensor | None,
    params: Sequence[torch.Tensor],
    has_biases: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    training: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> tuple[_Source, torch.Tensor]:
    """What `torch.nn.GRU` computes: output, h_n. Arguments are those of `lstm`, but for ``hx``,
    which is h_0 alone; weights have three gates, and there is no projection."""
    given = params, has_biases, num_layers, dropout, training, bidirectional, batch_first
    output, (h,) = _run("gru", x, [] if hx is None else [hx], *given)
    return output, h


def rnn(
    x: torch.Tensor | PackedSequence,
    hx: torch.Tensor | None,
    params: Sequence[torch.Tensor],
    has_biases: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    training: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    nonlinearity: str = "tanh",
) -> tuple[_Source, torch.Tensor]:
    """What `torch.nn.RNN` computes: output, h_n. Arguments are those of `gru`; weights have one
    gate, whose function ``nonlinearity`` is "tanh" or "relu"."""
    if nonlinearity not in ("tanh", "relu"):
        raise InvalidArguments("nonlinearity", nonlinearity, 'expected "tanh" or "relu"')
    given = params, has_biases, num_layers, dropout, training, bidirectional, batch_first
    output, (h,) = _run(nonlinearity, x, [] if hx is None else [hx], *given)
    return output, h


def _run(
    cell: str,
    x: _Source,
    states: Sequence[torch.Tensor],
    params: _Weights,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    training: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[_Source, list[torch.Tensor]]:
    given = params, has_biases, num_layers, dropout if training else 0.0, 1 + bidirectional
    for number, own in enumerate(states):
        check_source(f"hx[{number}]", own)
    if isinstance(x, PackedSequence):
        if check_source("x", x.data, _TYPES).dim() != 2:
            raise InvalidArguments("x", tuple(x.data.shape), "expected packed rows of [T, I]")
        # Rows in the order of their lengths, the longest one first.
        padded, lengths = pad_packed_sequence(PackedSequence(x.data, x.batch_sizes))
        counts = lengths.to(torch.int32)
        result, lasts = _layers(cell, padded, states, counts, x.sorted_indices, *given)
        data, sizes, *_ = pack_padded_sequence(result, lengths)
        if x.unsorted_indices is not None:
            lasts = [own.index_select(1, x.unsorted_indices) for own in lasts]
        return PackedSequence(data, sizes, x.sorted_indices, x.unsorted_indices), lasts
    if check_source("x", x, _TYPES).dim() not in (2, 3):
        rule = "expected 3 dimensions, or 2 without a batch"
        raise InvalidArguments("x", tuple(x.shape), rule)
    if x.dim() == 2:
        states = [own[:, None] if own.dim() == 2 else own for own in states]
        result, lasts = _layers(cell, x[:, None], states, None, None, *given)
        return result[:, 0], [own[:, 0] for own in lasts]
    source = x.transpose(0, 1) if batch_first else x
    result, lasts = _layers(cell, source, states, None, None, *given)
    return result.transpose(0, 1) if batch_first else result, lasts


def _layers(
    cell: str,
    source: torch.Tensor,
    states: Sequence[torch.Tensor],
    lengths: torch.Tensor | None,
    order: torch.Tensor | None,
    params: _Weights,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    directions: int,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The results [T, N, channels] of all layers and their last states; ``order`` is that of the
    source among the rows of ``states``."""
    kind = CELLS[cell]
    parts = _divided(kind, source, params, has_biases, num_layers, directions)
    steps, rows, _ = source.shape
    if steps < 1:
        raise InvalidArguments("x", tuple(source.shape), "expected at least one step")
    hidden = params[0].shape[0] // len(kind.gates)
    shapes = [(num_layers * directions, rows, n) for n in (params[1].shape[1], hidden)]
    for number, (own, shape) in enumerate(zip(states, shapes, strict=False)):
        check_like(f"hx[{number}]", own, source, shape)
    if order is not None:
        states = [own.index_select(1, order) for own in states]
    trains = torch.is_grad_enabled() and any(
        own.requires_grad for own in (source, *states, *params)
    )
    lasts: list[tuple[torch.Tensor, ...]] = []
    for layer in range(num_layers):
        place = slice(layer * directions, (layer + 1) * directions)
        h, c, *_ = *(each[place] for each in states), None, None
        weights = [own for part in parts[place] for own in part]
        source, *ends, _ = recurrent_layer(source, h, c, weights, lengths, directions, cell, trains)
        lasts.append(tuple(ends[: kind.states]))
        if dropout and layer < num_layers - 1:
            source = dropped(source, dropout)
    if num_layers == 1:
        return source, list(lasts[0])
    return source, [torch.cat(each) for each in zip(*lasts, strict=True)]


def _divided(
    kind: Cell,
    source: torch.Tensor,
    params: _Weights,
    has_biases: bool,
    num_layers: int,
    directions: int,
) -> list[_Weights]:
    """The weights of each layer and direction, whose shapes agree."""
    count = num_layers * directions
    each = 4 if has_biases else 2
    projects = kind.states > 1 and len(params) == (each + 1) * count
    if count < 1 or len(params) != (each + projects) * count:
        further = f", or {each + 1} with a projection" if kind.states > 1 else ""
        rule = f"expected {each} for each of {count} layers and directions{further}"
        raise InvalidArguments("params", f"{len(params)} tensors", rule)
    each += projects
    for number in (0, 1):
        if check_source(f"params[{number}]", params[number]).dim() != 2:
            rule = "expected two dimensions"
            raise InvalidArguments(f"params[{number}]", tuple(params[number].shape), rule)
    channels, gates = params[0].shape[0], len(kind.gates)
    hidden, outputs = channels // gates, params[1].shape[1]
    if channels % gates or not (projects or outputs == hidden):
        rule = f"expected [{gates} H, inputs] and [{gates} H, H]"
        found = tuple(params[0].shape), tuple(params[1].shape)
        raise InvalidArguments("params", found, rule)
    shapes = [(channels, source.shape[2]), (channels, outputs), *[(channels,)] * (2 * has_biases)]
    shapes += [(outputs, hidden)] * projects
    for number, own in enumerate(params):
        shape = shapes[number % each]
        if number % each == 0 and number // each >= directions:
            shape = channels, directions * outputs
        check_like(f"params[{number}]", own, source, shape)
    return [params[each * n : each * (n + 1)] for n in range(count)]
