"""The taps of a convolution that lie inside the image, where only the execution knows the pixel."""

from __future__ import annotations

from dnnl.codegen.brgemm import Level
from dnnl.codegen.builder import Emitter, Value, i64
from dnnl.kernels.conv_tiles import Span, Spatial


def taps_inside(
    e: Emitter, space: Spatial, out: Value, steps: tuple[int, int], span: Span | None = None
) -> Level:
    """The taps of output ``out`` along one dimension, each so many elements of A and of B behind
    the one before; those of ``span`` where they are known."""
    if span is not None:
        return Level(i64(span[0]), i64(span[1]), *steps)
    if not space.padded:
        return Level(i64(0), i64(space.kernel), *steps)
    first = e.add(e.mul(out, space.stride), i64(-space.padding))
    missing = _ceil_div(e, e.b.neg(first), space.dilation)
    reach = _ceil_div(e, e.b.sub(i64(space.src), first), space.dilation)
    low, high = e.larger(missing, i64(0)), e.smaller(reach, i64(space.kernel))
    return Level(low, high, *steps)


def _ceil_div(e: Emitter, value: Value, divisor: int) -> Value:
    """ceil(value / divisor) for values above -divisor; anything at most 0 for those below."""
    if divisor == 1:
        return value
    return e.b.sdiv(e.b.add(value, i64(divisor - 1)), i64(divisor))
