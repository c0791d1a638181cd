"""Arrays with more elements, or fewer, at the ends of their last dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Array, Out, Result
from dnnl.ops.call import call
from dnnl.ops.device import taken
from dnnl.ops.gathering import check_elements, chosen, copied
from dnnl.ops.joining import concatenate
from dnnl.ops.place import Place, Placed
from dnnl.primitives.parameters import Name
from dnnl.runtime.storage import allocating
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.layout_input import read_float, read_integers

_TOO_FAR = 2**31
_CONSTANT = "constant"
_MODES = Name((_CONSTANT, "reflect", "replicate", "circular"))
_OF_NUMPY = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@allocating
def pad(
    x: ArrayLike,
    pad: Sequence[int],
    mode: str = _CONSTANT,
    value: float | None = None,
    out: Out = None,
) -> Result:
    """x with ``pad`` more elements: before and behind in the last dimension, then in the one before
    it, and so on; a negative number cuts elements off.

    ``mode`` says which: "constant" takes ``value``, 0 if it is None; "reflect" what is mirrored at
    the ends, which are not repeated; "replicate" the ends; "circular" those of the other end.

    >>> pad(np.array([1.0, 2.0], np.float32), (1, 2), value=7.0)
    array([7., 1., 2., 7., 7.], dtype=float32)
    """
    known = _MODES.read("mode", mode, 0)
    numbers = read_integers("pad", pad)
    if value is not None and known != _CONSTANT:
        raise InvalidArguments("value", value, f'mode "{known}" takes no value', "pass None")
    if any(abs(number) >= _TOO_FAR for number in numbers):
        raise InvalidArguments("pad", numbers, f"expected numbers below {_TOO_FAR}")
    fill = 0.0 if value is None else read_float("value", value)
    place, (array,) = taken((x,), ("x",), out)
    _check_value(fill, array.dtype)
    ndims = len(array.shape)
    if len(numbers) % 2 or len(numbers) > 2 * ndims:
        rule = f"expected pairs of numbers, for at most the {ndims} dimensions of x"
        raise InvalidArguments("pad", numbers, rule)
    shape = list(array.shape)
    for number, more in enumerate(numbers):
        shape[ndims - 1 - number // 2] += max(more, 0)
    check_elements(shape, array.dtype)
    for number in range(0, len(numbers), 2):
        before, behind = numbers[number : number + 2]
        axis = ndims - 1 - number // 2
        size = array.shape[axis]
        if size + before + behind < 0 or min(before, behind) < -size:
            raise InvalidArguments(
                "pad", numbers, f"cuts off more than there is of {size} elements"
            )
        _check_reach(numbers, known, size, max(before, behind))
        if known == _CONSTANT:
            array = _extended(place, array, axis, before, behind, fill)
        elif before or behind:
            array = chosen(place, array, _elements(known, size, before, behind), axis)
    result = call(copied, (array,), (), out)
    return place.returned(result, (x,), out)


def _check_value(value: float, dtype: np.dtype) -> None:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not limits.min <= value <= limits.max:
            rule = f"x has elements of {dtype}, from {limits.min} to {limits.max}"
            raise InvalidArguments("value", value, rule)


def _check_reach(pad: Sequence[int], mode: str, size: int, most: int) -> None:
    """Raise where a dimension has too few elements for what is taken of it."""
    if mode == "circular" and min(pad) < 0:
        raise InvalidArguments("pad", pad, 'mode "circular" cuts nothing off')
    limit = {"reflect": size - 1, "circular": size}.get(mode, most if size else 0)
    if mode != _CONSTANT and most > max(limit, 0):
        rule = f'mode "{mode}" takes at most {max(limit, 0)} from a dimension of {size} elements'
        raise InvalidArguments("pad", pad, rule)


def _elements(mode: str, size: int, before: int, behind: int) -> Array:
    """The number of each element of the result along a dimension."""
    widths = max(before, 0), max(behind, 0)
    padded: Array = np.pad(np.arange(size), widths, _OF_NUMPY[mode])  # type: ignore[call-overload]
    return padded[max(-before, 0) : len(padded) - max(-behind, 0)]


def _extended(
    place: Place[Placed], array: Placed, axis: int, before: int, behind: int, fill: float
) -> Placed:
    """The array between constants along an axis."""
    size = array.shape[axis]
    if min(before, behind) < 0:
        first, last = max(-before, 0), size - max(-behind, 0)
        array = chosen(place, array, np.arange(first, last), axis)
    parts = []
    for width in (before, None, behind):
        if width is None:
            parts.append(array)
        elif width > 0:
            shape = (*array.shape[:axis], width, *array.shape[axis + 1 :])
            constant = place.scratch(shape, array.dtype)
            place.fill(constant, fill)
            parts.append(constant)
    return parts[0] if len(parts) == 1 else concatenate(parts, axis)
