"""Attention: what a softmax of products chooses of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Out, Result, Shape
from dnnl.ops.call import Problem, call, dense, expanded, present, type_of
from dnnl.ops.device import taken
from dnnl.ops.elementwise import add, multiply
from dnnl.ops.normalization import softmax
from dnnl.ops.place import HOST, Place, Placed
from dnnl.ops.products import product
from dnnl.ops.promotion import as_type
from dnnl.primitives.attention import MOST_ELEMENTS, AttentionDesc
from dnnl.primitives.eltwise import EltwiseDesc
from dnnl.runtime.storage import allocating
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.layout_input import read_bool, read_float
from dnnl.types.memory_desc import MemoryDesc

_FLOATS = tuple(kind.numpy for kind in (DataType.f32, DataType.bf16, DataType.f16))
_RANK = 4
_FEW = 4
"""Fewer rows are faster in three steps: one computes with as many as a vector has lanes."""


@allocating
def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    out: Out = None,
    *,
    enable_gqa: bool = False,
) -> Result:
    """softmax(query @ key.T * scale + attn_mask) @ value.

    ``query`` is [..., L, E], ``key`` [..., S, E] and ``value`` [..., S, V]; leading dimensions are
    broadcast, and the result is [..., L, V]. ``attn_mask`` is broadcast to [..., L, S]: numbers are
    added, and keys where it is False take no part. With ``is_causal`` row i takes the first i + 1
    keys, and there is no mask. ``scale`` is by default 1 / sqrt(E). With ``enable_gqa`` the heads,
    dimension -3, of ``key`` and ``value`` are fewer than those of ``query``, and each serves as
    many of these in a row. The products before the softmax
    are f32, or f64 where one of these is. A row in which no key takes part gives 0, as in PyTorch
    since 2.5.

    >>> one = np.eye(2, dtype=np.float32)
    >>> attention(one, one, one, is_causal=True, scale=0.0)
    array([[1. , 0. ],
           [0.5, 0.5]], dtype=float32)
    """
    arrays, names = present({"query": query, "key": key, "value": value}, attn_mask=attn_mask)
    place, (rows, keys, values, *mask) = taken(arrays, names, out)
    group = 1
    if read_bool("enable_gqa", enable_gqa):
        group = _group(rows.shape, keys.shape, values.shape)
    shape = _shape(rows.shape, *(_repeated(each.shape, group) for each in (keys, values)))
    factor = max(1, rows.shape[-1]) ** -0.5 if scale is None else read_float("scale", scale)
    causal = read_bool("is_causal", is_causal)
    given = _added(mask, shape, causal=causal)
    sources = [rows, keys, values, *given]
    if _is_one_step(place, sources, out):
        sources = [own if _has_rows(own) else np.ascontiguousarray(own) for own in sources]
        options = shape, "causal" if causal else "none", factor, group
        names = ("query", "key", "value", *("attn_mask" for _ in given))
        return place.returned(call(_attended, sources, options, out, names), arrays, out)
    masks = (_above(place, shape),) if causal else given
    scores = _products(place, rows, keys, masks, shape, factor, group)
    # Integers hold no shares, which stay f32 then.
    narrow = values.dtype.kind not in "biu" and values.dtype != scores.dtype
    shares = place.empty(shape, values.dtype) if narrow else scores
    softmax(scores, out=shares, masked_rows="zero")
    result = call(_chosen, (shares, values), (group,), out, ("query", "value"))
    return place.returned(result, arrays, out)


def scaled_dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    out: Out = None,
) -> Result:
    """`attention` with the arguments in PyTorch's order; ``dropout_p`` is 0, and ``attn_mask`` has
    truth values or floats.

    >>> one = np.eye(2, dtype=np.float32)
    >>> scaled_dot_product_attention(one, one, one, is_causal=True, scale=0.0)
    array([[1. , 0. ],
           [0.5, 0.5]], dtype=float32)
    """
    if read_float("dropout_p", dropout_p):
        raise InvalidArguments("dropout_p", dropout_p, "nothing is dropped here", "pass 0.0")
    if attn_mask is not None and type_of(attn_mask, "attn_mask").kind in "iu":
        rule = "expected truth values, or floats, which are added"
        hint = "convert it: .bool() in PyTorch, astype(bool) in NumPy"
        raise InvalidArguments("attn_mask", "integers", rule, hint)
    return attention(query, key, value, attn_mask, is_causal, scale, out=out, enable_gqa=enable_gqa)


def _products(
    place: Place[Placed],
    rows: Placed,
    keys: Placed,
    masks: Sequence[Placed],
    shape: Shape,
    factor: float,
    group: int,
) -> Placed:
    """What the softmax is computed of."""
    rows, keys = (_readable(place, array) for array in (rows, keys))
    types = {rows.dtype, keys.dtype, *(mask.dtype for mask in masks)}
    if np.dtype(np.float64) in types:
        result: Placed = call(_transposed, (rows, keys), (group,), None, ("query", "key"))
        result = multiply(result, factor)
        return add(result, masks[0]) if masks else result
    names = ("query", "key", *("attn_mask" for _ in masks))
    return call(_scores, (rows, keys, *masks), (shape, factor, group), None, names)


def _readable(place: Place[Placed], array: Placed) -> Placed:
    """What a product with f32 as its result reads: other integers than those of 8 bits are f32."""
    direct = array.dtype.kind not in "biu" or array.dtype in (np.int8, np.uint8)
    return array if direct else place.converted(array, np.dtype(np.float32))


def _group(query: Shape, key: Shape, value: Shape) -> int:
    """How many heads of the queries are in a row with one of the keys."""
    for name, dims in (("query", query), ("key", key), ("value", value)):
        if len(dims) < 3:
            raise InvalidArguments(name, dims, "enable_gqa takes heads as dimension -3")
    heads = key[-3]
    if value[-3] != heads:
        raise InvalidArguments("value", value, f"expected {heads} heads, as key has")
    if not heads or query[-3] % heads:
        rule = f"its {heads} heads do not divide the {query[-3]} of query, of shape {query}"
        raise InvalidArguments("key", key, rule)
    return query[-3] // heads


def _repeated(dims: Shape, group: int) -> Shape:
    """The dims with each head as often as it serves."""
    return dims if group == 1 else (*dims[:-3], dims[-3] * group, *dims[-2:])


def _split(desc: MemoryDesc, group: int) -> MemoryDesc:
    """The tensor with its heads in rows of ``group``; where it has one head, this serves all."""
    if group == 1 or desc.ndims < 3:
        return desc
    heads = (1, 1) if desc.dims[-3] == 1 else (desc.dims[-3] // group, group)
    return desc.reshape((*desc.dims[:-3], *heads, *desc.dims[-2:]))


def _shared(desc: MemoryDesc, group: int) -> MemoryDesc:
    """Keys or values, of which each head serves a row."""
    if group == 1:
        return desc
    return desc.reshape((*desc.dims[:-2], 1, *desc.dims[-2:]))


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


def _is_one_step(place: Place[Placed], arrays: Sequence[Placed], out: Out) -> bool:
    """Whether one primitive computes all: on the host, of floats of one type with a batch and heads
    at most, if they are not few, and the elements of rows of the result are neighbours."""
    query, key, value, *masks = arrays
    written = [] if out is None else [place.written(out)]
    alike = query.dtype == key.dtype == value.dtype
    floats = all(own.dtype in _FLOATS for own in (query, *masks, *written))
    plain = all(len(own.shape) <= _RANK for own in arrays) and all(map(_has_rows, written))
    fits = max(query.shape[-1], value.shape[-1]) <= MOST_ELEMENTS and query.shape[-2] >= _FEW
    return place is HOST and alike and floats and plain and fits


def _has_rows(array: Placed) -> bool:
    """Whether the elements of a row are neighbours."""
    return array.shape[-1:] in ((), (1,)) or bool(array.strides[-1] == array.dtype.itemsize)


def _attended(
    descs: Sequence[MemoryDesc],
    dst: MemoryDesc | None,
    shape: Shape,
    masking: str,
    scale: float,
    group: int,
) -> Problem:
    """All of an attention, of which ``shape`` is that of the products."""
    query, key, value, *masks = descs
    *lead, rows, _ = shape
    result = *np.broadcast_shapes(tuple(lead), () if group > 1 else value.dims[:-2]), rows
    result = *result, value.dims[-1]
    batch, heads = (1, 1, *result[:-2])[-2:]
    served = heads // group if group > 1 else heads
    if group == 1 and _heads(key) == _heads(value) == 1:
        served = 1
    keys, values = (_broadcast(own, batch, served) for own in (key, value))
    made = MemoryDesc((batch, heads, *result[-2:]), query.data_type)
    if dst is not None:
        made = expanded(dst, _RANK)
    mask = expanded(masks[0], _RANK) if masks else None
    desc = AttentionDesc.forward(
        "forward_inference",
        _broadcast(query, batch, heads),
        keys,
        values,
        made,
        mask_desc=mask,
        masking=masking,
        scale=scale,
    )
    arguments = (Arg.SRC_0, Arg.SRC_1, Arg.SRC_2, Arg.SRC_3)
    return Problem(desc, arguments[: len(descs)], result)


def _heads(desc: MemoryDesc) -> int:
    return desc.dims[-3] if desc.ndims > 2 else 1


def _broadcast(desc: MemoryDesc, batch: int, heads: int) -> MemoryDesc:
    """The tensor as [batch, heads, rows, elements], of which all share what has the size 1."""
    own = expanded(desc, _RANK)
    dims = (batch, heads, *own.dims[2:])
    triples = zip(own.dims, dims, own.strides, strict=True)
    strides = [step if size == target else 0 for size, target, step in triples]
    return MemoryDesc(dims, own.data_type, strides, offset0=own.offset0)


def _above(place: Place[Placed], shape: Shape) -> Placed:
    """The causal mask."""
    above = np.tri(*shape[-2:], dtype=np.bool_)
    return place.constant(np.where(above, np.float32(0), np.float32(-np.inf)))


def _added(given: Sequence[Placed], shape: Shape, *, causal: bool) -> list[Placed]:
    """What is added to the products: at most one array."""
    if causal and given:
        raise InvalidArguments("is_causal", True, "has a mask of its own, so attn_mask is None")
    for mask in given:
        ones = (1,) * (len(shape) - len(mask.shape))
        fits = all(m in (1, n) for m, n in zip((*ones, *mask.shape), shape, strict=False))
        if len(mask.shape) > len(shape) or not fits:
            raise InvalidArguments("attn_mask", mask.shape, f"cannot be broadcast to {shape}")
    # The logarithms of truth values are what is added: 0 and -inf.
    return [call(_logarithms, (m,), ()) if m.dtype == np.bool_ else m for m in given]


def _logarithms(descs: Sequence[MemoryDesc], dst: MemoryDesc | None) -> Problem:
    src = as_type(descs[0], DataType.f32)
    desc = EltwiseDesc.forward("forward_inference", Alg.eltwise_log, src, dense(src.dims, src))
    return Problem(desc, (Arg.SRC,), src.dims)


def _joined(found: Problem, group: int) -> Problem:
    """The problem whose result has its heads in one dimension."""
    if group == 1:
        return found
    *batch, heads, each, rows, columns = found.shape
    return replace(found, shape=(*batch, heads * each, rows, columns))


def _transposed(descs: Sequence[MemoryDesc], dst: MemoryDesc | None, group: int) -> Problem:
    """The product of the queries with the keys, a row of each."""
    query, key = _split(descs[0], group), _shared(descs[1], group)
    *batch, rows, columns = range(key.ndims)
    left = dst and _split(dst, group)
    return _joined(product([query, key.permute_axes((*batch, columns, rows))], left), group)


def _chosen(descs: Sequence[MemoryDesc], dst: MemoryDesc | None, group: int) -> Problem:
    """The product of the shares with the values."""
    given = _split(descs[0], group), _shared(descs[1], group)
    return _joined(product(given, dst and _split(dst, group)), group)


def _scores(
    descs: Sequence[MemoryDesc], dst: MemoryDesc | None, shape: Shape, scale: float, group: int
) -> Problem:
    query, key, *masks = descs
    found = _transposed([query, key], dst or MemoryDesc(shape, "f32"), group)
    ndims = len(shape) + (group > 1)
    attr = PrimitiveAttr()
    attr.post_ops.append_eltwise("eltwise_linear", scale)
    arguments = found.arguments
    for mask in masks:
        place = attr.post_ops.append_binary("binary_add", expanded(_split(mask, group), ndims))
        arguments = (*arguments, Arg.post_op(place) | Arg.SRC_1)
    return Problem(found.desc, arguments, shape, attr)
