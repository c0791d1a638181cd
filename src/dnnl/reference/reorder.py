"""Reorder: the same tensor in another type, quantized where attributes say so.

dst = (src_scale * (src - src_zero_point) + sum_scale * dst) / dst_scale + dst_zero_point

Weights with compensation are multiplied by ``scale_adjust`` as they are divided by ``dst_scale``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import cycle
from dnnl.reference.quantization import dequantize, quantize
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Specification, Values
from dnnl.reference.tolerance import EXACT, Tolerance
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.post_ops import PostOpSum

TOLERANCE = EXACT
# With scales, zero points or a sum: one rounding for each of the five operations.
QUANTIZED_TOLERANCE = Tolerance(ulps=5, floor=None)


def reorder(
    src: ArrayLike,
    *,
    src_scale: ArrayLike = 1.0,
    src_zero_point: ArrayLike = 0.0,
    dst_scale: ArrayLike = 1.0,
    dst_zero_point: ArrayLike = 0.0,
    sum_scale: float = 0.0,
    dst: ArrayLike | None = None,
    scale_adjust: ArrayLike = 1.0,
) -> Array:
    """Parameters broadcast against ``src`` (``quantization.expand`` gives them that form).

    ``dst`` is what the destination held, read only where ``sum_scale`` is not 0. The result is
    not rounded yet: ``conversions.convert`` does that, in f64 where nothing but types changes.
    """
    values = dequantize(src, src_scale, src_zero_point)
    if sum_scale:
        if dst is None:
            raise TypeError("sum_scale needs dst")
        values = values + sum_scale * f64(dst)
    return quantize(f64(scale_adjust) * values, dst_scale, dst_zero_point)


_LARGEST = {DataType.f32: 2.0**24, DataType.f64: 2.0**24, DataType.f16: 2.0**11}
_WHOLE = 2.0**53  # up to here f64, in which all is compared, holds whole numbers
_FEW = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 16.0, 64.0)


class _Reorder(Specification):
    """A copy: what the reference rounds is exact before, so nothing else is right."""

    direct = True

    def fill(self, desc: Description) -> dict[int, Array]:
        """Extremes, and numbers that the conversions treat differently."""
        kind = desc.src_desc.data_type
        high = _LARGEST.get(kind, kind.max)
        low = -high if kind in _LARGEST else kind.min
        if kind.is_integer:
            low, high = max(low, -_WHOLE), min(high, _WHOLE)
        return {Arg.SRC: cycle((high, low, *_FEW), desc.src_desc.dims)}

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The source."""
        return {Arg.DST: reorder(values[Arg.SRC])}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Equality; the roundings of f32 where post-ops multiply."""
        if all(isinstance(entry, PostOpSum) for entry in post_ops):
            return Rule(0.0, zeros=80)
        size = np.abs(values[Arg.SRC])
        return Rule(4 * len(post_ops) * DataType.f32.eps, zeros=80, size=size)


SPECIFICATION = _Reorder()
