"""Functions of single elements, and of pairs that broadcast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from dnnl.errors import Unimplemented
from dnnl.torch.aten.writer import Translate, Value, Writer, common_type


def _unary(op: str) -> Translate:
    """An operator of one source in the type of the result."""

    def write(w: Writer, x: Value) -> str:
        return w.add(op, w.to(x, w.dtype))

    return write


def _unary_of(op: str) -> Translate:
    """An operator of one source in the source's own type."""
    return lambda w, x: w.add(op, x)


def _binary(op: str) -> Translate:
    """An operator of two sources in the type of the result."""

    def write(w: Writer, a: Any, b: Any) -> str:
        return w.add(op, *w.promoted(w.dtype, a, b))

    return write


def _scaled(w: Writer, value: str, factor: Any) -> str:
    """A source of the result's type times the ``alpha`` of an addition."""
    return value if factor == 1 else w.add("Mul", value, w.scalar(factor, w.dtype))


def _add(w: Writer, a: Any, b: Any, alpha: Any) -> str:
    first, second = w.promoted(w.dtype, a, b)
    second = _scaled(w, second, alpha)
    return w.add("Or" if w.dtype == torch.bool else "Add", first, second)


def _sub(w: Writer, a: Any, b: Any, alpha: Any) -> str:
    first, second = w.promoted(w.dtype, a, b)
    return w.add("Sub", first, _scaled(w, second, alpha))


def _rsub(w: Writer, a: Value, b: Any, alpha: Any) -> str:
    first, second = w.promoted(w.dtype, a, b)
    return w.add("Sub", second, _scaled(w, first, alpha))


def _mul(w: Writer, a: Any, b: Any) -> str:
    return w.add("And" if w.dtype == torch.bool else "Mul", *w.promoted(w.dtype, a, b))


def _divided(w: Writer, a: Any, b: Any, rounding_mode: str | None) -> str:
    if rounding_mode is None:
        return w.add("Div", *w.promoted(w.dtype, a, b))
    if w.dtype == torch.uint8:
        raise Unimplemented(f"rounded quotients of {w.dtype}")
    if w.dtype.is_floating_point:
        if rounding_mode == "floor" or w.dtype != torch.float32:
            # PyTorch rounds the exact quotient, not the one that is rounded to the type.
            raise Unimplemented(f"rounded quotients of {w.dtype}")
        return _truncated(w, w.add("Div", *w.promoted(w.dtype, a, b)))
    if isinstance(b, Value) or b == 0:
        raise Unimplemented("integers divided by a tensor, whose zeros are an error")
    first, second = w.promoted(w.dtype, a, b)
    if rounding_mode == "trunc":
        return w.add("Div", first, second)
    rest = w.add("Mod", first, second)  # has the sign of the divisor
    return w.add("Div", w.add("Sub", first, rest), second)


def _truncated(w: Writer, value: str) -> str:
    return w.add("Mul", w.add("Floor", w.add("Abs", value)), w.add("Sign", value))


def _trunc(w: Writer, x: Value) -> str:
    return _truncated(w, x.name) if x.is_float else w.add("Identity", x)


def _rounding(op: str) -> Translate:
    """Floor, Ceil and Round, which leave integers as they are."""
    return lambda w, x: w.add(op if x.is_float else "Identity", x)


def _rounded(w: Writer, x: Value, decimals: int) -> str:
    if decimals:
        raise Unimplemented(f"decimals = {decimals}")
    return w.add("Round" if x.is_float else "Identity", x)


def _remainder(w: Writer, a: Any, b: Any, sign: int) -> str:
    """The rest of a division: with the sign of the divisor, or with that of the dividend."""
    if w.dtype.is_floating_point:
        raise Unimplemented("rests of floats, which a quotient beyond all floats may have")
    if isinstance(b, Value) or b == 0:
        raise Unimplemented("integers divided by a tensor, whose zeros are an error")
    return w.add("Mod", *w.promoted(w.dtype, a, b), fmod=sign)


_SHORT = (torch.uint8, torch.int8, torch.int16)


def _power(w: Writer, a: Any, b: Any) -> str:
    if not isinstance(b, Value) and w.dtype.is_floating_point:
        (base,) = w.promoted(w.dtype, a)
        if b == 2:
            return w.add("Mul", base, base)
        if b == 0.5:
            return w.add("Sqrt", base)
        if b == -0.5:
            return w.add("Reciprocal", w.add("Sqrt", base))
        if b == 1:
            return w.add("Identity", base)
    if w.dtype == torch.float64:
        # Within a few ulps: 10 to the power 3 would become 999 as an integer.
        raise Unimplemented(f"powers of {w.dtype}")
    if not w.dtype.is_floating_point and (isinstance(b, Value) or b < 0):
        raise Unimplemented(f"integers to the power {b if not isinstance(b, Value) else b.dtype}")
    if w.dtype in _SHORT:  # ONNX has none of these; what overflows is cut off
        return w.to(w.add("Pow", *w.promoted(torch.int64, a, b)), w.dtype, torch.int64)
    return w.add("Pow", *w.promoted(w.dtype, a, b))


def _negative(w: Writer, x: Value) -> str:
    if x.dtype == torch.uint8:  # of which ONNX has no negative
        return w.add("Sub", w.scalar(0, x.dtype), x)
    return w.add("Neg", x)


def _compared(op: str) -> Translate:
    """A comparison in the common type of its sources."""

    def write(w: Writer, a: Any, b: Any) -> str:
        return w.add(op, *w.promoted(common_type(a, b), a, b))

    return write


def _unequal(w: Writer, a: Any, b: Any) -> str:
    return w.add("Not", w.add("Equal", *w.promoted(common_type(a, b), a, b)))


def _logical(op: str) -> Translate:
    """An operator on whether elements are not zero."""
    return lambda w, *sources: w.add(op, *w.promoted(torch.bool, *sources))


def _bitwise(op: str) -> Translate:
    """An operator on bits, or on truth values."""

    def write(w: Writer, *sources: Any) -> str:
        name = op if w.dtype == torch.bool else f"Bitwise{op}"
        return w.add(name, *w.promoted(w.dtype, *sources))

    return write


def _extreme(op: str) -> Translate:
    """Max and Min of two sources."""

    def write(w: Writer, a: Any, b: Any) -> str:
        if w.dtype == torch.bool:
            return w.add("Or" if op == "Max" else "And", *w.promoted(w.dtype, a, b))
        return w.add(op, *w.promoted(w.dtype, a, b))

    return write


def _extreme_number(op: str) -> Translate:
    """Max and Min of two sources, the other one where one is NaN."""

    def write(w: Writer, a: Value, b: Value) -> str:
        if not w.dtype.is_floating_point:
            return str(_extreme(op)(w, a, b))
        first, second = w.promoted(w.dtype, a, b)
        found = w.add("Where", w.add("IsNaN", second), first, w.add(op, first, second))
        return w.add("Where", w.add("IsNaN", first), second, found)

    return write


def _clamp(w: Writer, x: Value, low: Any, high: Any) -> str:
    value = w.to(x, w.dtype)
    if low is not None:
        value = w.add("Max", value, *w.promoted(w.dtype, low))
    return value if high is None else w.add("Min", value, *w.promoted(w.dtype, high))


def _where(w: Writer, condition: Value, a: Any, b: Any) -> str:
    return w.add("Where", w.to(condition, torch.bool), *w.promoted(w.dtype, a, b))


def _masked_fill(w: Writer, x: Value, mask: Value, number: Any) -> str:
    return w.add("Where", mask, *w.promoted(w.dtype, number), x)


def _is_finite(w: Writer, x: Value) -> str:
    if not x.is_float:
        return w.expand(w.scalar(True, torch.bool), w.result.shape)
    limit = w.scalar(math.inf, x.dtype)
    return w.add("Less", w.add("Abs", x), limit)


def _never(op: str) -> Translate:
    """A truth about floats that holds for no integer."""

    def write(w: Writer, x: Value) -> str:
        if x.is_float:
            return w.add(op, x)
        return w.expand(w.scalar(False, torch.bool), w.result.shape)

    return write


def _inverse_root(w: Writer, x: Value) -> str:
    return w.add("Reciprocal", w.add("Sqrt", w.to(x, w.dtype)))


def _sign(w: Writer, x: Value) -> str:
    """That of NaN is 0."""
    if not x.is_float:
        return w.add("Identity" if x.dtype == torch.bool else "Sign", x)
    return w.add("Where", w.add("IsNaN", x), w.scalar(0, x.dtype), w.add("Sign", x))


def _logarithm(base: float) -> Translate:
    """A logarithm of another base."""

    def write(w: Writer, x: Value) -> str:
        natural = w.add("Log", w.to(x, w.dtype))
        return w.add("Mul", natural, w.scalar(1 / math.log(base), w.dtype))

    return write


def _gelu(w: Writer, x: Value, approximate: str) -> str:
    return w.add("Gelu", x, approximate=approximate.encode())


def _elu(w: Writer, x: Value, alpha: Any, scale: Any, input_scale: Any) -> str:
    if input_scale != 1:
        raise Unimplemented(f"input_scale = {input_scale}")
    value = w.add("Elu", x, alpha=float(alpha))
    return value if scale == 1 else w.add("Mul", value, w.scalar(scale, w.dtype))


def _softplus(w: Writer, x: Value, beta: Any, threshold: Any) -> str:
    if beta == 1 and threshold >= 20:  # beyond it both are x in f32
        return w.add("Softplus", x)
    raise Unimplemented(f"beta = {beta}, threshold = {threshold}")


def _shrink(w: Writer, x: Value, lambd: Any, bias: Any) -> str:
    return w.add("Shrink", x, lambd=float(lambd), bias=float(lambd) if bias is None else bias)


def _threshold(w: Writer, x: Value, threshold: Any, number: Any) -> str:
    above = w.add("Greater", x, w.scalar(threshold, x.dtype))
    unordered = w.add("IsNaN", x) if x.is_float else None
    if unordered is not None:
        above = w.add("Or", above, unordered)
    return w.add("Where", above, x, w.scalar(number, x.dtype))


def _slopes(w: Writer, x: Value, weight: Value) -> str:
    return w.add("PRelu", x, weight)


def _channel_slopes(w: Writer, x: Value, weight: Value) -> str:
    """One slope, or one for each channel: channels are the second axis."""
    sizes = (*weight.shape, *(1,) * (x.rank - 2)) if x.rank > 1 else ()
    return w.add("PRelu", x, w.reshape(weight, sizes))


def _converted(w: Writer, x: Value, *_: Any) -> str:
    """Another type, another place in memory: only the type is the graph's."""
    if w.dtype == x.dtype:
        return w.add("Identity", x)
    return w.to(x, w.dtype)


def _copied(w: Writer, x: Value, source: Value, *_: Any) -> str:
    """The elements of ``source`` in the shape and the type of ``x``."""
    return w.expand(w.to(source, x.dtype), x.shape)


def _same(w: Writer, x: Value, *_: Any) -> str:
    return w.add("Identity", x)


def _gated(w: Writer, x: Value) -> str:
    return w.add("Swish", x)


TABLE: Mapping[str, Translate] = {
    **{
        name: _unary(name.title())
        for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf")
    },
    **{
        name: _unary(name.title())
        for name in ("exp", "log", "reciprocal", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh")
    },
    **{name: _unary_of(name.title()) for name in ("abs", "mish", "relu")},
    "neg": _negative,
    "sign": _sign,
    "sgn": _sign,
    **{name: _rounding(name.title()) for name in ("ceil", "floor", "round")},
    "round.decimals": _rounded,
    "trunc": _trunc,
    "silu": _gated,
    "hardswish": _unary_of("HardSwish"),
    "hardsigmoid": lambda w, x: w.add("HardSigmoid", x, alpha=1 / 6, beta=0.5),
    "hardtanh": _clamp,
    "leaky_relu": lambda w, x, slope: w.add("LeakyRelu", x, alpha=float(slope)),
    "elu": _elu,
    "gelu": _gelu,
    "softplus": _softplus,
    "softshrink": lambda w, x, lambd: _shrink(w, x, lambd, None),
    "hardshrink": lambda w, x, lambd: _shrink(w, x, lambd, 0.0),
    "threshold": _threshold,
    "prelu": _channel_slopes,
    "_prelu_kernel": _slopes,
    "rsqrt": _inverse_root,
    "log2": _logarithm(2),
    "log10": _logarithm(10),
    "isnan": _never("IsNaN"),
    "isinf": _never("IsInf"),
    "isfinite": _is_finite,
    "logical_not": _logical("Not"),
    "logical_and": _logical("And"),
    "logical_or": _logical("Or"),
    "logical_xor": _logical("Xor"),
    "bitwise_not": _bitwise("Not"),
    **{
        f"bitwise_{op.lower()}.{kind}": _bitwise(op)
        for op in ("And", "Or", "Xor")
        for kind in ("Tensor", "Scalar", "Scalar_Tensor")
    },
    **{f"add.{kind}": _add for kind in ("Tensor", "Scalar")},
    **{f"sub.{kind}": _sub for kind in ("Tensor", "Scalar")},
    **{f"rsub.{kind}": _rsub for kind in ("Tensor", "Scalar")},
    **{f"mul.{kind}": _mul for kind in ("Tensor", "Scalar")},
    **{f"div.{kind}": partial(_divided, rounding_mode=None) for kind in ("Tensor", "Scalar")},
    **{f"div.{kind}_mode": _divided for kind in ("Tensor", "Scalar")},
    "floor_divide": partial(_divided, rounding_mode="floor"),
    **{
        f"remainder.{kind}": partial(_remainder, sign=0)
        for kind in ("Tensor", "Scalar", "Scalar_Tensor")
    },
    **{f"fmod.{kind}": partial(_remainder, sign=1) for kind in ("Tensor", "Scalar")},
    **{f"pow.{kind}": _power for kind in ("Tensor_Tensor", "Tensor_Scalar", "Scalar")},
    **{
        f"{name}.{kind}": _compared(op)
        for name, op in (
            ("eq", "Equal"),
            ("ge", "GreaterOrEqual"),
            ("gt", "Greater"),
            ("le", "LessOrEqual"),
            ("lt", "Less"),
        )
        for kind in ("Tensor", "Scalar")
    },
    **{f"ne.{kind}": _unequal for kind in ("Tensor", "Scalar")},
    "exp2": lambda w, x: w.add("Pow", w.scalar(2, w.dtype), w.to(x, w.dtype)),
    "fmax": _extreme_number("Max"),
    "fmin": _extreme_number("Min"),
    "maximum": _extreme("Max"),
    "minimum": _extreme("Min"),
    **{f"clamp{kind}": _clamp for kind in ("", ".Tensor")},
    **{f"clamp_min{kind}": partial(_clamp, high=None) for kind in ("", ".Tensor")},
    **{f"clamp_max{kind}": lambda w, x, high: _clamp(w, x, None, high) for kind in ("", ".Tensor")},
    **{f"where.{kind}": _where for kind in ("self", "ScalarSelf", "ScalarOther", "Scalar")},
    **{f"masked_fill.{kind}": _masked_fill for kind in ("Scalar", "Tensor")},
    "copy": _copied,
    "_to_copy": _converted,
    **dict.fromkeys(("alias", "clone", "detach", "lift_fresh_copy", "contiguous"), _same),
}
