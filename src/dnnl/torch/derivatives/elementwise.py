"""Gradients of functions of each element and of two arrays."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Any

import torch

from dnnl import ops
from dnnl.ops.reading import either
from dnnl.torch.derivatives.rules import Arguments, Counterpart, Gradients, Rule
from dnnl.torch.functions import elementwise

Tensor = torch.Tensor
_CLIPPED = ("x", "a_min", "a_max", "min", "max")


def _negative(x: Tensor) -> Tensor:
    result: Tensor = ops.multiply(x, -1.0)
    return result


def _chosen(condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
    result: Tensor = ops.where(condition, x, y)
    return result


def _of_divisor(g: Tensor, a: Arguments) -> Tensor:
    return _negative(ops.divide(ops.multiply(g, a.x), ops.square(a.y)))


def _of_extreme(own: str, other: str, largest: bool, g: Tensor, a: Arguments) -> Tensor:
    """That of a maximum or minimum, of which two equal elements have one half each."""
    x, y = (torch.as_tensor(getattr(a, name)).detach() for name in (own, other))
    loses = x < y if largest else x > y
    return _chosen(loses, 0.0, _chosen(x == y, ops.multiply(g, 0.5), g))


def _extreme(largest: bool) -> Mapping[str, Rule]:
    return {
        own: Rule(partial(_of_extreme, own, other, largest), ("x", "y"))
        for own, other in (("x", "y"), ("y", "x"))
    }


def _clipped(a: Arguments) -> tuple[Any, Any, Any]:
    """The source of `clip` and its bounds, tensors or numbers."""
    low, high = either("a_min", a.a_min, "min", a.min), either("a_max", a.a_max, "max", a.max)
    low, high = (torch.tensor(own) if isinstance(own, list) else own for own in (low, high))
    x = torch.as_tensor(a.x).detach()
    return x, -inf if low is None else low, inf if high is None else high


def _of_clipped(g: Tensor, a: Arguments) -> Tensor:
    x, low, high = _clipped(a)
    return _chosen((x >= low) & (x <= high), g, 0.0)


def _of_least(g: Tensor, a: Arguments) -> Tensor:
    x, low, high = _clipped(a)
    return _chosen((x < low) & (low < high), g, 0.0)


def _of_most(g: Tensor, a: Arguments) -> Tensor:
    x, low, high = _clipped(a)
    return _chosen((x > high) | (high < low), g, 0.0)


def _softplus(x: Tensor, beta: float, threshold: float | None) -> Tensor:
    curve = elementwise.softplus(x, beta)
    return curve if threshold is None else _chosen(x.detach() * beta > threshold, x, curve)


def _weights(a: Arguments) -> Tensor:
    """Those of `prelu`, by channels."""
    ones = (1,) * max(0, a.x.dim() - 2)
    weight: Tensor = a.weight
    return weight.reshape(1, -1, *ones) if a.x.dim() > 1 else weight.reshape((1,) * a.x.dim())


def _of_prelu(g: Tensor, a: Arguments) -> Tensor:
    return _chosen(a.x.detach() > 0, g, ops.multiply(g, _weights(a)))


def _of_prelu_weights(g: Tensor, a: Arguments) -> Tensor:
    each = _chosen(a.x.detach() > 0, 0.0, ops.multiply(g, a.x))
    axes = [axis for axis, size in enumerate(_weights(a).shape) if size == 1]
    return ops.sum(each, axes, keepdims=True).reshape(a.weight.shape) if axes else each


TABLE: Mapping[str, Gradients] = {
    "relu": Counterpart(elementwise.relu),
    "relu6": Counterpart(elementwise.relu6),
    "leaky_relu": Counterpart(elementwise.leaky_relu),
    "elu": Counterpart(elementwise.elu),
    "gelu": Counterpart(elementwise.gelu),
    "silu": Counterpart(elementwise.silu),
    "mish": Counterpart(elementwise.mish),
    "softplus": Counterpart(_softplus),
    "sigmoid": Counterpart(elementwise.sigmoid),
    "logsigmoid": Counterpart(elementwise.logsigmoid),
    "tanh": Counterpart(elementwise.tanh),
    "hardsigmoid": Counterpart(elementwise.hardsigmoid),
    "hardswish": Counterpart(elementwise.hardswish),
    "hardtanh": Counterpart(elementwise.hardtanh),
    "prelu": {
        "x": Rule(_of_prelu, ("x", "weight")),
        "weight": Rule(_of_prelu_weights, ("x", "weight")),
    },
    "absolute": {"x": Rule(lambda g, a: ops.multiply(g, a.x.detach().sign()), ("x",))},
    "exp": {"x": Rule(lambda g, a: ops.multiply(g, a.result), ("result",))},
    "log": {"x": Rule(lambda g, a: ops.divide(g, a.x), ("x",))},
    "sqrt": {"x": Rule(lambda g, a: ops.divide(ops.multiply(g, 0.5), a.result), ("result",))},
    "square": {"x": Rule(lambda g, a: ops.multiply(ops.multiply(g, 2.0), a.x), ("x",))},
    "clip": {
        "x": Rule(_of_clipped, _CLIPPED),
        **dict.fromkeys(("a_min", "min"), Rule(_of_least, _CLIPPED)),
        **dict.fromkeys(("a_max", "max"), Rule(_of_most, _CLIPPED)),
    },
    "where": {
        "x": Rule(lambda g, a: _chosen(a.condition, g, 0.0), ("condition",)),
        "y": Rule(lambda g, a: _chosen(a.condition, 0.0, g), ("condition",)),
    },
    "add": {"x": Rule(lambda g, _: g), "y": Rule(lambda g, _: g)},
    "subtract": {"x": Rule(lambda g, _: g), "y": Rule(lambda g, _: _negative(g))},
    "multiply": {
        "x": Rule(lambda g, a: ops.multiply(g, a.y), ("y",)),
        "y": Rule(lambda g, a: ops.multiply(g, a.x), ("x",)),
    },
    "divide": {
        "x": Rule(lambda g, a: ops.divide(g, a.y), ("y",)),
        "y": Rule(_of_divisor, ("x", "y")),
    },
    "maximum": _extreme(True),
    "minimum": _extreme(False),
}
