"""Gradients of functions on arrays beside PyTorch's, and what is refused."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional

from dnnl import InvalidArguments, Unimplemented
from dnnl import ops as typed_ops
from dnnl.torch.derivatives.calls import TABLE
from tests.torch.differentiating import check_gradients

ops: Any = typed_ops
Shapes = tuple[tuple[int, ...], ...]
WITHOUT = {"cumprod", "local_response_norm"}
ROWS, IMAGES = (3, 4, 5), (2, 4, 7, 6)
MEAN, VARIANCE = torch.linspace(-1, 1, 4), torch.linspace(0.5, 2, 4)
CHOICE = torch.arange(12).reshape(3, 4) % 3 == 0
NUMBERS = torch.tensor([[1, 2, 1], [0, 3, 3]])
PLAIN = (
    "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish",
    "relu", "relu6", "sigmoid", "silu", "softplus", "tanh",
)  # fmt: skip
PAIRS = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
BROADCAST: tuple[Shapes, ...] = (
    ((3, 4), (3, 4)),
    ((3, 1), (4,)),
    ((), (2, 3)),
    ((2, 0, 3), (1, 3)),
    ((), ()),
)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=(1, 2), ids=("1thread", "2threads"))
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def drawn(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.randn(shape) for shape in shapes]


def doubles(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def both(name: str, *given: Any, home: Any = functional, **params: Any) -> tuple[Any, Any]:
    """The function on arrays and PyTorch's of that name, with further arguments."""

    def named(each: Any) -> Any:
        function = getattr(each, name)
        return lambda *tensors: function(*tensors, *given, **params)

    return named(ops), named(home)


@pytest.mark.parametrize("name", PLAIN)
def test_activations(name: str) -> None:
    for x in (torch.randn(9, 4)[::2], torch.randn(()), torch.empty(0, 3)):
        check_gradients(*both(name), x)
    check_gradients(*both(name), torch.randn(5, 40).bfloat16(), tolerance=2e-2)


def test_functions_of_each_element() -> None:
    for x in (torch.rand(9, 4)[::2] + 0.1, torch.rand(()), torch.empty(0, 3)):
        for name in ("exp", "log", "sqrt", "square"):
            check_gradients(*both(name, home=torch), x)
        check_gradients(ops.absolute, torch.abs, x - 0.5)
        check_gradients(partial(ops.clip, a_min=0.2), lambda x: x.clamp(0.2), x)
        check_gradients(partial(ops.clip, min=0.2, max=0.5), lambda x: x.clamp(0.2, 0.5), x)
    check_gradients(*both("softplus", 2.0, threshold=1.0), torch.randn(30))
    for shape in (ROWS, (3, 4), (4,), IMAGES):
        count = shape[1] if len(shape) > 1 else 1
        for weights in {1, count}:
            check_gradients(*both("prelu"), *drawn(shape, (weights,)))


@pytest.mark.parametrize("name", PAIRS)
def test_functions_of_two(name: str) -> None:
    own, expected = both(name, home=torch)
    for shapes in BROADCAST:
        check_gradients(own, expected, *drawn(*shapes))
    x, y = drawn((3, 4), (4,))
    check_gradients(own, expected, x.bfloat16(), y.bfloat16(), tolerance=3e-2)
    check_gradients(own, expected, x, y.double())
    check_gradients(own, expected, x.bfloat16(), y, tolerance=3e-2)
    check_gradients(own, expected, x, x.clone())  # of which half is each one's at extremes
    number = torch.tensor(2.0)
    check_gradients(lambda x: own(x, 2.0), lambda x: expected(x, number), x)
    check_gradients(lambda x: own(2, x), lambda x: expected(number, x), x)
    array = np.ones((3, 4), np.float32)
    check_gradients(lambda x: own(x, array), lambda x: expected(x, torch.ones(3, 4)), x)


def test_where() -> None:
    def call(home: Any) -> Callable[..., torch.Tensor]:
        return lambda x, y: home.where(CHOICE, x, y)

    for shapes in (((3, 4), (3, 4)), ((3, 1), (4,)), ((), (3, 4))):
        check_gradients(call(ops), call(torch), *drawn(*shapes))


@pytest.mark.usefixtures("_threads")
def test_reductions() -> None:
    for name in ("sum", "mean", "amax", "amin"):
        for params in ({"dim": 1}, {"dim": (0, -1), "keepdim": True}, {"dim": ()}):
            check_gradients(*both(name, home=torch, **params), *drawn(ROWS))
        check_gradients(*both(name, home=torch), torch.randn(()))
    ties = torch.tensor([[1.0, 1.0, 0.0], [2.0, 1.0, 2.0]])
    check_gradients(*both("amax", home=torch, dim=1), ties)
    check_gradients(*both("sum", home=torch, dim=0), torch.empty(0, 3))
    check_gradients(*both("sum", home=torch, dtype=torch.float32), torch.randn(5).bfloat16())
    for x in (torch.randn(ROWS), torch.tensor([[1.0, 0, 2], [0, 3, 0]])):
        check_gradients(*both("prod", home=torch, dim=1), x)
        check_gradients(*both("prod", home=torch), x)
        check_gradients(*both("cumsum", home=torch, dim=1), x)
    check_gradients(ops.cumsum, lambda x: x.flatten().cumsum(0), *drawn(ROWS))


@pytest.mark.usefixtures("_threads")
def test_normalizations() -> None:
    for name in ("softmax", "log_softmax"):
        for dim in (0, 1, -1):
            check_gradients(*both(name, dim=dim), *drawn(ROWS))
        wide = both(name, dim=-1, dtype=torch.float32)
        check_gradients(*wide, torch.randn(3, 4).bfloat16(), tolerance=2e-2)
    x, weight, bias = drawn(ROWS, (5,), (5,))
    check_gradients(*both("layer_norm", (5,)), x)

    def pair(name: str, *given: Any) -> tuple[Any, Any]:
        own, expected = both(name)
        return (lambda x, *rest: own(x, *given, *rest)), (
            lambda x, *rest: expected(x, *given, *rest)
        )

    check_gradients(*pair("layer_norm", (5,)), x, weight, bias)
    for tensors, tolerance in (((x, weight), 1e-4), ((x.bfloat16(), weight.bfloat16()), 5e-2)):
        own, expected = both("rms_norm")
        rms = (lambda x, w: own(x, (5,), w, 1e-5)), (lambda x, w: expected(x, (5,), w, 1e-5))  # noqa: B023
        check_gradients(*rms, *tensors, tolerance=tolerance)
    check_gradients(*both("rms_norm", (4, 5), None, 1e-5), x)
    channels = drawn(ROWS, (4,), (4,))
    check_gradients(*pair("group_norm", 2), *channels)
    check_gradients(*pair("batch_norm", MEAN, VARIANCE), *channels)
    x[0] = 0  # whose norm is below eps
    for p in (1, 2, 2.5, 3):
        check_gradients(*both("normalize", float(p)), x)
        check_gradients(*both("normalize", float(p), dim=-1), x)


@pytest.mark.parametrize("dim", [0, -1])
def test_axes_of_numbers(dim: int) -> None:
    for x in (torch.tensor(-2.5), torch.tensor(0.0)):
        for name in ("sum", "mean", "prod", "amax", "amin", "softmax", "log_softmax"):
            check_gradients(*both(name, dim=dim, home=torch), x)
        check_gradients(*both("normalize", 1.0, dim=dim), x)
        check_gradients(*both("normalize", 2.0, dim=dim), x)
    assert ops.sum(x, dim=dim, keepdim=True).shape == ()
    assert ops.softmax(x) == 1
    for name in ("sum", "amax", "softmax", "normalize"):
        with pytest.raises(InvalidArguments, match=r"dim = 1: expected one of -1..0"):
            getattr(ops, name)(x, dim=1)
        with pytest.raises(InvalidArguments, match="axis = 0: x has no dimensions"):
            getattr(ops, name)(x.numpy(), axis=0)


@pytest.mark.usefixtures("_threads")
def test_products() -> None:
    for shapes in (
        ((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 1, 3, 4), (6, 4, 5)),
        ((2, 3, 4), (4,)), ((0, 4), (4, 5)), ((3, 0), (0, 5)),
    ):  # fmt: skip
        check_gradients(*both("matmul", home=torch), *drawn(*shapes))
    columns, rows = torch.randn(4, 3).mT, torch.randn(8, 5)[::2]
    check_gradients(*both("matmul", home=torch), columns, rows)
    small = columns.bfloat16(), rows.bfloat16()
    check_gradients(*both("matmul", home=torch), *small, tolerance=5e-2)
    check_gradients(*both("linear"), *drawn(ROWS, (6, 5), (6,)))
    x, weight = drawn(ROWS, (6, 5))
    wide = ops.linear, (lambda x, w: functional.linear(x.float(), w))
    check_gradients(*wide, x.bfloat16(), weight, tolerance=3e-2)
    array = x.numpy()
    pair = (lambda w: ops.linear(torch.from_numpy(array), w)), (lambda w: functional.linear(x, w))
    check_gradients(*pair, weight)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("count", [1, 2, 3])
def test_images(count: int) -> None:
    sizes = (7, 6, 5)[:count]
    kernel = (3,) * count
    conv = both(f"conv{count}d", stride=2, padding=1, groups=2)
    check_gradients(*conv, *drawn((2, 4, *sizes), (6, 2, *kernel), (6,)), tolerance=5e-4)
    params: dict[str, Any] = {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}
    for batch in ((2,), ()):
        given = drawn((*batch, 4, *sizes), (4, 3, *kernel), (6,))
        pair = both(f"conv_transpose{count}d", **params)
        check_gradients(*pair, *given, tolerance=5e-4)
        check_gradients(*pair, *(own.bfloat16() for own in given), tolerance=1e-1)
        x = torch.randn(*batch, 4, *sizes)
        for name in ("max_pool", "avg_pool"):
            check_gradients(*both(f"{name}{count}d", 3, 2, 1), x)
        for target in (2, 3, (None,) * (count - 1) + (4,)):
            check_gradients(*both(f"adaptive_avg_pool{count}d", target), x)
        even = torch.randn(*batch, 4, *(8,) * count)
        for target in (2, (None,) * (count - 1) + (4,)):
            check_gradients(*both(f"adaptive_max_pool{count}d", target), even)
    small = torch.randn(2, 4, *sizes).bfloat16()
    check_gradients(*both(f"adaptive_avg_pool{count}d", 3), small, tolerance=2e-2)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_output_padding_beyond_strides(count: int) -> None:
    behind, dilation = (2, 1, 2)[:count], (3, 2, 3)[:count]
    for batch, strides in (((2,), 1), ((), 1), ((2,), (2, 1, 1)[:count])):
        params = {"stride": strides, "output_padding": behind, "dilation": dilation, "groups": 2}
        for padding in (0, 1):
            pair = both(f"conv_transpose{count}d", padding=padding, **params)
            given = drawn((*batch, 4, *(6, 5, 4)[:count]), (4, 3, *(2,) * count), (6,))
            check_gradients(*pair, *given, tolerance=5e-4)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_other_sizes(count: int) -> None:
    linear = ("linear", "bilinear", "trilinear")[count - 1]
    x = torch.randn(2, 3, *(7, 6, 5)[:count])
    for mode in ("nearest", "nearest-exact", "area", linear):
        for params in (
            {"size": (9, 4, 11)[:count]},
            {"scale_factor": 1.7},
            {"scale_factor": (2.0, 0.7, 1.3)[:count]},
        ):
            check_gradients(*both("interpolate", mode=mode, **params), x)


def test_moves() -> None:
    x = torch.randn(2, 3, 5, 6)
    for mode in ("constant", "reflect", "replicate", "circular"):
        check_gradients(*both("pad", (2, 1, 0, 3), mode), x)
    check_gradients(*both("pad", (2, -1, -2, 3), value=3.0), x)
    check_gradients(*both("pad", (-1, 2), "replicate"), x[0])
    three = drawn((2, 3), (2, 1), (2, 5))
    pair = (lambda *own: ops.concatenate(own, 1)), (lambda *own: torch.cat(own, 1))
    check_gradients(*pair, *three)
    check_gradients(*pair, three[0], three[1].double(), three[2])
    for padding in (None, 3, -2):
        own, expected = both("embedding", padding_idx=padding)
        check_gradients(partial(own, NUMBERS), partial(expected, NUMBERS), torch.randn(5, 4))


def test_attention() -> None:
    sizes = (2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 7)
    name = "scaled_dot_product_attention"
    check_gradients(*both(name, None, 0.0, True), *drawn(*sizes))
    causal = partial(getattr(functional, name), is_causal=True)
    check_gradients(partial(ops.attention, is_causal=True), causal, *drawn(*sizes))
    query, key, value = drawn(*sizes)
    for kind in (np.float64, np.int32):
        mask = np.arange(24).reshape(4, 6).astype(kind) % 5
        given = both(name, torch.from_numpy(mask).float())
        check_gradients(partial(ops.attention, attn_mask=mask), given[1], query, key, value)
    half = query.bfloat16()
    wide: Any = getattr(functional, name)
    mixed = ops.attention, (lambda query, *rest: wide(query.float(), *rest))
    check_gradients(*mixed, half, key, value, tolerance=3e-2)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_networks(kind: str) -> None:
    net = getattr(torch.nn, kind)(5, 4, num_layers=2, bidirectional=True)
    weights = [own.detach() for own in net._flat_weights]
    own = getattr(ops, kind.lower())

    def called(x: torch.Tensor, *params: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = own(x, None, list(params), True, 2, True)[0]
        return result

    def expected(x: torch.Tensor, *params: torch.Tensor) -> torch.Tensor:
        names = [name for name, _ in net.named_parameters()]
        given = dict(zip(names, params, strict=True))
        result: torch.Tensor = torch.func.functional_call(net, given, (x,))[0]
        return result

    check_gradients(called, expected, torch.randn(6, 2, 5), *weights)
    states = drawn(*((4, 2, 4),) * (2 if kind == "LSTM" else 1))

    def first(function: Any, params: tuple[Any, ...]) -> Callable[..., torch.Tensor]:
        def call(x: torch.Tensor, *hx: torch.Tensor) -> torch.Tensor:
            output, last = function(x, hx if kind == "LSTM" else hx[0], *params)
            found: torch.Tensor = last[1] if kind == "LSTM" else last
            result: torch.Tensor = found.flatten()[:9] + output.flatten()[:9]
            return result

        return call

    pair = first(own, (weights, True, 2, True)), first(net, ())
    check_gradients(*pair, torch.randn(6, 2, 5), *states)


def test_every_function_has_gradients_or_is_refused() -> None:
    assert set(ops.__all__) - WITHOUT == set(TABLE)
    x = torch.randn(2, 3, requires_grad=True)
    for name, number in (("cumprod", 0), ("local_response_norm", 3)):
        with pytest.raises(InvalidArguments, match=rf"x = .* gradient, which dnnl.ops.{name} does"):
            getattr(ops, name)(x, number)


def test_first_and_second_derivatives_in_f64() -> None:
    for name in PAIRS:
        for check in (gradcheck, gradgradcheck):
            assert check(getattr(ops, name), (doubles(3, 1), doubles(4)))
    for function in (
        ops.exp, ops.log, ops.sqrt, ops.square, ops.absolute, partial(ops.clip, max=0.9), ops.sum,
        ops.cumsum, ops.amax, ops.amin, ops.normalize, partial(ops.normalize, p=3.0),
        partial(ops.mean, axis=1), partial(ops.where, CHOICE[:2, :3], y=1.0),
        partial(ops.rms_norm, normalized_shape=3), partial(ops.pad, pad=(1, 2), mode="reflect"),
        partial(ops.adaptive_avg_pool1d, output_size=2), partial(ops.embedding, NUMBERS[0] % 2),
        lambda x: ops.interpolate(x[None], 5, mode="linear"), lambda x: ops.concatenate([x, x], 1),
        lambda x: ops.prelu(x, x[0, :1]),
    ):  # fmt: skip
        x = (torch.rand(2, 3, dtype=torch.float64) + 0.2).requires_grad_()
        for check in (gradcheck, gradgradcheck):
            assert check(function, x)
    assert gradcheck(ops.prod, doubles(2, 3))
    with pytest.raises(InvalidArguments, match="cumprod does not have"):
        torch.autograd.grad(ops.prod(x), x, create_graph=True)
    assert gradcheck(ops.softmax, doubles(2, 3))
    (gradient,) = torch.autograd.grad(ops.softmax(x)[0, 0], x, create_graph=True)
    with pytest.raises(Unimplemented, match="second derivative of softmax"):
        torch.autograd.backward(gradient.sum())
    assert gradcheck(ops.gelu, doubles(2, 3))
    for check in (gradcheck, gradgradcheck):
        assert check(ops.matmul, (doubles(2, 3, 4), doubles(4, 2)))
    assert gradcheck(ops.linear, (doubles(3, 5), doubles(4, 5), doubles(4)))
    x = torch.randn(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(ops.tanh(x).sum(), x, create_graph=True)
    with pytest.raises(Unimplemented, match="second derivative of activations"):
        torch.autograd.backward(gradient.sum())


def test_a_function_trains() -> None:
    x, y = torch.randn(20, 4), torch.randn(20, 2)
    nets: list[tuple[Any, list[torch.Tensor]]] = []
    first, second = torch.randn(8, 4) / 2, torch.randn(2, 8) / 2
    for home, names in ((ops, ("linear", "relu")), (functional, ("linear", "relu"))):
        linear, relu = (getattr(home, name) for name in names)
        weights = [own.clone().requires_grad_() for own in (first, second)]
        nets.append((lambda w, f=linear, g=relu: f(g(f(x, w[0])), w[1]), weights))
    losses = []
    for net, weights in nets:
        optimizer = torch.optim.SGD(weights, lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            loss = ops.mean(ops.square(ops.subtract(net(weights), y)))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[4] < losses[0]
    np.testing.assert_allclose(losses[:5], losses[5:], 1e-4)


def test_only_what_is_asked_for_is_recorded() -> None:
    x, y = torch.randn(3, requires_grad=True), torch.randn(3)
    with torch.no_grad():
        assert not ops.exp(x).requires_grad
    assert not ops.exp(y).requires_grad
    assert not ops.exp(x.detach()).requires_grad
    total = ops.add(x, y)
    total.mul_(2)  # which an addition does not read
    torch.autograd.backward(total.sum())
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]
    grown = ops.exp(x)
    grown.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.backward(grown.sum())
    large = torch.randn(1000, requires_grad=True)
    result = ops.add(large, ops.exp(large.detach()))
    seen = weakref.ref(large)
    del large
    gc.collect()
    assert seen() is not None  # as the leaf of the graph
    del result
    gc.collect()
    assert seen() is None


def test_arrays_of_numpy_are_constants() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    for kind in (np.float32, ml_dtypes.bfloat16):
        array = np.full((3, 4), 2, kind)
        array.flags.writeable = False
        total = ops.sum(ops.multiply(x, array))
        array.flags.writeable = True
        array[:] = 7  # after which the product is as it was
        (found,) = torch.autograd.grad(total, x)
        assert found.eq(2).all()
    joined = ops.concatenate([x, np.zeros((2, 4), np.float32)])
    (found,) = torch.autograd.grad(ops.sum(joined), x)
    assert found.eq(1).all()
    weight = np.ones((5, 4), np.float32)
    (found,) = torch.autograd.grad(ops.sum(ops.linear(x, weight)), x)
    assert found.eq(5).all()
    (found,) = torch.autograd.grad(ops.sum(ops.matmul(x, weight.T)), x)
    assert found.eq(5).all()


def test_what_would_lose_gradients_is_refused() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    array = np.ones((3, 4), np.float32)
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: ops.relu(x, out=torch.empty(3, 4)), "out"),
        (lambda: ops.relu(x.detach(), out=x), "out"),
        (lambda: ops.multiply(array, x), "x"),
        (lambda: ops.linear(array, x), "x"),
        (lambda: ops.concatenate([array, x]), "arrays"),
        (lambda: ops.batch_norm(x, x[0], VARIANCE), "running_mean"),
        (lambda: ops.batch_norm(x, MEAN, VARIANCE, training=True), "training"),
        (lambda: ops.adaptive_max_pool1d(x, 3), "output_size"),
        (lambda: ops.avg_pool2d(x[None, None], 2, divisor_override=3), "divisor_override"),
        (lambda: ops.scaled_dot_product_attention(x, x, x, None, 0.5), "dropout_p"),
        (lambda: ops.add(x, torch.ones(5)), "y"),
        (lambda: ops.softmax(x, 3), "axis"),
        (lambda: ops.relu([x, x]), "x"),
        (lambda: ops.add(x[0], [x[1], x[2]]), "y"),
        (lambda: ops.clip(x[0], [x[1], x[2]]), "a_min"),
    ]
    for call, argument in cases:
        with pytest.raises(InvalidArguments) as found:
            call()
        assert found.value.argument == argument
    with pytest.raises(TypeError):
        ops.exp(x, x, x)


def test_a_number_has_no_gradient() -> None:
    number = torch.tensor(0.5, requires_grad=True)
    functions: list[tuple[Callable[..., Any], str]] = [
        (ops.elu, "alpha"),
        (ops.leaky_relu, "negative_slope"),
        (lambda x, n: ops.softplus(x, threshold=n), "threshold"),
        (lambda x, n: ops.hardtanh(x, -1, n), "max_val"),
        (lambda x, n: ops.layer_norm(x, 4, eps=n), "eps"),
        (lambda x, n: ops.pad(x, (1, 1), value=n), "value"),
    ]
    for function, argument in functions:
        for x in (torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)):
            with pytest.raises(InvalidArguments, match="requires a gradient") as found:
                function(x, number)
            assert found.value.argument == argument
            with torch.no_grad():
                want = function(x.detach(), number.item())
                torch.testing.assert_close(function(x, number), want)


def test_functions_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(ops.relu)) is ops.relu
