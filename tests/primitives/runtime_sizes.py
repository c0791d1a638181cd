"""Descriptors of which only the execution decides on the sizes."""

from __future__ import annotations

from collections.abc import Sequence

from dnnl import RUNTIME_DIM, MemoryDesc
from dnnl.types.tag import MAX_NDIMS

ALL = 2**MAX_NDIMS - 1
"""The mask of all dimensions."""


def opened(desc: MemoryDesc, dims: int = ALL, strides: int = ALL) -> MemoryDesc:
    """The descriptor with RUNTIME_DIM for the dims and strides of which the masks have the bits,
    and for the offset if all are open."""

    def some(mask: int, values: Sequence[int]) -> list[int]:
        return [RUNTIME_DIM if mask >> dim & 1 else value for dim, value in enumerate(values)]

    # As f32, since elements of 4 bits are refused in odd strides, which regions have as well.
    return MemoryDesc(
        some(dims, desc.dims), "f32", some(strides, desc.strides),
        inner_blocks=desc.inner_blocks, padded_dims=some(dims, desc.padded_dims),
        offset0=RUNTIME_DIM if dims == strides == ALL else desc.offset0,
    ).with_data_type(desc.data_type)  # fmt: skip
