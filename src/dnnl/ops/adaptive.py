"""Poolings into a given size, whose windows may differ in length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Array, Out, Result, Shape
from dnnl.ops.call import call
from dnnl.ops.device import taken
from dnnl.ops.gathering import check_elements, chosen, copied
from dnnl.ops.joining import concatenate
from dnnl.ops.place import Place, Placed
from dnnl.ops.pooling import pooled
from dnnl.runtime.storage import allocating
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.kinds import Alg
from dnnl.types.layout_input import read_int, read_sequence

Targets = int | Sequence[int | None]
_TOO_FAR = 2**31
_AVERAGE = Alg.pooling_avg_include_padding


class _Windows(NamedTuple):
    """Windows of one length along a dimension: their places in the result, and the elements of all,
    one window behind the other."""

    length: int
    places: Array
    elements: Array


def _windows(extent: int, count: int) -> tuple[_Windows, ...]:
    """PyTorch's windows, by length: number i begins at the floor of i * extent / count and ends at
    the ceiling of (i + 1) * extent / count."""
    number = np.arange(count)
    begin, end = number * extent // count, -(-(number + 1) * extent // count)
    found = []
    for length in np.unique(end - begin).tolist():
        own = number[end - begin == length]
        elements = begin[own, None] + np.arange(length)
        found.append(_Windows(length, own, elements.reshape(-1)))
    return tuple(found)


def _sizes(output_size: object, spatial: Shape) -> tuple[int, ...]:
    """The sizes of the result; None leaves a dimension as it is."""
    count = len(spatial)
    given: tuple[object, ...] = (output_size,) * count
    if not hasattr(output_size, "__index__"):
        rule = f"expected a number, or {count} of them, which may be None"
        given = read_sequence("output_size", output_size, rule)
        given = given * count if len(given) == 1 else given
        if len(given) != count:
            raise InvalidArguments("output_size", output_size, rule)
    pairs = zip(given, spatial, strict=True)
    sizes = [size if wanted is None else read_int("output_size", wanted) for wanted, size in pairs]
    if not all(1 <= size < _TOO_FAR for size in sizes):
        rule = f"expected 1 or more in each dimension, below {_TOO_FAR}"
        raise InvalidArguments("output_size", output_size, rule)
    return tuple(sizes)


@allocating
def _adaptive(count: int, alg: Alg, x: ArrayLike, output_size: Targets, out: Out) -> Result:
    place, (image,) = taken((x,), ("x",), out)
    shape = image.shape
    if len(shape) not in (count + 1, count + 2):
        rule = f"expected {count + 2} dimensions, or {count + 1} without a batch"
        raise InvalidArguments("x", shape, rule)
    spatial = shape[-count:]
    if 0 in spatial:
        raise InvalidArguments("x", shape, "has no elements in a window")
    sizes = _sizes(output_size, spatial)
    check_elements((*shape[:-count], *sizes), image.dtype)
    if not any(n % m for n, m in zip(spatial, sizes, strict=True)):
        kernel = tuple(n // m for n, m in zip(spatial, sizes, strict=True))
        result = pooled(count, alg, image, kernel, kernel, 0, 1, False, out)
        return place.returned(result, (x,), out)
    windows = [_windows(n, m) for n, m in zip(spatial, sizes, strict=True)]
    result = _by_windows(place, alg, image, windows, ())
    if out is not None:
        call(copied, (result,), (), out)
    return place.returned(result, (x,), out)


def _by_windows(
    place: Place[Placed],
    alg: Alg,
    image: Placed,
    windows: Sequence[tuple[_Windows, ...]],
    kernel: tuple[int, ...],
) -> Placed:
    """The pooling of an image whose first spatial dimensions have been cut into windows, of the
    lengths ``kernel``, that no longer overlap."""
    if len(kernel) == len(windows):
        return pooled(len(kernel), alg, image, kernel, kernel, 0, 1, False, None)
    axis = len(image.shape) - len(windows) + len(kernel)
    parts = []
    for own in windows[len(kernel)]:
        cut = chosen(place, image, own.elements, axis)
        parts.append(_by_windows(place, alg, cut, windows, (*kernel, own.length)))
    if len(parts) == 1:
        return parts[0]
    places = np.concatenate([own.places for own in windows[len(kernel)]])
    return chosen(place, concatenate(parts, axis), np.argsort(places), axis)


def adaptive_avg_pool1d(x: ArrayLike, output_size: Targets, out: Out = None) -> Result:
    """The mean of each window of x [N, C, L], or [C, L], so many of them as
    ``output_size`` says; None leaves a dimension as it is.

    >>> x = np.arange(3, dtype=np.float32).reshape(1, 1, 3)
    >>> adaptive_avg_pool1d(x, 2)
    array([[[0.5, 1.5]]], dtype=float32)
    """
    return _adaptive(1, _AVERAGE, x, output_size, out)


def adaptive_avg_pool2d(x: ArrayLike, output_size: Targets, out: Out = None) -> Result:
    """The mean of each window of x [N, C, H, W], or [C, H, W], so many of them as
    ``output_size`` says; None leaves a dimension as it is.

    >>> x = np.arange(3, dtype=np.float32).reshape(1, 1, 1, 3)
    >>> adaptive_avg_pool2d(x, (None, 2))
    array([[[[0.5, 1.5]]]], dtype=float32)
    """
    return _adaptive(2, _AVERAGE, x, output_size, out)


def adaptive_avg_pool3d(x: ArrayLike, output_size: Targets, out: Out = None) -> Result:
    """The mean of each window of x [N, C, D, H, W], or [C, D, H, W], so many of them as
    ``output_size`` says; None leaves a dimension as it is.

    >>> x = np.arange(3, dtype=np.float32).reshape(1, 1, 1, 1, 3)
    >>> adaptive_avg_pool3d(x, (None, None, 2))
    array([[[[[0.5, 1.5]]]]], dtype=float32)
    """
    return _adaptive(3, _AVERAGE, x, output_size, out)


def adaptive_max_pool1d(x: ArrayLike, output_size: Targets, out: Out = None) -> Result:
    """The maximum of each window of x [N, C, L], or [C, L], so many of them as
    ``output_size`` says; None leaves a dimension as it is.

    >>> x = np.arange(3, dtype=np.float32).reshape(1, 1, 3)
    >>> adaptive_max_pool1d(x, 2)
    array([[[1., 2.]]], dtype=float32)
    """
    return _adaptive(1, Alg.pooling_max, x, output_size, out)


def adaptive_max_pool2d(x: ArrayLike, output_size: Targets, out: Out = None) -> Result:
    """The maximum of each window of x [N, C, H, W], or [C, H, W], so many of them as
    ``output_size`` says; None leaves a dimension as it is.

    >>> x = np.arange(3, dtype=np.float32).reshape(1, 1, 1, 3)
    >>> adaptive_max_pool2d(x, (None, 2))
    array([[[[1., 2.]]]], dtype=float32)
    """
    return _adaptive(2, Alg.pooling_max, x, output_size, out)


def adaptive_max_pool3d(x: ArrayLike, output_size: Targets, out: Out = None) -> Result:
    """The maximum of each window of x [N, C, D, H, W], or [C, D, H, W], so many of them as
    ``output_size`` says; None leaves a dimension as it is.

    >>> x = np.arange(3, dtype=np.float32).reshape(1, 1, 1, 1, 3)
    >>> adaptive_max_pool3d(x, (None, None, 2))
    array([[[[[1., 2.]]]]], dtype=float32)
    """
    return _adaptive(3, Alg.pooling_max, x, output_size, out)
