"""Tensors of several buffers between their encodings and dense arrays, for users and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Any

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.types.cook_toom import cook_toom
from dnnl.types.dtype import DataType
from dnnl.types.encoding import MAX_GROUP, STRETCH, Coo, Csr, Grouped, Packed, Winograd
from dnnl.types.memory_desc import MemoryDesc


def encode(desc: MemoryDesc, array: np.ndarray) -> list[np.ndarray]:
    """The contents of the buffers of a sparse matrix. Room that is left over holds zeros, at the
    last place of the matrix.

    Raises InvalidArguments where there are more nonzero elements than ``desc`` has space
    for. Of a grouped tensor, all groups but the last one are empty: only its user knows better.
    """
    encoding = desc.encoding
    if isinstance(encoding, Winograd):
        return [_transformed(encoding, array)]
    if isinstance(encoding, Grouped):
        ends = np.zeros(encoding.groups, np.int32)
        ends[-1] = array.shape[encoding.variable_dim_idx]
        return [array, ends]
    assert isinstance(encoding, Csr | Coo | Packed)
    rows, columns = np.nonzero(array)
    if rows.size > encoding.nnz:
        raise over_capacity(desc, rows.size)
    if isinstance(encoding, Packed):
        return _packed(encoding, array)
    left = (0, encoding.nnz - rows.size)
    values = np.pad(np.asarray(array)[rows, columns], left)
    last = [max(0, extent - 1) for extent in desc.dims]
    places = [
        np.pad(index, left, constant_values=end).astype(np.int32)
        for index, end in zip((rows, columns), last, strict=True)
    ]
    if isinstance(encoding, Coo):
        return [values, *places]
    pointers = np.searchsorted(places[0], np.arange(desc.dims[0] + 1)).astype(np.int32)
    return [values, places[1], pointers]


def decode(desc: MemoryDesc, parts: Sequence[np.ndarray]) -> np.ndarray:
    """The dense tensor; elements that are stored twice are added. A grouped tensor is its values.

    Raises InvalidArguments where an index is outside of the matrix, or pointers go back.
    """
    encoding = desc.encoding
    if isinstance(encoding, Winograd):
        return _taps(desc, encoding, parts[0])
    if isinstance(encoding, Packed):
        return _unpacked(desc, encoding, parts)
    if isinstance(encoding, Grouped):
        return parts[0]
    if isinstance(encoding, Csr):
        values, columns, pointers = parts
        counts = pointers[1:].astype(np.int64) - pointers[:-1]
        if pointers[0] or (counts < 0).any() or pointers[-1] > values.size:
            rule = f"pointers begin with 0, never fall and end at {values.size} or below"
            raise InvalidArguments("memory.parts[2]", str(desc), rule)
        rows = np.repeat(np.arange(desc.dims[0]), counts)
        values, columns = values[: rows.size], columns[: rows.size]
    else:
        values, rows, columns = parts
    made = np.zeros(desc.dims, values.dtype)
    for number, (index, extent) in enumerate(zip((rows, columns), desc.dims, strict=True)):
        if index.size and not 0 <= index.min() <= index.max() < extent:
            rule = f"the indices of dimension {number} are in 0..{extent - 1}"
            raise InvalidArguments("memory.parts", str(desc), rule)
    np.add.at(made, (rows, columns), values)
    return made


def over_capacity(desc: MemoryDesc, count: int) -> InvalidArguments:
    """The error for a sparse matrix with more nonzero elements than its capacity."""
    capacity = getattr(desc.encoding, "nnz", 0)
    rule = f"stores up to {capacity} elements, {count} are nonzero"
    return InvalidArguments("desc", str(desc), rule)


def _packed(encoding: Packed, array: np.ndarray) -> list[np.ndarray]:
    """The buffers of packed weights."""
    (terms, count), (panels, groups, stretches) = array.shape, encoding.panels(array.shape)
    whole = np.zeros((groups * encoding.group, panels * encoding.columns), array.dtype)
    whole[:terms, :count] = array
    split = whole.reshape(groups, encoding.group, panels, encoding.columns)
    rows = split.transpose(2, 0, 3, 1).reshape(panels, groups, encoding.columns * encoding.group)
    there = rows != 0
    begins = np.arange(stretches) * STRETCH
    counts = np.add.reduceat(there.sum(axis=2), begins, axis=1) if there.size else np.zeros(0)
    values = np.pad(rows[there], (0, encoding.nnz + MAX_GROUP - int(there.sum())))
    places = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return [values, places, np.packbits(there, bitorder="little")]


def _unpacked(desc: MemoryDesc, encoding: Packed, parts: Sequence[np.ndarray]) -> np.ndarray:
    """The dense matrix of packed weights; it raises where values are missing."""
    values, places, bits = parts
    (terms, count), (panels, groups, _) = desc.dims, encoding.panels(desc.dims)
    there = np.unpackbits(bits, bitorder="little").astype(bool)
    found = int(there.sum())
    if (there.size and found != places[-1]) or found > encoding.nnz:
        raise over_capacity(desc, found)
    rows = np.zeros(there.size, values.dtype)
    rows[there] = values[:found]
    split = rows.reshape(panels, groups, encoding.columns, encoding.group).transpose(1, 3, 0, 2)
    return split.reshape(groups * encoding.group, panels * encoding.columns)[:terms, :count]


def _transformed(encoding: Winograd, array: np.ndarray) -> np.ndarray:
    """The buffer of transformed weights."""
    taps = np.asarray(array, np.float64).reshape(-1, *array.shape[-4:])
    if encoding.rotated:
        taps = taps[..., ::-1, ::-1]
    if encoding.exchanged:
        taps = taps.swapaxes(1, 2)
    matrix = np.array(cook_toom(encoding.tile).of_taps, np.float64)
    places: np.ndarray = np.einsum("ik,jl,gockl->gijco", matrix, matrix, taps)
    groups, side, _, *channels = places.shape
    return places.reshape(groups, side**2, *channels).astype(np.float32)


def _taps(desc: MemoryDesc, encoding: Winograd, places: np.ndarray) -> np.ndarray:
    """The taps of transformed weights."""
    matrix = np.array(cook_toom(encoding.tile).from_taps, np.float64)
    groups, count, *channels = places.shape
    square = places.reshape(groups, isqrt(count), isqrt(count), *channels).astype(np.float64)
    taps: np.ndarray = np.einsum("ik,jl,gklco->gocij", matrix, matrix, square)
    if encoding.exchanged:
        taps = taps.swapaxes(1, 2)
    if encoding.rotated:
        taps = taps[..., ::-1, ::-1]
    return taps.reshape(desc.dims).astype(desc.data_type.numpy)


def sparse_parts(matrix: Any) -> tuple[MemoryDesc, list[np.ndarray]]:
    """The descriptor and the buffers of a matrix as SciPy has it, in the format csr or coo:
    ``shape`` and ``data`` with ``indices`` and ``indptr``, or with ``row`` and ``col``.

    Indices of other types are converted; elements of a coo matrix are sorted by rows.
    """
    kind = getattr(matrix, "format", None)
    if kind not in ("csr", "coo"):
        rule = "expected a sparse matrix whose format is csr or coo, as those of SciPy"
        raise InvalidArguments("matrix", type(matrix).__name__, rule, "matrix.tocsr()")
    values = np.ascontiguousarray(matrix.data)
    data_type = DataType.from_numpy(values.dtype)
    if kind == "csr":
        desc = MemoryDesc.csr(matrix.shape, data_type, values.size)
        index = (matrix.indices, matrix.indptr)
    else:
        desc = MemoryDesc.coo(matrix.shape, data_type, values.size)
        rows, columns = np.asarray(matrix.row), np.asarray(matrix.col)
        if rows.size and (np.diff(rows) < 0).any():
            order = np.argsort(rows, kind="stable")
            values, rows, columns = values[order], rows[order], columns[order]
        index = (rows, columns)
    return desc, [values, *(np.ascontiguousarray(own, np.int32) for own in index)]
