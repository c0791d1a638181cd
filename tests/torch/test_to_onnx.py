"""Models of PyTorch as ONNX files, which ONNX checks and ONNX Runtime runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

import dnnl
from tests.torch.compiling import Called
from tests.torch.quantizing import Perceptron, Residual, quantized

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The tensor attributes .*_flat_weights:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*skip annotate.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*erase_node.*:UserWarning"),
]

IMAGES, TOKENS = (2, 3, 6, 8), (2, 5, 16)
BYTES = torch.arange(12, dtype=torch.uint8).reshape(3, 4)
attention = functional.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def resized(**how: Any) -> Called:
    return Called(lambda x: functional.interpolate(x, **how))


def check(net: nn.Module, given: tuple[torch.Tensor, ...], tmp_path: Path, opset: int) -> None:
    """The file declares the lowest operator set that has all operators, holds nothing that is not
    read, and gives the same as the module in ONNX Runtime and when it is read again."""
    path, expected = tmp_path / "net.onnx", net(*given)
    first = expected if isinstance(expected, torch.Tensor) else expected[0]
    path.write_bytes(dnnl.from_torch(net, given).to_onnx())
    proto = onnx.load(path)
    onnx.checker.check_model(proto, full_check=True)
    assert {own.domain: own.version for own in proto.opset_import} == {"": opset}
    read = {value for node in proto.graph.node for value in node.input}
    assert {tensor.name for tensor in proto.graph.initializer} <= read
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = {own.name: x.numpy() for own, x in zip(session.get_inputs(), given, strict=True)}
    found = torch.from_numpy(session.run(None, feeds)[0])
    again = dnnl.load(path)
    ours = again(*given) if len(again.outputs) == 1 else again(*given)[again.outputs[0]]
    for own in (found, ours):
        torch.testing.assert_close(own, first.detach(), rtol=1e-4, atol=1e-5)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[torch.Tensor | tuple[int, ...], ...], int]]
NETWORKS = {
    "SiLU": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU()),
        (IMAGES,),
        21,
    ),
    "attention": (lambda: Called(attention), ((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 6)), 23),
    "causal": (
        lambda: Called(lambda q, k, v: attention(q, k, v, is_causal=True)),
        ((4, 5, 8), (4, 7, 8), (4, 7, 6)),
        23,
    ),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (TOKENS,), 23),
    "RMSNorm": (lambda: nn.RMSNorm((5, 16)), (TOKENS,), 23),
    "cumprod": (lambda: Called(lambda x: functional.silu(x.cumprod(1))), (TOKENS,), 26),
    "LSTM": (lambda: nn.LSTM(16, 6, 2, bidirectional=True), (TOKENS,), 21),
    "GRU": (lambda: nn.GRU(16, 6, batch_first=True), (TOKENS,), 21),
    "RNN": (lambda: nn.RNN(16, 6, nonlinearity="relu"), (TOKENS,), 21),
    "nearest": (lambda: resized(scale_factor=2), (IMAGES,), 21),
    "nearest, exact": (lambda: resized(size=(9, 16), mode="nearest-exact"), (IMAGES,), 21),
    "linear": (lambda: resized(scale_factor=1.7, mode="linear"), (TOKENS,), 21),
    "bilinear": (lambda: resized(size=(9, 14), mode="bilinear"), (IMAGES,), 21),
    "corners": (lambda: resized(size=(9, 14), mode="bilinear", align_corners=True), (IMAGES,), 21),
    "bicubic": (lambda: resized(scale_factor=0.5, mode="bicubic"), (IMAGES,), 21),
    "trilinear": (lambda: resized(size=(5, 9, 14), mode="trilinear"), ((1, 2, 4, 6, 8),), 21),
    "negative bytes": (lambda: Called(lambda x: -x), (BYTES,), 21),
    "powers of bytes": (lambda: Called(lambda x: x**3), (BYTES,), 21),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str, tmp_path: Path) -> None:
    make, given, opset = NETWORKS[name]
    tensors = tuple(own if isinstance(own, torch.Tensor) else torch.randn(own) for own in given)
    check(make().eval(), tensors, tmp_path, opset)


@pytest.mark.parametrize("folded", [True, False])
@pytest.mark.parametrize(("make", "shape"), [(Residual, (4, 3, 18, 17)), (Perceptron, (7, 32))])
def test_int8(
    make: Callable[[], nn.Module], shape: tuple[int, ...], folded: bool, tmp_path: Path
) -> None:
    x = torch.randn(shape)
    check(quantized(make(), x, folded=folded), (x,), tmp_path, 21)


def test_what_onnx_lacks_is_named() -> None:
    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(3, track_running_stats=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scales = (1.5, 2)
            return functional.interpolate(self.norm(x), scale_factor=scales, mode="bilinear")

    model = dnnl.from_torch(Several().eval(), torch.randn(2, 3, 6, 8))
    with pytest.raises(dnnl.Unimplemented, match="nodes that ONNX cannot hold") as caught:
        model.to_onnx()
    assert "(BatchNormalizationTraining)" in str(caught.value)
    assert "(ResizeByRule)" in str(caught.value)


@pytest.mark.parametrize(("length", "is_exact"), [(30, True), (90, False)])
def test_a_length_that_onnx_rounds_otherwise(length: int, is_exact: bool) -> None:
    """90 times 0.7 is 62 in f64, 63 in f32, in which ONNX multiplies."""
    model = dnnl.from_torch(resized(scale_factor=0.7, mode="linear"), torch.randn(1, 2, length))
    if is_exact:
        assert model.to_onnx()
        return
    with pytest.raises(dnnl.Unimplemented, match="ResizeByRule"):
        model.to_onnx()
