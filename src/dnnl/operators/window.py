"""The sliding window of convolution, its transpose and pooling, read from ONNX attributes."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.graph.graph import Attributes, ModelError, Shape
from dnnl.types.size import is_known

_AUTO_PAD = (b"NOTSET", b"SAME_UPPER", b"SAME_LOWER", b"VALID")


@dataclass(frozen=True, slots=True)
class Window:
    """Sizes per spatial dimension.

    ``dilations`` counts as ONNX does: 1 is a dense window. ``padding_r`` is what makes ``out``
    positions fit: by the ``overhang`` larger than the model says where rounding up adds one, below
    0 where the result of a transpose has elements that no window reaches.
    """

    kernel: Shape
    strides: Shape
    dilations: Shape
    padding_l: Shape
    padding_r: Shape
    out: Shape
    overhang: Shape = ()

    @property
    def gaps(self) -> Shape:
        """The dilations as the library counts them: 0 is a dense window."""
        return tuple(d - 1 for d in self.dilations)

    @classmethod
    def over(cls, spatial: Shape, kernel: Shape, attrs: Attributes) -> Window:
        """The window of a node with these attributes on an input of ``spatial`` size.

        Raises ModelError for attributes of the wrong length and for windows that do not fit.
        """
        rank = len(spatial)
        strides, dilations, extents, pads, auto = _read(spatial, kernel, attrs)
        ceil_mode = bool(attrs.get("ceil_mode", 0))
        sides = [
            _side(size, extent, stride, (pads[d], pads[d + rank]), auto, ceil_mode)
            for d, (size, extent, stride) in enumerate(zip(spatial, extents, strides, strict=True))
        ]
        padding_l, padding_r, out, overhang = zip(*sides, strict=True) if sides else ((),) * 4
        if any(size < 1 for size in out):
            raise ModelError(f"window {extents} does not fit into {spatial} with padding {pads}")
        return cls(kernel, strides, dilations, padding_l, padding_r, out, overhang)

    @classmethod
    def onto(cls, spatial: Shape, kernel: Shape, attrs: Attributes) -> Window:
        """The window by which a transposed convolution with these attributes spreads an input of
        ``spatial`` size: `over` the result it takes so many positions.

        Raises ModelError for attributes of the wrong length and for results without elements.
        """
        rank = len(spatial)
        strides, dilations, extents, pads, auto = _read(spatial, kernel, attrs)
        more = _at_least_0(attrs, "output_padding", rank)
        asked = _asked(spatial, strides, attrs)
        reach = tuple(
            (size - 1) * stride + extent
            for size, stride, extent in zip(spatial, strides, extents, strict=True)
        )
        if asked:
            totals = [max(0, r + m - size) for r, m, size in zip(reach, more, asked, strict=True)]
            upper = auto == b"SAME_UPPER"
            padding_l = tuple(total // 2 if upper else total - total // 2 for total in totals)
            out = asked
        else:
            pads = (0,) * (2 * rank) if auto == b"VALID" else pads
            padding_l = pads[:rank]
            sides = zip(reach, more, padding_l, pads[rank:], strict=True)
            out = tuple(r + m - left - right for r, m, left, right in sides)
        if any(size < 1 for size in out):
            raise ModelError(f"padding {pads} leaves nothing of {reach}: the result has {out}")
        cut = zip(reach, padding_l, out, strict=True)
        padding_r = tuple(r - left - size for r, left, size in cut)
        return cls(kernel, strides, dilations, padding_l, padding_r, out)


def _asked(spatial: Shape, strides: Shape, attrs: Attributes) -> Shape:
    """The size that the result of a transposed convolution must have, empty if that follows from
    the padding. Some models say batch and channels as well."""
    asked, rank = tuple(attrs.get("output_shape", ())), len(spatial)
    if asked:
        if len(asked) not in (rank, rank + 2):
            raise ModelError(f"attribute 'output_shape' = {asked} must have {rank} entries")
        return asked[-rank:]
    if attrs.get("auto_pad", b"").startswith(b"SAME"):
        return tuple(size * stride for size, stride in zip(spatial, strides, strict=True))
    return ()


def _read(
    spatial: Shape, kernel: Shape, attrs: Attributes
) -> tuple[Shape, Shape, Shape, Shape, bytes]:
    """Strides, dilations, how far each dimension of the kernel reaches, pads and auto_pad."""
    rank = len(spatial)
    if len(kernel) != rank or any(size < 1 for size in kernel):
        raise ModelError(f"kernel_shape {kernel} is no window over {spatial}")
    strides = _steps(attrs, "strides", rank)
    dilations = _steps(attrs, "dilations", rank)
    pads = _at_least_0(attrs, "pads", 2 * rank)
    extents = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    auto = attrs.get("auto_pad", b"NOTSET")
    if auto not in _AUTO_PAD:
        raise ModelError(f"attribute 'auto_pad' = {auto!r} is none of {_AUTO_PAD}")
    return strides, dilations, extents, pads, auto


def _at_least_0(attrs: Attributes, name: str, count: int) -> Shape:
    values = _sizes(attrs, name, count, default=0)
    if min(values, default=0) < 0:
        raise ModelError(f"attribute {name!r} = {values} must be at least 0")
    return values


def _steps(attrs: Attributes, name: str, count: int) -> Shape:
    values = _sizes(attrs, name, count)
    if min(values, default=1) < 1:
        raise ModelError(f"attribute {name!r} = {values} must be positive")
    return values


def _sizes(attrs: Attributes, name: str, count: int, default: int = 1) -> Shape:
    values = tuple(attrs.get(name, (default,) * count))
    if len(values) != count:
        raise ModelError(f"attribute {name!r} = {values} must have {count} entries")
    return values


def _side(
    size: int, extent: int, stride: int, pads: tuple[int, int], auto: bytes, ceil_mode: bool
) -> tuple[int, int, int, int]:
    """Left padding, right padding, output size and overhang of one dimension."""
    if auto.startswith(b"SAME"):
        out = -(-size // stride)
        total = max((out - 1) * stride + extent - size, 0)
        small, large = total // 2, total - total // 2
        return (small, large, out, 0) if auto == b"SAME_UPPER" else (large, small, out, 0)
    left, right = (0, 0) if auto == b"VALID" else pads
    free = size + left + right - extent
    whole, out = free // stride + 1, -(-free // stride) + 1
    if not ceil_mode or (out - 1) * stride >= size + left:  # it would start in the right padding
        return left, right, whole, 0
    behind = (out - 1) * stride + extent - size - left
    if not is_known(behind):  # a primitive has one padding, here that of the most that may be left
        behind = right + stride - 1 if right + stride <= extent else int(behind)
    return left, behind, out, behind - right
