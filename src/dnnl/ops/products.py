"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Out, Result
from dnnl.ops.call import Problem, call, expanded, present, type_of
from dnnl.ops.elementwise import binary
from dnnl.ops.promotion import (
    NUMPY,
    Rules,
    as_type,
    read_type,
    rules_of,
    target,
    widened,
)
from dnnl.ops.reading import check_bias
from dnnl.primitives.matmul import MatmulDesc
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc

_S32 = DataType.s32


def matmul(x: ArrayLike, y: ArrayLike, out: Out = None, *, dtype: object = None) -> Result:
    """The matrix product of the last two dimensions, the others broadcast, as NumPy has it.

    A vector on the left is a row, one on the right a column, and the result loses that dimension.
    Sums of integers wrap in the type of the result, as in NumPy: that of both, of ``out`` where it
    is wider, or ``dtype``.

    >>> matmul(np.array([[1.0, 2.0]], np.float32), np.array([[3.0], [4.0]], np.float32))
    array([[11.]], dtype=float32)
    """
    return call(product, (x, y), (rules_of(x, y), read_type(dtype)), out, ("x", "y"))


def product(
    descs: Sequence[MemoryDesc],
    dst: MemoryDesc | None,
    rules: Rules = NUMPY,
    dtype: DataType | None = None,
) -> Problem:
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
    common = rules.common_type("xy", descs)
    if dtype is DataType.boolean is not common:
        rule = f"a product of truth values takes them, and x and y are {common}"
        raise InvalidArguments("dtype", str(dtype), rule, "pass x != 0 and y != 0")
    kind = dtype or widened(common, dst)
    (x, y), left = operands(kind, (x, y), dst, shape)
    desc = MatmulDesc(expanded(x, ndims), expanded(y, ndims), left.reshape(whole))
    return Problem(desc, (Arg.SRC, Arg.WEIGHTS), shape, result=kind)


def operands(
    kind: DataType, descs: Sequence[MemoryDesc], dst: MemoryDesc | None, shape: Sequence[int]
) -> tuple[list[MemoryDesc], MemoryDesc]:
    """What computes a product with a result of a type: the sources, of which the third is a bias,
    and dst, in which integers may be wider than their result."""
    x, y, *bias = descs
    *taken, held = _taken(kind, x.data_type, y.data_type)
    given = [as_type(desc, each) for desc, each in zip((x, y), taken, strict=True)]
    for each in bias:
        direct = each.data_type.is_float and kind is not DataType.f64
        given.append(each if direct else as_type(each, held))
    if kind.is_float and dst is not None:
        return given, dst
    return given, target(dst, shape, held)


def _taken(kind: DataType, x: DataType, y: DataType) -> tuple[DataType, DataType, DataType]:
    """The types in which a product of a type is computed: of both sources and of dst, which holds
    the bits of a result that wraps."""
    bytes_ = {x, y} <= {DataType.s8, DataType.u8}
    if bytes_ and (kind is DataType.f32 or (kind.bits <= _S32.bits and not kind.is_float)):
        return x, y, kind if kind.is_float else _S32
    if kind.is_float:
        wide = kind is DataType.f64
        x, y = (kind if wide or not each.is_float else each for each in (x, y))
        return x, y, kind
    held = _S32 if kind.bits < _S32.bits else kind
    return held, held, held


def linear(
    x: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None, out: Out = None
) -> Result:
    """x @ weight.T + bias over the last dimension; weight is [features out, features in].

    >>> linear(np.ones((1, 2), np.float32), np.eye(2, dtype=np.float32), np.ones(2, np.float32))
    array([[2., 2.]], dtype=float32)
    """
    arrays, names = present({"x": x, "weight": weight}, bias=bias)
    kinds = [type_of(array, name).kind for array, name in zip(arrays, names, strict=True)]
    if bias is not None and set(kinds) <= set("biu"):
        return binary(linear(x, weight), bias, Alg.binary_add, out, "bias")
    return call(_linear, arrays, (rules_of(*arrays),), out, names)


def _linear(descs: Sequence[MemoryDesc], dst: MemoryDesc | None, rules: Rules) -> Problem:
    x, weight, *bias = descs
    if weight.ndims != 2 or not x.ndims or x.dims[-1] != weight.dims[1]:
        rule = f"expected a matrix with rows of {x.dims[-1:]}, the last size of x"
        raise InvalidArguments("weight", weight.dims, rule)
    check_bias(bias, weight.dims[0])
    shape = (*x.dims[:-1], weight.dims[0])
    kind = widened(rules.common_type(("x", "weight", "bias"), descs), dst)
    (x, weight, *bias), left = operands(kind, descs, dst, shape)
    rows = prod(x.dims[:-1])
    with suppress(InvalidArguments):  # rows with gaps: a product for each matrix of them
        x, left = x.reshape((rows, x.dims[-1])), left.reshape((rows, shape[-1]))
    weights = weight.permute_axes((1, 0))
    desc = MatmulDesc(x, *(expanded(d, x.ndims) for d in (weights, left, *bias)))
    return Problem(desc, (Arg.SRC, Arg.WEIGHTS, Arg.BIAS)[: len(descs)], shape, result=kind)
