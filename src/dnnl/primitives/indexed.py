"""Dims of operations on slices or elements of one axis that indices choose."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dnnl.errors import InvalidArguments
from dnnl.types.kinds import RUNTIME_DIM


def indexed_dims(src: Sequence[int], indices: Sequence[int], axis: int) -> tuple[int, ...]:
    """The dims of the slices or elements of ``src`` that ``indices`` choose along ``axis``.

    Indices with one dimension choose slices, those with as many as src single elements.
    """
    if len(indices) == len(src):
        return tuple(indices)
    return (*src[:axis], *indices, *src[axis + 1 :])


def check_indices(src: Sequence[int], indices: Sequence[int], axis: int) -> None:
    """Raise InvalidArguments for dims of indices that do not fit ``src``.

    Those of elements must not exceed src in other axes than ``axis``. Without indices src may be
    empty along ``axis``.
    """
    if len(indices) not in (1, len(src)):
        rule = f"expected one dimension, or {len(src)} for single elements"
        raise InvalidArguments("indices_desc", indices, rule, "reshape() flattens them")
    if len(indices) == len(src):
        for dim, (count, extent) in enumerate(zip(indices, src, strict=True)):
            if dim != axis and count > extent != RUNTIME_DIM:
                rule = f"at most {extent} along axis {dim}, as src has"
                raise InvalidArguments("indices_desc", indices, rule)
    if prod(indices) and not src[axis]:
        raise InvalidArguments("src_desc", src, f"there is nothing to index along axis {axis}")
