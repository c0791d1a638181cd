"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.ops.call import Problem, call, dense, expanded, present
from dnnl.primitives.matmul import MatmulDesc
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc


def matmul(x: Any, y: Any, out: Any = None) -> Any:
    """The matrix product of the last two dimensions, the others broadcast, as NumPy has it.

    A vector on the left is a row, one on the right a column, and the result loses that dimension.

    >>> matmul(np.array([[1.0, 2.0]], np.float32), np.array([[3.0], [4.0]], np.float32))
    array([[11.]], dtype=float32)
    """
    return call(product, (x, y), (), out, ("x", "y"))


def product(descs: Sequence[MemoryDesc], dst: MemoryDesc | None) -> Problem:
    """What `matmul` does."""
    row, column = (desc.ndims == 1 for desc in descs)
    if not descs[0].ndims or not descs[1].ndims:
        raise InvalidArguments("x" if descs[1].ndims else "y", (), "expected a vector or a matrix")
    x = descs[0].reshape((1, *descs[0].dims)) if row else descs[0]
    y = descs[1].reshape((*descs[1].dims, 1)) if column else descs[1]
    if x.dims[-1] != y.dims[-2]:
        rule = f"expected {x.dims[-1]} rows, as x has the shape {descs[0].dims}"
        raise InvalidArguments("y", descs[1].dims, rule)
    try:
        batch = np.broadcast_shapes(x.dims[:-2], y.dims[:-2])
    except ValueError:
        rule = f"cannot be broadcast with {descs[0].dims}"
        raise InvalidArguments("y", descs[1].dims, rule) from None
    ndims = len(batch) + 2
    whole = (*batch, x.dims[-2], y.dims[-1])
    shape = (*batch, *(() if row else whole[-2:-1]), *(() if column else whole[-1:]))
    target = dense(whole, x) if dst is None else dst.reshape(whole)
    desc = MatmulDesc(expanded(x, ndims), expanded(y, ndims), target)
    return Problem(desc, (Arg.SRC, Arg.WEIGHTS), shape)


def linear(x: Any, weight: Any, bias: Any = None, out: Any = None) -> Any:
    """x @ weight.T + bias over the last dimension; weight is [features out, features in].

    >>> linear(np.ones((1, 2), np.float32), np.eye(2, dtype=np.float32), np.ones(2, np.float32))
    array([[2., 2.]], dtype=float32)
    """
    arrays, names = present({"x": x, "weight": weight}, bias=bias)
    return call(_linear, arrays, (), out, names)


def _linear(descs: Sequence[MemoryDesc], dst: MemoryDesc | None) -> Problem:
    x, weight, *bias = descs
    if weight.ndims != 2 or not x.ndims or x.dims[-1] != weight.dims[1]:
        rule = f"expected a matrix with rows of {x.dims[-1:]}, the last size of x"
        raise InvalidArguments("weight", weight.dims, rule)
    if bias and bias[0].dims != weight.dims[:1]:
        raise InvalidArguments("bias", bias[0].dims, f"expected the shape {weight.dims[:1]}")
    shape = (*x.dims[:-1], weight.dims[0])
    target = dst or dense(shape, x)
    rows = prod(x.dims[:-1])
    with suppress(InvalidArguments):  # rows with gaps: a product for each matrix of them
        x, target = x.reshape((rows, x.dims[-1])), target.reshape((rows, shape[-1]))
    weights = weight.permute_axes((1, 0))
    desc = MatmulDesc(x, *(expanded(d, x.ndims) for d in (weights, target, *bias)))
    return Problem(desc, (Arg.SRC, Arg.WEIGHTS, Arg.BIAS)[: len(descs)], shape)
