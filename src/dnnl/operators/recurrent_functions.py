"""The functions of LSTM, GRU and RNN: by their names, with the parameters that they take.

Parameters are those of ONNX Runtime: each function that has some takes the next ones of
``activation_alpha`` and ``activation_beta``, or its defaults where none are left. ``clip`` is for
the sums of gates. What h of an LSTM is of is not clipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from dnnl.errors import Unimplemented
from dnnl.graph.graph import ModelError
from dnnl.graph.scope import Scope
from dnnl.operators.traced import algorithm
from dnnl.types.cell_functions import CellFunctions
from dnnl.types.expression import Function
from dnnl.types.scalar import Scalar, apply, trace

_NAMES = "activations"
_PARAMETERS = ("activation_alpha", "activation_beta")


@dataclass(frozen=True)
class _Row:
    """A function of x, alpha and beta, and the defaults of those that it has; None where a model
    has to give them."""

    function: Callable[[Scalar, float, float], Scalar]
    defaults: tuple[float | None, ...] = ()


_ROWS: Mapping[str, _Row] = {
    "Affine": _Row(lambda x, a, b: x * a + b, (1.0, 0.0)),
    "Elu": _Row(lambda x, a, _: algorithm("eltwise_elu", x, a), (1.0,)),
    "HardSigmoid": _Row(lambda x, a, b: algorithm("eltwise_hardsigmoid", x, a, b), (0.2, 0.5)),
    "LeakyRelu": _Row(lambda x, a, _: algorithm("eltwise_relu", x, a), (0.01,)),
    "Relu": _Row(lambda x, a, b: algorithm("eltwise_relu", x)),
    "ScaledTanh": _Row(lambda x, a, b: a * apply("tanh", x * b), (None, None)),
    "Sigmoid": _Row(lambda x, a, b: apply("sigmoid", x)),
    "Softplus": _Row(lambda x, a, b: apply("softplus", x)),
    "Softsign": _Row(lambda x, a, b: x / (1 + apply("abs", x))),
    "Tanh": _Row(lambda x, a, b: apply("tanh", x)),
    "ThresholdedRelu": _Row(lambda x, a, _: apply("where", x > a, x, 0.0), (1.0,)),
}
_SPELLED = {name.lower(): name for name in _ROWS}
_USUAL = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_OF_VANILLA = {
    "LeakyRelu": "eltwise_relu", "Relu": "eltwise_relu", "Sigmoid": "eltwise_logistic",
    "Tanh": "eltwise_tanh",
}  # fmt: skip
"""The activations that vanilla cells of the primitive have; alpha is the slope below 0."""


@dataclass(frozen=True)
class Chosen:
    """The functions of a layer: the activation of vanilla cells and its slope below 0, or a record
    of each direction; all None where cells have the usual ones."""

    activation: str | None = None
    alpha: float = 0.0
    functions: tuple[CellFunctions, ...] | None = None


_Named = tuple[str, tuple[float, ...]]
"""A function and its parameters."""


def chosen(scope: Scope, op: str, directions: int) -> Chosen:
    """The functions of a layer of cells of ``op``.

    Raises ModelError where names are not as many as functions, where a parameter is missing, and
    for a clip that is no threshold; Unimplemented for a name that is unknown.
    """
    usual = _USUAL[op] * directions
    given = usual
    if _NAMES in scope.node.attrs:
        given = tuple(name.decode(errors="replace") for name in scope.attr(_NAMES))
    if len(given) != len(usual):
        raise ModelError(f"activations {given} are not {len(usual)} names")
    named = list(_named(scope, given))
    clip, coupled = _clip(scope), op == "LSTM" and bool(scope.attr("input_forget", 0))
    if clip is None and not coupled:
        if op == "RNN" and len(set(named)) == 1 and named[0][0] in _OF_VANILLA:
            name, parameters = named[0]
            return Chosen(_OF_VANILLA[name], parameters[0] if parameters else 0.0)
        if tuple(name for name, _ in named) == usual:
            return Chosen()
    functions, count = [_function(*own) for own in named], len(_USUAL[op])
    starts = range(0, len(functions), count)
    parts = (tuple(functions[start : start + count]) for start in starts)
    return Chosen(functions=tuple(CellFunctions(own, clip, coupled) for own in parts))


def _clip(scope: Scope) -> float | None:
    if "clip" not in scope.node.attrs:
        return None
    clip: float = scope.attr("clip")
    if not 0 <= clip < math.inf:
        raise ModelError(f"clip = {clip:g} is no threshold: expected a finite number from 0 on")
    return clip


def _named(scope: Scope, given: tuple[str, ...]) -> Iterator[_Named]:
    """The functions by their own names, with their parameters."""
    left = [iter(scope.attr(name, ())) for name in _PARAMETERS]
    for place, spelled in enumerate(given):
        name = _SPELLED.get(spelled.lower())
        if name is None:
            raise Unimplemented(f"activation {spelled!r}; known are {', '.join(_ROWS)}")
        parameters = list[float]()
        for attr, values, default in zip(_PARAMETERS, left, _ROWS[name].defaults, strict=False):
            value = next(values, default)
            if value is None:
                raise ModelError(f"{attr} has none for activation {place}, {name}, without default")
            parameters.append(value)
        yield name, tuple(parameters)


def _function(name: str, parameters: tuple[float, ...]) -> Function:
    alpha, beta = (*parameters, 0.0, 0.0)[:2]
    return Function(trace(lambda x: _ROWS[name].function(x, alpha, beta), 1), name)
