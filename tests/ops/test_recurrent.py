"""Recurrent networks against PyTorch's modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dnnl import InvalidArguments, ops
from tests.pairs import every_pair

STEPS, ROWS, INPUTS, HIDDEN = 5, 3, 10, 20
KINDS = ("LSTM", "GRU", "RNN")


def module(kind: str, **options: Any) -> Any:
    torch.manual_seed(1)
    return getattr(torch.nn, kind)(INPUTS, HIDDEN, **options)


def states(kind: str, *shape: int) -> Any:
    made = torch.randn(*shape), torch.randn(*shape)
    return made if kind == "LSTM" else made[0]


def flat(result: Any, kind: str) -> list[torch.Tensor]:
    """The output and all last states."""
    output, last = result
    return [output, *(last if kind == "LSTM" else [last])]


def agree(kind: str, net: Any, x: torch.Tensor, hx: Any, *options: Any, **further: Any) -> None:
    with torch.no_grad():
        want = flat(net(x, hx), kind)
        function = getattr(ops, kind.lower())
        weights = [own.detach() for own in net._flat_weights]
        got = flat(function(x, hx, weights, *options, **further), kind)
    for one, other in zip(got, want, strict=True):
        assert one.dtype is other.dtype
        tolerance = {torch.float32: 1e-5, torch.bfloat16: 3e-2}[one.dtype]
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


@every_pair(kind=KINDS, layers=[1, 3], both=[True, False], first=[True, False], bias=[True, False])
def test_as_the_module(kind: str, layers: int, both: bool, first: bool, bias: bool) -> None:
    net = module(kind, num_layers=layers, bidirectional=both, batch_first=first, bias=bias)
    x = torch.randn(*((ROWS, STEPS) if first else (STEPS, ROWS)), INPUTS)
    hx = states(kind, layers * (1 + both), ROWS, HIDDEN)
    agree(kind, net, x, hx, bias, layers, both, first)


@pytest.mark.parametrize("kind", KINDS)
def test_no_states_and_no_batch(kind: str) -> None:
    net = module(kind)
    agree(kind, net, torch.randn(STEPS, ROWS, INPUTS), None)
    agree(kind, net, torch.randn(STEPS, INPUTS), None)
    agree(kind, net, torch.randn(STEPS, INPUTS), states(kind, 1, HIDDEN))
    agree(kind, net, torch.randn(ROWS, STEPS, INPUTS).transpose(0, 1), None)


def test_relu() -> None:
    net = module("RNN", nonlinearity="relu")
    agree("RNN", net, torch.randn(STEPS, ROWS, INPUTS), None, nonlinearity="relu")


@pytest.mark.parametrize("kind", KINDS)
def test_bf16(kind: str) -> None:
    net = module(kind, bidirectional=True).to(torch.bfloat16)
    x = torch.randn(STEPS, ROWS, INPUTS, dtype=torch.bfloat16)
    agree(kind, net, x, None, bidirectional=True)


@every_pair(layers=[1, 2], both=[True, False], bias=[True, False], states=[True, False])
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_projection(layers: int, both: bool, bias: bool, states: bool) -> None:
    net = module("LSTM", num_layers=layers, bidirectional=both, bias=bias, proj_size=7)
    count = layers * (1 + both)
    hx = torch.randn(count, ROWS, 7), torch.randn(count, ROWS, HIDDEN)
    x = torch.randn(STEPS, ROWS, INPUTS)
    agree("LSTM", net, x, hx if states else None, bias, layers, both)


@pytest.mark.parametrize("first", [True, False], ids=["batch_first", "steps_first"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_kernel_for_new_sizes(kind: str, first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of steps and rows behind the first call."""
    net = module(kind, batch_first=first)
    agree(kind, net, torch.randn(STEPS, ROWS, INPUTS), None, True, 1, False, first)

    def refuse(_: object) -> None:
        raise AssertionError("a kernel is made")

    monkeypatch.setattr("dnnl.codegen.compile.jit.image", refuse)
    for number in range(20):
        x = torch.randn(1 + number * 7 % 13, 1 + number * 5 % 17, INPUTS)
        agree(kind, net, x, None, True, 1, False, first)


@pytest.mark.parametrize("both", [False, True], ids=["one", "both"])
def test_no_channels(both: bool) -> None:
    """PyTorch refuses to make such a module."""
    x, count = np.zeros((STEPS, ROWS, 0), np.float32), 1 + both
    params = [np.ones((12, 0)), np.ones((12, 4)), np.ones(12), np.zeros(12)] * count
    output, last = ops.gru(x, None, params, bidirectional=both)
    want = np.zeros((STEPS, ROWS, 4))
    state = np.zeros((ROWS, 4))
    for step in range(STEPS):
        sums = state.sum(1, keepdims=True)
        gate = 1 / (1 + np.exp(-1 - sums))
        want[step] = state = (1 - gate) * np.tanh(1 + gate * sums) + gate * state
    np.testing.assert_allclose(output[..., :4], want, atol=1e-6)
    np.testing.assert_allclose(output[..., 4:], want[::-1] if both else want[..., 4:], atol=1e-6)
    np.testing.assert_allclose(last[0], want[-1], atol=1e-6)
    none = [np.ones((0, INPUTS)), np.ones((0, 0)), np.ones(0), np.ones(0)] * count
    given = np.zeros((STEPS, ROWS, INPUTS), np.float32)
    output, last = ops.gru(given, None, none, bidirectional=both)
    assert output.shape == (STEPS, ROWS, 0)
    assert last.shape == (count, ROWS, 0)


def test_arrays_of_numpy_give_such() -> None:
    net = module("GRU")
    weights = [w.detach().numpy() for w in net._flat_weights]
    output, last = ops.gru(np.ones((STEPS, ROWS, INPUTS), np.float32), None, weights)
    assert type(output) is np.ndarray
    assert type(last) is np.ndarray
    np.testing.assert_array_equal(output[-1:], last)


def test_what_is_wrong_is_named() -> None:
    x, weights = np.ones((STEPS, ROWS, INPUTS), np.float32), [np.ones((80, 10), np.float32)]
    weights.append(np.ones((80, 20), np.float32))
    with pytest.raises(InvalidArguments, match=r"params = '2 arrays'.*expected 4 for each of 1"):
        ops.lstm(x, None, weights)
    with pytest.raises(InvalidArguments, match=r"params\[0\].*expected the shape \(80, 11\)"):
        ops.lstm(np.ones((STEPS, ROWS, 11), np.float32), None, weights, has_biases=False)
    with pytest.raises(InvalidArguments, match=r"hx = '1 states'.*expected a pair"):
        ops.lstm(x, [x], weights, has_biases=False)
    state = np.ones((1, ROWS, HIDDEN), np.float32)
    with pytest.raises(InvalidArguments, match=r"hx\[1\].*expected the shape \(1, 3, 20\)"):
        ops.lstm(x, (state, state[:, :2]), weights, has_biases=False)
    pairs = [*weights, np.ones((20, 20), np.float32), np.ones((7, 20), np.float32)]
    with pytest.raises(InvalidArguments, match=r"params = '4 arrays'.*expected 2.*or 3 with a pro"):
        ops.lstm(x, None, pairs, has_biases=False)
    with pytest.raises(InvalidArguments, match=r"params\[1\].*expected the shape \(80, 7\)"):
        ops.lstm(x, None, [*weights, pairs[3]], has_biases=False)
    with pytest.raises(InvalidArguments, match=r"params\[2\].*expected two dimensions"):
        ops.lstm(x, None, [*weights, pairs[3][0]], has_biases=False)
    with pytest.raises(InvalidArguments, match=r"params = '3 arrays'.*expected 2 for each of 1"):
        ops.gru(x, None, [*weights, pairs[3]], has_biases=False)
    with pytest.raises(InvalidArguments, match="expected 3 dimensions, or 2 without a batch"):
        ops.lstm(x[0, 0], None, weights, has_biases=False)
    for dtype in (np.int32, np.float64):
        with pytest.raises(InvalidArguments, match=r"x = .*cells compute f32, bf16, f16"):
            ops.lstm(x.astype(dtype), None, weights, has_biases=False)
    with pytest.raises(InvalidArguments, match=r"params\[1\] = 'complex64'"):
        ops.lstm(x, None, [weights[0], weights[1].astype(np.complex64)], has_biases=False)
    with pytest.raises(InvalidArguments, match="expected one of tanh, relu"):
        ops.rnn(x, None, [], nonlinearity="sin")
