"""Differentiable recurrent networks beside PyTorch's modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence

import dnnl.torch.modules  # which defines all operators
from dnnl.errors import InvalidArguments, Unimplemented
from tests.torch.differentiating import traces

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("LSTM", {}),
    ("LSTM", {"bidirectional": True, "num_layers": 2, "batch_first": True}),
    ("LSTM", {"proj_size": 6, "num_layers": 2, "bidirectional": True}),
    ("LSTM", {"bias": False}),
    ("GRU", {"bidirectional": True, "num_layers": 2}),
    ("GRU", {"bias": False, "batch_first": True}),
    ("RNN", {"bidirectional": True, "num_layers": 2}),
    ("RNN", {"nonlinearity": "relu"}),
)


pytestmark = pytest.mark.usefixtures("with_gradients")


def called(net: Any, x: Any, hx: Any) -> Any:
    """What dnnl.torch makes of the weights of a module."""
    params = {"nonlinearity": net.nonlinearity} if net.mode.startswith("RNN") else {}
    function = getattr(dnnl.torch, type(net).__name__.lower())
    own = net.bias, net.num_layers, 0.0, True, net.bidirectional, net.batch_first
    return function(x, hx, list(net.parameters()), *own, **params)


def flat(found: Any) -> list[torch.Tensor]:
    output, states = found
    first = output.data if isinstance(output, PackedSequence) else output
    return [first, *(states if isinstance(states, tuple) else (states,))]


def compare(
    net: Any, x: torch.Tensor, hx: Any, lengths: Any = None, tolerance: float = 1e-4
) -> None:
    """Results and all gradients of a network and of its module."""
    found = []
    for function in (net, lambda *given: called(net, *given)):
        net.zero_grad()
        source = x.detach().requires_grad_()
        held = [own.detach().requires_grad_() for own in hx or ()]
        states = None if hx is None else tuple(held) if len(held) > 1 else held[0]
        given: Any = source
        if lengths is not None:
            first = net.batch_first
            given = pack_padded_sequence(source, lengths, first, enforce_sorted=False)
        results = flat(function(given, states))
        torch.manual_seed(1)
        torch.autograd.backward(results, [torch.randn_like(own) for own in results])
        inputs = [source, *held, *net.parameters()]
        found.append((results, [own.grad.clone() for own in inputs]))
    torch.testing.assert_close(*found, rtol=tolerance, atol=5 * tolerance)


def states_of(net: Any, rows: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    count = net.num_layers * (1 + net.bidirectional)
    sizes = [net.proj_size or net.hidden_size]
    sizes += [net.hidden_size] * (net.mode == "LSTM")
    return [torch.randn(count, *rows, size).to(dtype) for size in sizes]


@pytest.mark.usefixtures("threads")
@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(("name", "params"), CASES)
@pytest.mark.covers
def test_a_network(name: str, params: dict[str, Any]) -> None:
    net = getattr(nn, name)(7, 19, **params)
    for rows, steps in ((3, 5), (17, 1), (0, 4)):
        shape = (rows, steps, 7) if net.batch_first else (steps, rows, 7)
        compare(net, torch.randn(shape), None)
        compare(net, torch.randn(shape), states_of(net, (rows,), torch.float32))
    compare(net, torch.randn(4, 7), states_of(net, (), torch.float32))
    shape = (4, 5, 7) if net.batch_first else (5, 4, 7)
    hx = states_of(net, (4,), torch.float32)
    compare(net, torch.randn(shape), hx, torch.tensor([3, 5, 1, 2]))


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_a_network_in_bf16(name: str) -> None:
    net = getattr(nn, name)(16, 32).bfloat16()
    hx = states_of(net, (3,), torch.bfloat16)
    compare(net, torch.randn(5, 3, 16).bfloat16(), hx, tolerance=5e-2)


def test_inference_saves_nothing() -> None:
    net = nn.LSTM(7, 19)
    x = torch.randn(5, 3, 7)
    with torch.no_grad():
        torch.testing.assert_close(flat(called(net, x, None)), flat(net(x)))


def test_dropout_between_layers() -> None:
    net, x = nn.GRU(7, 64, num_layers=2), torch.randn(5, 3, 7)
    params = list(net.parameters())
    torch.manual_seed(2)
    own: Any = dnnl.torch
    dropped, _ = own.gru(x, None, params, True, 2, dropout=0.5, training=True)
    plain, _ = own.gru(x, None, params, True, 2, dropout=0.5, training=False)
    assert not torch.allclose(dropped, plain)
    torch.testing.assert_close(plain, net(x)[0])


def test_a_layer_follows_the_rules_of_pytorch() -> None:
    shapes = (32, 5), (32, 8), (32,), (32,)
    weights = [torch.randn(shape, requires_grad=True) for shape in shapes]
    given = torch.randn(3, 2, 5, requires_grad=True), None, None, weights, None, 1, "lstm", True
    torch.library.opcheck(torch.ops.dnnl.recurrent_layer.default, given)


def test_networks_trace() -> None:
    net = nn.LSTM(7, 19, bidirectional=True)

    def last(x: torch.Tensor, *params: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = dnnl.torch.lstm(x, None, params, bidirectional=True)[1][0]
        return found

    traces(last, torch.randn(5, 3, 7), *net.parameters())


def test_second_derivatives_are_refused() -> None:
    net, x = nn.GRU(3, 4), torch.randn(2, 1, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(called(net, x, None)[0].sum(), x, create_graph=True)
    with pytest.raises(Unimplemented, match="second derivative of recurrent networks"):
        torch.autograd.backward(gradient.sum())


def test_bad_arguments_are_refused() -> None:
    x, net = torch.randn(5, 3, 7), nn.LSTM(7, 19)
    own: Any = dnnl.torch
    params = list(net.parameters())
    state = torch.randn(1, 3, 19)
    gates = [torch.randn(57, 7), torch.randn(57, 19), torch.randn(57), torch.randn(57)]
    rows = pack_sequence([torch.randn(n, 7) for n in (2, 5)], enforce_sorted=False)
    numbers = pack_sequence([torch.randn(5), torch.randn(2)])
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: own.lstm(x[None], None, params), "x"),
        (lambda: own.lstm(x[:0], None, params), "x"),
        (lambda: own.lstm(x.double(), None, params), "x"),
        (lambda: own.lstm(x, (state,), params), "hx"),
        (lambda: own.lstm(x, state, params), "hx"),
        (lambda: own.lstm(x, (state, state[:, :2]), params), "hx[1]"),
        (lambda: own.lstm(x[:, 0], (None, state[:, 0]), params), "hx[0]"),
        (lambda: own.lstm(numbers, None, params), "x"),
        (lambda: own.lstm(rows.to(torch.float64), None, params), "x"),
        (lambda: own.gru(rows, (state[:, :2],), gates), "hx[0]"),
        (lambda: own.gru(rows, state[:, :1], gates), "hx[0]"),
        (lambda: own.gru(rows, state, gates), "hx[0]"),
        (lambda: own.lstm(x, None, params[:3]), "params"),
        (lambda: own.lstm(x, None, params, num_layers=0), "params"),
        (lambda: own.lstm(x, None, [params[0].T, *params[1:]]), "params"),
        (lambda: own.lstm(x[..., :6], None, params), "params[0]"),
        (lambda: own.lstm(x, None, [*params[:3], params[3][1:]]), "params[3]"),
        (lambda: own.gru(x, None, [own.bfloat16() for own in params]), "params"),
        (lambda: own.rnn(x, None, params, nonlinearity="elu"), "nonlinearity"),
    ]
    for call, argument in cases:
        with pytest.raises(InvalidArguments) as found:
            call()
        assert found.value.argument == argument
