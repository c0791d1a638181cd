"""The descriptors of tensors that are stored in an encoding, by its name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

from dnnl.types.dtype import DataType, DataTypeLike
from dnnl.types.encoding import Coo, Csr, Encoding, Grouped, Packed, Winograd, check_index_type


class EncodedDesc:
    """The constructors of a `MemoryDesc`, which is the only one to derive from this."""

    __slots__ = ()

    @classmethod
    @abstractmethod
    def encoded(
        cls,
        dims: Sequence[int],
        data_type: DataTypeLike,
        encoding: Encoding,
        index_type: DataTypeLike = DataType.s32,
    ) -> Self:
        """Return the descriptor of a tensor in an encoding."""

    @classmethod
    def csr(
        cls,
        dims: Sequence[int],
        data_type: DataTypeLike,
        nnz: int,
        index_type: DataTypeLike = DataType.s32,
        pointer_type: DataTypeLike = DataType.s32,
    ) -> Self:
        """Return the descriptor of a sparse matrix by rows with ``nnz`` elements, see `Csr`."""
        check_index_type("pointer_type", pointer_type)
        return cls.encoded(dims, data_type, Csr(nnz), index_type)

    @classmethod
    def coo(
        cls,
        dims: Sequence[int],
        data_type: DataTypeLike,
        nnz: int,
        index_type: DataTypeLike = DataType.s32,
    ) -> Self:
        """Return the descriptor of a sparse matrix of ``nnz`` elements with indices, see `Coo`."""
        return cls.encoded(dims, data_type, Coo(nnz), index_type)

    @classmethod
    def packed(
        cls,
        dims: Sequence[int],
        data_type: DataTypeLike,
        nnz: int,
        columns: int = 0,
        group: int = 1,
    ) -> Self:
        """Return the descriptor of ``nnz`` weights, see `Packed`; a request without ``columns``."""
        return cls.encoded(dims, data_type, Packed(nnz, columns, group))

    @classmethod
    def grouped(
        cls,
        dims: Sequence[int],
        data_type: DataTypeLike,
        variable_dim_idx: int,
        group_count: int,
        offset_type: DataTypeLike = DataType.s32,
    ) -> Self:
        """Return the descriptor of matrices behind each other along a dimension, see `Grouped`."""
        return cls.encoded(dims, data_type, Grouped(variable_dim_idx, group_count), offset_type)

    @classmethod
    def winograd(
        cls,
        dims: Sequence[int],
        data_type: DataTypeLike,
        tile: int,
        columns: int,
        rotated: bool = False,
        exchanged: bool = False,
    ) -> Self:
        """Return the descriptor of transformed weights of a convolution, see `Winograd`."""
        return cls.encoded(dims, data_type, Winograd(tile, columns, rotated, exchanged))
