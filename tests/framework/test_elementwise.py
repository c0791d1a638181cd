"""Elementwise operators by traced functions: digits of each, special numbers, open sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.framework.models import Array, model_of
from tests.framework.one_operator import check, model_with, results_of

ULPS = 3.5
FUNCTIONS: dict[str, tuple[Callable[[Array], Array], float, float]] = {
    "Acos": (np.arccos, -1, 1),
    "Acosh": (np.arccosh, 1, 3e38),
    "Asin": (np.arcsin, -1, 1),
    "Asinh": (np.arcsinh, -3e38, 3e38),
    "Atan": (np.arctan, -3e38, 3e38),
    "Atanh": (np.arctanh, -1, 1),
    "Cosh": (np.cosh, -90, 90),
    "Sinh": (np.sinh, -90, 90),
}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, -3.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, -3e38, 90, -90]


def numbers(low: float, high: float) -> Array:
    """Evenly between the ends, close to 0 and to 1, of all magnitudes."""
    rng = np.random.default_rng(0)
    sides = rng.choice([-1.0, 1.0], 20000)
    scales = 10.0 ** rng.uniform(-30, 38, 20000)
    every = [
        rng.uniform(low, high, 20000), rng.uniform(-2, 2, 40000), sides * scales,
        sides * (1 - 10.0 ** rng.uniform(-7, 0, 20000)), 1 + 10.0 ** rng.uniform(-7, 0, 20000),
    ]  # fmt: skip
    joined = np.concatenate(every)
    return joined[(joined >= low) & (joined <= high)].astype(np.float32)


@pytest.mark.parametrize("op", FUNCTIONS)
def test_digits(op: str) -> None:
    function, low, high = FUNCTIONS[op]
    x = numbers(low, high)
    got = results_of(model_of(model_with(op, {"x": x}, {"y": np.float32})), {"x": x})["y"]
    with np.errstate(all="ignore"):
        want = function(x.astype(np.float64))
        rounded = want.astype(np.float32)
        finite = np.isfinite(rounded)
        error = np.abs(got - want)[finite] / np.spacing(np.abs(rounded[finite]))
    assert error.max() < ULPS
    np.testing.assert_array_equal(got[~finite], rounded[~finite])


@pytest.mark.parametrize("op", FUNCTIONS)
def test_special_numbers(op: str) -> None:
    """Infinities, NaN and the sign of 0 are those of NumPy."""
    x = np.array(SPECIAL, np.float32)
    got = results_of(model_of(model_with(op, {"x": x}, {"y": np.float32})), {"x": x})["y"]
    with np.errstate(all="ignore"):
        want = FUNCTIONS[op][0](x)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-44)
    zeros = want == 0
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]))


SHAPES = [(3, 5), (2, 37), (4, 21)]


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("attrs", [{}, {"lambd": 1.5, "bias": 0.25}])
def test_shrink(attrs: dict[str, float]) -> None:
    every = [{"x": normal(*shape)} for shape in SHAPES]
    check("Shrink", {"y": np.float32}, *every, tolerance=1e-6, attrs=attrs)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_means(count: int) -> None:
    """Of sources that broadcast."""
    every = [
        {f"x{n}": normal(*(shape if n % 2 == 0 else shape[1:])) for n in range(count)}
        for shape in SHAPES
    ]
    check("Mean", {"y": np.float32}, *every, tolerance=1e-6)


@pytest.mark.parametrize("alpha", [1.0, 1.7, -0.5])
def test_swish_and_gates(alpha: float) -> None:
    every = [{"a": normal(*shape), "b": normal(*shape) + 1} for shape in SHAPES]
    attrs = {"alpha": alpha}
    ones = [{"a": feeds["a"]} for feeds in every]
    kinds = {"y": np.float32}
    check("Swish", kinds, *ones, peer="reference", tolerance=1e-5, opset=24, attrs=attrs)
    want = [{"y": f["a"] / (1 + np.exp(-alpha * f["a"])) * f["b"]} for f in every]
    want = [{"y": own["y"].astype(np.float32)} for own in want]
    check("SwiGLU", kinds, *every, wanted=want, tolerance=1e-5, opset=28, attrs=attrs)
