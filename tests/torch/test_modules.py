"""Modules that compute by the library, and networks that exchange PyTorch's for them."""

from __future__ import annotations

import logging
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import dnnl.torch
from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.torch import modules
from tests.torch.differentiating import check_gradients

IMAGES, ROWS = (2, 6, 9, 8), (3, 5, 8)
CASES: tuple[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]], ...] = (
    ("Linear", (8, 5), {}, ROWS),
    ("Linear", (8, 5), {"bias": False}, ROWS),
    ("Conv1d", (5, 4, 3), {"padding": 1}, ROWS),
    ("Conv2d", (6, 4, 3), {"stride": 2, "padding": (1, 0), "groups": 2}, IMAGES),
    ("Conv2d", (6, 4, 3), {"padding": "same", "padding_mode": "reflect"}, IMAGES),
    ("Conv3d", (2, 4, 3), {"dilation": 2, "bias": False}, (1, 2, 7, 6, 5)),
    ("LayerNorm", (8,), {}, ROWS),
    ("LayerNorm", ((5, 8),), {"bias": False, "eps": 1e-3}, ROWS),
    ("GroupNorm", (3, 6), {}, IMAGES),
    ("BatchNorm1d", (5,), {}, ROWS),
    ("BatchNorm2d", (6,), {"momentum": None}, IMAGES),
    ("BatchNorm2d", (6,), {"track_running_stats": False, "affine": False}, IMAGES),
    ("BatchNorm3d", (2,), {"momentum": 0.3}, (3, 2, 3, 2, 2)),
    ("MaxPool1d", (3,), {"stride": 2}, ROWS),
    ("MaxPool2d", (3, 2, 1), {"ceil_mode": True}, IMAGES),
    ("MaxPool3d", (2,), {}, (1, 2, 7, 6, 5)),
    ("AvgPool1d", (3,), {"padding": 1}, ROWS),
    ("AvgPool2d", (3, 2, 1), {"count_include_pad": False}, IMAGES),
    ("AvgPool3d", (2,), {}, (1, 2, 7, 6, 5)),
    ("ReLU", (), {"inplace": True}, ROWS),
    ("LeakyReLU", (0.2,), {}, ROWS),
    ("GELU", ("tanh",), {}, ROWS),
    ("Tanh", (), {}, ROWS),
    ("Sigmoid", (), {}, ROWS),
    ("SiLU", (), {}, ROWS),
    ("ELU", (0.5,), {}, ROWS),
    ("Mish", (), {}, ROWS),
    ("Hardswish", (), {}, ROWS),
    ("Hardsigmoid", (), {}, ROWS),
    ("ReLU6", (), {}, ROWS),
    ("Hardtanh", (-0.5, 0.3), {}, ROWS),
    ("Softplus", (2.0,), {}, ROWS),
    ("LogSigmoid", (), {}, ROWS),
    ("Softmax", (-1,), {}, ROWS),
    ("LogSoftmax", (1,), {}, ROWS),
    ("LSTM", (8, 6), {"proj_size": 4}, ROWS),
    ("GRU", (8, 6), {"bidirectional": True, "num_layers": 2}, ROWS),
    ("RNN", (8, 6), {"nonlinearity": "relu", "batch_first": True}, ROWS),
)


pytestmark = pytest.mark.usefixtures("with_gradients")


class Residual(nn.Module):
    """What a ResNet has many of."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels // stride, channels, 3, stride, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels) for _ in range(3)])
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.short = nn.Conv2d(channels // stride, channels, 1, stride, bias=False)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[1](self.second(self.relu(self.norms[0](self.first(x)))))
        found: torch.Tensor = self.relu(y + self.norms[2](self.short(x)))
        return found


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, 2, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        Residual(16, 1), Residual(32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 5),
    )  # fmt: skip


class Tagger(nn.Module):
    """A label for each word of sentences."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 12)
        self.cells = nn.LSTM(12, 16, num_layers=2, bidirectional=True)
        self.label = nn.Linear(32, 7)

    def forward(self, sentences: PackedSequence) -> torch.Tensor:
        _, *rest = sentences
        states, _ = self.cells(PackedSequence(self.words(sentences.data), *rest))
        found: torch.Tensor = self.label(states.data)
        return found


def losses(net: nn.Module, x: Any, labels: torch.Tensor, steps: int) -> list[float]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), labels)
        torch.autograd.backward(loss)
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(("name", "given", "params", "shape"), CASES)
def test_a_module(
    name: str, given: tuple[Any, ...], params: dict[str, Any], shape: tuple[int, ...]
) -> None:
    expected = getattr(nn, name)(*given, **params)
    own = getattr(dnnl.torch, name)(*given, **params)
    own.load_state_dict(expected.state_dict())
    assert own.state_dict().keys() == expected.state_dict().keys()
    for training in (True, False):
        own.train(training)
        expected.train(training)

        def first(net: Any) -> Any:
            # inplace modules change a source that gradients need
            return lambda x, *_: net(x * 1)[0] if name in ("LSTM", "GRU", "RNN") else net(x * 1)

        check_gradients(first(own), first(expected), torch.randn(shape))
    torch.testing.assert_close(own.state_dict(), expected.state_dict())
    gradients = [[own.grad for own in net.parameters()] for net in (own, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-3)


def test_every_module_is_tested() -> None:
    homes = vars(dnnl.torch)["_HOMES"]
    own = {name for name, home in homes.items() if home in ("modules", "multihead")}
    # test_attention.py has that of attention, which takes three tensors.
    assert own - {"replace", "MultiheadAttention"} == {name for name, *_ in CASES}
    assert {each.__name__ for each in modules._OWN.values()} == own - {"replace"}


def test_a_residual_network_trains_as_with_pytorch(caplog: pytest.LogCaptureFixture) -> None:
    expected = resnet()
    own = deepcopy(expected)
    parameters = {name: id(each) for name, each in own.named_parameters()}
    with caplog.at_level(logging.INFO, "dnnl.torch"):
        assert dnnl.torch.replace(own) is own
    assert "4.first: Conv2d by dnnl" in caplog.messages
    assert {name: id(each) for name, each in own.named_parameters()} == parameters
    types = [type(each) for each in own.modules()]
    assert types.count(modules.Conv2d) == 7
    assert nn.Conv2d not in types
    assert nn.BatchNorm2d not in types
    x, labels = torch.randn(8, 3, 32, 32), torch.randint(5, (8,))
    wanted, found = losses(expected, x, labels, 12), losses(own, x, labels, 12)
    assert wanted[-1] < wanted[0] / 2
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)
    expected.load_state_dict(own.state_dict())
    torch.testing.assert_close(own.eval()(x), expected.eval()(x), rtol=1e-4, atol=1e-4)


def test_a_tagger_trains_as_with_pytorch() -> None:
    expected = Tagger()
    own = dnnl.torch.replace(deepcopy(expected))
    assert type(own.cells).__module__ == modules.__name__
    lengths = (5, 9, 1, 7)
    sentences = pack_sequence([torch.randint(50, (n,)) for n in lengths], enforce_sorted=False)
    labels = torch.randint(7, (sum(lengths),))
    wanted, found = (losses(net, sentences, labels, 10) for net in (expected, own))
    assert wanted[-1] < wanted[0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)


def test_what_the_library_lacks_stays_pytorchs(caplog: pytest.LogCaptureFixture) -> None:
    net = nn.Sequential(
        nn.MaxPool2d(2, return_indices=True), nn.AvgPool2d(2, divisor_override=3), nn.Softmax(),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True), nn.LayerNorm(5).double(), nn.Softplus(1.0, 3.0),
        nn.Dropout(),
    )  # fmt: skip
    with caplog.at_level(logging.INFO, "dnnl.torch"):
        dnnl.torch.replace(net)
    assert all(type(own).__module__.startswith("torch.nn") for own in net)
    assert "0: MaxPool2d by PyTorch: return_indices" in caplog.messages
    assert len(caplog.messages) == 6


def test_bad_modules_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="module"):
        dnnl.torch.replace(torch.relu)  # type: ignore[type-var]
    x = torch.randn(1, 2, 4, 4)
    with pytest.raises(Unimplemented, match="return_indices"):
        dnnl.torch.MaxPool2d(2, return_indices=True)(x)
    with pytest.raises(Unimplemented, match="divisor_override"):
        dnnl.torch.AvgPool2d(2, divisor_override=3)(x)
    with pytest.raises(InvalidArguments, match="dim"):
        dnnl.torch.Softmax()(x)


def _exported() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    own, image = dnnl.torch, torch.randn(4, 8, 9, 7)
    return {
        "linear": (own.Linear(7, 5), torch.randn(4, 7)),
        "convolution": (own.Conv2d(8, 6, 3), image),
        "batch": (own.BatchNorm2d(8), image),
        "layer": (own.LayerNorm(7), image),
        "layers": (own.LayerNorm((9, 7)), image),
        "group": (own.GroupNorm(2, 8), image),
        "maximum": (own.MaxPool2d(2), image),
        "average": (own.AvgPool2d(2), image),
        "gelu": (own.GELU(), image),
        "softmax": (own.Softmax(-1), image),
        "attention": (own.MultiheadAttention(8, 2, batch_first=True), torch.randn(4, 5, 8)),
        "gru": (own.GRU(8, 6, batch_first=True), torch.randn(4, 5, 8)),
    }


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", _exported())
def test_modules_are_exported_for_any_batch(name: str, strict: bool) -> None:
    module, x = _exported()[name]
    module.eval()
    arguments = (x, x, x) if name == "attention" else (x,)
    batch = torch.export.Dim("batch", min=2, max=64)
    shapes = tuple({0: batch} for _ in arguments)
    with torch.no_grad():
        program = torch.export.export(module, arguments, dynamic_shapes=shapes, strict=strict)
        others = [torch.cat([own, own[:3]]) for own in arguments]
        torch.testing.assert_close(program.module()(*others), module(*others))


def test_a_network_compiles_and_is_exported() -> None:
    expected = resnet().eval()
    own, x = dnnl.torch.replace(deepcopy(expected)), torch.randn(2, 3, 32, 32)
    compiled = torch.compile(own, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), expected(x), rtol=1e-4, atol=1e-4)
    program = torch.export.export(own, (x,))
    assert any("dnnl.convolution" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(x), expected(x), rtol=1e-4, atol=1e-4)
    cells = dnnl.torch.replace(nn.GRU(8, 6, num_layers=2, bidirectional=True))
    compiled = torch.compile(cells, fullgraph=True, backend="aot_eager")
    plain = nn.GRU(8, 6, num_layers=2, bidirectional=True)
    plain.load_state_dict(cells.state_dict())
    check_gradients(lambda x: compiled(x)[0], lambda x: plain(x)[0], torch.randn(5, 3, 8))
    with torch.no_grad():
        program = torch.export.export(cells, (torch.randn(5, 3, 8),))
    assert any("dnnl.recurrent_layer" in str(node.target) for node in program.graph.nodes)
