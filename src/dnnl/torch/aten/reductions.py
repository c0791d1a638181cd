"""Sums, means, extremes and what else makes few numbers of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import torch

from dnnl.errors import Unimplemented
from dnnl.torch.aten.writer import REAL, Translate, Value, Writer, require_floats

Dims = Sequence[int] | int | None


def _reduced(w: Writer, op: str, source: str, axes: Sequence[int], keepdim: bool) -> str:
    if not axes:
        return w.add("Identity", source)
    return w.add(op, source, w.sizes(axes), keepdims=int(keepdim))


def _check_type(dtype: torch.dtype) -> None:
    if dtype not in (*REAL, torch.int64, torch.int32):
        raise Unimplemented(f"sums of {dtype}: computed of f32, bf16, f16, int64 and int32")


def _over(op: str) -> Translate:
    """A reduction over some axes in the type of the result."""

    def write(w: Writer, x: Value, dim: Dims = None, keepdim: bool = False, *_: Any) -> str:
        _check_type(w.dtype)
        if op == "ReduceMean":
            require_floats(Value("", w.dtype, ()))
        axes = x.axes(dim) if x.rank else ()
        return _reduced(w, op, w.to(x, w.dtype), axes, keepdim)

    return write


def _over_all(op: str) -> Translate:
    """A reduction over all axes in the type of the result."""
    write = _over(op)
    return lambda w, x, *_: write(w, x)


def _product_over(w: Writer, x: Value, dim: int, keepdim: bool, *_: Any) -> str:
    return str(_over("ReduceProd")(w, x, dim, keepdim))


def _norm(w: Writer, x: Value, order: Any, dim: Dims, keepdim: bool, dtype: Any) -> str:
    """The vector norm of an order."""
    require_floats(Value("", w.dtype, ()))
    axes = x.axes(dim) if x.rank else ()
    value = w.to(x, w.dtype)
    if not axes and order != 0:  # which is how many elements are not 0
        return w.add("Abs", value)
    if order in (1, 2):
        return _reduced(w, f"ReduceL{order:.0f}", value, axes, keepdim)
    if order in (inf, -inf):
        _check_filled(x, axes)
        op = "ReduceMax" if order > 0 else "ReduceMin"
        return _reduced(w, op, w.add("Abs", value), axes, keepdim)
    raise Unimplemented(f"a norm of order {order}")


def _check_filled(x: Value, axes: Sequence[int]) -> None:
    """An extreme of nothing is an error of PyTorch's."""
    if any(isinstance(x.shape[axis], int) and x.shape[axis] == 0 for axis in axes):
        raise Unimplemented("an extreme of no elements")


def _extreme(w: Writer, op: str, x: Value, axes: Sequence[int], keepdim: bool) -> str:
    _check_filled(x, axes)
    if x.dtype == torch.bool:
        value = _reduced(w, op, w.to(x, torch.int32), axes, keepdim)
        return w.to(value, torch.bool, torch.int32)
    if x.dtype not in (*REAL, torch.int64, torch.int32):
        raise Unimplemented(f"extremes of {x.dtype}")
    return _reduced(w, op, x.name, axes, keepdim)


def _extremes(op: str) -> Translate:
    """ReduceMax or ReduceMin over some axes."""

    def write(w: Writer, x: Value, dim: Dims = None, keepdim: bool = False) -> str:
        return _extreme(w, op, x, x.axes(dim) if x.rank else (), keepdim)

    return write


def _extremes_and_places(op: str) -> Translate:
    """The extreme along one axis, and its first place."""

    def write(w: Writer, x: Value, dim: int, keepdim: bool) -> tuple[str, str]:
        if not x.rank:
            return w.add("Identity", x), w.scalar(0, torch.int64)
        value = _extreme(w, f"Reduce{op}", x, [x.axis(dim)], keepdim)
        return value, _place(w, op, x, x.axis(dim), keepdim)

    return write


def _place(w: Writer, op: str, x: Value, axis: int, keepdim: bool) -> str:
    _check_filled(x, [axis])
    require_floats(x)
    return w.add(f"Arg{op}", x, axis=axis, keepdims=int(keepdim))


def _places(op: str) -> Translate:
    """The first place of the extreme along one axis, or of all elements."""

    def write(w: Writer, x: Value, dim: int | None, keepdim: bool) -> str:
        if not x.rank:
            return w.scalar(0, torch.int64)
        if dim is not None:
            return _place(w, op, x, x.axis(dim), keepdim)
        flat = Value(w.reshape(x, [-1]), x.dtype, (None,))
        _check_filled(x, range(x.rank))
        return w.reshape(_place(w, op, flat, 0, True), [1] * x.rank if keepdim else ())

    return write


def _truth(op: str) -> Translate:
    """Whether any or all elements are not zero."""

    def write(w: Writer, x: Value, dim: Dims = None, keepdim: bool = False) -> str:
        if w.dtype != torch.bool:
            raise Unimplemented(f"truth values of {w.dtype}")
        axes = x.axes(dim) if x.rank else ()
        _check_filled(x, axes)
        flags = w.to(w.to(x, torch.bool), torch.int32, torch.bool)
        value = _reduced(w, op, flags, axes, keepdim)
        return w.to(value, torch.bool, torch.int32)

    return write


def _variance(w: Writer, x: Value, dim: Dims, correction: Any, keepdim: bool) -> str:
    return _variance_and_mean(w, x, dim, correction, keepdim)[0]


def _variance_and_mean(
    w: Writer, x: Value, dim: Dims, correction: Any, keepdim: bool
) -> tuple[str, str]:
    """The mean of squared distances from the mean, over ``count - correction``."""
    require_floats(x)
    axes = x.axes(dim)
    if not x.rank:
        raise Unimplemented("the variance of one number")
    correction = 1 if correction is None else correction
    count: Any = 1
    for axis in axes:
        count = count * x.shape[axis]
    if not isinstance(count, int):
        raise Unimplemented("a variance over sizes that only a run knows")
    if count <= correction:
        raise Unimplemented("the variance of too few elements")
    wide = w.to(x, torch.float32)
    mean = _reduced(w, "ReduceMean", wide, axes, True)
    distances = w.add("Sub", wide, mean)
    squares = w.add("Mul", distances, distances)
    value = _reduced(w, "ReduceMean", squares, axes, keepdim)
    if correction:
        factor = w.scalar(count / (count - correction), torch.float32)
        value = w.add("Mul", value, factor)
    shown = mean if keepdim else w.squeeze(mean, axes)
    return w.to(value, x.dtype, torch.float32), w.to(shown, x.dtype, torch.float32)


def _log_sum(w: Writer, x: Value, dim: Dims, keepdim: bool) -> str:
    require_floats(Value("", w.dtype, ()))
    _check_filled(x, x.axes(dim) if x.rank else ())
    return _reduced(w, "ReduceLogSumExp", w.to(x, w.dtype), x.axes(dim) if x.rank else (), keepdim)


def _running(op: str) -> Translate:
    """A sum or a product of all elements up to each."""

    def write(w: Writer, x: Value, dim: int, *_: Any) -> str:
        _check_type(w.dtype)
        if not x.rank:
            return w.add("Identity", w.to(x, w.dtype))
        return w.add(op, w.to(x, w.dtype), w.scalar(x.axis(dim), torch.int64))

    return write


TABLE: Mapping[str, Translate] = {
    "sum": _over_all("ReduceSum"),
    "sum.dim_IntList": _over("ReduceSum"),
    "mean": _over_all("ReduceMean"),
    "mean.dim": _over("ReduceMean"),
    "prod": _over_all("ReduceProd"),
    "prod.dim_int": _product_over,
    "linalg_vector_norm": _norm,
    "amax": _extremes("ReduceMax"),
    "amin": _extremes("ReduceMin"),
    "max": _extremes("ReduceMax"),
    "min": _extremes("ReduceMin"),
    "max.dim": _extremes_and_places("Max"),
    "min.dim": _extremes_and_places("Min"),
    "argmax": _places("Max"),
    "argmin": _places("Min"),
    **{f"any{kind}": _truth("ReduceMax") for kind in ("", ".dim", ".dims")},
    **{f"all{kind}": _truth("ReduceMin") for kind in ("", ".dim", ".dims")},
    "var.correction": _variance,
    "var_mean.correction": _variance_and_mean,
    "logsumexp": _log_sum,
    "cumsum": _running("CumSum"),
    "cumprod": _running("CumProd"),
}
