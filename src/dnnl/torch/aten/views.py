"""Operators that move elements: other shapes, other orders, parts and joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from dnnl.errors import Unimplemented
from dnnl.torch.aten.writer import Translate, Value, Writer

_END = 2**63 - 1
"""An end of a slice beyond every axis."""


def _reshaped(w: Writer, x: Value, *_: Any) -> str:
    """The shape that PyTorch says, of which it has resolved what is -1."""
    return w.reshape(x, w.result.shape)


def _restrided(w: Writer, x: Value, size: Sequence[Any], stride: Sequence[Any], offset: Any) -> str:
    """Strides that address the same elements: others only along axes of one element."""
    strides = x.strides
    same = tuple(size) == x.shape and strides is not None and offset in (None, 0)
    if not same or any(
        n != 1 and before != after
        for n, before, after in zip(x.shape, strides or (), stride, strict=True)
    ):
        raise Unimplemented(f"strides {tuple(stride)} of a tensor with strides {strides}")
    return w.add("Identity", x)


def _permuted(w: Writer, x: Value, dims: Sequence[int]) -> str:
    order = tuple(x.axis(dim) for dim in dims)
    return w.add("Transpose", x, perm=order) if order else w.add("Identity", x)


def _transposed(w: Writer, x: Value, first: int, second: int) -> str:
    if not x.rank:
        return w.add("Identity", x)
    order = list(range(x.rank))
    a, b = x.axis(first), x.axis(second)
    order[a], order[b] = b, a
    return w.add("Transpose", x, perm=tuple(order))


def _matrix_transposed(w: Writer, x: Value) -> str:
    return _transposed(w, x, 0, 1) if x.rank == 2 else w.add("Identity", x)


def _expanded(w: Writer, x: Value, *_: Any) -> str:
    return w.expand(x, w.result.shape)


def _sliced(w: Writer, x: Value, dim: int, start: Any, end: Any, step: int) -> str:
    return w.slice(
        x, x.axis(dim), 0 if start is None else start, _END if end is None else end, step
    )


def _selected(w: Writer, x: Value, dim: int, index: Any) -> str:
    axis = x.axis(dim)
    if isinstance(index, int):
        end = index + 1 if index != -1 else _END
        return w.squeeze(w.slice(x, axis, index, end), [axis])
    return w.add("Gather", x, w.scalar(index, torch.int64), axis=axis)


def _parts(w: Writer, x: Value, sizes: Sequence[Any], axis: int) -> tuple[str, ...]:
    if len(sizes) == 1:
        return (w.add("Identity", x),)
    return w.add_several(len(sizes), "Split", x, w.sizes(sizes), axis=axis)


def _split_evenly(w: Writer, x: Value, split_size: Any, dim: int) -> tuple[str, ...]:
    axis = x.axis(dim)
    return _parts(w, x, [part.shape[axis] for part in w.result], axis)


def _split_by_sizes(w: Writer, x: Value, sizes: Sequence[Any], dim: int) -> tuple[str, ...]:
    return _parts(w, x, sizes, x.axis(dim))


def _unbound(w: Writer, x: Value, dim: int) -> list[str]:
    axis = x.axis(dim)
    parts = _parts(w, x, [1] * len(w.result), axis)
    return [w.squeeze(part, [axis]) for part in parts]


def _joined(w: Writer, tensors: Sequence[Value], dim: int) -> str:
    rank = len(w.result.shape)
    # An empty list of numbers joins anything.
    parts = [own for own in tensors if own.rank == rank or own.shape != (0,)]
    if not parts:
        parts = list(tensors[:1])
    sources = [w.to(own, w.dtype) for own in parts]
    return w.add("Concat", *sources, axis=dim % rank)


def _stacked(w: Writer, tensors: Sequence[Value], dim: int) -> str:
    axis = dim % len(w.result.shape)
    parts = [w.unsqueeze(w.to(own, w.dtype), [axis]) for own in tensors]
    return w.add("Concat", *parts, axis=axis)


def _unsqueezed(w: Writer, x: Value, dim: int) -> str:
    return w.unsqueeze(x, [dim % (x.rank + 1)])


def _flipped(w: Writer, x: Value, dims: Sequence[int]) -> str:
    axes = x.axes(dims) if dims else ()
    if not axes or not x.rank:
        return w.add("Identity", x)
    count = len(axes)
    starts, ends, steps = (w.sizes([n] * count) for n in (-1, -_END, -1))
    return w.add("Slice", x, starts, ends, w.sizes(axes), steps)


def _padded(w: Writer, x: Value, pad: Sequence[Any], number: Any) -> str:
    before, after = [0] * x.rank, [0] * x.rank
    for place in range(len(pad) // 2):
        axis = x.rank - 1 - place
        before[axis], after[axis] = pad[2 * place], pad[2 * place + 1]
    if any(isinstance(own, torch.SymInt) for own in pad):
        raise Unimplemented("borders of sizes that only a run knows")
    value: Any = x
    for axis, sizes in enumerate(zip(before, after, strict=True)):
        if min(sizes) < 0:
            start, end = (max(-own, 0) for own in sizes)
            value = w.slice(value, axis, start, -end if end else _END)
            before[axis], after[axis] = (max(own, 0) for own in sizes)
    if not any((*before, *after)):
        return w.add("Identity", value)
    return w.add("Pad", value, w.sizes([*before, *after]), w.scalar(number, x.dtype))


def _repeated(w: Writer, x: Value, repeats: Sequence[Any]) -> str:
    value = w.reshape(x, [1] * (len(repeats) - x.rank) + list(x.shape))
    return w.add("Tile", value, w.sizes(repeats)) if repeats else w.add("Identity", x)


def _put_slice(
    w: Writer, x: Value, source: Value, dim: int, start: Any, end: Any, step: int
) -> str:
    """``x`` with some elements of an axis replaced: what is before, ``source``, what is behind."""
    axis = x.axis(dim)
    first = 0 if start is None else start
    whole = x.shape[axis]
    if isinstance(first, int) and first < 0:
        first = max(first + whole, 0)
    if step != 1:
        return _put_spread(w, x, source, axis, first, step)
    last = first + source.shape[axis]
    values = w.expand(w.to(source, x.dtype), [*x.shape[:axis], last - first, *x.shape[axis + 1 :]])
    parts = [values]
    if not (isinstance(first, int) and first == 0):
        parts.insert(0, w.slice(x, axis, 0, first))
    if not (isinstance(last, int) and isinstance(whole, int) and last >= whole):
        parts.append(w.slice(x, axis, last, _END))
    return w.add("Concat", *parts, axis=axis) if len(parts) > 1 else parts[0]


def _put_spread(w: Writer, x: Value, source: Value, axis: int, first: Any, step: int) -> str:
    """``x`` with every ``step``-th element of an axis replaced: chosen from both, one behind the
    other."""
    whole, count = x.shape[axis], source.shape[axis]
    if not all(isinstance(own, int) for own in (whole, count, first, step)):
        raise Unimplemented("steps over elements of which only a run knows the number")
    places = np.arange(whole)
    places[first : first + count * step : step] = whole + np.arange(count)
    values = w.expand(w.to(source, x.dtype), [*x.shape[:axis], count, *x.shape[axis + 1 :]])
    joined = w.add("Concat", x, values, axis=axis)
    return w.add("Gather", joined, w.constant(places, torch.int64), axis=axis)


def _put_one(w: Writer, x: Value, source: Value, dim: int, index: Any) -> str:
    axis = x.axis(dim)
    if not isinstance(index, int) or not isinstance(x.shape[axis], int):
        raise Unimplemented("an index that only a run knows")
    first = index % x.shape[axis]
    wide = w.unsqueeze(w.to(source, x.dtype), [axis])
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return _put_slice(w, x, Value(wide, x.dtype, shape), axis, first, None, 1)


def _triangle(upper: int) -> Translate:
    """The upper or the lower triangle of matrices."""

    def write(w: Writer, x: Value, diagonal: int) -> str:
        if x.dtype == torch.bool:
            ones = w.to(x, torch.int64)
            return w.to(_trilu(w, ones, upper, diagonal), torch.bool, torch.int64)
        return _trilu(w, x.name, upper, diagonal)

    return write


def _trilu(w: Writer, value: str, upper: int, diagonal: int) -> str:
    return w.add("Trilu", value, w.scalar(diagonal, torch.int64), upper=upper)


TABLE: Mapping[str, Translate] = {
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "flatten.using_ints"), _reshaped),
    **{f"squeeze{kind}": _reshaped for kind in ("", ".dim", ".dims")},
    "as_strided": _restrided,
    "unsqueeze": _unsqueezed,
    "permute": _permuted,
    "transpose.int": _transposed,
    "t": _matrix_transposed,
    "numpy_T": lambda w, x: _permuted(w, x, range(x.rank)[::-1]),
    "expand": _expanded,
    "slice.Tensor": _sliced,
    "select.int": _selected,
    "split.Tensor": _split_evenly,
    "split_with_sizes": _split_by_sizes,
    "unbind.int": _unbound,
    "cat": _joined,
    "stack": _stacked,
    "flip": _flipped,
    "constant_pad_nd": _padded,
    "repeat": _repeated,
    "slice_scatter": _put_slice,
    "select_scatter": _put_one,
    "triu": _triangle(1),
    "tril": _triangle(0),
}
