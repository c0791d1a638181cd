"""Functions of each element, and of two arrays that are broadcast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Out, Result, data_type_of
from dnnl.ops.call import Problem, call, dense, expanded, type_of
from dnnl.ops.device import taken
from dnnl.ops.promotion import (
    NUMPY,
    TORCH,
    Rules,
    as_real,
    as_type,
    is_number,
    of_floats,
    rules_of,
    target,
    widened,
)
from dnnl.primitives.binary import BinaryDesc
from dnnl.primitives.eltwise import EltwiseDesc
from dnnl.primitives.exact import ExactDesc
from dnnl.primitives.parameters import Name
from dnnl.primitives.prelu import PreluDesc
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.layout_input import read_float
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.scalar import apply

_SELECTED = ("x", "y", "condition")
_GELU = {"none": Alg.eltwise_gelu_erf, "tanh": Alg.eltwise_gelu_tanh}


_OF_WHOLE = {
    Alg.binary_add: "add", Alg.binary_sub: "sub", Alg.binary_mul: "mul", Alg.binary_max: "max",
    Alg.binary_min: "min",
}  # fmt: skip
_WRAPPING = (Alg.binary_add, Alg.binary_sub, Alg.binary_mul)
_INTEGERS = {int, *(np.dtype(letter).type for letter in np.typecodes["AllInteger"])}
_SMALL = 2**7  # integers below it are in all types
_OF_TRUTHS = {
    Alg.binary_add: "or", Alg.binary_mul: "and", Alg.binary_max: "or", Alg.binary_min: "and",
}  # fmt: skip


_OF_INTEGERS: dict[Alg, Callable[[Any], Any]] = {
    Alg.eltwise_relu: lambda x: apply("maximum", x, 0),
    Alg.eltwise_square: lambda x: x * x,
}


def _of_one(
    descs: Sequence[MemoryDesc],
    dst: MemoryDesc | None,
    alg: Alg,
    alpha: float,
    beta: float,
    rules: Rules | None,
) -> Problem:
    """A function of floats, or by ``rules`` of integers as well, which become floats."""
    (src,) = descs
    if rules is None:
        src = of_floats(src, dst)
    src = as_type(src, src.data_type if rules is None else rules.real(src.data_type))
    dst = dst or dense(src.dims, src)
    desc = EltwiseDesc.forward("forward_inference", alg, src, dst, alpha, beta)
    return Problem(desc, (Arg.SRC,), src.dims)


def function(
    x: ArrayLike,
    alg: Alg,
    out: Out,
    alpha: float = 0.0,
    beta: float = 0.0,
    rules: Rules | None = None,
) -> Result:
    """A function of each element that floats have, by ``rules`` integers as well."""
    return call(_of_one, (x,), (alg, alpha, beta, rules), out)


def _of_numbers(descs: Sequence[MemoryDesc], dst: MemoryDesc | None, alg: Alg) -> Problem:
    """A function that integers have as well."""
    (src,) = descs
    if src.data_type.is_float:
        return _of_one(descs, dst, alg, 0.0, 0.0, None)
    if src.data_type is DataType.boolean:
        raise InvalidArguments("x", "boolean", "this function takes numbers", "convert them")
    kind = widened(src.data_type, dst)
    if kind.is_float:
        return _of_one(descs, dst, alg, 0.0, 0.0, NUMPY)
    exact = ExactDesc(_OF_INTEGERS[alg], [as_type(src, kind)], target(dst, src.dims, kind))
    return Problem(exact, (Arg.MULTIPLE_SRC,), src.dims)


def _magnitude(descs: Sequence[MemoryDesc], dst: MemoryDesc | None) -> Problem:
    (src,) = descs
    kind = src.data_type
    if kind.is_float:
        return _of_one(descs, dst, Alg.eltwise_abs, 0.0, 0.0, None)
    function = "cast" if kind is DataType.boolean else "abs"
    described = ExactDesc(function, [src], target(dst, src.dims, kind))
    return Problem(described, (Arg.MULTIPLE_SRC,), src.dims)


def _broadcast(names: Sequence[str], descs: Sequence[MemoryDesc]) -> tuple[int, ...]:
    """The shape of what is computed of tensors, which errors call ``names``."""
    shape = descs[0].dims
    for name, desc in zip(names, descs, strict=True):
        try:
            shape = np.broadcast_shapes(shape, desc.dims)
        except ValueError:
            rule = f"cannot be broadcast with {shape}"
            raise InvalidArguments(name, desc.dims, rule) from None
    return shape


def _of_two(
    descs: Sequence[MemoryDesc], dst: MemoryDesc | None, alg: Alg, rules: Rules, name: str
) -> Problem:
    names = "x", name
    shape, kind = _broadcast(names, descs), rules.common_type(names, descs)
    kind = widened(rules.quotient(kind) if alg is Alg.binary_div else kind, dst)
    if kind.is_float:
        first, second = (expanded(as_real(desc, kind), len(shape)) for desc in descs)
        desc = BinaryDesc(alg, first, second, dst or MemoryDesc(shape, kind))
        return Problem(desc, (Arg.SRC_0, Arg.SRC_1), shape)
    function = (_OF_TRUTHS if kind is DataType.boolean else _OF_WHOLE).get(alg)
    if function is None:
        hint = "convert one of them to an integer, or use numpy.logical_xor"
        raise InvalidArguments("x", str(kind), "truth values have no difference", hint)
    sources = [expanded(as_type(desc, kind), len(shape)) for desc in descs]
    exact = ExactDesc(function, sources, target(dst, shape, kind))
    return Problem(exact, (Arg.multiple_src(0), Arg.multiple_src(1)), shape)


def binary(x: ArrayLike, y: ArrayLike, alg: Alg, out: Out, name: str = "y") -> Result:
    """A function of two arrays that are broadcast, of which errors call the second ``name``."""
    rules = rules_of(x, y)
    if (type(x) in _INTEGERS or type(y) in _INTEGERS) and rules is TORCH and alg in _WRAPPING:
        x, y = _wrapped(x, y, out), _wrapped(y, x, out)
    return call(_of_two, (x, y), (alg, rules, name), out, ("x", name))


def _wrapped(number: ArrayLike, other: ArrayLike, out: Out) -> ArrayLike:
    """A number as PyTorch's arithmetic takes it: an integer wraps in the type of other ones, if
    the result has that type, too."""
    if type(number) not in _INTEGERS:
        return number
    number = int(number)  # type: ignore[arg-type]
    if 0 <= number < _SMALL or not -(2**63) <= number < 2**64:
        return number
    dtype = type_of(other, "x")
    if dtype.kind not in "iu" or (out is not None and type_of(out, "out") != dtype):
        return number
    low, count = int(np.iinfo(dtype).min), 2 ** (8 * dtype.itemsize)
    wrapped: int = (number - low) % count + low
    return wrapped


def relu(x: ArrayLike, out: Out = None) -> Result:
    """max(x, 0).

    >>> relu(np.array([-1.0, 2.0], np.float32))
    array([0., 2.], dtype=float32)
    """
    return call(_of_numbers, (x,), (Alg.eltwise_relu,), out)


def leaky_relu(x: ArrayLike, negative_slope: float = 0.01, out: Out = None) -> Result:
    """x where it is positive, else negative_slope * x.

    >>> leaky_relu(np.array([-1.0, 2.0], np.float32), 0.5)
    array([-0.5,  2. ], dtype=float32)
    """
    slope = read_float("negative_slope", negative_slope)
    return function(x, Alg.eltwise_relu, out, slope)


def elu(x: ArrayLike, alpha: float = 1.0, out: Out = None) -> Result:
    """x where it is positive, else alpha * (e^x - 1).

    >>> elu(np.array([0.0, 2.0], np.float32))
    array([0., 2.], dtype=float32)
    """
    return function(x, Alg.eltwise_elu, out, read_float("alpha", alpha))


def silu(x: ArrayLike, out: Out = None) -> Result:
    """x / (1 + e^-x).

    >>> silu(np.zeros(2, np.float32))
    array([0., 0.], dtype=float32)
    """
    return function(x, Alg.eltwise_swish, out, 1.0)


def sigmoid(x: ArrayLike, out: Out = None) -> Result:
    """1 / (1 + e^-x).

    >>> sigmoid(np.zeros(2, np.float32))
    array([0.5, 0.5], dtype=float32)
    """
    return function(x, Alg.eltwise_logistic, out, rules=TORCH)


def tanh(x: ArrayLike, out: Out = None) -> Result:
    """The hyperbolic tangent.

    >>> tanh(np.zeros(2, np.float32))
    array([0., 0.], dtype=float32)
    """
    return function(x, Alg.eltwise_tanh, out, rules=rules_of(x))


def exp(x: ArrayLike, out: Out = None) -> Result:
    """e^x.

    >>> exp(np.zeros(2, np.float32))
    array([1., 1.], dtype=float32)
    """
    return function(x, Alg.eltwise_exp, out, rules=rules_of(x))


def log(x: ArrayLike, out: Out = None) -> Result:
    """The natural logarithm.

    >>> log(np.ones(2, np.float32))
    array([0., 0.], dtype=float32)
    """
    return function(x, Alg.eltwise_log, out, rules=rules_of(x))


def sqrt(x: ArrayLike, out: Out = None) -> Result:
    """The square root.

    >>> sqrt(np.array([4.0, 9.0], np.float32))
    array([2., 3.], dtype=float32)
    """
    return function(x, Alg.eltwise_sqrt, out, rules=rules_of(x))


def square(x: ArrayLike, out: Out = None) -> Result:
    """x * x.

    >>> square(np.array([-2.0, 3.0], np.float32))
    array([4., 9.], dtype=float32)
    """
    return call(_of_numbers, (x,), (Alg.eltwise_square,), out)


def absolute(x: ArrayLike, out: Out = None) -> Result:
    """|x|.

    >>> absolute(np.array([-2.0, 3.0], np.float32))
    array([2., 3.], dtype=float32)
    """
    return call(_magnitude, (x,), (), out)


def mish(x: ArrayLike, out: Out = None) -> Result:
    """x * tanh(ln(1 + e^x)).

    >>> mish(np.zeros(2, np.float32))
    array([0., 0.], dtype=float32)
    """
    return function(x, Alg.eltwise_mish, out)


def gelu(x: ArrayLike, approximate: str = "none", out: Out = None) -> Result:
    """x times the distribution function of the normal distribution at x.

    ``approximate`` "tanh" takes a formula with tanh in place of erf.

    >>> gelu(np.zeros(2, np.float32))
    array([0., 0.], dtype=float32)
    """
    alg = _GELU[Name(tuple(_GELU)).read("approximate", approximate, 0)]
    return function(x, alg, out)


def softplus(
    x: ArrayLike, beta: float = 1.0, out: Out = None, *, threshold: float | None = None
) -> Result:
    """ln(1 + e^(beta * x)) / beta, and x itself where beta * x is above a ``threshold``.

    >>> softplus(np.array([50.0], np.float32))
    array([50.], dtype=float32)
    """
    slope = read_float("beta", beta)
    if threshold is None:
        return function(x, Alg.eltwise_soft_relu, out, slope)
    limit = read_float("threshold", threshold)
    place, (array,) = taken((x,), ("x",), out)
    curve = function(array, Alg.eltwise_soft_relu, None, slope)
    result = call(_straight, (array, curve), (slope, limit), out, ("x", "curve"))
    return place.returned(result, (x,), out)


def _straight(
    descs: Sequence[MemoryDesc], dst: MemoryDesc | None, slope: float, limit: float
) -> Problem:
    """x where slope * x is above a limit, else the curve."""
    x, curve = descs

    def chosen(v: Any, bent: Any) -> Any:
        return apply("where", v * slope > limit, v, bent)

    desc = ExactDesc(chosen, [x, curve], target(dst, x.dims, x.data_type))
    order = (Arg.multiple_src(0), Arg.multiple_src(1))
    return Problem(desc, order, x.dims, result=x.data_type)


def hardsigmoid(x: ArrayLike, out: Out = None) -> Result:
    """x / 6 + 1 / 2, held between 0 and 1.

    >>> hardsigmoid(np.array([-4.0, 0.0, 4.0], np.float32))
    array([0. , 0.5, 1. ], dtype=float32)
    """
    return function(x, Alg.eltwise_hardsigmoid, out, 1 / 6, 0.5)


def hardswish(x: ArrayLike, out: Out = None) -> Result:
    """x * hardsigmoid(x).

    >>> hardswish(np.array([-4.0, 0.0, 4.0], np.float32))
    array([-0.,  0.,  4.], dtype=float32)
    """
    return function(x, Alg.eltwise_hardswish, out, 1 / 6, 0.5)


def logsigmoid(x: ArrayLike, out: Out = None) -> Result:
    """ln(1 / (1 + e^-x)), without its underflow.

    >>> logsigmoid(np.array([-200.0, 0.0], np.float32))
    array([-200.       ,   -0.6931472], dtype=float32)
    """
    return function(x, Alg.eltwise_soft_relu, out, -1.0)


def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike, out: Out = None) -> Result:
    """x where the condition is true or not 0, else y, of arrays that are broadcast.

    >>> where(np.array([True, False]), np.zeros(2, np.float32), 7.0)
    array([0., 7.], dtype=float32)
    """
    if is_number(x) and is_number(y) and not _has_truths(condition):
        # Beside truth values numbers have types of their own.
        place, (given,) = taken((condition,), ("condition",), out)
        truths = place.converted(given, np.dtype(np.bool_))
        condition = place.returned(truths, (condition,), None)
    # x and y come first: a number has the type of the other one, not that of the condition.
    return call(_selected, (x, y, condition), (rules_of(x, y, condition),), out, _SELECTED)


def _has_truths(condition: ArrayLike) -> bool:
    return data_type_of(type_of(condition, "condition"), "condition") is DataType.boolean


def _selected(descs: Sequence[MemoryDesc], dst: MemoryDesc | None, rules: Rules) -> Problem:
    shape = _broadcast(_SELECTED, descs)
    kind = widened(rules.common_type("xy", descs[:2]), dst)
    kinds = (DataType.boolean, kind, kind)
    sources = [
        expanded(as_type(desc, each), len(shape))
        for desc, each in zip((descs[2], *descs[:2]), kinds, strict=True)
    ]
    exact = ExactDesc("where", sources, target(dst, shape, kind))
    order = (Arg.multiple_src(1), Arg.multiple_src(2), Arg.multiple_src(0))
    return Problem(exact, order, shape, result=kind)


def prelu(x: ArrayLike, weight: ArrayLike, out: Out = None) -> Result:
    """x where it is positive, else weight * x, with one weight or one for each channel (dimension
    1).

    >>> prelu(np.array([[-1.0, -2.0]], np.float32), np.array([0.5, 0.25], np.float32))
    array([[-0.5, -0.5]], dtype=float32)
    """
    return call(_prelu, (x, weight), (), out, ("x", "weight"))


def _prelu(descs: Sequence[MemoryDesc], dst: MemoryDesc | None) -> Problem:
    src, weights = of_floats(descs[0], dst), of_floats(descs[1], dst, "weight")
    channels = src.dims[1] if src.ndims > 1 else 1
    if weights.nelems() not in (1, channels) or weights.ndims > 1:
        rule = f"expected one weight, or one for each of {channels} channels"
        raise InvalidArguments("weight", weights.dims, rule)
    ones = (1,) * max(0, src.ndims - 2)
    shape = (1, weights.nelems(), *ones) if src.ndims > 1 else (1,) * src.ndims
    target = dst or dense(src.dims, src)
    desc = PreluDesc.forward("forward_inference", src, weights.reshape(shape), target)
    return Problem(desc, (Arg.SRC, Arg.WEIGHTS), src.dims)


def add(x: ArrayLike, y: ArrayLike, out: Out = None) -> Result:
    """x + y, of arrays that are broadcast; integers wrap.

    >>> add(np.array([1.0, 2.0], np.float32), np.array([2.0, 3.0], np.float32))
    array([3., 5.], dtype=float32)
    """
    return binary(x, y, Alg.binary_add, out)


def subtract(x: ArrayLike, y: ArrayLike, out: Out = None) -> Result:
    """x - y, of arrays that are broadcast; integers wrap.

    >>> subtract(np.array([1.0, 2.0], np.float32), np.array([2.0, 3.0], np.float32))
    array([-1., -1.], dtype=float32)
    """
    return binary(x, y, Alg.binary_sub, out)


def multiply(x: ArrayLike, y: ArrayLike, out: Out = None) -> Result:
    """x * y, of arrays that are broadcast; integers wrap.

    >>> multiply(np.array([1.0, 2.0], np.float32), np.array([2.0, 3.0], np.float32))
    array([2., 6.], dtype=float32)
    """
    return binary(x, y, Alg.binary_mul, out)


def divide(x: ArrayLike, y: ArrayLike, out: Out = None) -> Result:
    """x / y, of arrays that are broadcast; integers become floats.

    >>> divide(np.array([1.0, 2.0], np.float32), np.array([2.0, 3.0], np.float32))
    array([0.5      , 0.6666667], dtype=float32)
    """
    return binary(x, y, Alg.binary_div, out)


def maximum(x: ArrayLike, y: ArrayLike, out: Out = None) -> Result:
    """The larger of two, of arrays that are broadcast; NaN if either is NaN.

    >>> maximum(np.array([1.0, 2.0], np.float32), np.array([2.0, 3.0], np.float32))
    array([2., 3.], dtype=float32)
    """
    return binary(x, y, Alg.binary_max, out)


def minimum(x: ArrayLike, y: ArrayLike, out: Out = None) -> Result:
    """The smaller of two, of arrays that are broadcast; NaN if either is NaN.

    >>> minimum(np.array([1.0, 2.0], np.float32), np.array([2.0, 3.0], np.float32))
    array([1., 2.], dtype=float32)
    """
    return binary(x, y, Alg.binary_min, out)
