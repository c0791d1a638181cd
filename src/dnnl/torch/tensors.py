"""Tensors of PyTorch and arrays of NumPy on the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dnnl.graph.graph import Array
from dnnl.torch.dtypes import NUMPY

_BF16 = NUMPY[torch.bfloat16]


def array_of(tensor: torch.Tensor, order: tuple[int, ...] | None = None) -> Array:
    """The elements of a tensor, not copied unless they are conjugated or negated lazily.

    With an ``order``, the axes are in that order, and gaps and overlaps are copied as well.
    """
    own = tensor.detach()
    if order is not None:
        own = own.permute(order).contiguous()
    if own.is_neg():
        own = own.resolve_neg()
    if own.dtype == torch.bfloat16:
        return own.view(torch.int16).numpy().view(_BF16)
    return own.numpy()


def tensor_of(array: Array) -> torch.Tensor:
    """A tensor on the memory of an array."""
    if array.dtype == _BF16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def number_of(size: Any) -> int:
    """A size, or the one that PyTorch saw first of a symbol."""
    return size if isinstance(size, int) else int(size.node.hint)


def order_of(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The axes of a tensor without contents as they are in memory, outermost first.

    None where elements overlap or have gaps between them.
    """
    shape, strides = ([number_of(n) for n in own] for own in (tensor.shape, tensor.stride()))
    order = sorted(range(len(shape)), key=lambda axis: (-strides[axis], shape[axis] != 1, axis))
    # An axis of one element may have any stride: row-major wherever that is right as well.
    if _is_dense(range(len(shape)), shape, strides):
        return tuple(range(len(shape)))
    return tuple(order) if _is_dense(order, shape, strides) else None


def odd_strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The strides of a tensor without contents, whose sizes are known, if those of its axes of one
    element are not the ones that `order_of` takes them for."""
    order, shape, strides = order_of(tensor), tensor.shape, tensor.stride()
    if order is None or any(isinstance(own, torch.SymInt) for own in (*shape, *strides)):
        return None
    expected = 1
    for axis in reversed(order):
        if shape[axis] == 1 and strides[axis] != expected:
            return tuple(strides)
        expected *= max(shape[axis], 1)
    return None


def _is_dense(order: Sequence[int], shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for axis in reversed(order):
        if shape[axis] == 1:
            continue
        if strides[axis] != expected:
            return False
        expected *= max(shape[axis], 1)
    return True
