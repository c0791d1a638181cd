"""Images in other sizes."""

from __future__ import annotations

from collections.abc import Sequence

from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Out, Result
from dnnl.ops.call import Problem, call, dense
from dnnl.ops.reading import many, spread
from dnnl.primitives.parameters import Name
from dnnl.primitives.resampling import ResamplingDesc
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg
from dnnl.types.layout_input import read_float, read_int
from dnnl.types.memory_desc import MemoryDesc

_TOO_FAR = 2**31
_MODES = {
    "nearest-exact": Alg.resampling_nearest,
    "linear": Alg.resampling_linear,
    "bilinear": Alg.resampling_linear,
    "trilinear": Alg.resampling_linear,
}


def interpolate(
    x: ArrayLike,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest-exact",
    out: Out = None,
) -> Result:
    """x [N, C, spatial...] in another size, of which ``size`` or ``scale_factor`` is given.

    Corners are not aligned: element i of n is at (i + 1/2) / n, as torch has it for a ``size``
    and with ``recompute_scale_factor`` for a factor. ``mode`` is "nearest-exact", or "linear",
    "bilinear" or "trilinear", which are one.

    >>> interpolate(np.array([[[0.0, 1.0]]], np.float32), 4, mode="linear")
    array([[[0.  , 0.25, 0.75, 1.  ]]], dtype=float32)
    """
    alg = _MODES[Name(tuple(_MODES)).read("mode", mode, 0)]
    if (size is None) == (scale_factor is None):
        raise InvalidArguments("size", size, "expected either this or scale_factor")
    if size is None:
        params = "scale_factor", many("scale_factor", scale_factor, read_float)
    else:
        params = "size", many("size", size, read_int)
    return call(_problem, (x,), (alg, *params), out)


def _problem(
    descs: Sequence[MemoryDesc],
    dst: MemoryDesc | None,
    alg: Alg,
    name: str,
    given: tuple[float, ...],
) -> Problem:
    (src,) = descs
    count = src.ndims - 2
    if not 1 <= count <= 3:
        raise InvalidArguments("x", src.dims, "expected a batch, channels and up to 3 dimensions")
    numbers = spread(name, given, count)
    if not all(0 < number < _TOO_FAR for number in numbers):
        raise InvalidArguments(name, given, f"must be positive, below {_TOO_FAR}")
    scaled = zip(src.dims[2:], numbers, strict=True)
    sizes = numbers if name == "size" else tuple(int(extent * scale) for extent, scale in scaled)
    shape = (*src.dims[:2], *map(int, sizes))
    if 0 in sizes:
        raise InvalidArguments(name, given, f"leaves nothing of x, which has the shape {src.dims}")
    desc = ResamplingDesc.forward("forward_inference", alg, src, dst or dense(shape, src))
    return Problem(desc, (Arg.SRC,), shape)
