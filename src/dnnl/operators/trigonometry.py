"""Inverse trigonometric and hyperbolic functions, as traced functions of f32.

Errors are a few ulp, also near zero and near the ends of domains. asin and atan of small arguments
use the polynomials of Cephes (Moshier).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from dnnl.types.scalar import Scalar, apply

_HALF_PI = math.pi / 2
_LOG_2 = math.log(2.0)
_ASIN = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
_ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_TAN_PI_8, _TAN_3_PI_8 = math.sqrt(2) - 1, math.sqrt(2) + 1
_SMALL = 1e-3
"""Below, terms after the cube are rounded away."""
_LARGE = 1e9
"""Beyond, x^2 + 1 rounds to x^2 or overflows."""


def _where(condition: Scalar, a: Scalar | float, b: Scalar | float) -> Scalar:
    return apply("where", condition, a, b)


def _polynomial(x: Scalar, factors: Sequence[float]) -> Scalar:
    value: Scalar | float = factors[0]
    for factor in factors[1:]:
        value = value * x + factor
    assert isinstance(value, Scalar)
    return value


def _odd(x: Scalar, cube: float, of_magnitude: Callable[[Scalar], Scalar]) -> Scalar:
    """An odd function by its values for x >= 0. Close to 0 it is x * (1 + cube * x^2), a product,
    so that -0 gives -0."""
    a = abs(x)
    value = of_magnitude(a)
    near = x * (1 + cube * (x * x))
    return _where(a < _SMALL, near, _where(x < 0, -value, value))


def asin(x: Scalar) -> Scalar:
    """asin, NaN beyond 1."""
    return _odd(x, 1 / 6, _asin_of_magnitude)


def _asin_of_magnitude(a: Scalar) -> Scalar:
    far = a > 0.5
    square = _where(far, 0.5 * (1 - a), a * a)
    root = _where(far, apply("sqrt", square), a)
    value = _polynomial(square, _ASIN) * square * root + root
    return _where(far, _HALF_PI - 2 * value, value)


def acos(x: Scalar) -> Scalar:
    """acos; near 1 and -1 by sqrt(1 - |x|), without cancellation."""
    a = abs(x)
    far = a > 0.5
    square = _where(far, 0.5 * (1 - a), a * a)
    root = _where(far, apply("sqrt", square), x)
    value = _polynomial(square, _ASIN) * square * root + root
    return _where(far, _where(x < 0, math.pi - 2 * value, 2 * value), _HALF_PI - value)


def atan(x: Scalar) -> Scalar:
    """atan, with its argument reduced by 0, 45 or 90 degrees."""
    return _odd(x, -1 / 3, _atan_of_magnitude)


def _atan_of_magnitude(a: Scalar) -> Scalar:
    steep, middle = a > _TAN_3_PI_8, a > _TAN_PI_8
    reduced = _where(steep, -1 / a, _where(middle, (a - 1) / (a + 1), a))
    base = _where(steep, _HALF_PI, _where(middle, _HALF_PI / 2, 0.0))
    square = reduced * reduced
    return base + (_polynomial(square, _ATAN) * square * reduced + reduced)


def sinh(x: Scalar) -> Scalar:
    """sinh; exp(x) / 2 is exp(x / 2)^2 / 2, which overflows only when the result does."""
    a = abs(x)
    root = apply("exp", 0.5 * a)
    large = (0.5 * root) * root - (0.5 / root) / root
    power = apply("expm1", x)
    small = 0.5 * (power + power / (power + 1))
    return _where(a < 1, small, _where(x < 0, -large, large))


def cosh(x: Scalar) -> Scalar:
    """cosh, without early overflow, as `sinh`."""
    root = apply("exp", 0.5 * abs(x))
    return (0.5 * root) * root + (0.5 / root) / root


def asinh(x: Scalar) -> Scalar:
    """asinh as log1p of x + sqrt(x^2 + 1) - 1, without cancellation."""
    return _odd(x, -1 / 6, _asinh_of_magnitude)


def _asinh_of_magnitude(a: Scalar) -> Scalar:
    square = a * a
    small = apply("log1p", a + square / (1 + apply("sqrt", square + 1)))
    return _where(a > _LARGE, apply("log", a) + _LOG_2, small)


def acosh(x: Scalar) -> Scalar:
    """acosh, NaN below 1."""
    more = x - 1
    small = apply("log1p", more + apply("sqrt", more) * apply("sqrt", more + 2))
    return _where(x > _LARGE, apply("log", x) + _LOG_2, small)


def atanh(x: Scalar) -> Scalar:
    """atanh, NaN beyond 1."""
    return _odd(x, 1 / 3, lambda a: 0.5 * apply("log1p", 2 * a / (1 - a)))


FUNCTIONS: Mapping[str, Callable[[Scalar], Scalar]] = {
    "Acos": acos,
    "Acosh": acosh,
    "Asin": asin,
    "Asinh": asinh,
    "Atan": atan,
    "Atanh": atanh,
    "Cosh": cosh,
    "Sinh": sinh,
}
"""Functions by the names of operators."""
