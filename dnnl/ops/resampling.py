"""Images in other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dnnl.errors import InvalidArguments
from dnnl.ops.call import Problem, call, dense
from dnnl.primitives.resampling import ResamplingDesc
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc

_MODES = {
    "nearest-exact": Alg.resampling_nearest,
    "linear": Alg.resampling_linear,
    "bilinear": Alg.resampling_linear,
    "trilinear": Alg.resampling_linear,
}


def interpolate(
    x: Any,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest-exact",
    out: Any = None,
) -> Any:
    """x [N, C, spatial...] in another size, of which ``size`` or ``scale_factor`` is given.

    Corners are not aligned: element i of n lies at (i + 1/2) / n. ``mode`` is "nearest-exact", or
    "linear", "bilinear" or "trilinear", which are one.

    >>> interpolate(np.array([[[0.0, 1.0]]], np.float32), 4, mode="linear")
    array([[[0.  , 0.25, 0.75, 1.  ]]], dtype=float32)
    """
    if mode not in tuple(_MODES):
        raise InvalidArguments("mode", mode, f"expected one of {', '.join(_MODES)}")
    if (size is None) == (scale_factor is None):
        raise InvalidArguments("size", size, "expected either this or scale_factor")
    given = scale_factor if size is None else size
    sizes = tuple(given) if isinstance(given, Sequence) else (given,)
    return call(_problem, (x,), (_MODES[mode], sizes, size is None), out)


def _problem(
    descs: Sequence[MemoryDesc],
    dst: MemoryDesc | None,
    alg: Alg,
    sizes: tuple[float, ...],
    scaled: bool,
) -> Problem:
    (src,) = descs
    count = src.ndims - 2
    if not 1 <= count <= 3:
        raise InvalidArguments("x", src.dims, "expected a batch, channels and up to 3 dimensions")
    if len(sizes) not in (1, count):
        name = "scale_factor" if scaled else "size"
        raise InvalidArguments(name, sizes, f"expected a number, or {count} of them")
    every = sizes * count if len(sizes) == 1 else sizes
    pairs = zip(src.dims[2:], every, strict=True)
    spatial = tuple(int(extent * size) if scaled else int(size) for extent, size in pairs)
    shape = (*src.dims[:2], *spatial)
    desc = ResamplingDesc.forward("forward_inference", alg, src, dst or dense(shape, src))
    return Problem(desc, (Arg.SRC,), shape)
