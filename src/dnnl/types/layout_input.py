"""Reads what users say in numbers, as a tensor's dims and layout, and refuses what cannot be."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.types import layout as layouts
from dnnl.types.dtype import DataType
from dnnl.types.kinds import RUNTIME_DIM
from dnnl.types.layout import Blocks, Layout
from dnnl.types.runtime_dim import RuntimeDim
from dnnl.types.size import Size
from dnnl.types.tag import MAX_NDIMS, FormatTag, block_sizes, suggest_for

T = TypeVar("T")

ANY = FormatTag("any")
UNDEF = FormatTag("undef")


def no_places(dims: tuple[int, ...]) -> Layout:
    """Return the fields of a descriptor that has no layout yet."""
    return Layout(dims, dims, ())


def read_int(argument: str, value: object) -> int:
    """Return an integer of any kind (NumPy's too) as an int."""
    if isinstance(value, Size):
        return value
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArguments(argument, value, "expected an integer") from None


def read_bool(argument: str, value: object) -> bool:
    """Return a truth value, of Python's or NumPy's type, as Python's."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidArguments(argument, value, "expected True or False")
    return bool(value)


def read_float(argument: str, value: object) -> float:
    """Return a real number as a float: 0 for -0, as they are equal and would have one description;
    NaN is none, and would make a description unlike itself. A tensor that requires a gradient is
    none, either: it would have no gradient."""
    if type(value) is not float and _requires_gradient(value):
        rule = "it requires a gradient, which a number does not have"
        raise InvalidArguments(argument, "a tensor", rule, f"pass {argument}.detach()")
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InvalidArguments(argument, value, "expected a number") from None
    if math.isnan(number):
        raise InvalidArguments(argument, value, "expected a number")
    return number + 0.0


def _requires_gradient(value: object) -> bool:
    """Whether a value is a tensor of PyTorch of which gradients are asked for."""
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and getattr(value, "requires_grad", False) is True
        and torch.is_grad_enabled()
    )


@overload
def read_sequence(argument: str, values: Iterable[T], rule: str) -> tuple[T, ...]: ...
@overload
def read_sequence(argument: str, values: object, rule: str) -> tuple[object, ...]: ...
def read_sequence(argument: str, values: Any, rule: str) -> tuple[Any, ...]:
    """Return what an iterable gives, which a text is not."""
    try:
        if isinstance(values, str | bytes):
            raise TypeError
        return tuple(values)
    except TypeError:
        raise InvalidArguments(argument, values, rule) from None


def _integer(value: Any) -> int:
    """An integer as an int, unless it is one that only an execution knows."""
    return value if isinstance(value, Size | RuntimeDim) else operator.index(value)


def read_integers(argument: str, values: Any, hint: str = "") -> tuple[int, ...]:
    """Return a sequence of integers of any kind as a tuple of ints."""
    try:
        if isinstance(values, str | bytes):
            raise TypeError
        return tuple(map(_integer, values))
    except TypeError:
        raise InvalidArguments(argument, values, "expected a sequence of integers", hint) from None


def read_dims(dims: object, argument: str = "dims") -> tuple[int, ...]:
    """Return a tensor's dimensions, checked."""
    shape = read_integers(argument, dims, "for example (2, 3)")
    if len(shape) > MAX_NDIMS:
        raise InvalidArguments(argument, shape, f"at most {MAX_NDIMS} dimensions")
    for size in shape:
        if size < 0 and size != RUNTIME_DIM:
            rule = "a dimension is 0 or more"
            raise InvalidArguments(argument, shape, rule, "RUNTIME_DIM is known at execution only")
    return shape


def by_tag(dims: tuple[int, ...], tag: FormatTag, spelled: str) -> Layout:
    """Return the layout that a tag gives to a tensor of ``dims``."""
    if tag is ANY:
        return no_places(dims)
    if tag is UNDEF:
        rule = "undef names no layout"
        raise InvalidArguments("layout", spelled, rule, "None is row-major, 'any' lets dnnl choose")
    if tag.ndims != len(dims):
        rule = f"the tag has {tag.ndims} dimensions, dims = {dims} has {len(dims)}"
        hint = f"for {len(dims)} dimensions {suggest_for(spelled, len(dims))!r}" if dims else ""
        raise InvalidArguments("layout", spelled, rule, hint)
    return layouts.dense(dims, tag.order, tag.inner_blocks)


def by_strides(
    dims: tuple[int, ...],
    strides: tuple[int, ...] | None,
    inner: Blocks,
    padded_dims: Sequence[int] | None,
) -> Layout:
    """Return a layout given by strides and, where it is blocked, by its inner blocks."""
    padded = layouts.round_up(dims, block_sizes(len(dims), inner))
    if padded_dims is not None:
        padded = read_dims(padded_dims, "padded_dims")
    fits = len(padded) == len(dims) and all(map(operator.ge, padded, dims))
    if not fits:
        rule = f"expected one number for each of dims = {dims}, none of them smaller"
        raise InvalidArguments("padded_dims", padded, rule)
    if strides is None:
        steps = layouts.dense(padded, range(len(dims)), inner).strides
    else:
        steps = strides
    places = Layout(dims, padded, steps, inner)
    layouts.check_overlap(places)
    return places


def read_strides(strides: object, ndims: int) -> tuple[int, ...]:
    """Return strides, checked one by one."""
    if not isinstance(strides, Iterable):
        rule = "expected a format tag, strides or None"
        raise InvalidArguments("layout", strides, rule, "for example 'nchw' or 'any'")
    steps = read_integers("strides", strides)
    if len(steps) != ndims:
        raise InvalidArguments("strides", steps, f"expected {ndims} strides, one a dimension")
    for stride in steps:
        if stride < 0 and stride != RUNTIME_DIM:
            rule = "a stride is 0 (broadcast) or more"
            raise InvalidArguments("strides", steps, rule, "copy the data to reverse a dimension")
    return steps


def read_blocks(inner_blocks: Sequence[tuple[int, int]], ndims: int) -> Blocks:
    """Return inner blocks, checked."""
    if isinstance(inner_blocks, tuple) and not inner_blocks:
        return ()
    name = "inner_blocks"
    try:
        inner = tuple((operator.index(dim), operator.index(size)) for dim, size in inner_blocks)
    except (TypeError, ValueError):
        rule = "expected pairs of integers: dimension and size"
        raise InvalidArguments(name, inner_blocks, rule, "for example ((1, 16),)") from None
    if len(inner) > MAX_NDIMS or any(not 0 <= d < ndims or n < 2 for d, n in inner):
        rule = f"expected at most {MAX_NDIMS} pairs (dimension below {ndims}, size of 2 or more)"
        raise InvalidArguments("inner_blocks", inner, rule)
    return inner


def check_nibbles(data_type: DataType, places: Layout) -> None:
    """Raise where a stride would put a row of 4-bit elements into the middle of a byte."""
    if data_type.bits >= 8:
        return
    for size, stride in zip(places.padded_dims, places.strides, strict=True):
        if size != 1 and stride > 1 and stride % 2:
            rule = f"two {data_type} elements share a byte, so a stride above 1 is even"
            raise InvalidArguments("strides", places.strides, rule)


def check_any(dims: tuple[int, ...], offset0: int) -> None:
    """Raise where ``any`` is combined with what it excludes."""
    if RUNTIME_DIM in dims:
        rule = "a layout can be chosen only for dimensions that are known"
        raise InvalidArguments("layout", "any", rule, "give a tag or strides with RUNTIME_DIM")
    if offset0:
        raise InvalidArguments("offset0", offset0, "needs a layout, not 'any'")
