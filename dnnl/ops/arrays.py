"""Arrays of any library in, and results of the same kind out."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.runtime.memory import Memory
from dnnl.runtime.wrap import array_of

Array = np.ndarray[Any, Any]


def lent(source: Any, argument: str) -> Array:
    """A NumPy array of the same memory, or a copy where strides are negative or odd,
    or what is stored are the negated numbers.

    Numbers and lists become f32, the type that all operations take.
    """
    if isinstance(source, int | float | list | tuple):
        try:
            source = np.asarray(source, np.float32)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArguments(argument, source, f"no array of numbers: {error}") from None
    if hasattr(source, "resolve_neg"):  # a tensor of PyTorch may be the negated view of another
        source = source.resolve_neg()
    array = array_of(source, argument)
    return array if _is_plain(array) else np.ascontiguousarray(array)


def written(out: Any) -> Array:
    """A NumPy array of the memory of ``out``, to be written."""
    array = array_of(out, "out")
    if not _is_plain(array) or not array.flags.writeable:
        rule = "expected a writable array without negative strides"
        raise InvalidArguments("out", f"{array.dtype} of strides {array.strides}", rule)
    return array


def same_kind(result: Array, like: Any) -> Any:
    """A result for who passed ``like``: NumPy's, or by DLPack what its library makes of it."""
    if isinstance(like, Memory):
        return Memory.from_numpy(result)
    if isinstance(like, np.ndarray | np.generic) or not hasattr(like, "__dlpack__"):
        return result
    library = sys.modules.get(type(like).__module__.partition(".")[0])
    make = getattr(library, "from_dlpack", None)
    if make is None:
        rule = "its library has no from_dlpack for the result"
        raise InvalidArguments("x", type(like).__name__, rule, "pass a NumPy array")
    # NumPy does not export types that it does not have itself, as bf16.
    return make(result if result.dtype.isbuiltin == 1 else Memory.from_numpy(result))


def address_of(array: Array) -> int:
    """Where the first element lies; ``array.ctypes`` takes three times as long."""
    try:
        return ctypes.addressof(ctypes.c_byte.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, with gaps, or of a type of ml_dtypes
        return array.ctypes.data


def _is_plain(array: Array) -> bool:
    size = array.itemsize
    return array.flags.c_contiguous or all(
        stride >= 0 and stride % size == 0 for stride in array.strides
    )
