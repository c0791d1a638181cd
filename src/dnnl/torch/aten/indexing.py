"""Elements at places that are data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dnnl.errors import Unimplemented
from dnnl.torch.aten.writer import REAL, Translate, Value, Writer, inverse


def _embedded(w: Writer, weight: Value, indices: Value, *_: Any) -> str:
    return w.add("Gather", weight, _not_negative(w, indices), axis=0)


def _not_negative(w: Writer, index: Value) -> str:
    """``index`` with numbers beyond every axis for negative ones: these operators of PyTorch refuse
    them as they do numbers beyond the end, those of ONNX count them from the end."""
    negative = w.add("Less", index, w.scalar(0, index.dtype))
    return w.add("Where", negative, w.scalar(torch.iinfo(index.dtype).max, index.dtype), index)


def _selected(w: Writer, x: Value, dim: int, index: Value) -> str:
    if not x.rank:
        raise Unimplemented("an index into a scalar")
    index = _with_an_axis(w, index)
    return w.add("Gather", x, _not_negative(w, index), axis=x.axis(dim))


def _with_an_axis(w: Writer, x: Value) -> Value:
    """``x``, with an axis of one element if it is a scalar."""
    return x if x.rank else Value(w.reshape(x, [1]), x.dtype, (1,))


def _gathered(w: Writer, x: Value, dim: int, index: Value, *_: Any) -> str:
    if not x.rank or not index.rank:
        raise Unimplemented("an index into a scalar")
    axis = x.axis(dim)
    _check_within(x, index, axis)
    value: Any = x
    for place, (whole, part) in enumerate(zip(x.shape, index.shape, strict=True)):
        if place != axis and not _same(whole, part):
            value = w.slice(value, place, 0, part)
    return w.add("GatherElements", value, _not_negative(w, index), axis=axis)


def _same(a: Any, b: Any) -> bool:
    """Whether two sizes are one for PyTorch, without asking for their numbers."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return str(a) == str(b)


def _check_within(x: Value, index: Value, axis: int) -> None:
    if any(isinstance(size, int) and size == 0 for size in (*x.shape, *index.shape)):
        raise Unimplemented("no elements to index")


def _indexed(w: Writer, x: Value, indices: Sequence[Value | None]) -> str:
    """Integers for one axis, or for several neighbouring ones."""
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    _check_integers(given)
    if len(given) == 1:
        return w.add("Gather", x, given[0], axis=axes[0])
    if axes != list(range(axes[0], axes[0] + len(axes))):
        raise Unimplemented("indices of axes that are no neighbours")
    places = _places(w, given)
    rank = max(own.rank for own in given)
    order = [*axes, *(axis for axis in range(x.rank) if axis not in axes)]
    value = w.add("GatherND", w.transpose(x, order), places)
    # The axes of the indices are first now; those before the indexed ones go back there.
    before, left = axes[0], x.rank - len(axes)
    back = [*range(rank, rank + before), *range(rank), *range(rank + before, rank + left)]
    return w.transpose(value, back)


def _check_integers(indices: Sequence[Value]) -> None:
    for own in indices:
        if own.dtype not in (torch.int64, torch.int32):
            raise Unimplemented(f"indices of {own.dtype}, whose number is data")


def _broadcast(values: Sequence[Value]) -> tuple[Any, ...]:
    """The shape to which PyTorch broadcasts values."""
    shapes = [own.shape for own in values]
    return tuple(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]


def _places(w: Writer, indices: Sequence[Value]) -> str:
    """Indices of several axes as the coordinates of elements, broadcast to one shape."""
    shape = _broadcast(indices)
    parts = []
    for own in indices:
        value: Any = w.to(own, torch.int64)
        if own.shape != shape:
            value = w.expand(value, shape)
        parts.append(w.unsqueeze(value, [len(shape)]))
    return w.add("Concat", *parts, axis=len(shape))


def _put(
    w: Writer, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool
) -> str:
    """Elements at the coordinates of the first axes replaced, or added to."""
    given = [index for index in indices if index is not None]
    _check_integers(given)
    if any(index is None for index in indices[: len(given)]):
        raise Unimplemented("indices of axes behind others")
    shape = _broadcast(given)
    updates = w.expand(w.to(values, x.dtype), [*shape, *x.shape[len(given) :]])
    reduction = b"add" if accumulate else b"none"
    if accumulate and x.dtype == torch.bool:
        raise Unimplemented("truth values that are added")
    return w.add("ScatterND", x, _places(w, given), updates, reduction=reduction)


def _scattered(
    w: Writer, x: Value, dim: int, index: Value, source: Any, reduction: str = "none"
) -> str:
    """Elements at the places along one axis replaced by those of ``source``, or joined to them."""
    if not x.rank or not index.rank:
        raise Unimplemented("an index into a scalar")
    axis = x.axis(dim)
    _check_within(x, index, axis)
    if reduction != "none" and x.dtype not in (*REAL, torch.int64, torch.int32):
        raise Unimplemented(f"elements of {x.dtype} that are joined")
    if isinstance(source, Value):
        updates: str = source.name
        for place, (whole, part) in enumerate(zip(source.shape, index.shape, strict=True)):
            if not _same(whole, part):
                updates = w.slice(updates, place, 0, part)
    else:
        updates = w.expand(w.scalar(source, x.dtype), index.shape)
    places, how = _not_negative(w, index), reduction.encode()
    return w.add("ScatterElements", x, places, updates, axis=axis, reduction=how)


_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _reduced(
    w: Writer, x: Value, dim: int, index: Value, source: Value, reduce: str, include_self: bool
) -> str:
    reduction = _REDUCTIONS.get(reduce)
    if reduction is None or not include_self:
        raise Unimplemented(f"reduce = {reduce!r}, include_self = {include_self}")
    return _scattered(w, x, dim, index, source, reduction)


def _added(w: Writer, x: Value, dim: int, index: Value, source: Value) -> str:
    return _scattered(w, x, dim, index, source, "add")


def _added_along(w: Writer, x: Value, dim: int, index: Value, source: Value, alpha: Any) -> str:
    if x.dtype == torch.bool:
        raise Unimplemented("truth values that are added")
    values = source.name
    if alpha != 1:
        values = w.add("Mul", source, w.scalar(alpha, source.dtype))
    return _put_along(w, x, dim, index, Value(values, source.dtype, source.shape), b"add")


def _put_along(
    w: Writer, x: Value, dim: int, index: Value, source: Value, reduction: bytes = b"none"
) -> str:
    """Slices along one axis replaced by those of ``source``, or joined to them."""
    axis = x.axis(dim)
    order = [axis, *(own for own in range(x.rank) if own != axis)] if x.rank else [0]
    places = w.unsqueeze(_not_negative(w, _with_an_axis(w, index)), [1])
    target, updates = (w.transpose(_with_an_axis(w, own), order) for own in (x, source))
    found = w.transpose(
        w.add("ScatterND", target, places, updates, reduction=reduction), inverse(order)
    )
    return found if x.rank else w.reshape(found, ())


TABLE: Mapping[str, Translate] = {
    "embedding": _embedded,
    "index_select": _selected,
    "gather": _gathered,
    **dict.fromkeys(("index.Tensor", "_unsafe_index.Tensor"), _indexed),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), _put),
    **{f"scatter.{kind}": _scattered for kind in ("src", "value")},
    "scatter_add": _added,
    "index_add": _added_along,
    "index_copy": _put_along,
    "scatter_reduce.two": _reduced,
}
