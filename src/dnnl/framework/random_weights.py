"""Seeded parameters of a proper scale, for models that come without trained ones.

The mean and the variance of every value are followed through the graph, as if its elements were
independent and normal, and each weight tensor is scaled so that its node gives unit variance (He's
rule where a relu feeds it). Activations then stay of order one at any depth, and a value in the
wrong place shows in the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import Array, Graph, Node
from dnnl.types.layout_input import read_int


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and variance of the elements of a value."""

    mean: float = 0.0
    variance: float = 1.0

    @property
    def square(self) -> float:
        """Mean of the squared elements."""
        return self.mean**2 + self.variance


_UNIT = Moments()
_SPREAD = 0.1
"""Standard deviation of shifts, and about half the range of factors around one."""


class _Filler:
    """Walks a graph of known sizes and draws new parameters for its nodes."""

    def __init__(self, graph: Graph, seed: int) -> None:
        self.graph, self.seed = graph, seed
        self.moments: dict[str, Moments] = dict.fromkeys(graph.inputs, _UNIT)
        self.drawn: dict[str, Array] = {}

    def normal(self, value: str, deviation: float, mean: float = 0.0) -> None:
        """Draw constant ``value`` from a normal distribution, once."""
        if value and value not in self.drawn:
            old = self.graph.constants[value]
            array = self._rng().standard_normal(old.shape, np.float32)
            array *= deviation
            array += mean
            self.drawn[value] = array.astype(old.dtype, copy=False)

    def factor(self, value: str, scale: float = 1.0) -> None:
        """Draw constant ``value`` evenly around ``scale``, always of its sign."""
        if value not in self.drawn:
            old = self.graph.constants[value]
            array = self._rng().uniform(0.8, 1.2, old.shape) * scale
            self.drawn[value] = array.astype(old.dtype)

    def is_parameter(self, value: str) -> bool:
        """Whether ``value`` is a constant tensor of floats that has more than one element."""
        array = self.graph.constants.get(value)
        return array is not None and array.size > 1 and np.issubdtype(array.dtype, np.floating)

    def of(self, value: str) -> Moments:
        """Moments of any value."""
        if value in self.moments:
            return self.moments[value]
        array = self.drawn.get(value, self.graph.constants.get(value))
        if array is None or not np.issubdtype(array.dtype, np.floating) or not array.size:
            return _UNIT
        return Moments(float(array.mean()), float(array.var()))

    def visit(self, node: Node) -> None:
        """Draw the parameters of ``node`` and note the moments of its result."""
        result = _RULES.get(node.op, _unchanged)(self, node)
        self.moments.update(dict.fromkeys(node.outputs, result))

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, len(self.drawn)])


def with_random_weights(graph: Graph, seed: int) -> Graph:
    """A specialized graph with seeded values in all of its parameters."""
    if read_int("seed", seed) < 0:
        raise InvalidArguments("seed", seed, "must not be negative")
    filler = _Filler(graph, seed)
    for node in graph.nodes:
        filler.visit(node)
    return replace(graph, constants={**graph.constants, **filler.drawn})


def _product(filler: _Filler, node: Node) -> Moments:
    """Convolutions, Gemm and MatMul: unit variance out of weights [..] with a fan-in per result."""
    source, weights = node.inputs[0], node.inputs[1]
    if filler.is_parameter(source) and not filler.is_parameter(weights):
        source, weights = weights, source
    if not filler.is_parameter(weights):
        return _UNIT
    shape = filler.graph.shape_of(weights)
    if node.op == "Conv":
        fan_in = math.prod(shape[1:])
    elif node.op == "ConvTranspose":
        steps = node.attrs.get("group", 1) * math.prod(node.attrs.get("strides", ()))
        fan_in = shape[0] * math.prod(shape[2:]) // steps
    else:
        rows_first = node.attrs.get("transB", 0) or weights == node.inputs[0]
        fan_in = shape[-1] if rows_first else shape[0] if len(shape) == 1 else shape[-2]
    filler.normal(weights, 1.0 / math.sqrt(max(fan_in * filler.of(source).square, 1e-30)))
    if filler.is_parameter(node.input(2)):
        filler.normal(node.input(2), _SPREAD)
    return _UNIT


def _batch_normalization(filler: _Filler, node: Node) -> Moments:
    source = filler.of(node.inputs[0])
    deviation = math.sqrt(source.variance)
    filler.factor(node.inputs[1])
    filler.normal(node.inputs[2], _SPREAD)
    filler.normal(node.inputs[3], _SPREAD * deviation, source.mean)
    filler.factor(node.inputs[4], source.variance)
    return _UNIT


def _normalization(filler: _Filler, node: Node) -> Moments:
    """By the statistics of the source itself."""
    if filler.is_parameter(node.input(1)):
        filler.factor(node.input(1))
    if filler.is_parameter(node.input(2)):
        filler.normal(node.input(2), _SPREAD)
    return _UNIT


def _relu(filler: _Filler, node: Node) -> Moments:
    source = filler.of(node.inputs[0])
    mean, deviation = source.mean, math.sqrt(source.variance) or 1e-30
    below = 0.5 * math.erfc(-mean / deviation / math.sqrt(2.0))
    density = math.exp(-0.5 * (mean / deviation) ** 2) / math.sqrt(2.0 * math.pi)
    result = mean * below + deviation * density
    square = source.square * below + mean * deviation * density
    return Moments(result, max(square - result**2, 0.0))


def _sum(filler: _Filler, node: Node) -> Moments:
    for value in node.inputs:
        if filler.is_parameter(value):
            filler.normal(value, _SPREAD)
    sources = [filler.of(v) for v in node.inputs]
    sign = -1.0 if node.op == "Sub" else 1.0
    mean = sources[0].mean + sign * sum(s.mean for s in sources[1:])
    return Moments(mean, sum(s.variance for s in sources))


def _scale(filler: _Filler, node: Node) -> Moments:
    for value in node.inputs:
        if filler.is_parameter(value):
            filler.factor(value)
            return filler.of(next(v for v in node.inputs if v != value))
    a, b = (filler.of(v) for v in node.inputs)
    if node.op == "Div":
        return _UNIT
    mean = a.mean * b.mean
    return Moments(mean, a.square * b.square - mean**2)


def _max_pool(filler: _Filler, node: Node) -> Moments:
    source = filler.of(node.inputs[0])
    return Moments(source.mean + math.sqrt(source.variance), 0.5 * source.variance)


def _average_pool(filler: _Filler, node: Node) -> Moments:
    """Neighbours resemble each other, so the variance falls less than with their number."""
    source = filler.of(node.inputs[0])
    before, after = filler.graph.shape_of(node.inputs[0]), filler.graph.shape_of(node.output)
    kernel = node.attrs.get("kernel_shape", [max(math.prod(before) // math.prod(after), 1)])
    return Moments(source.mean, source.variance / math.sqrt(math.prod(kernel)))


def _concat(filler: _Filler, node: Node) -> Moments:
    sizes = [math.prod(filler.graph.shape_of(v)) for v in node.inputs]
    sources = [filler.of(v) for v in node.inputs]
    total = max(sum(sizes), 1)
    mean = sum(n * s.mean for n, s in zip(sizes, sources, strict=True)) / total
    square = sum(n * s.square for n, s in zip(sizes, sources, strict=True)) / total
    return Moments(mean, max(square - mean**2, 0.0))


def _unchanged(filler: _Filler, node: Node) -> Moments:
    return filler.of(node.inputs[0]) if node.inputs else _UNIT


_RULES: dict[str, Callable[[_Filler, Node], Moments]] = {
    "Add": _sum,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_normalization,
    "Concat": _concat,
    "Conv": _product,
    "ConvTranspose": _product,
    "Div": _scale,
    "Gemm": _product,
    "GlobalAveragePool": _average_pool,
    "GroupNormalization": _normalization,
    "InstanceNormalization": _normalization,
    "LayerNormalization": _normalization,
    "MatMul": _product,
    "MaxPool": _max_pool,
    "Mul": _scale,
    "RMSNormalization": _normalization,
    "ReduceMean": _average_pool,
    "Relu": _relu,
    "Sub": _sum,
    "Sum": _sum,
}
