"""Networks that torchao's PT2E quantization has converted, beside PyTorch's run of the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn

import dnnl
from dnnl.framework.compiler import optimize
from dnnl.graph.graph import Graph
from dnnl.operators.quantization import QUANTIZED
from dnnl.passes.specialize import specialize
from tests.torch.compiling import compiled
from tests.torch.quantizing import Perceptron, Residual, Transformer, exported, quantized

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*skip annotate.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*erase_node.*:UserWarning"),
]

NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, int]] = {
    "residual": (Residual, (4, 3, 18, 17), 4, 0),
    "perceptron": (Perceptron, (7, 32), 3, 0),
    "transformer": (Transformer, (3, 9, 32), 6, 2),
}
"""A network, the shape of its input, and how many of its products are of bytes and of floats."""
OPTIONS: dict[str, dict[str, bool]] = {
    "static": {},
    "reduced": {"reduced": True},
    "unfolded": {"folded": False},
    "dynamic": {"dynamic": True},
    "dynamic, reduced": {"dynamic": True, "reduced": True},
}


def check(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Sums of integers are exact: a value in the middle between two steps makes the difference."""
    limit = 1e-3 * float(expected.abs().max())
    torch.testing.assert_close(found, expected, rtol=0, atol=limit)


def products(graph: Graph) -> Counter[str]:
    """The element types of both factors of each product that is computed."""
    graph, names = optimize(graph), QUANTIZED | {"Conv", "Gemm", "MatMul"}
    return Counter(
        " x ".join(str(graph.type_of(value).dtype) for value in node.inputs[:2])
        for node in graph.nodes
        if node.op in names
    )


CASES = [
    *(("residual", options) for options in OPTIONS),
    *(("perceptron", options) for options in ("static", "unfolded", "dynamic")),
    *(("transformer", options) for options in ("static", "dynamic")),
]


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.covers
def test_networks(name: str, options: str) -> None:
    """Batches other than that of the calibration run as well, on one thread and on two."""
    make, shape, of_bytes, of_floats = NETWORKS[name]
    x = torch.randn(shape)
    converted = quantized(make(), x, **OPTIONS[options])
    model = dnnl.from_torch(exported(converted, x))
    graph = specialize(model.with_shapes({next(iter(model.inputs)): shape}).graph)
    assert products(graph) == expected_products(of_bytes, of_floats)
    check(model(x), converted(x))
    other = torch.randn(5, *shape[1:])
    check(model(other, num_threads=2), converted(other))


def expected_products(of_bytes: int, of_floats: int) -> Counter[str]:
    return +Counter({"uint8 x int8": of_bytes, "float32 x float32": of_floats})


@pytest.mark.parametrize("options", ["static", "dynamic"])
@pytest.mark.parametrize("name", NETWORKS)
def test_torch_compile(name: str, options: str, plans: list[Any]) -> None:
    make, shape, *counts = NETWORKS[name]
    x = torch.randn(shape)
    converted = quantized(make(), x, **OPTIONS[options])
    check(compiled(converted)(x), converted(x))
    (graph,) = plans
    assert products(graph) == expected_products(*counts)


def test_each_pattern_is_one_step() -> None:
    """A convolution takes in its activation, its residual and the conversion of its result; two
    concatenations frame the image by its zero point."""
    x = torch.randn(4, 3, 18, 17)
    session = dnnl.from_torch(quantized(Residual(), x), x).compile()
    assert Counter(layer.primitive for layer in session.layers) == {
        "eltwise": 1,
        "concat": 2,
        "reorder": 1,
        "convolution": 3,
        "pooling": 2,
        "matmul": 1,
    }


@pytest.mark.parametrize("options", ["static", "reduced", "dynamic"])
def test_written_as_onnx_and_saved(options: str, tmp_path: Path) -> None:
    """ONNX Runtime computes the same of the QDQ model that the program is."""
    x = torch.randn(4, 3, 18, 17)
    converted = quantized(Residual(), x, **OPTIONS[options])
    model = dnnl.from_torch(converted, x)
    expected = converted(x)
    model.save(tmp_path / "net.dnnl")
    check(dnnl.load(tmp_path / "net.dnnl", compile=False)(x), expected)
    (tmp_path / "net.onnx").write_bytes(model.to_onnx())
    again = dnnl.load(tmp_path / "net.onnx")
    assert products(specialize(again.graph)) == Counter({"uint8 x int8": 4})
    session = onnxruntime.InferenceSession(
        tmp_path / "net.onnx", providers=["CPUExecutionProvider"]
    )
    check(torch.from_numpy(session.run(None, {"x": x.numpy()})[0]), expected)
