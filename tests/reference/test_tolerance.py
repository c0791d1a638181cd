"""What a bound accepts and refuses."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl.reference.tolerance import EXACT, Tolerance

EPS = 2.0**-23


def accepts(tolerance: Tolerance, dst: str, got: float, want: float, length: int = 1) -> bool:
    return bool(tolerance(dst, length).accepts(np.array([got]), np.array([want]))[0])


def test_exact_means_the_one_rounded_result() -> None:
    third = float(np.float32(1 / 3))
    assert accepts(EXACT, "f32", third, 1 / 3)
    assert not accepts(EXACT, "f32", third + 2.0**-25, 1 / 3)
    assert not accepts(EXACT, "f32", 1 / 3, 1 / 3)


@pytest.mark.parametrize(("want", "got"), [(127.4, 127), (1e9, 127), (-1e9, -128), (2.5, 2)])
def test_integers_round_and_saturate(want: float, got: float) -> None:
    assert accepts(EXACT, "s8", got, want)
    assert not accepts(EXACT, "s8", got - 1, want)


def test_a_tie_may_fall_to_either_side_where_the_computation_rounds() -> None:
    for got in (2, 3):
        assert accepts(Tolerance(ulps=1), "s8", got, 2.5)
    assert not accepts(Tolerance(ulps=1), "s8", 3, 2.4)


def test_errors_grow_with_the_sum() -> None:
    tolerance = Tolerance(ulps=1, growth=1)
    assert not accepts(tolerance, "f32", 1 + 8 * EPS, 1.0)
    assert accepts(tolerance, "f32", 1 + 8 * EPS, 1.0, length=64)
    assert not accepts(tolerance, "f64", 1 + 8 * EPS, 1.0, length=64)


def test_a_floor_makes_errors_absolute() -> None:
    assert not accepts(Tolerance(ulps=4), "f32", EPS, 0.0)
    assert accepts(Tolerance(ulps=4, floor=1.0), "f32", EPS, 0.0)
    bound = Tolerance(ulps=4, floor=None)("f32")
    want = np.array([0.0, 3.0, 3.0])
    assert bound.accepts(want + EPS, want).all()
    assert not bound.accepts(want + 16 * EPS, want).any()


def test_infinities_and_nan() -> None:
    loose = Tolerance(ulps=1e6)
    for value in (np.inf, -np.inf, np.nan):
        assert accepts(loose, "f32", value, value)
        assert not accepts(loose, "f32", 1.0, value)
    assert not accepts(loose, "f32", np.nan, 1.0)
    assert accepts(EXACT, "s8", 0, np.nan)


@pytest.mark.parametrize("sign", [1, -1])
def test_overflow_to_nan(sign: int) -> None:
    """f8_e4m3 has no infinity: 448 is the largest, and above 464 there is NaN."""
    for want in (512.0, np.inf):
        assert accepts(EXACT, "f8_e4m3", np.nan, sign * want)
        assert not accepts(EXACT, "f8_e4m3", sign * 448, sign * want)
    assert not accepts(EXACT, "f8_e4m3", np.nan, sign * 448.0)
    near = Tolerance(ulps=1)
    for got in (np.nan, sign * 448):  # either side of the limit
        assert accepts(near, "f8_e4m3", got, sign * 464.0)
    assert not accepts(near, "f8_e4m3", sign * 416, sign * 464.0)
    assert not accepts(near, "f8_e4m3", -sign * 448, sign * 464.0)


def test_s32_saturates_at_its_largest() -> None:
    assert not accepts(EXACT, "s32", 2147483520, 2.0**31)
    assert accepts(EXACT, "s32", 2.0**31 - 1, 2.0**31)
    assert not accepts(EXACT, "s32", 2147483392, 2.0**31)


def test_steps_add_up() -> None:
    both = Tolerance(ulps=2, growth=1, floor=0.5).after(Tolerance(ulps=3, floor=1.0))
    assert both == Tolerance(ulps=5, growth=1, floor=1.0)
    assert both.after(Tolerance(floor=None)).floor is None
