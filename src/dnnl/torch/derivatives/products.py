"""Gradients of products, convolutions and attention, of recurrent networks, and of moves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from dnnl import ops
from dnnl.errors import InvalidArguments
from dnnl.ops.reading import read_axis, read_sizes
from dnnl.torch.derivatives.rules import Arguments, Counterpart, Gradients, Rule
from dnnl.torch.functions import products, recurrent
from dnnl.torch.functions.attention import attention

Tensor = torch.Tensor


def _matrices(g: Tensor, a: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient and both sources of a product, a vector as a row or a column."""
    x, y = (torch.as_tensor(own) for own in (a.x, a.y))
    row, column = x.dim() == 1, y.dim() == 1
    g = g.unsqueeze(-1) if column else g
    g = g.unsqueeze(-2) if row else g
    return g, x[None] if row else x, y[:, None] if column else y


def _of_left(g: Tensor, a: Arguments) -> Tensor:
    g, x, y = _matrices(g, a)
    return _summed(ops.matmul(g, y.mT), x).reshape(a.x.shape)


def _of_right(g: Tensor, a: Arguments) -> Tensor:
    g, x, y = _matrices(g, a)
    return _summed(ops.matmul(x.mT, g), y).reshape(a.y.shape)


def _summed(gradient: Tensor, like: Tensor) -> Tensor:
    """The sum over the leading dimensions that were broadcast."""
    more = gradient.dim() - like.dim()
    axes = [d for d, n in enumerate(gradient.shape[:-2]) if d < more or n != like.shape[d - more]]
    return ops.sum(gradient, axes, keepdims=True).reshape(like.shape) if axes else gradient


def _window(a: Arguments) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
    """Strides, padding, dilation and groups of a transposed convolution."""
    count = a.weight.dim() - 2
    names = ("stride", 1), ("padding", 0), ("dilation", 1)
    numbers = (read_sizes(name, getattr(a, name), count, least) for name, least in names)
    strides, padding, dilation = numbers
    return strides, padding, dilation, a.groups


def _of_transposed(count: int, g: Tensor, a: Arguments) -> Tensor:
    """A transposed convolution is the gradient of a convolution, whose result this is."""
    kind = torch.promote_types(g.dtype, a.weight.dtype)
    convolution = getattr(products, f"conv{count}d")
    strides, padding, dilation, groups = _window(a)
    given = g.to(kind), a.weight.to(kind), None
    found: Tensor = convolution(*given, strides, padding, dilation, groups)
    for axis, more in _behind(a, strides):
        found = found.narrow(axis, 0, found.shape[axis] - more)
    return found


def _behind(a: Arguments, strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """The axes along which an output padding has places for more elements than x has, and how many:
    nothing comes of them."""
    count = len(strides)
    padding = read_sizes("output_padding", a.output_padding, count, 0)
    pairs = zip(padding, strides, strict=True)
    return [(axis - count, more // step) for axis, (more, step) in enumerate(pairs) if more >= step]


def _of_transposed_weight(g: Tensor, a: Arguments) -> Tensor:
    count = a.weight.dim() - 2
    kind = torch.promote_types(g.dtype, a.x.dtype)
    images = [own.to(kind) for own in (g, a.x)]
    if a.x.dim() == count + 1:
        images = [own[None] for own in images]
    *numbers, groups = _window(a)
    for axis, more in _behind(a, numbers[0]):
        ends = [0] * (-2 * axis - 1)
        images[1] = torch.nn.functional.pad(images[1], [*ends, more])
    kernel = a.weight.shape[2:]
    given = [*images, list(kernel), *map(list, numbers), groups, False]
    found: Tensor = torch.ops.dnnl.convolution_backward_weights(*given)[0]
    return found


def _of_bias(count: int, g: Tensor, a: Arguments) -> Tensor:
    axes = [axis for axis in range(g.dim()) if axis != g.dim() - count - 1]
    found: Tensor = ops.sum(g, axes)
    return found


def _transposed(count: int) -> Mapping[str, Rule]:
    return {
        "x": Rule(partial(_of_transposed, count), ("weight",)),
        "weight": Rule(_of_transposed_weight, ("x",)),
        "bias": Rule(partial(_of_bias, count)),
    }


def _attention(attn_mask: Tensor | None, dropout_p: float = 0.0, **given: Any) -> Tensor:
    if dropout_p:
        hint = "pass 0.0, or use dnnl.torch.attention"
        raise InvalidArguments("dropout_p", dropout_p, "nothing is dropped here", hint)
    if attn_mask is not None and attn_mask.dtype is not torch.bool:
        attn_mask = attn_mask.to(given["query"].dtype)
    return attention(attn_mask=attn_mask, **given)


def _of_table(g: Tensor, a: Arguments) -> Tensor:
    """Rows that are chosen several times have the sum, ``padding_idx`` none."""
    count = a.weight.shape[0]
    skipped = -1 if a.padding_idx is None else a.padding_idx % count
    numbers = torch.as_tensor(a.x).long()
    given = g.contiguous(), numbers, count, skipped, False
    found: Tensor = torch.ops.aten.embedding_dense_backward(*given)
    return found


def _of_part(g: Tensor, a: Arguments) -> Tensor:
    """A slice of the gradient of what is joined."""
    (axis,) = read_axis(a.axis, a.dim, 0).of(g.dim())
    sizes = [np.shape(own)[axis] for own in a.arrays]
    return g.narrow(axis, sum(sizes[: a.place]), sizes[a.place])


_LAYER = ("x", "weight", "bias")
_HEADS = ("query", "key", "value")
_CELLS = ("x", "hx", "params")
TABLE: Mapping[str, Gradients] = {
    "matmul": {"x": Rule(_of_left, ("y",)), "y": Rule(_of_right, ("x",))},
    "linear": Counterpart(products.linear, _LAYER),
    **{f"conv{n}d": Counterpart(getattr(products, f"conv{n}d"), _LAYER) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _transposed(n) for n in (1, 2, 3)},
    "attention": Counterpart(_attention, _HEADS),
    "scaled_dot_product_attention": Counterpart(_attention, _HEADS),
    "lstm": Counterpart(recurrent.lstm, _CELLS),
    "gru": Counterpart(recurrent.gru, _CELLS),
    "rnn": Counterpart(recurrent.rnn, _CELLS),
    "concatenate": {"arrays": Rule(_of_part)},
    "embedding": {"weight": Rule(_of_table, ("x",))},
}
