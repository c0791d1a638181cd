"""Pooling and samples by grids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.torch.aten.writer import Source, Translate, Value, Writer, inverse, require_floats


def _every(given: Sequence[int], count: int) -> tuple[int, ...]:
    """One number for each axis, or the one for all."""
    return tuple(given) * (count if len(given) == 1 else 1)


def batched(w: Writer, x: Value, spatial: int) -> tuple[Source, bool]:
    """``x`` with an axis of images, and whether it had none; raises Unimplemented for integers."""
    require_floats(x)
    return (w.unsqueeze(x, [0]), True) if x.rank == spatial + 1 else (x, False)


def _maximum(spatial: int) -> Translate:
    """The largest element of each window and, for gradients, its place in the image."""

    def write(w: Writer, x: Value, *window: Any) -> tuple[str, str | None]:
        value, alone = batched(w, x, spatial)
        attrs = maximum_window(spatial, *window)
        if 1 not in w.used:
            found = w.add("MaxPool", value, **attrs)
            return (w.squeeze(found, [0]) if alone else found), None
        found, places = w.add_several(2, "MaxPool", value, **attrs)
        # ONNX counts from the first element of all images.
        size = w.sizes([prod(x.shape[-spatial:])])
        places = w.add("Mod", places, w.reshape(size, ()))
        if alone:
            return w.squeeze(found, [0]), w.squeeze(places, [0])
        return found, places

    return write


def maximum_window(
    spatial: int,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> dict[str, Any]:
    """The attributes of a pooling of maxima, of the arguments that PyTorch has for it."""
    return {
        "kernel_shape": _every(kernel, spatial),
        "strides": _every(stride or kernel, spatial),
        "pads": _every(padding, spatial) * 2,
        "dilations": _every(dilation, spatial),
        "ceil_mode": int(ceil_mode),
    }


def _average(spatial: int) -> Translate:
    """The mean of each window."""

    def write(w: Writer, x: Value, *window: Any) -> str:
        value, alone = batched(w, x, spatial)
        attrs, factor = average_window(spatial, *window)
        found = w.add("AveragePool", value, **attrs)
        if factor != 1:
            found = w.add("Mul", found, w.scalar(factor, x.dtype))
        return w.squeeze(found, [0]) if alone else found

    return write


def average_window(
    spatial: int,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> tuple[dict[str, Any], float]:
    """The attributes of a pooling of means, and what they are multiplied by."""
    if divisor_override is not None and (ceil_mode or not count_include_pad):
        raise Unimplemented(f"divisor_override = {divisor_override} of windows of any sizes")
    attrs: dict[str, Any] = {
        "kernel_shape": _every(kernel, spatial),
        "strides": _every(stride or kernel, spatial),
        "pads": _every(padding, spatial) * 2,
        "ceil_mode": int(ceil_mode),
        "count_include_pad": int(count_include_pad),
    }
    return attrs, prod(attrs["kernel_shape"]) / divisor_override if divisor_override else 1.0


def _adaptive(spatial: int) -> Translate:
    """Means of windows of one size, of everything, or of windows of several sizes."""

    def write(w: Writer, x: Value, output_size: Sequence[int]) -> str:
        require_floats(x)
        sizes, axes = x.shape[-spatial:], list(range(x.rank - spatial, x.rank))
        if all(own == 1 for own in output_size):
            return w.add("ReduceMean", x, w.sizes(axes), keepdims=1)
        pairs = list(zip(sizes, output_size, strict=True))
        if not all(isinstance(n, int) and n and m for n, m in pairs):
            raise Unimplemented(f"{tuple(output_size)} windows in {tuple(sizes)}")
        if any(n % m for n, m in pairs):
            return _averaged(w, x, pairs)
        kernel = tuple(n // m for n, m in pairs)
        value, alone = batched(w, x, spatial)
        found = w.add("AveragePool", value, kernel_shape=kernel, strides=kernel)
        return w.squeeze(found, [0]) if alone else found

    return write


def _averaged(w: Writer, x: Value, sizes: Sequence[tuple[int, int]]) -> str:
    """Means along one axis after the other, as products with matrices of weights."""
    value = x.name
    for place, (size, count) in enumerate(sizes):
        axis = x.rank - len(sizes) + place
        weights = np.zeros((size, count))
        for column in range(count):
            first, last = column * size // count, -(-(column + 1) * size // count)
            weights[first:last, column] = 1 / (last - first)
        order = [dim for dim in range(x.rank) if dim != axis] + [axis]
        product = w.add("MatMul", w.transpose(value, order), w.constant(weights, x.dtype))
        value = w.transpose(product, inverse(order))
    return value


_MODES = {0: b"linear", 1: b"nearest", 2: b"cubic"}
_BORDERS = {0: b"zeros", 1: b"border", 2: b"reflection"}


def _sampled(
    w: Writer, x: Value, grid: Value, mode: int, padding_mode: int, align_corners: bool
) -> str:
    require_floats(x, grid)
    if (mode, padding_mode, align_corners) == (1, 2, False):
        # PyTorch mirrors a place before it rounds it, GridSample after: halves are other elements.
        raise Unimplemented("the nearest elements of an image that is mirrored at its border")
    return w.add(
        "GridSample",
        x,
        grid,
        mode=_MODES[mode],
        padding_mode=_BORDERS[padding_mode],
        align_corners=int(align_corners),
    )


TABLE: Mapping[str, Translate] = {
    **{f"max_pool{n}d_with_indices": _maximum(n) for n in (2, 3)},
    **{f"max_pool{n}d": lambda w, *args, n=n: _maximum(n)(w, *args)[0] for n in (1, 2, 3)},
    **{f"avg_pool{n}d": _average(n) for n in (1, 2, 3)},
    **{f"_adaptive_avg_pool{n}d": _adaptive(n) for n in (2, 3)},
    **{f"adaptive_avg_pool{n}d": _adaptive(n) for n in (1, 2, 3)},
    **{f"grid_sampler_{n}d": _sampled for n in (2, 3)},
}
