"""Functions of each element, and of two arrays that are broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.ops.call import Problem, call, dense, expanded
from dnnl.primitives.binary import BinaryDesc
from dnnl.primitives.eltwise import EltwiseDesc
from dnnl.primitives.parameters import Name
from dnnl.primitives.prelu import PreluDesc
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg
from dnnl.types.layout_input import read_float
from dnnl.types.memory_desc import MemoryDesc

_GELU = {"none": Alg.eltwise_gelu_erf, "tanh": Alg.eltwise_gelu_tanh}


def _of_one(
    descs: Sequence[MemoryDesc], dst: MemoryDesc | None, alg: Alg, alpha: float, beta: float
) -> Problem:
    (src,) = descs
    dst = dst or dense(src.dims, src)
    desc = EltwiseDesc.forward("forward_inference", alg, src, dst, alpha, beta)
    return Problem(desc, (Arg.SRC,), src.dims)


def _of_two(descs: Sequence[MemoryDesc], dst: MemoryDesc | None, alg: Alg) -> Problem:
    try:
        shape = np.broadcast_shapes(*(desc.dims for desc in descs))
    except ValueError:
        rule = f"cannot be broadcast with {descs[0].dims}"
        raise InvalidArguments("y", descs[1].dims, rule) from None
    first, second = (expanded(desc, len(shape)) for desc in descs)
    desc = BinaryDesc(alg, first, second, dst or dense(shape, descs[0]))
    return Problem(desc, (Arg.SRC_0, Arg.SRC_1), shape)


def relu(x: Any, out: Any = None) -> Any:
    """max(x, 0).

    >>> relu(np.array([-1.0, 2.0], np.float32))
    array([0., 2.], dtype=float32)
    """
    return call(_of_one, (x,), (Alg.eltwise_relu, 0.0, 0.0), out)


def leaky_relu(x: Any, negative_slope: float = 0.01, out: Any = None) -> Any:
    """x where it is positive, else negative_slope * x.

    >>> leaky_relu(np.array([-1.0, 2.0], np.float32), 0.5)
    array([-0.5,  2. ], dtype=float32)
    """
    slope = read_float("negative_slope", negative_slope)
    return call(_of_one, (x,), (Alg.eltwise_relu, slope, 0.0), out)


def elu(x: Any, alpha: float = 1.0, out: Any = None) -> Any:
    """x where it is positive, else alpha * (e^x - 1).

    >>> elu(np.array([0.0, 2.0], np.float32))
    array([0., 2.], dtype=float32)
    """
    return call(_of_one, (x,), (Alg.eltwise_elu, read_float("alpha", alpha), 0.0), out)


def silu(x: Any, out: Any = None) -> Any:
    """x / (1 + e^-x).

    >>> silu(np.zeros(2, np.float32))
    array([0., 0.], dtype=float32)
    """
    return call(_of_one, (x,), (Alg.eltwise_swish, 1.0, 0.0), out)


def sigmoid(x: Any, out: Any = None) -> Any:
    """1 / (1 + e^-x).

    >>> sigmoid(np.zeros(2, np.float32))
    array([0.5, 0.5], dtype=float32)
    """
    return call(_of_one, (x,), (Alg.eltwise_logistic, 0.0, 0.0), out)


def tanh(x: Any, out: Any = None) -> Any:
    """The hyperbolic tangent.

    >>> tanh(np.zeros(2, np.float32))
    array([0., 0.], dtype=float32)
    """
    return call(_of_one, (x,), (Alg.eltwise_tanh, 0.0, 0.0), out)


def exp(x: Any, out: Any = None) -> Any:
    """e^x.

    >>> exp(np.zeros(2, np.float32))
    array([1., 1.], dtype=float32)
    """
    return call(_of_one, (x,), (Alg.eltwise_exp, 0.0, 0.0), out)


def log(x: Any, out: Any = None) -> Any:
    """The natural logarithm.

    >>> log(np.ones(2, np.float32))
    array([0., 0.], dtype=float32)
    """
    return call(_of_one, (x,), (Alg.eltwise_log, 0.0, 0.0), out)


def sqrt(x: Any, out: Any = None) -> Any:
    """The square root.

    >>> sqrt(np.array([4.0, 9.0], np.float32))
    array([2., 3.], dtype=float32)
    """
    return call(_of_one, (x,), (Alg.eltwise_sqrt, 0.0, 0.0), out)


def square(x: Any, out: Any = None) -> Any:
    """x * x.

    >>> square(np.array([-2.0, 3.0], np.float32))
    array([4., 9.], dtype=float32)
    """
    return call(_of_one, (x,), (Alg.eltwise_square, 0.0, 0.0), out)


def absolute(x: Any, out: Any = None) -> Any:
    """|x|.

    >>> absolute(np.array([-2.0, 3.0], np.float32))
    array([2., 3.], dtype=float32)
    """
    return call(_of_one, (x,), (Alg.eltwise_abs, 0.0, 0.0), out)


def mish(x: Any, out: Any = None) -> Any:
    """x * tanh(ln(1 + e^x)).

    >>> mish(np.zeros(2, np.float32))
    array([0., 0.], dtype=float32)
    """
    return call(_of_one, (x,), (Alg.eltwise_mish, 0.0, 0.0), out)


def gelu(x: Any, approximate: str = "none", out: Any = None) -> Any:
    """x times the distribution function of the normal distribution at x.

    ``approximate`` "tanh" takes a formula with tanh in place of erf.

    >>> gelu(np.zeros(2, np.float32))
    array([0., 0.], dtype=float32)
    """
    alg = _GELU[Name(tuple(_GELU)).read("approximate", approximate, 0)]
    return call(_of_one, (x,), (alg, 0.0, 0.0), out)


def softplus(x: Any, beta: float = 1.0, out: Any = None) -> Any:
    """ln(1 + e^(beta * x)) / beta.

    >>> softplus(np.array([50.0], np.float32))
    array([50.], dtype=float32)
    """
    return call(_of_one, (x,), (Alg.eltwise_soft_relu, read_float("beta", beta), 0.0), out)


def hardsigmoid(x: Any, out: Any = None) -> Any:
    """x / 6 + 1 / 2, held between 0 and 1.

    >>> hardsigmoid(np.array([-4.0, 0.0, 4.0], np.float32))
    array([0. , 0.5, 1. ], dtype=float32)
    """
    return call(_of_one, (x,), (Alg.eltwise_hardsigmoid, 1 / 6, 0.5), out)


def hardswish(x: Any, out: Any = None) -> Any:
    """x * hardsigmoid(x).

    >>> hardswish(np.array([-4.0, 0.0, 4.0], np.float32))
    array([-0.,  0.,  4.], dtype=float32)
    """
    return call(_of_one, (x,), (Alg.eltwise_hardswish, 1 / 6, 0.5), out)


def clip(x: Any, a_min: float, a_max: float, out: Any = None) -> Any:
    """x, held between a_min and a_max.

    >>> clip(np.array([-4.0, 0.5, 4.0], np.float32), -1, 1)
    array([-1. ,  0.5,  1. ], dtype=float32)
    """
    low, high = read_float("a_min", a_min), read_float("a_max", a_max)
    if high < low:
        raise InvalidArguments("a_max", high, f"must not be below a_min = {low}")
    return call(_of_one, (x,), (Alg.eltwise_clip, low, high), out)


def prelu(x: Any, weight: Any, out: Any = None) -> Any:
    """x where it is positive, else weight * x, with one weight or one for each channel (dimension
    1).

    >>> prelu(np.array([[-1.0, -2.0]], np.float32), np.array([0.5, 0.25], np.float32))
    array([[-0.5, -0.5]], dtype=float32)
    """
    return call(_prelu, (x, weight), (), out, ("x", "weight"))


def _prelu(descs: Sequence[MemoryDesc], dst: MemoryDesc | None) -> Problem:
    src, weights = descs
    channels = src.dims[1] if src.ndims > 1 else 1
    if weights.nelems() not in (1, channels) or weights.ndims > 1:
        rule = f"expected one weight, or one for each of {channels} channels"
        raise InvalidArguments("weight", weights.dims, rule)
    ones = (1,) * max(0, src.ndims - 2)
    shape = (1, weights.nelems(), *ones) if src.ndims > 1 else (1,) * src.ndims
    target = dst or dense(src.dims, src)
    desc = PreluDesc.forward("forward_inference", src, weights.reshape(shape), target)
    return Problem(desc, (Arg.SRC, Arg.WEIGHTS), src.dims)


def add(x: Any, y: Any, out: Any = None) -> Any:
    """x + y, of arrays that are broadcast; integers saturate.

    >>> add(np.array([1.0, 2.0], np.float32), np.array([2.0, 3.0], np.float32))
    array([3., 5.], dtype=float32)
    """
    return call(_of_two, (x, y), (Alg.binary_add,), out, ("x", "y"))


def subtract(x: Any, y: Any, out: Any = None) -> Any:
    """x - y, of arrays that are broadcast; integers saturate.

    >>> subtract(np.array([1.0, 2.0], np.float32), np.array([2.0, 3.0], np.float32))
    array([-1., -1.], dtype=float32)
    """
    return call(_of_two, (x, y), (Alg.binary_sub,), out, ("x", "y"))


def multiply(x: Any, y: Any, out: Any = None) -> Any:
    """x * y, of arrays that are broadcast; integers saturate.

    >>> multiply(np.array([1.0, 2.0], np.float32), np.array([2.0, 3.0], np.float32))
    array([2., 6.], dtype=float32)
    """
    return call(_of_two, (x, y), (Alg.binary_mul,), out, ("x", "y"))


def divide(x: Any, y: Any, out: Any = None) -> Any:
    """x / y, of arrays that are broadcast; integers saturate.

    >>> divide(np.array([1.0, 2.0], np.float32), np.array([2.0, 3.0], np.float32))
    array([0.5      , 0.6666667], dtype=float32)
    """
    return call(_of_two, (x, y), (Alg.binary_div,), out, ("x", "y"))


def maximum(x: Any, y: Any, out: Any = None) -> Any:
    """The larger of two, of arrays that are broadcast; NaN if either is NaN.

    >>> maximum(np.array([1.0, 2.0], np.float32), np.array([2.0, 3.0], np.float32))
    array([2., 3.], dtype=float32)
    """
    return call(_of_two, (x, y), (Alg.binary_max,), out, ("x", "y"))


def minimum(x: Any, y: Any, out: Any = None) -> Any:
    """The smaller of two, of arrays that are broadcast; NaN if either is NaN.

    >>> minimum(np.array([1.0, 2.0], np.float32), np.array([2.0, 3.0], np.float32))
    array([1., 2.], dtype=float32)
    """
    return call(_of_two, (x, y), (Alg.binary_min,), out, ("x", "y"))
