"""Conversion between Arrow columns and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import pyarrow as pa

from dnnl.graph.graph import Array, Shape
from dnnl.tools.score.rows import taken
from dnnl.tools.score.signature import RowType, converted

NULL = "a value is null"
_UNEVEN = "lists within the row differ in length"


def element_type(kind: pa.DataType) -> np.dtype | None:
    """The NumPy type of the elements of a column of tensors, lists or scalars; None for others."""
    kind = _storage(kind)
    while _is_list(kind):
        kind = kind.value_type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return np.dtype(kind.to_pandas_dtype()) if numeric else None


def row_shape(kind: pa.DataType) -> Shape | None:
    """The shape of each row of a column; None if rows may differ."""
    if isinstance(kind, pa.BaseExtensionType):
        return tuple(int(size) for size in kind.shape)
    shape = []
    while _is_list(kind):
        if not pa.types.is_fixed_size_list(kind):
            return None
        shape.append(kind.list_size)
        kind = kind.value_type
    return tuple(shape)


def tensor_rows(
    column: pa.ChunkedArray, row: RowType
) -> tuple[Array | list[Array], dict[int, str]]:
    """A column as an input of the model, and the reasons of bad rows by index.

    The input is one array if all rows have the same valid shape, else a list of arrays. The element
    type must be accepted by ``row``.
    """
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # a column without chunks is not combined
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    shape = row_shape(array.type) if isinstance(array.type, pa.BaseExtensionType) else None
    array = array.storage if isinstance(array.type, pa.BaseExtensionType) else array
    rows = _even(array)
    if rows is not None:
        rows = rows if shape is None else rows.reshape(len(rows), *shape)
        reason = row.why_no_shape(rows.shape[1:])
        if not reason:
            result, bad = converted(rows, row.dtype)
            return row.shaped(result), bad
        return [np.empty(0, row.dtype)] * len(rows), dict.fromkeys(range(len(rows)), reason)
    return taken(row, [_one(array, index, shape) for index in range(len(array))])


def _one(array: pa.Array, index: int, shape: Shape | None) -> Array | str:
    """The row at an index, or why it is bad."""
    found = _even(array.slice(index, 1))
    if found is None:
        return NULL if _has_null(array.slice(index, 1)) else _UNEVEN
    row: Array = found[0]
    return row if shape is None else row.reshape(shape)


def _even(array: pa.Array) -> Array | None:
    """All rows as one array; None if there is a null, or lists differ in length."""
    shape = [len(array)]
    while _is_list(array.type):
        if array.null_count:
            return None
        if pa.types.is_fixed_size_list(array.type):
            size = array.type.list_size
        else:
            sizes = np.diff(array.offsets.to_numpy())
            size = int(sizes[0]) if len(sizes) else 0
            if (sizes != size).any():
                return None
        shape.append(size)
        array = array.flatten()
    if array.null_count:
        return None
    flat: Array = array.to_numpy(zero_copy_only=False)
    return flat.reshape(shape)


def _has_null(array: pa.Array) -> bool:
    while not array.null_count:
        if not _is_list(array.type):
            return False
        array = array.flatten()
    return True


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of results; ``shape`` is that of each row, None if rows may differ."""

    name: str
    shape: Shape | None

    def array(self, rows: Array | Sequence[Array]) -> pa.Array:
        """The rows as an Arrow array of scalars, tensors of a fixed shape, or nested lists."""
        if not len(rows):
            return pa.nulls(0)
        if self.shape is None or not prod(self.shape):
            return _lists(rows)
        values = pa.array(_storable(np.asarray(rows)).reshape(-1))
        if not self.shape:
            return values
        values = pa.FixedSizeListArray.from_arrays(values, prod(self.shape))
        kind = pa.fixed_shape_tensor(values.type.value_type, self.shape)
        return pa.ExtensionArray.from_storage(kind, values)


def _lists(rows: Array | Sequence[Array]) -> pa.Array:
    """Rows of equal rank and any sizes as nested lists."""
    levels = list(zip(*(row.shape for row in rows), strict=True))
    result = pa.array(np.concatenate([_storable(row).reshape(-1) for row in rows]))
    outer = [
        [prod(sizes) for sizes in zip(*levels[:depth], strict=True)]
        for depth in range(1, len(levels))
    ]
    for depth in reversed(range(len(levels))):
        repeats = np.ones(len(rows), np.int64) if depth == 0 else np.array(outer[depth - 1])
        counts = np.repeat(np.array(levels[depth]), repeats)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        result = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), result)
    return result


def _storable(array: Array) -> Array:
    """The array in an Arrow type that represents its values exactly."""
    if array.dtype.kind in "biuf":
        return array
    return array.astype(np.int8 if "int" in array.dtype.name else np.float32)
