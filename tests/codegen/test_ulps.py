"""The bounds of `docs/numerics.md` over a sample of all floats, on every instruction set here."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from dnnl.codegen.isa import Isa
from tests.codegen import ulps
from tests.codegen.lanes import apply, f32, runnable_rows

ISAS = pytest.mark.parametrize("isa", runnable_rows(), ids=lambda row: row.name)
NAMES = pytest.mark.parametrize("name", ulps.FUNCTIONS)
# About 100,000 floats; it shares no factor with 2^32, so that the low bits differ.
STRIDE = 43_013
TINY, LEAST, LARGEST = 2.0**-149, 2.0**-126, float(np.finfo(np.float32).max)
SPECIAL = f32(
    *(
        sign * value
        for value in (0.0, TINY, 3 * TINY, LEAST - TINY, LEAST, 1e-30, 2.0**-24, 0.25, 0.5, 1.0)
        for sign in (1, -1)
    ),
    *(sign * value for value in (1.5, 2.0, 8.5, 1e10, 1e30, LARGEST, math.inf) for sign in (1, -1)),
    # Where powers of e overflow, become denormal and vanish, and multiples of pi / 2.
    *(88.72283, 88.72284, 89.0, -87.33655, -87.4, -88.1, -103.97, -103.98, -104.1, -110.0),
    *(math.pi / 2, math.pi, -math.pi, 131072.0, 131072.02, 16367173.0 * 2.0**72),
    math.nan, -math.nan,
)  # fmt: skip


@ISAS
@NAMES
def test_errors_are_within_the_bounds(name: str, isa: Isa) -> None:
    function = ulps.FUNCTIONS[name]
    x = np.concatenate([ulps.floats(0, STRIDE), SPECIAL])
    with np.errstate(all="ignore"):
        want = function.truth(x.astype(np.float64))
        rounded = want.astype(np.float32)
    got = apply(isa, function.emit, x)
    places, found = ulps.errors(got, want, rounded, function.normal)
    worst = int(np.argmax(found))
    where = x[places[worst]]
    assert found[worst] <= function.bound, f"{found[worst]:.3f} ulps at {where!r}"


@ISAS
@pytest.mark.parametrize("name", ["tanh", "erf", "sin", "expm1", "log1p", "sqrt"])
def test_zero_keeps_its_sign(name: str, isa: Isa) -> None:
    zeros = f32(0.0, -0.0)
    assert np.signbit(apply(isa, ulps.FUNCTIONS[name].emit, zeros)).tolist() == [False, True]


@ISAS
@pytest.mark.parametrize("name", ["tanh", "erf", "sin"])
def test_odd_functions_are_odd_to_the_last_bit(name: str, isa: Isa) -> None:
    x = ulps.floats(0, STRIDE)
    emit = ulps.FUNCTIONS[name].emit
    np.testing.assert_array_equal(apply(isa, emit, -x), -apply(isa, emit, x))


@ISAS
def test_neighbours_do_not_change_a_result(isa: Isa) -> None:
    """Angles below and above the limit of the short way, in vectors of their own and mixed."""
    x = np.random.default_rng(1).uniform(-4, 4, 4096).astype(np.float32)
    large = np.ldexp(x, 60).astype(np.float32)
    mixed = np.stack([x, large], axis=1).ravel()
    for name in ("sin", "cos"):
        emit = ulps.FUNCTIONS[name].emit
        together = apply(isa, emit, mixed).reshape(-1, 2).T
        np.testing.assert_array_equal(together, [apply(isa, emit, x), apply(isa, emit, large)])


def test_a_wrong_result_is_seen() -> None:
    want = np.array([1.0, 1.0, math.nan, 1.0, math.inf, 2.0**-149])
    rounded = want.astype(np.float32)
    got = f32(1.0, 1 + 2.0**-22, 1.0, math.nan, 1.0, 2.0**-148)
    places, found = ulps.errors(got, want, rounded)
    assert places.tolist() == [1, 2, 3, 4, 5]
    assert found.tolist() == [2.0, math.inf, math.inf, math.inf, 1.0]


def test_the_page_states_the_bounds() -> None:
    page = (Path(__file__).parents[2] / "docs" / "elementary-functions.md").read_text()
    rows = re.findall(r"^\| ([a-z_0-9]+) \| ([0-9.]+) \|", page, flags=re.MULTILINE)
    assert {name: float(bound) for name, bound in rows} == {
        name: function.bound for name, function in ulps.FUNCTIONS.items()
    }
