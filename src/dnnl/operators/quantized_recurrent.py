"""DynamicQuantizeLSTM of ONNX Runtime's domain: an LSTM whose weights are bytes.

ONNX Runtime also quantizes sources and states, by their range in each step, and so loses digits of
them. Here the layer is an LSTM of floats by weights of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dnnl.graph.graph import ModelError, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.writer import Writer
from dnnl.operators.microsoft import MICROSOFT, check_known, refuse
from dnnl.operators.operator import Operator
from dnnl.operators.quantization import BYTES, Float64
from dnnl.operators.quantized import check_scale, check_zero_point
from dnnl.operators.recurrent import directions_of, write_layer
from dnnl.operators.recurrent_functions import chosen
from dnnl.operators.recurrent_weights import Compressed

_X, _W, _R, _B, _LENGTHS, _H, _C, _P, _W_SCALE, _W_ZERO, _R_SCALE, _R_ZERO = range(12)
_PARAMETERS = (_W, _W_SCALE, _W_ZERO), (_R, _R_SCALE, _R_ZERO)
_GATES, _BIASES = 4, 2
_F32 = np.dtype(np.float32)
_ATTRIBUTES = (
    "activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size",
    "input_forget",
)  # fmt: skip


def _infer(scope: Scope) -> list[TensorType]:
    """Y [T, D, N, H] and the last states [D, N, H], of X [T, N, I], W [D, I, 4H] and R [D, H, 4H].

    Raises ModelError where sources have other shapes than these ask for, Unimplemented for weights
    that are no constants, and for a function that is unknown.
    """
    check_known(scope, *_ATTRIBUTES)
    chosen(scope, "LSTM", directions_of(scope))
    if not (scope.node.input(_W_SCALE) and scope.node.input(_R_SCALE)):
        raise ModelError("inputs 8 and 10, the scales of both weights, must be given")
    x, recurrence = scope.shape(_X), scope.shape(_R)
    if len(x) != 3 or len(recurrence) != 3:
        raise ModelError(f"X {x} and R {recurrence} must have three dimensions")
    steps, rows, inputs = x
    directions, hidden, columns = directions_of(scope), recurrence[1], _GATES * recurrence[1]
    wanted = {
        _W: (directions, inputs, columns),
        _R: (directions, hidden, columns),
        _B: (directions, _BIASES * columns),
        _LENGTHS: (rows,),
        _H: (directions, rows, hidden),
        _C: (directions, rows, hidden),
        _P: (directions, 3 * hidden),
    }
    for index, shape in wanted.items():
        if scope.node.input(index) and scope.shape(index) != shape:
            raise ModelError(f"input {index} has shape {scope.shape(index)}, not {shape}")
    for index in (_W_SCALE, _W_ZERO, _R_SCALE, _R_ZERO):
        if scope.node.input(index):
            given = scope.shape(index)
            if given not in ((directions,), (directions, columns)):
                rule = f"not ({directions},) or ({directions}, {columns})"
                raise ModelError(f"input {index} has shape {given}, {rule}")
    for index in (_W, _R, _W_SCALE, _W_ZERO, _R_SCALE, _R_ZERO):
        name = scope.node.input(index)
        if name and name not in scope.graph.constants:
            refuse(scope, f"input {index}, which a run computes", "weights are constants")
    for weights, scale, zero in _PARAMETERS:
        stored = scope.type(weights).dtype
        if stored not in BYTES:
            refuse(scope, f"weights of {stored}", "quantized values are int8 or uint8")
        check_scale(scope, scale)
        check_zero_point(scope, zero, stored)
    state = TensorType(_F32, (directions, rows, hidden))
    y = TensorType(_F32, (steps, directions, rows, hidden))
    return [y, state, state][: len(scope.node.outputs)]


def _expand(writer: Writer) -> bool:
    """An LSTM."""
    w, r = (_compressed(writer, *places) for places in _PARAMETERS)
    return write_layer(writer, "LSTM", r.integers.shape[2], (w, r))


def _compressed(writer: Writer, weights: int, scale: int, zero: int) -> Compressed:
    """Weights [D, inputs, columns] as [D, columns, inputs]."""
    constants, node = writer.graph.constants, writer.node
    integers = constants[node.inputs[weights]].swapaxes(1, 2)

    def along_columns(place: int) -> Float64:
        if not node.input(place):
            return np.zeros((1, 1, 1))
        own = constants[node.inputs[place]]
        return own.astype(np.float64).reshape(len(own), -1, 1)

    return Compressed(integers, along_columns(scale), along_columns(zero))


OPERATORS: Mapping[str, Operator] = {
    f"{MICROSOFT}.DynamicQuantizeLSTM": Operator(_infer, expand=_expand, inputs=(3, 12)),
}
