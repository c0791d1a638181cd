"""Overflow of sums against plain loops, and scales against what is known of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dnnl import DataType
from dnnl.reference.arrays import Array
from dnnl.tools.quantcheck.errors import Error
from dnnl.tools.quantcheck.layer import Product
from dnnl.tools.quantcheck.scheme import Scheme, TensorReport, candidates
from dnnl.tools.quantcheck.sums import sums_of

U8, S8 = DataType.u8, DataType.s8


def integers(low: int, high: int, *shape: int) -> Array:
    return np.random.default_rng(3).integers(low, high, shape).astype(np.float64)


@pytest.mark.parametrize("terms", [1, 2, 7, 16])
@pytest.mark.parametrize("src", [U8, S8])
def test_pairs_are_those_of_a_loop(terms: int, src: DataType) -> None:
    a = integers(int(src.min), int(src.max) + 1, 1, 5, terms)
    b = integers(-128, 128, 1, terms, 6)
    largest = float(np.abs(a[0] @ b[0]).max())
    found = sums_of(a, b, (src, S8), largest)
    shift = 128 if src is S8 else 0
    seen = []
    for m, n, k in itertools.product(range(5), range(6), range(0, terms, 2)):
        pair = range(k, min(k + 2, terms))
        seen.append(sum((a[0, m, i] + shift) * b[0, i, n] for i in pair))
    assert found.terms == terms
    assert found.pair_largest == max(map(abs, seen))
    over = [value for value in seen if not -32768 <= value <= 32767]
    assert found.pair_overflow == pytest.approx(len(over) / len(seen))
    assert found.largest == largest
    highest, lowest = (
        [
            sum(pick(b[0, i, n] * src.min, b[0, i, n] * src.max) for i in range(terms))
            for n in range(6)
        ]
        for pick in (max, min)
    )
    assert found.bound == max(abs(value) for value in highest + lowest)
    assert found.pair_largest <= found.pair_bound <= 2 * 255 * 128


def test_many_rows_are_looked_at_where_they_are_largest() -> None:
    a = np.zeros((1, 200_000, 64))
    a[0, 123_457] = 255.0
    b = np.full((1, 64, 64), 127.0)
    found = sums_of(a, b, (U8, S8), 0.0)
    assert found.pair_largest == 2 * 255 * 127
    assert 0 < found.pair_overflow < 0.1


def test_s32_is_named_where_it_can_or_does_overflow() -> None:
    many = 66_000
    b = np.full((1, many, 1), 128.0)
    quiet = sums_of(np.ones((1, 1, many)), b, (U8, S8), many * 128.0)
    assert quiet.bound == many * 128 * 255 >= 2**31
    assert "could take them" in next(quiet.advice())
    loud = sums_of(np.full((1, 1, many), 255.0), b, (U8, S8), many * 128.0 * 255)
    assert "leave s32 on every instruction set" in next(loud.advice())
    assert not list(sums_of(np.ones((1, 1, 8)), b[:, :8], (U8, S8), 1024.0).advice())


@pytest.mark.parametrize(("groups", "taps"), [(1, (3, 3)), (2, (3, 2)), (4, ())])
def test_patches_and_columns_make_the_product(groups: int, taps: tuple[int, ...]) -> None:
    """Also of what is no window: the product alone says what its terms are."""
    rng = np.random.default_rng(1)

    def compute(src: Array, weights: Array) -> Array:
        grouped = src.reshape(3, groups, 4, *src.shape[2:])
        flat = weights.reshape(groups, -1, *weights.shape[-1 - len(taps) :])
        if not taps:
            return np.asarray(np.einsum("ngi,goi->ngo", grouped, flat).reshape(3, -1))
        padded = np.lib.stride_tricks.sliding_window_view(grouped, taps, axis=(3, 4))
        made = np.einsum("ngihwyx,goiyx->ngohw", padded, flat)
        return np.asarray(made.reshape(3, -1, *made.shape[3:]))

    src = rng.standard_normal((3, groups * 4, *(6, 7)[: len(taps)]))
    weights = rng.standard_normal((groups, 5, 4, *taps))
    dst = compute(src, weights)
    patches, columns = Product(compute, "goi*").matrices(src, weights)
    again = np.einsum("gpk,gkn->gpn", patches, columns).reshape(groups, 3, -1, 5)
    np.testing.assert_allclose(
        np.moveaxis(again, (0, 3), (1, 2)).reshape(dst.shape), dst, atol=1e-12
    )
    # Neighbours along k are channels of one tap.
    assert columns.shape == (groups, 4 * int(np.prod(taps)), 5)
    first = weights.reshape(groups, 5, 4, -1)[..., 0]
    np.testing.assert_array_equal(columns[:, :4], np.moveaxis(first, 1, 2))


def test_batches_of_matrices() -> None:
    rng = np.random.default_rng(1)
    src, weights = rng.standard_normal((2, 3, 4, 5)), rng.standard_normal((1, 3, 5, 6))
    patches, columns = Product(np.matmul, "*kn").matrices(src, weights)
    np.testing.assert_allclose((patches @ columns).reshape(2, 3, 4, 6), src @ weights)
    patches, columns = Product(np.matmul, "*kn").matrices(src, weights[:, :1])
    assert patches.shape == (1, 24, 5)


def test_a_scale_is_found_again() -> None:
    """Values on a grid are stored without an error by the scale of that grid alone."""
    grid = integers(-127, 128, 4000) * 0.03125
    grid[0] = 127 * 0.03125
    for factor in (1 / 20, 30.0):
        found = TensorReport.of("dst", "t", "s", Scheme.of(S8, 0.03125 * factor), grid)
        assert found.is_bad
        assert found.best.scale.item() == pytest.approx(0.03125, rel=1e-6)
        assert found.advised_error.relative < 1e-12
        assert found.ratio == pytest.approx(1 / factor, rel=1e-6)
        text = next(found.advice())
        assert ("20 times too small" if factor < 1 else "30 times too large") in text
    assert not TensorReport.of("dst", "t", "s", Scheme.of(S8, 0.03125), grid).is_bad


def test_saturation_is_counted_where_integers_end() -> None:
    values = np.array([-1.0, 0.0, 127.0, 127.6, 128.0, -128.4, -128.6, 200.0])
    assert Scheme.of(S8, 1.0).saturated(values) == 4 / 8
    assert Scheme.of(U8, 1.0, 10).saturated(values) == 2 / 8  # -118.4 and -118.6
    assert Scheme.of(S8, 1.0).stored(values).tolist() == [-1, 0, 127, 127, 127, -128, -128, 127]


def test_outliers_are_cut_off_where_that_is_better() -> None:
    rng = np.random.default_rng(2)
    values = np.append(rng.standard_normal(50_000), [400.0])
    found = candidates(values, Scheme.of(S8, 1.0))
    errors = {way: Error.of(each.through(values), values).relative for way, each in found.items()}
    assert found["max-abs"].scale.item() == pytest.approx(400 / 127)
    assert found["percentile"].scale.item() < 0.1
    assert errors["least squares"] <= min(errors.values())


def test_each_channel_has_its_own_scale() -> None:
    values = np.random.default_rng(2).standard_normal((3, 500)) * [[1.0], [10.0], [0.0]]
    found = candidates(values, Scheme.of(S8, np.ones((3, 1)), np.zeros((3, 1))))
    for scheme in found.values():
        assert scheme.scale.shape == (3, 1)
        assert scheme.scale[1] > 5 * scheme.scale[0]
        assert scheme.scale[2] == 1  # of nothing but zeros any scale does


def test_zero_points_stay_where_there_is_a_sign() -> None:
    values = np.linspace(-1, 3, 1000)
    assert not candidates(values, Scheme.of(S8, 1.0))["max-abs"].zero_point.any()
    made = candidates(values, Scheme.of(U8, 1.0))["max-abs"]
    assert made.zero_point.item() == 64
    assert made.scale.item() == pytest.approx(4 / 255)


def test_errors() -> None:
    error = Error.of(np.array([3.0, 4.5]), np.array([3.0, 4.0]))
    assert (error.relative, error.largest) == (0.1, 0.5)
    assert error.snr == pytest.approx(20.0)
    assert Error.of(np.zeros(2), np.zeros(2)).snr == 200
    assert Error.of(np.ones(2), np.zeros(2)).relative == np.inf
