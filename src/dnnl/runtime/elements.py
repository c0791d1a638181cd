"""Tensors between any layout and NumPy's: views where strides can say it, copies where not.

A blocked layout is an array with more axes: each dimension has its outer blocks and its inner
blocks as axes of their own. NumPy copies through that view, whatever the layout is.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

_Axis = tuple[int, int]  # positions, stride in elements


def _axes(desc: MemoryDesc, dim: int) -> list[_Axis]:
    """The axes that make up a dimension, outermost first."""
    axes = [(desc.outer_dims[dim], desc.strides[dim])]
    stride = prod(size for _, size in desc.inner_blocks)
    for blocked, size in desc.inner_blocks:
        stride //= size
        if blocked == dim:
            axes.append((size, stride))
    return axes


def _single_stride(axes: list[_Axis], size: int) -> int | None:
    """The stride between the first ``size`` positions of a dimension, None if there are several."""
    used = list(axes)
    while len(used) > 1 and size <= prod(n for n, _ in used[1:]):
        del used[0]
    used = [axis for axis in used if axis[0] > 1] or [(1, 0)]
    even = all(outer == n * stride for (_, outer), (n, stride) in pairwise(used))
    return used[-1][1] if even else None


def plain_strides(desc: MemoryDesc) -> tuple[int, ...] | None:
    """Strides, in elements, that reach every element of the tensor; None where none can."""
    if desc.is_plain:
        return desc.strides
    strides = [_single_stride(_axes(desc, d), size) for d, size in enumerate(desc.dims)]
    found = tuple(stride for stride in strides if stride is not None)
    return found if len(found) == desc.ndims else None


def plain_view(desc: MemoryDesc, data: NDArray[np.uint8]) -> np.ndarray | None:
    """The tensor in ``data`` as an array of its NumPy type without copy, or None."""
    data_type = desc.data_type
    if data_type.bits < 8:
        return None
    if 0 in desc.dims:
        return np.empty(desc.dims, data_type.numpy)
    strides = plain_strides(desc)
    if strides is None:
        return None
    step = data_type.size
    byte_strides = tuple(stride * step for stride in strides)
    start = desc.offset0 * step
    return np.ndarray(desc.dims, data_type.numpy, data, start, byte_strides)


def elements_of(desc: MemoryDesc, data: NDArray[np.uint8]) -> np.ndarray:
    """A new C-contiguous array of the tensor that ``data`` stores as ``desc`` says.

    4-bit types come as the one-byte elements in which NumPy has them.
    """
    data_type = desc.data_type
    if 0 in desc.dims:
        return np.empty(desc.dims, data_type.numpy)
    inside = tuple(slice(size) for size in desc.dims)
    if data_type.bits < 8:
        codes = _blocked_view(desc, _unpacked(data)).reshape(_whole(desc))[inside]
        return _from_codes(codes, data_type)
    bits = np.ndarray(data.size // data_type.size, f"u{data_type.size}", data)
    array = _blocked_view(desc, bits).reshape(_whole(desc))[inside]
    # A reshape that need not copy gives a view of the data.
    fresh = array.copy("C") if np.may_share_memory(array, data) else np.ascontiguousarray(array)
    return fresh.reshape(desc.dims).view(data_type.numpy)


def put_elements(desc: MemoryDesc, data: NDArray[np.uint8], array: np.ndarray) -> None:
    """Store a tensor in ``data`` as ``desc`` says; every other byte of ``data`` becomes zero.

    ``array`` has the shape ``desc.dims`` and the NumPy type of ``desc.data_type``.
    """
    if 0 in desc.dims:
        return
    data_type = desc.data_type
    if data_type.bits < 8:
        codes = np.empty(2 * data.size, np.uint8)
        _store(desc, codes, _to_codes(array, data_type))
        data[:] = codes[0::2] | codes[1::2] << 4
    else:
        bits = np.dtype(f"u{data_type.size}")
        _store(desc, np.ndarray(data.size // bits.itemsize, bits, data), _as_bits(array, bits))


def _store(desc: MemoryDesc, elements: np.ndarray, bits: np.ndarray) -> None:
    view = _blocked_view(desc, elements)
    if view.size != elements.size:  # gaps, which a whole copy would not reach
        elements[:] = 0
    padding = [(0, n - size) for n, size in zip(_whole(desc), desc.dims, strict=True)]
    padded = np.pad(bits, padding) if any(after for _, after in padding) else bits
    view[...] = padded.reshape(view.shape)


def _as_bits(array: np.ndarray, bits: np.dtype[np.unsignedinteger]) -> np.ndarray:
    # An array without axes, or with a strided last one, cannot be viewed as another type.
    return np.ascontiguousarray(array).view(bits).reshape(array.shape)


def _whole(desc: MemoryDesc) -> tuple[int, ...]:
    """The dims with the whole of every inner block that the tensor touches."""
    return tuple(n * block for n, block in zip(desc.outer_dims, desc.blocks, strict=True))


def _blocked_view(desc: MemoryDesc, elements: np.ndarray) -> np.ndarray:
    """``elements``, an element each, with the axes of dimension 0, then of dimension 1, ..."""
    axes = [axis for dim in range(desc.ndims) for axis in _axes(desc, dim)]
    step = elements.itemsize
    shape = tuple(n for n, _ in axes)
    strides = tuple(stride * step for _, stride in axes)
    return np.ndarray(shape, elements.dtype, elements, desc.offset0 * step, strides)


def _unpacked(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The 4-bit codes of packed data, one a byte; the even element is in the low half."""
    codes = np.empty(2 * data.size, np.uint8)
    np.bitwise_and(data, 15, out=codes[0::2])
    np.right_shift(data, 4, out=codes[1::2])
    return codes


def _from_codes(codes: NDArray[np.uint8], data_type: DataType) -> np.ndarray:
    """4-bit codes as elements of the type."""
    if data_type.is_integer:
        return codes.astype(np.int8).astype(data_type.numpy)  # which takes the low four bits
    return np.ascontiguousarray(codes).view(data_type.numpy).reshape(codes.shape)


def _to_codes(array: np.ndarray, data_type: DataType) -> NDArray[np.uint8]:
    """Elements of a 4-bit type as codes in the low half of a byte."""
    codes = array.astype(np.int8) if data_type.is_integer else array
    low: NDArray[np.uint8] = _as_bits(codes, np.dtype(np.uint8)) & np.uint8(15)
    return low
