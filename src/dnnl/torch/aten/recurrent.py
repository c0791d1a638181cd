"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dnnl.errors import Unimplemented
from dnnl.torch.aten.writer import Translate, Value, Writer, require_floats

_ORDERS = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
"""The gates of ONNX's operators among those of PyTorch: i, o, f, g of i, f, g, o; z, r, n of r, z,
n; the only one."""


def _layers(
    w: Writer,
    op: str,
    activation: bytes | None,
    x: Value,
    states: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[str, ...]:
    """All layers, one operator each: the results of each step, then the last states."""
    require_floats(x, *states, *params)
    directions, biases = 2 if bidirectional else 1, 4 if has_biases else 2
    if dropout and train:
        raise Unimplemented("dropout, whose numbers are PyTorch's")
    if len(params) != num_layers * directions * biases:
        raise Unimplemented("a projection of the state")
    hidden = states[0].shape[2]
    value = w.transpose(x, (1, 0, 2)) if batch_first else x.name
    last: list[list[str]] = [[] for _ in states]
    for layer in range(num_layers):
        first = layer * directions
        own = [
            params[(first + side) * biases : (first + side + 1) * biases]
            for side in range(directions)
        ]
        weights, recurrence = (
            _joined(w, [w.unsqueeze(_gates(w, op, one[n]), [0]) for one in own]) for n in (0, 1)
        )
        bias = ""
        if has_biases:
            rows = [[_gates(w, op, one[n]) for n in (2, 3)] for one in own]
            bias = _joined(w, [w.unsqueeze(w.add("Concat", *row, axis=0), [0]) for row in rows])
        begin = [w.slice(state, 0, first, first + directions) for state in states]
        results = w.add_several(
            1 + len(states),
            op,
            *(value, weights, recurrence, bias, "", *begin),
            hidden_size=hidden,
            direction=b"bidirectional" if bidirectional else b"forward",
            linear_before_reset=1 if op == "GRU" else None,
            activations=None if activation is None else (activation,) * directions,
        )
        steps = w.transpose(results[0], (0, 2, 1, 3))
        value = w.add("Reshape", steps, w.sizes([0, 0, directions * hidden]))
        for found, state in zip(last, results[1:], strict=True):
            found.append(state)
    value = w.transpose(value, (1, 0, 2)) if batch_first else value
    return value, *(_joined(w, own) for own in last)


def _gates(w: Writer, op: str, value: Value) -> str:
    """The rows of weights or biases in ONNX's order."""
    order = _ORDERS[op]
    if len(order) == 1:
        return value.name
    parts = w.add_several(len(order), "Split", value, axis=0, num_outputs=len(order))
    return w.add("Concat", *(parts[gate] for gate in order), axis=0)


def _joined(w: Writer, values: Sequence[str]) -> str:
    return w.add("Concat", *values, axis=0) if len(values) > 1 else values[0]


def _lstm(w: Writer, x: Value, hx: Sequence[Value], params: Sequence[Value], *rest: Any) -> Any:
    if hx[0].shape[2] != hx[1].shape[2]:
        raise Unimplemented("a projection of the state")
    return _layers(w, "LSTM", None, x, hx, params, *rest)


def _gru(w: Writer, x: Value, hx: Value, params: Sequence[Value], *rest: Any) -> Any:
    return _layers(w, "GRU", None, x, [hx], params, *rest)


def _rnn(activation: bytes) -> Translate:
    """Layers of one gate with this activation."""

    def write(w: Writer, x: Value, hx: Value, params: Sequence[Value], *rest: Any) -> Any:
        return _layers(w, "RNN", activation, x, [hx], params, *rest)

    return write


TABLE: Mapping[str, Translate] = {
    "lstm.input": _lstm,
    "gru.input": _gru,
    "rnn_tanh.input": _rnn(b"Tanh"),
    "rnn_relu.input": _rnn(b"Relu"),
}
