"""Horizontal reductions: combine the lanes of a vector."""

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
    """Reduce the lanes of ``values`` with ``merge``; every lane of the result has the answer.

    ``scalar`` halves the vector until one lane is left and broadcasts that one. LLVM then knows
    that all lanes are equal, so later divisions become scalar. Otherwise vectors are rotated and
    merged at full width, which has a shorter latency. By default vectors of 512 bits are reduced to
    a scalar.
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
