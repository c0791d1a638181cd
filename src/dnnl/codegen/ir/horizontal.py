"""The lanes of vectors combined with each other: the end of a reduction along a vector."""

from __future__ import annotations

from collections.abc import Callable

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Values

_WIDE = 512  # bits


def reduce_lanes(
    e: Emitter,
    values: Values,
    merge: Callable[[Emitter, Values, Values], Values],
    *,
    scalar: bool | None = None,
) -> Values:
    """One result out of those of all lanes; every lane then holds it.

    If it is to be ``single``, it is known to be the same everywhere. It takes longer to get and its
    quotients less, as they are those of one number, which of vectors of 512 bits always pays.
    """
    kind = values[0].type
    if scalar is None:
        scalar = kind.count * vector.bits(kind) >= _WIDE
    half = kind.count // 2
    while half:
        if scalar:
            low, high = zip(*(vector.split(e, value, half) for value in values), strict=True)
        else:
            rotation = [(lane + half) % kind.count for lane in range(kind.count)]
            low, high = values, tuple(vector.shuffle(e, value, value, rotation) for value in values)
        values = merge(e, low, high)
        half //= 2
    if not scalar:
        return values
    return tuple(vector.splat(e, vector.lane(e, value, 0), kind.count) for value in values)
