"""Training through torch.compile beside eager PyTorch: gradients, random numbers, steps."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import dnnl
from dnnl.torch.backend import compile_graph
from tests.torch.compiling import compiled

Function = Callable[..., torch.Tensor]


pytestmark = pytest.mark.usefixtures("with_gradients")


def gradients(function: Callable[..., Any], *arguments: torch.Tensor) -> list[torch.Tensor]:
    """The results, and the gradients of the arguments that have some, for random shares."""
    own = [x.detach().clone().requires_grad_(x.requires_grad) for x in arguments]
    torch.manual_seed(0)
    found = function(*own)
    results = list(found) if isinstance(found, tuple) else [found]
    torch.manual_seed(1)
    shares = [torch.randn_like(one) for one in results if one.requires_grad]
    wanted = [x for x in own if x.requires_grad]
    outputs = [one for one in results if one.requires_grad]
    return [*results, *torch.autograd.grad(outputs, wanted, shares)]


def agree(function: Callable[..., Any], *arguments: torch.Tensor, limit: float = 1e-5) -> None:
    """Compare two calls with eager."""
    own = torch.compile(function, backend=compile_graph, fullgraph=True)
    for _ in range(2):
        for ours, theirs in zip(
            gradients(own, *arguments), gradients(function, *arguments), strict=True
        ):
            scale = float(theirs.detach().abs().max()) if theirs.numel() else 0.0
            torch.testing.assert_close(ours, theirs, rtol=limit, atol=limit * max(scale, 1e-3))


def wanting(*shape: int) -> torch.Tensor:
    return torch.randn(shape, requires_grad=True)


@pytest.fixture
def whole(caplog: pytest.LogCaptureFixture) -> Callable[[], None]:
    """Checks that PyTorch has computed nothing so far."""
    caplog.set_level(logging.INFO, "dnnl.torch")

    def check() -> None:
        assert [record.getMessage() for record in caplog.records] == []

    return check


CONVOLUTIONS: dict[str, tuple[Function, tuple[int, ...], tuple[int, ...]]] = {
    "1d": (functional.conv1d, (2, 5, 19), (4, 5, 3)),
    "1x1": (functional.conv2d, (2, 20, 7, 9), (33, 20, 1, 1)),
    "padding, stride, dilation": (
        lambda x, w, b: functional.conv2d(x, w, b, (2, 1), (1, 2), (1, 2)),
        (2, 3, 11, 13),
        (17, 3, 3, 2),
    ),
    "groups": (lambda x, w, b: functional.conv2d(x, w, b, groups=3), (2, 6, 8, 8), (9, 2, 3, 3)),
    "depthwise": (
        lambda x, w, b: functional.conv2d(x, w, b, padding=1, groups=18),
        (2, 18, 8, 8),
        (18, 1, 3, 3),
    ),
    "3d": (functional.conv3d, (1, 3, 5, 6, 7), (4, 3, 2, 3, 2)),
    "no batch": (functional.conv2d, (3, 9, 8), (5, 3, 3, 3)),
    "without bias": (lambda x, w, b: functional.conv2d(x, w) + b[:, None, None], (2, 3, 9, 8),
        (5, 3, 3, 3)),
    "transposed": (
        lambda x, w, b: functional.conv_transpose2d(x, w, b, 2, 1, output_padding=1, groups=2),
        (2, 6, 5, 7),
        (6, 4, 3, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_convolutions(kind: str, whole: Callable[[], None]) -> None:
    function, source, weights = CONVOLUTIONS[kind]
    channels = 2 * weights[1] if kind == "transposed" else weights[0]
    x, weight, bias = wanting(*source), wanting(*weights), wanting(channels)
    agree(function, x, weight, bias)
    agree(function, x.detach(), weight, bias)
    agree(function, x, weight.detach(), bias)
    whole()


@pytest.mark.parametrize("shape", [(5, 6), (4, 6, 9), (3, 6, 5, 4), (2, 6, 3, 4, 5)])
@pytest.mark.parametrize("affine", [False, True])
def test_normalizations(shape: tuple[int, ...], affine: bool, whole: Callable[[], None]) -> None:
    x = wanting(*shape)
    scale, shift = (wanting(6), wanting(6)) if affine else (torch.ones(6), torch.zeros(6))

    def batch(x: torch.Tensor, scale: Any, shift: Any) -> tuple[torch.Tensor, ...]:
        mean, variance = torch.full((6,), 0.1), torch.full((6,), 1.5)
        weight, bias = (scale, shift) if affine else (None, None)
        options: Any = {"weight": weight, "bias": bias}
        moving = {**options, "training": True, "momentum": 0.3}
        trained = functional.batch_norm(x, mean, variance, **moving)
        frozen = functional.batch_norm(x, mean, variance, **options)
        alone = functional.batch_norm(x, None, None, **moving)
        return trained, frozen, alone, mean, variance

    def group(x: torch.Tensor, scale: Any, shift: Any) -> torch.Tensor:
        return functional.group_norm(x, 2, *((scale, shift) if affine else ()))

    def layer(x: torch.Tensor, scale: Any, shift: Any) -> torch.Tensor:
        moved, given = x.movedim(1, -1), (scale, shift) if affine else ()
        every = functional.layer_norm(x, x.shape[1:])
        return functional.layer_norm(moved, (6,), *given).movedim(-1, 1) + every

    for function in (batch, group, layer):
        agree(function, x, scale, shift, limit=2e-5)
    whole()


POOLINGS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "max 1d": (lambda x: functional.max_pool1d(x, 3), (2, 3, 10)),
    "max 2d": (lambda x: functional.max_pool2d(x, 3, 2, 1), (2, 3, 9, 10)),
    "max with places": (
        lambda x: functional.max_pool2d(x, 2, dilation=2, return_indices=True)[0] * 2,
        (3, 9, 10),
    ),
    "max, rounded up": (lambda x: functional.max_pool2d(x, 3, 2, ceil_mode=True), (1, 2, 8, 9)),
    "max 3d": (lambda x: functional.max_pool3d(x, 2), (2, 3, 4, 5, 6)),
    "average 2d": (lambda x: functional.avg_pool2d(x, 3, 2, 1), (2, 3, 9, 10)),
    "without padding": (
        lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        (2, 3, 9, 10),
    ),
    "divided by another number": (
        lambda x: functional.avg_pool2d(x, (2, 3), divisor_override=5),
        (2, 3, 9, 10),
    ),
    "average 3d": (lambda x: functional.avg_pool3d(x, 2), (2, 3, 4, 5, 6)),
}


@pytest.mark.parametrize("kind", POOLINGS)
def test_poolings(kind: str, whole: Callable[[], None]) -> None:
    function, shape = POOLINGS[kind]
    agree(function, wanting(*shape))
    whole()


def test_means_of_windows_beyond_the_padding() -> None:
    for included in (False, True):
        agree(
            lambda x, included=included: functional.avg_pool1d(x, 3, 2, 1, True, included),
            wanting(2, 3, 10),
        )


def test_equal_maxima() -> None:
    """The gradient goes where eager sends it."""
    x = torch.randint(0, 3, (2, 3, 9, 10)).float().requires_grad_()
    agree(lambda x: functional.max_pool2d(x, 3, 2, 1), x)


def test_functions(whole: Callable[[], None]) -> None:
    x, weight, bias = wanting(5, 7), wanting(9, 7), wanting(9)

    def net(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = functional.linear(x, weight, bias)
        return (
            *(y.softmax(-1), y.log_softmax(0), functional.gelu(y), functional.silu(y)),
            *(functional.hardswish(y), y.tanh() * y.sigmoid(), y.exp().sum(), y[:, 1::2].cumsum(1)),
            *(y.std(0), (y @ y.t()).relu(), torch.cat([y, y.flip(0)], 1).amax(1), y.clamp(-1, 1)),
        )

    agree(net, x, weight, bias)
    whole()


class Net(nn.Module):
    """Layers of all kinds that train."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
            nn.MaxPool2d(2),
            *(nn.Conv2d(16, 24, 3, stride=2), nn.GroupNorm(4, 24), nn.GELU()),
        )
        self.head = nn.Sequential(nn.LayerNorm(24), nn.Dropout(0.3), nn.Linear(24, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.body(x).mean((2, 3)))
        return found.log_softmax(-1)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_steps(layout: torch.memory_format) -> None:
    """Losses, parameters and buffers after some steps; inference between them sees the weights."""
    ours: Any = Net()
    ours.to(memory_format=layout)
    theirs, x = copy.deepcopy(ours), torch.randn(4, 3, 12, 14)
    function = compiled(ours)
    steps = [(net, torch.optim.Adam(net.parameters(), 0.01)) for net in (ours, theirs)]
    for step in range(4):
        images = torch.randn(4, 3, 12, 14).to(memory_format=layout)
        labels, losses = torch.randint(5, (4,)), []
        for (net, optimizer), call in zip(steps, (function, theirs), strict=True):
            torch.manual_seed(step)
            optimizer.zero_grad()
            loss: Any = functional.nll_loss(call(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            net.eval()
        torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            torch.testing.assert_close(function(x), theirs(x), rtol=1e-3, atol=1e-4)
        ours.train(), theirs.train()
    states = zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True)
    for own, other in states:
        torch.testing.assert_close(own, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    net = Net()
    exact, other, x = copy.deepcopy(net), copy.deepcopy(net), torch.randn(4, 3, 12, 14)
    for function, own in ((compiled(net), net), (other, other), (exact, exact)):
        torch.manual_seed(0)
        with torch.autocast("cpu", dtype, enabled=own is not exact):
            loss: Any = function(x).square().mean()
        loss.backward()
    triples = zip(net.parameters(), other.parameters(), exact.parameters(), strict=True)
    for ours, theirs, true in triples:
        assert ours.grad is not None
        assert theirs.grad is not None
        assert true.grad is not None
        limit = 2 * (theirs.grad - true.grad).norm() + 0.02 * true.grad.norm() + 1e-4
        assert (ours.grad - true.grad).norm() < limit


def test_all_operators_are_ours() -> None:
    """Forward and backward, but for the random numbers and the loss."""
    found = dnnl.explain_graph(Net(), torch.randn(4, 3, 12, 14))
    assert {name for name, _ in found.left} == {
        "aten.empty.memory_format",
        "aten.bernoulli.p",
    }
    operators = [own.operator for own in found.decisions]
    assert operators.count("aten.convolution.default") == 2
    assert operators.count("aten.convolution_backward.default") == 2


def test_random_numbers_come_in_the_order_of_eager() -> None:
    def net(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = functional.dropout(functional.linear(x, weight).relu(), 0.3)
        z = functional.dropout(y * torch.bernoulli(y.sigmoid()), 0.5) + torch.rand_like(y)
        last = functional.dropout(z.transpose(0, 1), 0.1), functional.dropout(z, 1.0)
        return *last, torch.rand(3) * 2

    agree(net, wanting(5, 16), wanting(16, 16))


@pytest.mark.parametrize("dynamic", [True, None])
def test_sizes_change(dynamic: bool | None, whole: Callable[[], None]) -> None:
    net = nn.Sequential(nn.Linear(7, 9), nn.LayerNorm(9), nn.GELU(), nn.Linear(9, 4))
    images = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
    for own, shape in ((net, (7,)), (images, (3, 12, 14))):
        torch._dynamo.reset()
        function = torch.compile(own, backend=compile_graph, dynamic=dynamic)
        for rows in (2, 5, 3, 6):
            x = torch.randn(rows, *shape, requires_grad=True)
            for ours, theirs in zip(gradients(function, x), gradients(own, x), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    whole()


def test_products_of_any_number_of_rows_have_one_plan(plans: list[Any]) -> None:
    net = nn.Sequential(nn.Linear(7, 9), nn.LayerNorm(9), nn.GELU(), nn.Linear(9, 4))
    function = torch.compile(net, backend=compile_graph, dynamic=True)
    for rows in (2, 5, 3, 6):
        gradients(function, torch.randn(rows, 7, requires_grad=True))
        assert len(plans) == 2  # forward and backward


@pytest.mark.parametrize("dynamic", [None, True])
def test_checkpoints_of_batch_normalization(dynamic: bool | None) -> None:
    """What is computed again does not read statistics that the forward pass has changed."""
    body = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Tanh(), nn.BatchNorm2d(6))
    nets = [copy.deepcopy(body) for _ in range(3)]
    calls: list[Callable[..., Any]] = [
        torch.compile(checkpointed(nets[0]), backend=compile_graph, dynamic=dynamic),
        torch.compile(checkpointed(nets[1]), backend="aot_eager", dynamic=dynamic),
        checkpointed(nets[2]),  # which updates statistics twice
    ]
    for images in (2, 1, 2):
        x = torch.randn(images, 3, 9, 7)
        for net, call in zip(nets, calls, strict=True):
            net.zero_grad()
            torch.autograd.backward(call(x).square().sum())
        ours, others, eager = ([own.grad for own in net.parameters()] for net in nets)
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours, others, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(list(nets[0].buffers()), list(nets[1].buffers()))


def checkpointed(net: nn.Module) -> Callable[[torch.Tensor], Any]:
    return lambda x: checkpoint(net, x, use_reentrant=False)


def test_checkpoints_and_modes() -> None:
    net = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.ReLU())

    def function(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = checkpoint(net, x, use_reentrant=False)
        with torch.no_grad():
            scale = net[0](x).abs().amax()
        result: torch.Tensor = found * scale
        return result

    agree(function, wanting(3, 6))
    own = compiled(function)
    x = torch.randn(3, 6)
    net.eval()
    with torch.no_grad():
        torch.testing.assert_close(own(x), function(x))


def test_second_derivatives_are_refused() -> None:
    x = wanting(3, 4)
    found = compiled(lambda x: (x @ x.t()).exp())(x)
    (first,) = torch.autograd.grad(found.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.grad(first.sum(), x)


def test_mutation_and_views() -> None:
    def function(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x @ weight
        y[1:].mul_(2)
        view = y[:, ::2]
        y.add_(1)
        return view.exp(), y.t()

    agree(function, wanting(4, 6), wanting(6, 6))
