"""Functions of traced scalars, for `append_function` and `ExactDesc`.

Each takes traced scalars and plain numbers; of plain numbers alone it gives a number. The names
hide Python's own, so import the module and not its names: ``dnnl.math.exp(x)``.
"""

from __future__ import annotations

from collections.abc import Callable

from dnnl.types.derivative import derivative as differentiated
from dnnl.types.scalar import Number, Scalar, apply, computed, name_of, replayed, trace

__all__ = [
    "abs", "ceil", "cos",
    "derivative", "erf", "exp", "expm1", "floor", "log", "log1p", "maximum", "minimum", "pow",
    "relu", "round", "rsqrt", "sigmoid", "sin", "softplus", "sqrt", "square", "tanh", "where",
]  # fmt: skip


def _function(name: str, *sources: Scalar | Number) -> Scalar | float:
    if any(isinstance(source, Scalar) for source in sources):
        return apply(name, *sources)
    return computed(name, *sources)


def abs(x: Scalar | Number) -> Scalar | float:
    """|x|."""
    return _function("abs", x)


def exp(x: Scalar | Number) -> Scalar | float:
    """e^x."""
    return _function("exp", x)


def log(x: Scalar | Number) -> Scalar | float:
    """The natural logarithm; NaN for negative x."""
    return _function("log", x)


def expm1(x: Scalar | Number) -> Scalar | float:
    """e^x - 1, with all digits where x is close to 0."""
    return _function("expm1", x)


def log1p(x: Scalar | Number) -> Scalar | float:
    """ln(1 + x), with all digits where x is close to 0; NaN for x below -1."""
    return _function("log1p", x)


def sin(x: Scalar | Number) -> Scalar | float:
    """The sine of an angle in radians, however large; NaN for infinities."""
    return _function("sin", x)


def cos(x: Scalar | Number) -> Scalar | float:
    """The cosine of an angle in radians, however large; NaN for infinities."""
    return _function("cos", x)


def tanh(x: Scalar | Number) -> Scalar | float:
    """The hyperbolic tangent."""
    return _function("tanh", x)


def erf(x: Scalar | Number) -> Scalar | float:
    """The error function."""
    return _function("erf", x)


def sigmoid(x: Scalar | Number) -> Scalar | float:
    """1 / (1 + e^-x), the logistic function."""
    return _function("sigmoid", x)


def softplus(x: Scalar | Number) -> Scalar | float:
    """ln(1 + e^x), without overflow."""
    return _function("softplus", x)


def sqrt(x: Scalar | Number) -> Scalar | float:
    """The square root; NaN for negative x."""
    return _function("sqrt", x)


def rsqrt(x: Scalar | Number) -> Scalar | float:
    """1 / sqrt(x)."""
    return _function("rsqrt", x)


def floor(x: Scalar | Number) -> Scalar | float:
    """The largest integer that is not above x."""
    return _function("floor", x)


def ceil(x: Scalar | Number) -> Scalar | float:
    """The smallest integer that is not below x."""
    return _function("ceil", x)


def round(x: Scalar | Number) -> Scalar | float:
    """The nearest integer, the even one of two."""
    return _function("round", x)


def pow(x: Scalar | Number, y: Scalar | Number) -> Scalar | float:
    """x to the power of y, with the limits of C's ``pow``."""
    return _function("pow", x, y)


def minimum(x: Scalar | Number, y: Scalar | Number) -> Scalar | float:
    """The smaller of two; NaN if either is NaN."""
    return _function("minimum", x, y)


def maximum(x: Scalar | Number, y: Scalar | Number) -> Scalar | float:
    """The larger of two; NaN if either is NaN."""
    return _function("maximum", x, y)


def relu(x: Scalar | Number) -> Scalar | float:
    """max(x, 0)."""
    return maximum(x, 0.0)


def square(x: Scalar) -> Scalar:
    """x * x."""
    return x * x


def where(condition: Scalar | bool, x: Scalar | Number, y: Scalar | Number) -> Scalar | Number:
    """x where the condition holds, else y; both are computed."""
    if isinstance(condition, Scalar):
        return apply("where", condition, x, y)
    return x if condition else y


def derivative(fn: Callable[..., object], parameter: int = 0) -> Callable[..., Scalar]:
    """The derivative of a function of traced scalars along one of its parameters, as another.

    At a corner, and where a function jumps, it is that of one side.

    >>> from dnnl.types.scalar import trace
    >>> print(trace(derivative(lambda x: x * x), 1))
    add(x, x)
    """

    def slope(*scalars: Scalar | Number) -> Scalar:
        return replayed(differentiated(trace(fn, len(scalars)), parameter), scalars)

    slope.__name__ = f"derivative_of_{name_of(fn)}"
    return slope
