"""How far a kernel may be from the reference.

The reference computes in float64, a kernel in f32 (in f64 where the destination is f64) with its
own order of summation. Both then convert to the destination's type. So the error that a kernel may
make is stated *before* that conversion,

    delta = (ulps + growth * sqrt(length)) * eps * max(|want|, floor)

with the epsilon of the computation and ``length`` terms in the sum; the kernel is right where its
result is between the conversions of ``want - delta`` and ``want + delta``. The destination's own
epsilon, its rounding and its saturation enter through the conversion, which is monotone, and a
bound of zero means the one correctly rounded result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dnnl.reference.arrays import Array
from dnnl.reference.conversions import convert
from dnnl.types.dtype import DataType
from dnnl.types.kinds import coerce


@dataclass(frozen=True)
class Bound:
    """Which results are right for one destination type and one length of sum.

    ``floor`` is the magnitude below which errors are absolute; None means the root mean
    square of the wanted values, which is the size of the terms where random ones cancel. It is no
    less than ``before``, the size of sums from which the values were computed.
    """

    data_type: DataType
    relative: float
    floor: float | None = 0.0
    before: float = 0.0

    def after(self, sums: Array) -> Bound:
        """This bound where ``sums`` were computed first, and what is compared out of them: it has
        their errors, which may be larger than itself."""
        size = float(np.sqrt(np.mean(sums**2))) if sums.size else 0.0
        return replace(self, before=size)

    def interval(self, want: Array) -> tuple[Array, Array]:
        """The lowest and the highest right result for each element of ``want`` (float64)."""
        finite = np.where(np.isfinite(want), want, 0.0)
        floor = self.floor
        if floor is None:
            floor = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
        floor = max(floor, self.before)
        delta = self.relative * np.maximum(np.abs(finite), floor)
        delta = np.where(np.isfinite(want), delta, 0.0)
        return (
            convert(want - delta, self.data_type, core=DataType.f64),
            convert(want + delta, self.data_type, core=DataType.f64),
        )

    def accepts(self, got: Array, want: Array) -> NDArray[np.bool_]:
        """True where ``got`` is right; NaN is, where it is wanted and where overflow gives it."""
        low, high = self.interval(want)
        inside = (low <= got) & (got <= high)
        over = ~np.isnan(want) & np.isnan(low), ~np.isnan(want) & np.isnan(high)
        inside |= over[0] & (got <= high) | over[1] & (low <= got)
        inside |= (over[0] | over[1]) & np.isnan(got)
        # Which integer a NaN becomes is unspecified.
        return inside | (np.isnan(want) & (np.isnan(got) | self.data_type.is_integer))


@dataclass(frozen=True)
class Tolerance:
    """An operation's own statement of its accuracy; ``length`` is the number of terms it sums."""

    ulps: float = 0.0
    growth: float = 0.0
    floor: float | None = 0.0

    def __call__(self, dst: DataType | str, length: int = 1) -> Bound:
        data_type = coerce(DataType, dst, "dst")
        compute = DataType.f64 if data_type is DataType.f64 else DataType.f32
        relative = (self.ulps + self.growth * length**0.5) * compute.eps
        return Bound(data_type, relative, self.floor)

    def after(self, step: Tolerance) -> Tolerance:
        """This tolerance with that of a further step applied to the result."""
        floors = (self.floor, step.floor)
        floor = None if None in floors else max(f for f in floors if f is not None)
        return replace(
            self, ulps=self.ulps + step.ulps, growth=self.growth + step.growth, floor=floor
        )


EXACT = Tolerance()
# A sum of products: two roundings a term, whose signs are independent enough to grow as a root.
PRODUCT_SUM = Tolerance(ulps=4, growth=2, floor=None)
# Sums of integers are exact. Roundings: to f32, by each scale, by bias, and by dst's zero point.
QUANTIZED_SUM = Tolerance(ulps=6, floor=None)
