"""The elementary functions over the whole range of f32, on every instruction set there is."""

from __future__ import annotations

import math as scalar
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from dnnl.codegen import isa as rows
from dnnl.codegen.isa import Isa
from dnnl.codegen.math import f32 as math
from dnnl.codegen.math import trigonometry
from tests.codegen.lanes import (
    VectorFunction,
    all_magnitudes,
    apply,
    assembly,
    f32,
    instructions,
    runnable_rows,
)
from tests.pairs import every_pair

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """A function, its f64 peer and the largest error in ulps, for sources of at least ``low``."""

    function: VectorFunction
    peer: Callable[[Array], Array]
    ulps: float
    low: float = -np.inf


def _power(to: float) -> Case:
    def peer(x: Array) -> Array:
        # NumPy takes a square root for 1/2, which is no number where the power is infinite.
        return np.power(x if to.is_integer() else np.where(x == -np.inf, np.inf, x), to)

    return Case(lambda e, x: math.power(e, x, to), peer, 5)


def _softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


_erf = np.vectorize(scalar.erf, otypes=[np.float64])
_erfc = np.vectorize(scalar.erfc, otypes=[np.float64])
POWERS = (-4.0, -3.0, -2.5, -1.0, -0.5, 0.0, 0.3, 0.5, 1.0, 1.7, 2.0, 3.0, 4.0, 5.0, 7.5, 8.0, 33.0)

CASES = {
    "exp": Case(math.exp, np.exp, 1.5),
    "expm1_of_negative": Case(
        math.expm1_of_negative, lambda x: np.expm1(np.minimum(x, 0.0)), 1.5
    ),
    "expm1": Case(math.expm1, np.expm1, 2),
    "log": Case(math.log, np.log, 1.5),
    "log1p": Case(math.log1p, np.log1p, 1.5),
    "sin": Case(trigonometry.sin, np.sin, 1.6),
    "cos": Case(trigonometry.cos, np.cos, 1.6),
    "tanh": Case(math.tanh, np.tanh, 2),
    "erf": Case(math.erf, _erf, 2),
    "normal_cdf": Case(math.normal_cdf, lambda x: _erfc(-x / np.sqrt(2.0)) / 2, 32, low=-5.0),
    "logistic": Case(math.logistic, lambda x: 1 / (1 + np.exp(-x)), 2.5, low=-87.0),
    "softplus": Case(math.softplus, _softplus, 4),
    "softplus_tail": Case(math.softplus_tail, lambda x: np.log1p(np.exp(-np.abs(x))), 4),
    "tanh_of_softplus": Case(
        math.tanh_of_softplus,
        lambda x: np.tanh(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))), 5, low=-87.0,
    ),
    "absolute": Case(math.absolute, np.abs, 0),
    "square_root": Case(math.square_root, np.sqrt, 0),
    "reciprocal": Case(math.reciprocal, np.reciprocal, 0),
    "round_to_even": Case(math.round_to_even, np.rint, 0),
    **{f"power {to}": _power(to) for to in POWERS},
}  # fmt: skip

ISAS = pytest.mark.parametrize("isa", runnable_rows(), ids=lambda row: row.name)
NAMES = pytest.mark.parametrize("name", CASES)


@cache
def expected(name: str) -> Array:
    with np.errstate(all="ignore"):
        return CASES[name].peer(all_magnitudes().astype(np.float64))


def errors_in_ulps(got: NDArray[np.float32], want: Array) -> Array:
    """The distances in units of the last place of ``want``; inf where a NaN or inf is wrong."""
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        _, power = np.frexp(np.abs(want))
        distance = np.ldexp(np.abs(got - want), 24 - np.maximum(power, -125))
    equal = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    errors = np.where(np.isfinite(rounded) & np.isfinite(got), distance, np.inf)
    return np.where(equal, 0.0, errors)


@ISAS
@NAMES
def test_error_over_the_whole_range(name: str, isa: Isa) -> None:
    case, x = CASES[name], all_magnitudes()
    errors = errors_in_ulps(apply(isa, case.function, x), expected(name))
    errors[x < case.low] = 0
    worst = int(np.argmax(errors))
    assert errors[worst] <= case.ulps, f"{errors[worst]:.3g} ulps at {x[worst]!r}"


@every_pair(
    ISAS,
    pytest.mark.parametrize("lanes", [1, 2, 4, 8, 32]),
    pytest.mark.parametrize("name", ["exp", "log", "tanh", "sin", "power 1.7", "round_to_even"]),
)
def test_any_number_of_lanes(name: str, lanes: int, isa: Isa) -> None:
    case, x = CASES[name], all_magnitudes()[::61]
    errors = errors_in_ulps(apply(isa, case.function, x, lanes=lanes), expected(name)[::61])
    assert errors.max() <= case.ulps


@ISAS
@pytest.mark.parametrize("name", ["tanh", "erf", "logistic", "normal_cdf", "tanh_of_softplus"])
def test_bounded_functions_stay_within_bounds_and_reach_them(name: str, isa: Isa) -> None:
    x = np.linspace(-12, 12, 200_001).astype(np.float32)
    got = apply(isa, CASES[name].function, np.append(x, f32(-3e38, 3e38)))
    assert np.abs(got).max() == 1.0
    assert got[-1] == 1.0
    assert got[-2] == (-1.0 if name in ("tanh", "erf") else 0.0)


@ISAS
def test_the_tail_of_the_normal_distribution_falls_to_zero(isa: Isa) -> None:
    x = np.linspace(-20, -5, 10_001).astype(np.float32)
    got = apply(isa, math.normal_cdf, x)
    assert np.all(np.diff(got) >= 0)
    near = x > -6
    want = _erfc(-x.astype(np.float64) / np.sqrt(2.0)) / 2
    assert np.abs(got / want - 1)[near].max() < 2.0**-13
    assert got[0] < 1e-38
    assert np.all(np.abs(got - want) < 1e-12)


@ISAS
def test_the_exponential_of_negative_numbers_vanishes(isa: Isa) -> None:
    """No denormal number, but next to the smallest normal one, and no number at all below -88."""
    every = all_magnitudes()
    x = np.append(every[every <= 0], f32(-np.inf, np.nan))
    got = apply(isa, math.exp_of_negative, x)
    normal = x >= -87
    errors = errors_in_ulps(got, np.exp(x.astype(np.float64)))
    assert errors[normal].max() <= 2.5
    assert (got[x < -88] == 0).all()
    assert (got[(x < -87) & ~(x < -88)] <= np.exp(-87.0)).all()
    assert np.isnan(got[-1])


@ISAS
@pytest.mark.parametrize("name", ["logistic", "tanh_of_softplus"])
def test_factors_are_no_denormal_numbers(name: str, isa: Isa) -> None:
    """Each would cost processors some hundred cycles."""
    x = np.append(np.linspace(-200, -87.8, 10_001), [-1e4, -1e30, -np.inf]).astype(np.float32)
    assert (apply(isa, CASES[name].function, x) == 0).all()


@ISAS
def test_signs_of_zero(isa: Isa) -> None:
    zeros = f32(-0.0, 0.0)

    def signs(name: str) -> list[bool]:
        return [bool(sign) for sign in np.signbit(apply(isa, CASES[name].function, zeros))]

    roots = ("square_root", "round_to_even", "power 3.0", "power 33.0")
    for odd in ("tanh", "erf", "sin", "expm1", "log1p", *roots):
        assert signs(odd) == [True, False], odd
    for even in ("absolute", "power 0.5", "power 1.7", "power 8.0"):
        assert signs(even) == [False, False], even


@NAMES
@pytest.mark.parametrize("isa", rows.ROWS, ids=lambda row: row.name)
def test_code_has_no_calls(name: str, isa: Isa) -> None:
    code = instructions(assembly(isa, CASES[name].function))
    assert not {"call", "callq", "bl", "blr"}.intersection(code)


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "logistic", "normal_cdf"])
def test_avx512_code_keeps_everything_in_registers(name: str) -> None:
    text = assembly(rows.find("avx512_core"), CASES[name].function)
    assert "(%rsp)" not in text
    loop = re.split(r"^\.LBB\S+:.*$", text, flags=re.MULTILINE)
    body = next(part for part in loop if re.search(r"vmov(ups|dqu64)\t%zmm", part))
    assert len([line for line in body.splitlines() if "(%r" in line]) == 2, "a load and a store"
    assert len(instructions(body)) <= (38 if name == "erf" else 29)
