"""Attention: what a softmax of products chooses of values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Array, Out, Result, lent, same_kind
from dnnl.ops.call import Problem, call, expanded
from dnnl.ops.elementwise import add, multiply
from dnnl.ops.normalization import softmax
from dnnl.ops.products import matmul, product
from dnnl.runtime.storage import allocating
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.layout_input import read_bool, read_float
from dnnl.types.memory_desc import MemoryDesc

Shape = tuple[int, ...]


@allocating
def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    out: Out = None,
) -> Result:
    """softmax(query @ key.T * scale + attn_mask) @ value, which PyTorch calls
    ``scaled_dot_product_attention``.

    ``query`` is [..., L, E], ``key`` [..., S, E] and ``value`` [..., S, V]; leading dimensions are
    broadcast, and the result is [..., L, V]. ``attn_mask`` is broadcast to [..., L, S]: numbers are
    added, and keys where it is False take no part. With ``is_causal`` row i takes the first i + 1
    keys, and there is no mask. ``scale`` is by default 1 / sqrt(E). The products before the softmax
    are f32, or f64 where one of these is. A row in which no key takes part gives 0, as in PyTorch
    since 2.5.

    >>> one = np.eye(2, dtype=np.float32)
    >>> attention(one, one, one, is_causal=True, scale=0.0)
    array([[1. , 0. ],
           [0.5, 0.5]], dtype=float32)
    """
    arrays = {"query": query, "key": key, "value": value}
    rows, keys, values = (lent(array, name) for name, array in arrays.items())
    shape = _shape(rows.shape, keys.shape, values.shape)
    factor = max(1, rows.shape[-1]) ** -0.5 if scale is None else read_float("scale", scale)
    masks = _masks(attn_mask, read_bool("is_causal", is_causal), shape)
    scores = _products(rows, keys, masks, shape, factor)
    # Integers hold no shares, which stay f32 then.
    narrow = values.dtype.kind not in "biu" and values.dtype != scores.dtype
    shares = np.empty(shape, values.dtype) if narrow else scores
    softmax(scores, out=shares, masked_rows="zero")
    result = call(product, (shares, values), (), out, ("query", "value"))
    return result if out is not None else same_kind(result, query)


def _products(
    rows: Array, keys: Array, masks: tuple[Array, ...], shape: Shape, factor: float
) -> Array:
    """What the softmax is computed of."""
    rows, keys = _readable(rows), _readable(keys)
    result: Array
    if np.float64 in (rows.dtype, keys.dtype, *(mask.dtype for mask in masks)):
        result = multiply(matmul(rows, keys.swapaxes(-1, -2)), factor)
        return add(result, masks[0]) if masks else result
    names = ("query", "key", *("attn_mask" for _ in masks))
    result = call(_scores, (rows, keys, *masks), (shape, factor), None, names)
    return result


def _readable(array: Array) -> Array:
    """What a product with f32 as its result reads: other integers than those of 8 bits are f32."""
    direct = array.dtype.kind not in "biu" or array.dtype in (np.int8, np.uint8)
    return array if direct else array.astype(np.float32)


def _shape(query: Shape, key: Shape, value: Shape) -> Shape:
    """The dims of the products [..., L, S]; raises where the arrays do not fit."""
    for name, dims in (("query", query), ("key", key), ("value", value)):
        if len(dims) < 2:
            raise InvalidArguments(name, dims, "expected a matrix, or batches of them")
    if key[-1] != query[-1]:
        rule = f"expected rows of {query[-1]}, as query has the shape {query}"
        raise InvalidArguments("key", key, rule)
    if value[-2] != key[-2]:
        raise InvalidArguments("value", value, f"expected {key[-2]} rows, as key has")
    try:
        batch = np.broadcast_shapes(query[:-2], key[:-2])
    except ValueError:
        raise InvalidArguments("key", key, f"cannot be broadcast with query {query}") from None
    try:
        np.broadcast_shapes(batch, value[:-2])
    except ValueError:
        raise InvalidArguments("value", value, f"cannot be broadcast with {batch}") from None
    return (*batch, query[-2], key[-2])


def _masks(attn_mask: ArrayLike | None, is_causal: bool, shape: Shape) -> tuple[Array, ...]:
    """What is added to the products: at most one array."""
    if is_causal:
        if attn_mask is not None:
            raise InvalidArguments("is_causal", True, "has a mask of its own, so attn_mask is None")
        return (_added(np.tri(*shape[-2:], dtype=np.bool_)),)
    if attn_mask is None:
        return ()
    mask = lent(attn_mask, "attn_mask")
    ones = (1,) * (len(shape) - mask.ndim)
    fits = all(m in (1, n) for m, n in zip((*ones, *mask.shape), shape, strict=False))
    if mask.ndim > len(shape) or not fits:
        raise InvalidArguments("attn_mask", mask.shape, f"cannot be broadcast to {shape}")
    return (_added(mask) if mask.dtype == np.bool_ else mask,)


def _added(allowed: Array) -> Array:
    return np.where(allowed, np.float32(0), np.float32(-np.inf))


def _scores(
    descs: Sequence[MemoryDesc], dst: MemoryDesc | None, shape: Shape, scale: float
) -> Problem:
    query, key, *masks = descs
    *batch, rows, columns = range(key.ndims)
    transposed = key.permute_axes((*batch, columns, rows))
    found = product([query, transposed], dst or MemoryDesc(shape, "f32"))
    attr = PrimitiveAttr()
    attr.post_ops.append_eltwise("eltwise_linear", scale)
    arguments = found.arguments
    for mask in masks:
        place = attr.post_ops.append_binary("binary_add", expanded(mask, len(shape)))
        arguments = (*arguments, Arg.post_op(place) | Arg.SRC_1)
    return Problem(found.desc, arguments, shape, attr)
