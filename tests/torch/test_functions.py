"""The differentiable functions beside PyTorch's own: results, gradients, tracing, refusals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional

import dnnl.torch.modules  # which defines all operators
from dnnl import math
from dnnl.errors import InvalidArguments, Unimplemented
from tests.torch.differentiating import check_gradients, traces

ACTIVATIONS = (
    "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish",
    "relu", "relu6", "sigmoid", "silu", "softplus", "tanh",
)  # fmt: skip
LAST = torch.channels_last
BATCHES = ((4, 12, 5, 3), (6, 12), (3, 12, 7), (2, 12, 3, 4, 5), (0, 12, 3, 3))
WINDOWS: tuple[dict[str, Any], ...] = (
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (3, 2), "stride": 2, "ceil_mode": True},
    {"kernel_size": 2},
)
PROBLEMS: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((3, 16, 9, 8), (20, 16, 3, 3), {"stride": 2, "padding": 1}),
    ((3, 16, 9, 8), (20, 8, 3, 5), {"groups": 2, "padding": "same"}),
    ((2, 19, 9, 8), (19, 1, 3, 3), {"groups": 19, "dilation": 2, "padding": (2, 1)}),
    ((17, 9, 8), (5, 17, 1, 1), {"padding": "valid"}),
    ((0, 3, 9, 8), (5, 3, 3, 3), {}),
    ((2, 3, 19), (20, 3, 4), {"stride": 3}),
    ((2, 3, 5, 6, 7), (20, 3, 3, 2, 3), {"padding": 1}),
)


pytestmark = pytest.mark.usefixtures("with_gradients")


def both(name: str, **params: Any) -> tuple[Any, Any]:
    """The library's function and PyTorch's, with some arguments."""
    own, expected = getattr(dnnl.torch, name), getattr(functional, name)
    return partial(own, **params), partial(expected, **params)


def _two(functions: list[Any]) -> tuple[Any, Any]:
    first, second = functions
    return first, second


def doubles(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation(name: str) -> None:
    for x in (
        torch.randn(3, 19),
        torch.randn(2, 3, 5, 7).to(memory_format=LAST),
        torch.randn(9, 4)[::2],
        torch.randn(()),
        torch.empty(0, 3),
    ):
        check_gradients(*both(name), x)
    check_gradients(*both(name), torch.randn(5, 40).bfloat16(), tolerance=2e-2)
    assert gradcheck(getattr(dnnl.torch, name), doubles(3, 5))


def test_an_activation_of_ones_own() -> None:
    own = dnnl.torch.activation(lambda x: x * math.tanh(x) + 0.5)
    again = dnnl.torch.activation(lambda y: y * math.tanh(y) + 0.5)
    other = dnnl.torch.activation(lambda x: x * 3.0)

    def expected(x: torch.Tensor) -> torch.Tensor:
        return x * x.tanh() + 0.5

    for x in (torch.randn(3, 19), torch.randn(2, 3, 5, 7).to(memory_format=LAST), torch.randn(())):
        check_gradients(own, expected, x)
        check_gradients(again, expected, x)
        check_gradients(other, lambda x: x * 3.0, x)
    assert gradcheck(own, doubles(3, 5))
    traces(own, torch.randn(3, 19))
    x = torch.randn(3, requires_grad=True)
    torch.library.opcheck(torch.ops.dnnl.function.default, (x, 0))
    with pytest.raises(InvalidArguments, match="fn"):
        dnnl.torch.activation(lambda x, y: x + y)


def test_parameters_of_activations() -> None:
    x = torch.randn(7, 9)
    for name, params in (
        ("gelu", {"approximate": "tanh"}),
        ("leaky_relu", {"negative_slope": -0.3}),
        ("elu", {"alpha": 0.7}),
        ("hardtanh", {"min_val": -0.2, "max_val": 0.5}),
        ("softplus", {"beta": 2.0}),
    ):
        check_gradients(*both(name, **params), x)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", [(5, 7, 33), (64, 33), (33,), (0, 33)])
def test_linear(shape: tuple[int, ...]) -> None:
    x, weight, bias = torch.randn(shape), torch.randn(19, 33), torch.randn(19)
    check_gradients(*both("linear"), x, weight, bias)
    check_gradients(*both("linear"), x, torch.randn(33, 19).t())
    check_gradients(*both("linear"), x[..., :0], weight[:, :0], bias)
    small = (x.bfloat16(), weight.bfloat16(), bias.bfloat16())
    check_gradients(*both("linear"), *small, tolerance=5e-2)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(("source", "weight", "params"), PROBLEMS)
def test_a_convolution(
    source: tuple[int, ...], weight: tuple[int, ...], params: dict[str, Any]
) -> None:
    pair = both(f"conv{len(weight) - 2}d", **params)
    given = [torch.randn(source), torch.randn(weight), torch.randn(weight[0])]
    check_gradients(*pair, *given)
    check_gradients(*pair, *given[:2])
    if len(source) == 4:
        given[0] = given[0].to(memory_format=LAST)
        check_gradients(*pair, *given)
        if source[0]:
            assert pair[0](*given).is_contiguous(memory_format=LAST)
        given[0] = torch.randn(*source[:3], 2 * source[3])[..., ::2]
        check_gradients(*pair, *given)
    check_gradients(*pair, *(own.bfloat16() for own in given), tolerance=1e-1)


def test_gradients_of_products_in_f64() -> None:
    assert gradcheck(dnnl.torch.linear, (doubles(3, 5), doubles(4, 5), doubles(4)))
    assert gradcheck(dnnl.torch.conv2d, (doubles(2, 5, 4, 4), doubles(4, 5, 3, 3), doubles(4)))


@pytest.mark.usefixtures("threads")
def test_layer_norm() -> None:
    for shape, count in (((3, 5, 33), 1), ((3, 5, 33), 2), ((33,), 1), ((0, 33), 1)):
        x, own = torch.randn(shape), shape[len(shape) - count :]
        pair = both("layer_norm", normalized_shape=own)
        check_gradients(*pair, x)
        given = torch.randn(own), torch.randn(own)
        affine = [lambda x, w, b, f=each: f(x, weight=w, bias=b) for each in pair]
        check_gradients(*_two(affine), x, *given)
        check_gradients(*_two(affine), x.bfloat16(), *(g.bfloat16() for g in given), tolerance=5e-2)


@pytest.mark.parametrize("shape", [(4, 12, 5, 3), (4, 12), (2, 12, 9)])
def test_group_norm(shape: tuple[int, ...]) -> None:
    pair = _two([lambda x, w, b, f=each: f(x, 3, w, b) for each in both("group_norm")])
    given = torch.randn(12), torch.randn(12)
    check_gradients(*pair, torch.randn(shape), *given)
    if len(shape) == 4:
        check_gradients(*pair, torch.randn(shape).to(memory_format=LAST), *given)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("shape", BATCHES)
def test_batch_norm(shape: tuple[int, ...], training: bool) -> None:
    images = [torch.randn(shape)]
    if len(shape) == 4:
        images.append(images[0].to(memory_format=LAST))
    for x in images:
        running = [[torch.zeros(12), torch.ones(12)] for _ in range(2)]
        pair = _two(
            [
                lambda x, w, b, f=each, r=own: f(x, *r, w, b, training, 0.3)
                for each, own in zip(both("batch_norm"), running, strict=True)
            ]
        )
        check_gradients(*pair, x, torch.randn(12), torch.randn(12))
        torch.testing.assert_close(*running)


def test_batch_norm_without_running_statistics() -> None:
    pair = both("batch_norm", running_mean=None, running_var=None, training=True)
    check_gradients(*pair, torch.randn(5, 7))


def test_softmax() -> None:
    for name in ("softmax", "log_softmax"):
        for shape, dim in (((3, 5, 19), 0), ((3, 5, 19), 1), ((3, 5, 19), -1), ((0, 4), 1)):
            check_gradients(*both(name, dim=dim), torch.randn(shape))
        last = torch.randn(3, 5, 6, 4).to(memory_format=LAST)
        check_gradients(*both(name, dim=1), last)
        check_gradients(*both(name, dim=-1), torch.randn(()))
        assert gradcheck(partial(getattr(dnnl.torch, name), dim=1), doubles(3, 5))


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("window", WINDOWS)
def test_a_pooling(window: dict[str, Any]) -> None:
    for name in ("max_pool2d", "avg_pool2d"):
        pair = both(name, **window)
        for x in (
            torch.randn(2, 5, 9, 8),
            torch.randn(2, 5, 9, 8).to(memory_format=LAST),
            torch.randn(5, 9, 16)[..., ::2],
            torch.empty(0, 5, 9, 8),
        ):
            check_gradients(*pair, x)
        check_gradients(*pair, torch.randn(2, 20, 9, 8).bfloat16(), tolerance=2e-2)
        assert gradcheck(pair[0], doubles(2, 3, 6, 7))


def test_poolings_of_other_dimensions() -> None:
    for name, shape in (("pool1d", (2, 5, 9)), ("pool3d", (2, 5, 9, 7, 6))):
        for kind in ("max", "avg"):
            pair = both(f"{kind}_{name}", kernel_size=3, padding=1)
            check_gradients(*pair, torch.randn(shape))
    pair = both("avg_pool2d", kernel_size=3, padding=1, count_include_pad=False, stride=2)
    check_gradients(*pair, torch.randn(2, 3, 7, 8))
    pair = both("max_pool2d", kernel_size=17)
    check_gradients(*pair, torch.randn(2, 3, 18, 20))  # numbers of taps beyond u8


def test_operators_follow_the_rules_of_pytorch() -> None:
    own, check = torch.ops.dnnl, torch.library.opcheck
    x, weight, bias = (torch.randn(s, requires_grad=True) for s in ((3, 8), (5, 8), (5,)))
    image = torch.randn(2, 4, 6, 6, requires_grad=True)
    kernel = torch.randn(6, 4, 3, 3, requires_grad=True)
    check(own.eltwise.default, (x, "eltwise_gelu_erf", 0.0, 0.0))
    check(own.linear.default, (x, weight, bias))
    check(own.convolution.default, (image, kernel, None, [1, 1], [1, 1], [1, 1], 1))
    check(own.normalization.default, (image, None, None, None, None, 2, 1e-5))
    check(own.softmax.default, (x, "softmax_accurate", 1))
    window = [2, 2], [2, 2], [0, 0], [1, 1], [3, 3]
    check(own.pooling.default, (image, "pooling_max", *window))
    check(own.pooling.default, (image, "pooling_avg_exclude_padding", *window))


def test_functions_trace() -> None:
    def net(x: torch.Tensor, weight: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        own = dnnl.torch
        x = own.relu(own.conv2d(x, weight, padding=1))
        x = own.max_pool2d(own.batch_norm(x, None, None, training=True), 2)
        x = own.linear(own.layer_norm(x.flatten(1), x.shape[1:].numel()), last)
        return own.softmax(x, -1)

    traces(net, torch.randn(3, 3, 8, 8), torch.randn(8, 3, 3, 3), torch.randn(5, 128))


def test_windows_of_open_sizes_are_exported() -> None:
    class Mean(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            own: torch.Tensor = dnnl.torch.avg_pool1d(x, x.shape[-1])
            return own

    sizes = {"x": {2: torch.export.Dim("width", min=2, max=300)}}
    program = torch.export.export(Mean(), (torch.randn(2, 3, 8),), dynamic_shapes=sizes)
    for width in (8, 2, 300):
        x = torch.randn(2, 3, width)
        torch.testing.assert_close(program.module()(x), x.mean(-1, keepdim=True))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_forward_derivatives_are_refused() -> None:
    x, weight = torch.randn(2, 3), torch.randn(4, 3)
    for function, given in ((dnnl.torch.tanh, x), (partial(dnnl.torch.linear, x), weight)):
        with pytest.raises(Unimplemented, match="dual tensor"):
            torch.func.jvp(function, (given,), (given,))


def test_second_derivatives_are_refused() -> None:
    x = torch.randn(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(dnnl.torch.tanh(x).sum(), x, create_graph=True)
    with pytest.raises(Unimplemented, match="second derivative of activations"):
        torch.autograd.backward(gradient.sum())


def test_bad_arguments_are_refused() -> None:
    own: Any = dnnl.torch
    x = torch.randn(2, 4, 6, 6)
    flat, kernel = torch.randn(3, 8), torch.randn(6, 4, 3, 3)
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: own.relu(3), "x"),
        (lambda: own.relu(torch.ones(3, dtype=torch.int32)), "x"),
        (lambda: own.gelu(x, "erf"), "approximate"),
        (lambda: own.hardtanh(x, 1, 0), "max_val"),
        (lambda: own.softplus(x, 0), "beta"),
        (lambda: own.linear(flat, torch.randn(5, 7)), "x"),
        (lambda: own.linear(flat, torch.randn(8)), "weight"),
        (lambda: own.linear(flat, torch.randn(5, 8).double()), "weight"),
        (lambda: own.linear(flat, torch.randn(5, 8), torch.randn(4)), "bias"),
        (lambda: own.conv2d(x[0, 0], kernel), "x"),
        (lambda: own.conv2d(x, kernel[0]), "weight"),
        (lambda: own.conv2d(x[:, :3], kernel), "x"),
        (lambda: own.conv2d(x, kernel, groups=4), "groups"),
        (lambda: own.conv2d(x, kernel, padding="full"), "padding"),
        (lambda: own.conv2d(x, kernel, stride=2, padding="same"), "padding"),
        (lambda: own.conv2d(x, kernel, stride=0), "stride"),
        (lambda: own.conv2d(x, kernel, stride=None), "stride"),
        (lambda: own.conv2d(x, kernel, stride=(1.0, 1.0)), "stride"),
        (lambda: own.conv2d(x, kernel, dilation=3), "weight"),
        (lambda: own.conv2d(x, kernel, padding=1.0), "padding"),
        (lambda: own.conv2d(x, kernel, groups=1.0), "groups"),
        (lambda: own.conv2d(x[:, :, :0], kernel, padding=2), "x"),
        (lambda: own.layer_norm(x, 5), "normalized_shape"),
        (lambda: own.layer_norm(x, None), "normalized_shape"),
        (lambda: own.group_norm(x, 3), "num_groups"),
        (lambda: own.group_norm(x, 2.0), "num_groups"),
        (lambda: own.batch_norm(x, None, None), "running_mean"),
        (lambda: own.batch_norm(x[:1, :, :1, :1], None, None, training=True), "x"),
        (lambda: own.softmax(x, 4), "dim"),
        (lambda: own.softmax(x, None), "dim"),
        (lambda: own.max_pool2d(x, "2"), "kernel_size"),
        (lambda: own.max_pool2d(x, 3, padding=2), "padding"),
        (lambda: own.max_pool2d(x, 7), "kernel_size"),
    ]
    for call, argument in cases:
        with pytest.raises(InvalidArguments) as found:
            call()
        assert found.value.argument == argument
    with pytest.raises(Unimplemented, match="ceil_mode"):
        own.avg_pool2d(x, 3, 2, 1, ceil_mode=True)
