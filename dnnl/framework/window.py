"""The sliding window of convolution and pooling, read from ONNX attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dnnl.framework.graph import ModelError, Shape

_AUTO_PAD = (b"NOTSET", b"SAME_UPPER", b"SAME_LOWER", b"VALID")


@dataclass(frozen=True, slots=True)
class Window:
    """Sizes per spatial dimension.

    ``dilations`` counts as ONNX does: 1 is a dense window. ``padding_r`` is what makes ``out``
    positions fit: larger than the model says where rounding up adds one (``overhangs``).
    """

    kernel: Shape
    strides: Shape
    dilations: Shape
    padding_l: Shape
    padding_r: Shape
    out: Shape
    overhangs: bool = False

    @classmethod
    def over(cls, spatial: Shape, kernel: Shape, attrs: Mapping[str, Any]) -> Window:
        """The window of a node with these attributes on an input of ``spatial`` size.

        Raises ModelError for attributes of the wrong length and for windows that do not fit.
        """
        rank = len(spatial)
        if len(kernel) != rank or min(kernel, default=1) < 1:
            raise ModelError(f"kernel_shape {kernel} is no window over {spatial}")
        strides = _steps(attrs, "strides", rank)
        dilations = _steps(attrs, "dilations", rank)
        pads = _sizes(attrs, "pads", 2 * rank, default=0)
        if min(pads, default=0) < 0:
            raise ModelError(f"attribute 'pads' = {pads} must be at least 0")
        extents = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
        auto = attrs.get("auto_pad", b"NOTSET")
        if auto not in _AUTO_PAD:
            raise ModelError(f"attribute 'auto_pad' = {auto!r} is none of {_AUTO_PAD}")
        ceil_mode = bool(attrs.get("ceil_mode", 0))
        sides = [
            _side(size, extent, stride, (pads[d], pads[d + rank]), auto, ceil_mode)
            for d, (size, extent, stride) in enumerate(zip(spatial, extents, strides, strict=True))
        ]
        padding_l, padding_r, out, overhangs = zip(*sides, strict=True) if sides else ((),) * 4
        if min(out, default=1) < 1:
            raise ModelError(f"window {extents} does not fit into {spatial} with padding {pads}")
        return cls(kernel, strides, dilations, padding_l, padding_r, out, any(overhangs))


def _steps(attrs: Mapping[str, Any], name: str, count: int) -> Shape:
    values = _sizes(attrs, name, count)
    if min(values, default=1) < 1:
        raise ModelError(f"attribute {name!r} = {values} must be positive")
    return values


def _sizes(attrs: Mapping[str, Any], name: str, count: int, default: int = 1) -> Shape:
    values = tuple(attrs.get(name, (default,) * count))
    if len(values) != count:
        raise ModelError(f"attribute {name!r} = {values} must have {count} entries")
    return values


def _side(
    size: int, extent: int, stride: int, pads: tuple[int, int], auto: bytes, ceil_mode: bool
) -> tuple[int, int, int, bool]:
    """Left padding, right padding, output size and overhang of one dimension."""
    if auto.startswith(b"SAME"):
        out = -(-size // stride)
        total = max((out - 1) * stride + extent - size, 0)
        small, large = total // 2, total - total // 2
        return (small, large, out, False) if auto == b"SAME_UPPER" else (large, small, out, False)
    left, right = (0, 0) if auto == b"VALID" else pads
    free = size + left + right - extent
    out = free // stride + 1
    if not ceil_mode or free % stride == 0:
        return left, right, out, False
    if out * stride >= size + left:  # the extra window would start in the right padding
        return left, right, out, False
    return left, out * stride + extent - size - left, out + 1, True
