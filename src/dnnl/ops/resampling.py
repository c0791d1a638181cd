"""Images in other sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.ops.adaptive import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from dnnl.ops.arrays import Array, Out, Result
from dnnl.ops.call import Problem, call, dense
from dnnl.ops.device import taken
from dnnl.ops.gathering import check_elements, chosen
from dnnl.ops.reading import many, spread
from dnnl.primitives.parameters import Name
from dnnl.primitives.resampling import ResamplingDesc
from dnnl.runtime.storage import allocating
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg
from dnnl.types.layout_input import read_bool, read_float, read_int
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.taps import Taps

_TOO_FAR = 2**31
_MODES = {
    "nearest-exact": Alg.resampling_nearest,
    "linear": Alg.resampling_linear,
    "bilinear": Alg.resampling_linear,
    "trilinear": Alg.resampling_linear,
}
_NEAREST, _AREA = "nearest", "area"
_KNOWN = Name((_NEAREST, _AREA, *_MODES))
_AVERAGES = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)


@allocating
def interpolate(
    x: ArrayLike,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    out: Out = None,
    *,
    align_corners: bool | None = None,
) -> Result:
    """x [N, C, spatial...] in another size, of which ``size`` or ``scale_factor`` is given.

    Corners are not aligned: the middle of element i is at (i + 1/2) / scale, where the scale is the
    factor, or the quotient of the sizes. ``mode`` is "nearest-exact"; "linear", "bilinear" or
    "trilinear", which are one; "area", the means of `adaptive_avg_pool2d`; or "nearest", where
    element i is at i / scale, rounded down. ``align_corners`` is None or False.

    >>> interpolate(np.array([[[0.0, 1.0]]], np.float32), 4, mode="linear")
    array([[[0.  , 0.25, 0.75, 1.  ]]], dtype=float32)
    """
    known = _KNOWN.read("mode", mode, 0)
    if align_corners is not None and read_bool("align_corners", align_corners):
        rule = "corners are not aligned here"
        raise InvalidArguments("align_corners", align_corners, rule, "pass False")
    if (size is None) == (scale_factor is None):
        raise InvalidArguments("size", size, "expected either this or scale_factor")
    if size is None:
        name, given = "scale_factor", many("scale_factor", scale_factor, read_float)
    else:
        name, given = "size", many("size", size, read_int)
    if known in _MODES:
        return call(_problem, (x,), (_MODES[known], name, given), out)
    place, (image,) = taken((x,), ("x",), out)
    sizes = _sizes(image.shape, name, given)
    if known == _AREA:
        result = _AVERAGES[len(sizes) - 1](image, sizes, out)
        return place.returned(result, (x,), out)
    check_elements((*image.shape[:2], *sizes), image.dtype)
    for axis, (extent, count) in enumerate(zip(image.shape[2:], sizes, strict=True), 2):
        step = extent / count
        # For two dimensions torch takes a factor that leaves or doubles a size as 1 or 2.
        if name == "scale_factor" and not (len(sizes) == 2 and count in (extent, 2 * extent)):
            step = 1 / spread(name, given, len(sizes))[axis - 2]
        numbers = _left(step, extent, count)
        image = chosen(place, image, numbers, axis, out if axis == len(sizes) + 1 else None)
    return place.returned(image, (x,), out)


def _left(step: float, extent: int, count: int) -> Array:
    """The element at or before each multiple of a step, computed in f32 as torch does."""
    places = np.arange(count, dtype=np.float32) * np.float32(step)
    return np.minimum(places.astype(np.int64), extent - 1)


def _sizes(x: Sequence[int], name: str, given: tuple[float, ...]) -> tuple[int, ...]:
    """The spatial sizes of the result for an x of these dims."""
    count = len(x) - 2
    if not 1 <= count <= 3:
        raise InvalidArguments("x", x, "expected a batch, channels and up to 3 dimensions")
    numbers = spread(name, given, count)
    if not all(0 < number < _TOO_FAR for number in numbers):
        raise InvalidArguments(name, given, f"must be positive, below {_TOO_FAR}")
    if 0 in x[2:]:
        raise InvalidArguments("x", x, "has no elements to choose from")
    scaled = zip(x[2:], numbers, strict=True)
    sizes = numbers if name == "size" else tuple(int(extent * scale) for extent, scale in scaled)
    if 0 in sizes:
        raise InvalidArguments(name, given, f"leaves nothing of x, which has the shape {x}")
    return tuple(map(int, sizes))


def _problem(
    descs: Sequence[MemoryDesc],
    dst: MemoryDesc | None,
    alg: Alg,
    name: str,
    given: tuple[float, ...],
) -> Problem:
    (src,) = descs
    sizes = _sizes(src.dims, name, given)
    shape = (*src.dims[:2], *sizes)
    taps: tuple[Taps, ...] = ()
    if name == "scale_factor":
        axes = list(zip(spread(name, given, len(sizes)), src.dims[2:], sizes, strict=True))
        if any(factor * extent != count for factor, extent, count in axes):
            taps = tuple(_taps(alg, *axis) for axis in axes)
    left = dst or dense(shape, src)
    desc = ResamplingDesc.forward("forward_inference", alg, src, left, taps=taps)
    return Problem(desc, (Arg.SRC,), shape)


def _taps(alg: Alg, factor: float, extent: int, count: int) -> Taps:
    """What elements are made of along an axis whose size is not what the factor says."""
    middles = np.arange(count) + 0.5
    if alg is Alg.resampling_nearest:  # of a step in f32, as torch has it
        places = np.minimum((middles * np.float32(1 / factor)).astype(np.int64), extent - 1)
        return Taps(places[np.newaxis], np.ones((1, count)))
    scale = 1.0 if count == extent else factor  # torch leaves such an axis as it is
    positions = np.clip(middles / scale - 0.5, 0, extent - 1)
    before = positions.astype(np.int64)
    part = positions - before
    return Taps([before, np.minimum(before + 1, extent - 1)], [1 - part, part])
