"""Traced functions: what they become, their derivatives, and what cannot be traced."""

from __future__ import annotations

import copy
import doctest
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import dnnl.math as dm
from dnnl.errors import Error, InvalidArguments
from dnnl.reference.expression import evaluate
from dnnl.types import algorithms
from dnnl.types.derivative import derivative
from dnnl.types.expression import FUNCTIONS as STEPS
from dnnl.types.kinds import Alg
from dnnl.types.scalar import Scalar, trace

POINTS = np.random.default_rng(3).uniform(-3, 3, 400)
POSITIVE = np.abs(POINTS) + 0.1


def gelu(x: Scalar) -> Any:
    return 0.5 * x * (1 + dm.erf(x / math.sqrt(2)))


def branches(x: Scalar, y: Scalar) -> Any:
    return dm.where((x < y) | ~(x >= -1) & (y != 0), x * y, dm.minimum(x, dm.abs(y)))


FUNCTIONS: list[tuple[Callable[..., Any], Callable[..., torch.Tensor]]] = [
    (gelu, torch.nn.functional.gelu),
    (lambda x: x * dm.sigmoid(1.702 * x), lambda x: x * torch.sigmoid(1.702 * x)),
    (lambda x: x * dm.tanh(dm.softplus(x)), torch.nn.functional.mish),
    (lambda x: dm.relu(x) ** 2 - 1, lambda x: torch.relu(x) ** 2 - 1),
    (lambda x: dm.maximum(0.1 * x, x), lambda x: torch.nn.functional.leaky_relu(x, 0.1)),
    (lambda x: dm.exp(-dm.square(x)) / (1 + abs(x)), lambda x: (-x * x).exp() / (1 + x.abs())),
    (lambda x: dm.where(x > 0, x, dm.exp(x) - 1), torch.nn.functional.elu),
    (lambda x: 2 ** -x - 3 / (x * x + 1), lambda x: 2**-x - 3 / (x * x + 1)),
    (lambda x: dm.floor(x) + math.ceil(x) * x, lambda x: x.floor() + x.ceil() * x),
    (lambda x: round(x) * np.float32(2) + np.exp(x), lambda x: x.round() * 2 + x.exp()),
    (lambda x: dm.sin(3 * x) * dm.cos(x), lambda x: (3 * x).sin() * x.cos()),
    (lambda x: np.sin(x) - np.cos(x) * x, lambda x: x.sin() - x.cos() * x),
    (lambda x: dm.expm1(x) / (2 + np.expm1(x)), lambda x: x.expm1() / (2 + x.expm1())),
    (lambda x: -x + 1 - +x, lambda x: 1 - 2 * x),
    (lambda x: dm.where((x > 0) & True | np.False_, x, 2.0), lambda x: torch.where(x > 0, x, 2.0)),
    (lambda x: dm.minimum(dm.maximum(x, -1), 1), lambda x: x.clamp(-1, 1)),
]  # fmt: skip
OF_POSITIVE: list[tuple[Callable[..., Any], Callable[..., torch.Tensor]]] = [
    (lambda x: dm.log(x) + dm.sqrt(x), lambda x: x.log() + x.sqrt()),
    (lambda x: dm.rsqrt(x) * x**1.7, lambda x: x.rsqrt() * x**1.7),
    (lambda x: x**x, lambda x: x**x),
    (lambda x: dm.log1p(x) * np.log1p(2 * x), lambda x: x.log1p() * (2 * x).log1p()),
    (lambda x: dm.pow(x, -0.3), lambda x: x**-0.3),
]


@pytest.mark.parametrize(
    ("fn", "same", "points"),
    [(*row, POINTS) for row in FUNCTIONS] + [(*row, POSITIVE) for row in OF_POSITIVE],
)
def test_values_and_derivatives_are_those_of_pytorch(
    fn: Callable[..., Any], same: Callable[..., torch.Tensor], points: np.ndarray
) -> None:
    expression = trace(fn, 1)
    x = torch.tensor(points, requires_grad=True)
    want = same(x)
    np.testing.assert_allclose(evaluate(expression, [points]), want.detach(), rtol=1e-12)
    (slope,) = torch.autograd.grad(want.sum(), x)
    got = evaluate(derivative(expression), [points])
    np.testing.assert_allclose(got, slope, rtol=1e-10, atol=1e-12)


def test_every_function_is_tried() -> None:
    steps = {step.name for fn, _ in FUNCTIONS + OF_POSITIVE for step in trace(fn, 1).steps} | {
        step.name for step in trace(branches, 2).steps
    }
    steps |= {step.name for step in trace(lambda x: dm.where((x <= 1) & (x == 0), x, 0), 1).steps}
    algs = [alg for alg in Alg if alg.is_eltwise]
    steps |= {step.name for alg in algs for step in algorithms.eltwise(alg, 2.0, 2.0).steps}
    steps |= {step.name for step in algorithms.eltwise_gradient(Alg.eltwise_elu).steps}
    assert STEPS.keys() <= steps


def test_a_derivative_is_a_function_of_traced_scalars() -> None:
    """Also of what it is a part of, and of itself."""
    slope = trace(lambda x, dy: dy * dm.derivative(gelu)(x), 2)
    x = torch.tensor(POINTS, requires_grad=True)
    (want,) = torch.autograd.grad(torch.nn.functional.gelu(x).sum(), x)
    got = evaluate(slope, [POINTS, POSITIVE])
    np.testing.assert_allclose(got, POSITIVE * want.numpy(), rtol=1e-9, atol=1e-12)
    second = trace(dm.derivative(dm.derivative(lambda x: x**3)), 1)
    np.testing.assert_allclose(evaluate(second, [POINTS]), 6 * POINTS, rtol=1e-12)
    fixed = trace(lambda x: dm.derivative(lambda x, y: x**y)(x, 3.0), 1)
    np.testing.assert_allclose(evaluate(fixed, [POINTS]), 3 * POINTS**2, rtol=1e-12)
    along = trace(dm.derivative(lambda x, y: x * y + y, 1), 2)
    np.testing.assert_allclose(evaluate(along, [POINTS, POSITIVE]), POINTS + 1, rtol=1e-12)


def test_examples() -> None:
    assert doctest.testmod(dm).failed == 0


def test_several_parameters() -> None:
    expression = trace(branches, 2)
    x, y = POINTS, POINTS[::-1]
    chosen = (x < y) | ~(x >= -1) & (y != 0)
    want = np.where(chosen, x * y, np.minimum(x, np.abs(y)))
    np.testing.assert_array_equal(evaluate(expression, [x, y]), want)
    slope = evaluate(derivative(expression, 1), [x, y])
    other = np.where(x <= np.abs(y), 0.0, np.sign(y))
    np.testing.assert_array_equal(slope, np.where(chosen, x, other))


def test_equal_programs_are_equal_values() -> None:
    first, second = trace(gelu, 1), trace(lambda v: 0.5 * v * (1 + dm.erf(v / math.sqrt(2))), 1)
    assert first == second
    assert hash(first) == hash(second)
    assert pickle.loads(pickle.dumps(first)) == copy.deepcopy(first) == first
    assert first != trace(lambda v: 0.5 * v * (1 - dm.erf(v / math.sqrt(2))), 1)
    assert trace(lambda x: x * 0.0, 1) != trace(lambda x: x * -0.0, 1)
    nan = [trace(lambda x: dm.where(x < 0, math.nan, x), 1) for _ in "ab"]
    assert nan[0] == nan[1]
    assert str(trace(lambda x, y: x * 2 + y, 2)) == "add(mul(x, 2), y)"


def test_what_is_not_needed_is_left_out_and_equal_steps_are_one() -> None:
    def wasteful(x: Scalar) -> Any:
        dm.exp(x)
        return dm.tanh(x) * dm.tanh(x)

    assert [step.name for step in trace(wasteful, 1).steps] == ["parameter", "tanh", "mul"]


def test_numbers_alone_are_numbers() -> None:
    assert dm.exp(0) == 1.0
    assert dm.maximum(1, 2.5) == 2.5
    assert dm.where(False, 1, 2) == 2
    assert trace(lambda _: 3, 1) == trace(lambda _: 3.0, 1)
    # As kernels have them, without exceptions.
    assert math.isnan(dm.sqrt(-1))
    assert (dm.log(0), dm.exp(1000), dm.softplus(1000), dm.sigmoid(-1000)) == (
        -math.inf,
        math.inf,
        1000.0,
        0.0,
    )
    with pytest.raises(Error, match="exp takes traced scalars and numbers, not str"):
        dm.exp("1")  # type: ignore[arg-type]


def conditional(x: Scalar) -> Any:
    if x > 0:
        return x
    return 0 * x


def chained(x: Scalar) -> Any:
    return dm.where(0 < x < 1, x, 0)


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (conditional, r"test_scalar.py:\d+: if x > 0:.*dnnl.math.where"),
        (chained, r"chained comparisons need a value now \(at test_scalar.py:\d+: return dm.where"),
        (math.exp, "its value is not known now .*functions of dnnl.math"),
        (np.arctan, "numpy.arctan takes no traced scalar"),
        (len, "has no len"),
        (lambda x: x + "1", "add takes traced scalars and numbers, not str"),
        (lambda x: x > 0, "returned a truth value; .*where"),
        (lambda x: (x > 0) + x, "add is for numbers"),
        (lambda x: x & x, "and is for truth values"),
        (lambda x: dm.where(x, 1, 2), "where is for truth values"),
        (lambda x: dm.where((x > 0) & 1, 1, 2), "and is for truth values"),
        (dm.derivative(lambda x: x, 1), r"parameter = 1: expected one of 0..0"),
        (lambda x: None, "returned NoneType"),
        (lambda x: [x], "returned list"),
        (lambda x, y: x, "is called with the value and 0 operands: missing a required .* 'y'"),
        (lambda: 1, "too many positional arguments"),
        (lambda x: round(x, 2), "no digits"),
    ],
)
def test_what_cannot_be_traced(fn: Callable[..., Any], text: str) -> None:
    with pytest.raises(InvalidArguments, match=text):
        trace(fn, 1)


def test_errors_of_the_function_itself_are_left_alone() -> None:
    def broken(x: Scalar) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        trace(broken, 1)


def test_a_value_of_another_function() -> None:
    kept: list[Scalar] = []

    def keep(x: Scalar) -> Scalar:
        kept.append(x)
        return x

    trace(keep, 1)
    with pytest.raises(InvalidArguments, match="a value of one function is used in another"):
        trace(lambda x: x + kept[0], 1)
    with pytest.raises(Error, match="need a value now"):
        assert kept[0]
    with pytest.raises(InvalidArguments, match="expected traced scalars"):
        dm.derivative(lambda x: x * x)(2.0)
