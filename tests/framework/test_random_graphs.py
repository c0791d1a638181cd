"""Random graphs against ONNX Runtime: fusion, layouts, in-place steps and liveness together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnl.framework.lowering import LAYOUTS
from dnnl.runtime.engine import Engine
from tests.framework.models import assert_same, feeds_for, make_model, model_of, node, run_peer

SHAPE = (2, 16, 4, 5)
OPERATORS = (
    *("Conv", "Depthwise", "Relu", "Tanh", "Add", "Mul", "Sub", "Sum", "MaxPool", "AveragePool"),
    *("BatchNormalization", "Concat", "Shuffle", "Transpose", "Reshape", "Factor", "Dense"),
)


class Builder:
    """A graph of values that all have ``SHAPE``."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.values = ["x", "z"]

    def fresh(self) -> str:
        return f"v{len(self.nodes)}"

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        self.nodes.append(node(op, inputs, result := self.fresh(), **attrs))
        return result

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def weights(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:])))

    def pick(self) -> str:
        """A value, recent ones more often."""
        back = min(int(self.rng.exponential(2.0)), len(self.values) - 1)
        return self.values[-1 - back]

    def rearranged(self, op: str, x: str) -> str:
        """Reshapes and transpositions that come back to ``SHAPE``."""
        n, c, h, w = SHAPE
        if op == "Shuffle":
            x = self.add("Reshape", x, self.constant(np.array([n, 4, c // 4, h, w])))
            x = self.add("Transpose", x, perm=[0, 2, 1, 3, 4])
        elif op == "Reshape":
            x = self.add("Flatten", x)
        else:
            x = self.add("Relu", self.add("Transpose", x, perm=[0, 2, 3, 1]))
            return self.add("Transpose", x, perm=[0, 3, 1, 2])
        return self.add("Reshape", x, self.constant(np.array(SHAPE)))

    def step(self) -> None:
        """Add a random operator."""
        op = str(self.rng.choice(OPERATORS))
        x = self.pick()
        _, c, _, w = SHAPE
        match op:
            case "Conv":
                size = int(self.rng.choice([1, 3]))
                pads = [size // 2] * 4
                x = self.add("Conv", x, self.weights(c, c, size, size), pads=pads)
            case "Depthwise":
                weights = self.weights(c, 1, 3, 3)
                x = self.add("Conv", x, weights, pads=[1] * 4, group=c)
            case "Add" | "Mul" | "Sub":
                x = self.add(op, x, self.pick())
            case "Sum":
                x = self.add("Sum", x, self.pick(), self.pick())
            case "MaxPool" | "AveragePool":
                x = self.add(op, x, kernel_shape=[3, 3], pads=[1] * 4)
            case "BatchNormalization":
                parameters = [self.constant(self.rng.standard_normal(c)) for _ in range(3)]
                variance = self.constant(self.rng.uniform(0.5, 2.0, c))
                x = self.add("BatchNormalization", x, *parameters, variance)
            case "Concat":
                x = self.add("Concat", x, self.pick(), axis=1)
                x = self.add("Conv", x, self.weights(c, 2 * c, 1, 1))
            case "Shuffle" | "Transpose" | "Reshape":
                x = self.rearranged(op, x)
            case "Factor":
                x = self.add("Mul", x, self.weights(c, 1, 1))
            case "Dense":
                x = self.add("MatMul", x, self.weights(w, w))
            case _:
                x = self.add(op, x)
        # Tanh keeps products of products in range.
        self.values.append(self.add("Tanh", x) if op in ("Mul", "Sum") else x)


@pytest.mark.parametrize("seed", range(12))
def test_random_graph(seed: int) -> None:
    builder = Builder(seed)
    for _ in range(14):
        builder.step()
    outputs = [builder.values[-1], str(builder.rng.choice(builder.values[2:]))]
    outputs = sorted({*outputs, f"v{len(builder.nodes) - 1}"})
    inputs = {"x": SHAPE, "z": SHAPE}
    proto = make_model(builder.nodes, inputs, outputs, builder.constants)
    model = model_of(proto)
    feeds = feeds_for(model.graph)
    session = model.compile(Engine("cpu"), layout=LAYOUTS[seed % 2], num_threads=1 + seed // 2 % 2)
    expected = run_peer(proto, feeds)
    assert_same(session.run(feeds), expected, 1e-3)
    assert_same(session.run(feeds), expected, 1e-3)
